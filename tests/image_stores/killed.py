"""A derivation in a process of its own that is killed at the n-th line that it runs of the code that writes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from patchkit.images.model import Reference

_PROGRAM = """
import importlib.util, os, sys
from patchkit.images import open_image, parse_reference
source, target, moment, in_place, trees = sys.argv[1:]
spec = importlib.util.spec_from_file_location("trees", trees)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
count = int(moment)
WRITERS = ("publish", "write_whole", "_put", "rewrite", "_append", "_copy", "copy", "link_or_copy", "_replay", "_pump")
def line(frame, event, argument):
    global count
    if event == "line":
        count -= 1
        if count == 0:
            os.kill(os.getpid(), 9)
    return line
def call(frame, event, argument):
    ours = os.sep + os.path.join("patchkit", "images") + os.sep in frame.f_code.co_filename
    return line if ours and frame.f_code.co_name in WRITERS else None
with open_image(parse_reference(source)) as image:
    sys.settrace(call)
    image.derive(module.derivation(), parse_reference(target), in_place=bool(int(in_place)))
"""


def moments() -> Iterator[int]:
    """Every moment until the run is through; a run that never is fails."""
    yield from range(1, 400)
    raise AssertionError("the run never came to its end")


def derive_killed(source: Reference, target: Reference, moment: int, *, in_place: bool = False) -> int:
    """The exit status: -SIGKILL, or 0 when the run was through before its ``moment`` came."""
    trees = Path(__file__).with_name("trees.py")
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(source), str(target), str(moment), str(int(in_place)), str(trees)],
        capture_output=True,
        check=False,
        env=os.environ,
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr.decode()
    return done.returncode
