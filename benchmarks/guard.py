"""What the boot guard adds to a container's start: the same program with and without the guard in front of it."""

from __future__ import annotations

import hashlib
import json
import tempfile
from pathlib import Path

from benchmarks.harness import Case, measure, report, run
from patchkit.deliver.guard import GuardedFile, make_guard
from patchkit.images import open_image, parse_reference
from patchkit.site.launch import GUARD_PATH
from patchkit.site.record import parse_record
from tests import images

SITE = "/opt/venv/lib/python3.11/site-packages"
RECORD = f"{SITE}/vllm-0.33.0.dist-info/RECORD"
FILES = ("vllm/models/flint/ops/norm.py", "vllm/models/flint/ops/moe.py", "vllm/models/flint/model.py")
ENDS = ("/bin/busybox", "true")


def main() -> None:
    image = images.load("xpu")
    with open_image(parse_reference(image)) as opened:
        shipped = parse_record(opened.fs.read(RECORD))
        files = [
            GuardedFile(
                f"{SITE}/{file}",
                file,
                file.removesuffix(".py").replace("/", "."),
                hashlib.sha256(opened.fs.read(f"{SITE}/{file}")).hexdigest(),
                shipped[file],
            )
            for file in FILES
        ]
        guard = make_guard(json.loads(opened.config), opened.fs, files, record=RECORD, remedy="patchkit apply")
    python, *start = guard.entrypoint[: guard.entrypoint.index(GUARD_PATH) + 1]
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "guard.py"
        program.write_bytes(guard.program)
        mount = ("-v", f"{program}:{GUARD_PATH}:ro")
        docker = ("docker", "run", "--rm", "--network=none")
        # Many times in one container: what the guard costs without what starting a container costs.
        loop = 'i=0; while [ $i -lt 20 ]; do "$@" || exit 1; i=$((i+1)); done'
        inside = (*docker, *mount, "--entrypoint", "/bin/busybox", image, "sh", "-c", loop, "sh")
        cases = [
            Case("container", lambda: run(*docker, *mount, "--entrypoint", ENDS[0], image, ENDS[1])),
            Case("container, guarded", lambda: run(*docker, *mount, "--entrypoint", python, image, *start, *ENDS)),
            Case("20 programs inside", lambda: run(*inside, *ENDS)),
            Case("20 times python3 -c pass inside", lambda: run(*inside, python, "-c", "pass")),
            Case("20 guarded programs inside", lambda: run(*inside, python, *start, *ENDS)),
        ]
        result = measure("guard", cases)
    own = (result.median("20 guarded programs inside") - result.median("20 programs inside")) / 20
    bare = (result.median("20 times python3 -c pass inside") - result.median("20 programs inside")) / 20
    report(
        result,
        facts={
            "one guard (aim: under 150 ms)": f"{own * 1000:.0f} ms",
            "of that, one bare start of the same Python": f"{bare * 1000:.0f} ms",
        },
    )


if __name__ == "__main__":
    main()
