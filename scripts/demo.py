"""Show the whole job on an OCI layout that holds real vLLM files: no engine, no root, nothing left but .build/demo."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
DEMO = REPOSITORY / ".build/demo"


def main() -> int:
    os.chdir(REPOSITORY)
    sys.path.insert(0, str(REPOSITORY))
    from tests import images

    fixture = images.build("demo")
    shutil.rmtree(DEMO, ignore_errors=True)
    DEMO.mkdir(parents=True)
    images.write_layout(DEMO / "vllm-xpu", fixture.config, fixture.layers, ref="nightly")
    print("# An image as Intel ships it: vLLM in /opt/venv, and a second copy in the working folder, /workspace/vllm.")
    os.chdir(DEMO)
    image = "oci:vllm-xpu:nightly"
    program = Path(sys.executable).with_name("patchkit")
    worst = 0
    for command in (
        ["patchkit", "status", "--image", image],
        ["patchkit", "apply", "--image", image],
        ["patchkit", "verify", "--image", f"{image}-patchkit"],
    ):
        print(f"\n$ {shlex.join(command)}", flush=True)
        worst = max(worst, subprocess.run([program, *command[1:]]).returncode)
    print(
        f"\n# Everything of this demo lies in {DEMO}: the commands above run there, with {program} as patchkit",
        flush=True,
    )
    return worst


if __name__ == "__main__":
    sys.exit(main())
