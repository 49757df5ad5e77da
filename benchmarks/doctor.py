"""The doctor over ten running containers of five patched images, against one bare ``docker run``."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.harness import Aim, Case, measure, report, run
from tests import images

CATALOG = Path(__file__).parents[1] / "tests/catalogs/tiny"
IMAGES, EACH = 5, 2


def main() -> None:
    base = images.load("pure")
    prefix = f"patchkit-bench-{os.getpid()}"
    names = [f"{prefix}/tinyserve:{number}" for number in range(IMAGES)]
    containers: list[str] = []
    doctor = ("doctor", "--catalog", str(CATALOG), "--json")
    with tempfile.TemporaryDirectory() as folder:

        def patchkit(*arguments: str) -> None:
            # Whatever else is on the engine may have findings of its own: exit status 1 is fine.
            done = subprocess.run([sys.executable, "-m", "patchkit", *arguments], cwd=folder, capture_output=True)
            assert done.returncode in (0, 1), done.stderr.decode()

        try:
            for number, name in enumerate(names):
                # Five origins, or all five would be one image.
                text = f"FROM {base}\nLABEL number={number}\nENV TINYSERVE_SECONDS=600\n"
                subprocess.run(
                    ["docker", "build", "-q", "-t", name, "-"], input=text.encode(), capture_output=True, check=True
                )
                patchkit("apply", "--image", name, "--catalog", str(CATALOG), "--manifest", "tinyserve")
                containers += [run("docker", "run", "-d", f"{name}-patchkit").strip() for _ in range(EACH)]
            cases = [
                Case(
                    "docker run true",
                    lambda: run("docker", "run", "--rm", "--entrypoint", "/bin/busybox", base, "true"),
                ),
                Case("patchkit doctor --explain all", lambda: patchkit("doctor", "--explain", "all")),
                Case("doctor, one container", lambda: patchkit(*doctor, "--container", containers[0])),
                Case("doctor, all containers", lambda: patchkit(*doctor)),
            ]
            result = measure("doctor", cases, rounds=5)
        finally:
            subprocess.run(["docker", "rm", "-f", *containers], capture_output=True)
            subprocess.run(
                ["docker", "rmi", "-f", *names, *(f"{name}-patchkit" for name in names)], capture_output=True
            )
    slow = result.median("doctor, all containers")
    facts: dict[str, object] = {
        f"{IMAGES * EACH} containers, {IMAGES} images (aim: under 3 s)": f"{slow:.1f} s",
        "load of the machine": f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} cores",
    }
    report(result, [Aim("doctor, all containers", "docker run true", 6.0)], facts)


if __name__ == "__main__":
    main()
