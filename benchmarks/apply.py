"""`patchkit apply` on a Docker engine, first and repeated, against a build with COPY and one bare container start.

First: no facts of the image are cached and no derived image is there. Repeated: as people call it every day.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path

from benchmarks.harness import Aim, Case, measure, report, run
from tests import images

PATCHKIT = Path(sys.executable).with_name("patchkit")
SITE = "/opt/venv/lib/python3.11/site-packages"
FILES = ("vllm/models/flint/ops/norm.py", "vllm/models/flint/ops/moe.py", "vllm/models/flint/model.py")


def main() -> None:
    prefix = f"patchkit-bench-{uuid.uuid4().hex[:8]}"
    image = images.load("xpu", f"{prefix}/vllm-xpu:nightly")
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        env = os.environ | {"PATCHKIT_CACHE": str(work / "cache")}
        context = work / "context"
        run(PATCHKIT, "apply", "--image", image, cwd=work, env=env)
        copy_patched_files(f"{image}-patchkit", context)

        def forget() -> None:
            shutil.rmtree(work / "cache", ignore_errors=True)
            remove(f"{image}-patchkit")

        def apply() -> None:
            run(PATCHKIT, "apply", "--image", image, cwd=work, env=env)

        def touch() -> None:  # else the builder answers from its cache and builds nothing
            (context / "salt").write_text(uuid.uuid4().hex)

        cases = [
            Case("docker run python3 -c pass", lambda: bare_run(image)),
            Case(
                "docker build with COPY", lambda: run("docker", "build", "-q", "-t", f"{prefix}:copy", context), touch
            ),
            Case(
                "docker build with COPY, cached", lambda: run("docker", "build", "-q", "-t", f"{prefix}:copy", context)
            ),
            Case("patchkit apply, first", apply, forget),
            Case("patchkit apply, repeated", apply),
        ]
        try:
            result = measure("apply", cases)
        finally:
            for name in (image, f"{image}-patchkit", f"{prefix}:copy"):
                remove(name)
    base = "docker run python3 -c pass"
    aims = [Aim("patchkit apply, repeated", base, 2.5), Aim("patchkit apply, first", base, 3.5)]
    against_build = {
        f"{case} / docker build with COPY": round(result.ratio(case, "docker build with COPY"), 2)
        for case in ("patchkit apply, first", "patchkit apply, repeated")
    }
    report(result, aims, against_build)


def bare_run(image: str) -> None:
    run("docker", "run", "--rm", "--entrypoint", "python3", image, "-c", "pass")


def copy_patched_files(image: str, context: Path) -> None:
    """A build context that does by hand what apply does: the same three files by COPY."""
    context.mkdir()
    container = run("docker", "create", image).strip()
    lines = [f"FROM {image.removesuffix('-patchkit')}"]
    for number, file in enumerate(FILES):
        run("docker", "cp", f"{container}:{SITE}/{file}", context / str(number))
        lines.append(f"COPY {number} {SITE}/{file}")
    run("docker", "rm", container)
    (context / "Dockerfile").write_text("\n".join([*lines, "COPY salt /salt", ""]))


def remove(image: str) -> None:
    subprocess.run(["docker", "rmi", "-f", image], capture_output=True)


if __name__ == "__main__":
    main()
