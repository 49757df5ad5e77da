"""Runs a probe, a small program that imports vLLM from one tree, in a fresh process; it answers with one JSON line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.kernels.trees import BUILD, REPOSITORY

#: No GPU for torch and Triton, wherever this runs; nothing is sent anywhere.
_ENV = {
    "CUDA_VISIBLE_DEVICES": "",
    "HF_HUB_OFFLINE": "1",
    "PYTHONHASHSEED": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
}


@dataclass(frozen=True)
class Outcome:
    """How a probe ended: its exit status, its answer (None where it did not come so far), what it wrote to stderr."""

    status: int
    answer: Any
    stderr: str


def run(name: str, tree: Path, *arguments: str, env: Mapping[str, str] | None = None, stubs: str = "") -> Outcome:
    """Run ``probes/<name>.py`` with vLLM from ``tree``, and with the modules that stand for one vendor's GPU stack
    where ``stubs`` names them; the same call in one session is run once."""
    path = [str(tree), str(REPOSITORY)]
    if stubs:
        path.append(str(Path(__file__).parent / "stubs" / stubs))
    return _run(name, os.pathsep.join(path), arguments, tuple(sorted((env or {}).items())))


@cache
def _run(name: str, path: str, arguments: tuple[str, ...], env: tuple[tuple[str, str], ...]) -> Outcome:
    keep = {key: os.environ[key] for key in ("PATH", "HOME", "LANG", "CI", "TMPDIR") if key in os.environ}
    settings = {
        **keep,
        **_ENV,
        "PYTHONPATH": path,
        "TRITON_CACHE_DIR": str(BUILD / "triton-cache"),
        **dict(env),
    }
    done = subprocess.run(
        [sys.executable, "-m", f"tests.kernels.probes.{name}", *arguments],
        cwd="/",
        env=settings,
        capture_output=True,
        text=True,
        timeout=1500,  # of one probe, on a machine that does much else
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"answer"')]
    return Outcome(done.returncode, json.loads(lines[-1])["answer"] if lines else None, done.stderr)
