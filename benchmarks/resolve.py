"""`patchkit resolve --no-run` of an image with 60 000 more files in site-packages, from a warm index.

Time and the greatest memory of the whole process, beside a Python that does nothing and one that walks as many files.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.harness import Case, measure, report, run
from tests import images

PATCHKIT = Path(sys.executable).with_name("patchkit")
WALK = "import os, sys; print(sum(len(files) for _, _, files in os.walk(sys.argv[1])))"


def main() -> None:
    layout, root = images.layout("manyfiles"), images.rootfs("manyfiles")
    with tempfile.TemporaryDirectory() as folder:
        env = os.environ | {"PATCHKIT_CACHE": folder}
        references = {"oci": f"oci:{layout}:latest", "rootfs": f"rootfs:{root}"}

        def resolve(transport: str) -> list[str]:
            # An unpacked root has no config that tells how it starts.
            start = ("--launch", "/opt/venv/bin/vllm serve")
            return [str(PATCHKIT), "resolve", "--no-run", *start, "--image", references[transport], "vllm"]

        def forget_answers() -> None:  # the facts are kept; what is measured is finding them with a warm index
            for path in Path(folder).glob("facts/*"):
                path.unlink()

        cases = [
            Case("python -c pass", lambda: run(sys.executable, "-c", "pass")),
            Case("os.walk over the files", lambda: run(sys.executable, "-c", WALK, root)),
            Case("resolve, oci, warm index", lambda: run(*resolve("oci"), env=env), forget_answers),
            Case("resolve, oci, facts kept", lambda: run(*resolve("oci"), env=env)),
            Case("resolve, rootfs", lambda: run(*resolve("rootfs"), env=env)),
        ]
        result = measure("resolve", cases)
        forget_answers()
        facts: dict[str, object] = {}
        for name in references:
            forget_answers()
            memory, seconds = used(resolve(name), env)
            facts[f"{name}: greatest memory (aim: under 150 MB)"] = f"{memory / 1024:.0f} MB"
            facts[f"{name}: processor time (aim: under 0.3 s)"] = f"{seconds:.2f} s"
    report(result, facts=facts)


def used(command: list[str], env: dict[str, str]) -> tuple[int, float]:
    """The greatest resident memory of a program, in KiB, and its processor time in seconds."""
    code = (
        "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stdout=2); "
        "r = resource.getrusage(resource.RUSAGE_CHILDREN); print(r.ru_maxrss, r.ru_utime + r.ru_stime)"
    )
    done = subprocess.run([sys.executable, "-c", code, *command], env=env, capture_output=True, text=True, check=True)
    memory, seconds = done.stdout.split()
    return int(memory), float(seconds)


if __name__ == "__main__":
    main()
