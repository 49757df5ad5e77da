"""patchkit as a person calls it, and what it must answer where vLLM's modules really import."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from patchkit.catalog.load import load_catalog
from tests.kernels import trees

MANIFEST = "vllm-xpu"
SERIES = next(each for each in load_catalog(trees.REPOSITORY).manifests if each.name == MANIFEST)
MODULES = ("vllm.models.flint.model", "vllm.models.flint.ops.moe", "vllm.models.flint.ops.norm")


def patchkit(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run ``patchkit`` in a folder, which is also where the output folder appears."""
    command = [sys.executable, "-m", "patchkit", *arguments]
    # CI=true asks for the catalog's lock, and this one has none.
    environment = {**os.environ, "PYTHONPATH": str(trees.REPOSITORY), "PATCHKIT_CACHE": str(cwd / "cache"), "CI": ""}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


def levels_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """Level -> what a ``--json`` answer says of it."""
    assert done.stdout, done.stderr
    return {level["name"]: level for level in json.loads(done.stdout)["levels"]}


def assert_shown(done: subprocess.CompletedProcess[str]) -> None:
    """All six levels passed for all three modules, and every assert was run but those that need a GPU, which say so."""
    levels = levels_of(done)
    assert {name: level["state"] for name, level in levels.items()} == dict.fromkeys(
        ("bytes", "resolves", "compiles", "bytecode", "imports", "asserts"), "passed"
    ), levels
    for name in ("bytes", "resolves", "compiles", "bytecode"):
        assert len(levels[name]["files"]) == len(MODULES)
    imported = {proof["name"] for proof in levels["imports"]["files"]}
    assert imported == {f"{module}{how}" for module in MODULES for how in ("", " (spawned child)")}
    told = Counter(
        (proof["name"].partition(":")[0], proof["state"], proof["cause"]) for proof in levels["asserts"]["files"]
    )
    checks = [check for entry in SERIES.patches for check in entry.asserts]
    assert {check.module for check in checks if "gpu" not in check.needs} == set(MODULES)
    assert told == Counter(
        (check.module, *(("not run", "gpu") if "gpu" in check.needs else ("passed", ""))) for check in checks
    )
    assert done.returncode == 0, done.stderr
