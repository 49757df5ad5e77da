"""`patchkit verify` of a derived image against one bare container start: all six levels in one run inside."""

from __future__ import annotations

import os
import sys
import tempfile
import uuid
from pathlib import Path

from benchmarks.apply import bare_run, remove
from benchmarks.harness import Aim, Case, measure, report, run
from tests import images

PATCHKIT = Path(sys.executable).with_name("patchkit")


def main() -> None:
    prefix = f"patchkit-bench-{uuid.uuid4().hex[:8]}"
    image = images.load("xpu", f"{prefix}/vllm-xpu:nightly")
    derived = f"{image}-patchkit"
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        env = os.environ | {"PATCHKIT_CACHE": str(work / "cache")}
        try:
            run(PATCHKIT, "apply", "--image", image, cwd=work, env=env)
            cases = [
                Case("docker run python3 -c pass", lambda: bare_run(derived)),
                Case("patchkit verify", lambda: run(PATCHKIT, "verify", "--image", derived, cwd=work, env=env)),
                Case(
                    "patchkit verify --no-run",
                    lambda: run(PATCHKIT, "verify", "--no-run", "--image", derived, cwd=work, env=env),
                ),
            ]
            result = measure("verify", cases)
        finally:
            for name in (image, derived):
                remove(name)
    report(result, [Aim("patchkit verify", "docker run python3 -c pass", 1.3)])


if __name__ == "__main__":
    main()
