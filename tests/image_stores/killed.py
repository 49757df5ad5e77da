"""A derivation in a process of its own that is killed at the n-th line that it runs of the code that writes."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Iterator
from types import FrameType

from patchkit.images import open_image
from patchkit.images.model import Reference

from .trees import derivation

_OURS = os.sep + os.path.join("patchkit", "images") + os.sep  # noqa: PTH118
_WRITERS = {
    *("publish", "write_whole", "_put", "rewrite", "_append", "_copy", "copy", "link_or_copy", "_replay", "_pump"),
    *("write", "_change", "_take_back", "_make_folders", "set_time"),
}


def moments() -> Iterator[int]:
    """Every moment until the run is through; a run that never is fails."""
    yield from range(1, 1000)
    raise AssertionError("the run never came to its end")


def derive_killed(source: Reference, target: Reference, moment: int, *, in_place: bool = False) -> int:
    """The exit status: -SIGKILL, or 0 when the run was through before its ``moment`` came."""
    child = os.fork()
    if child == 0:
        try:
            with open_image(source) as image:
                sys.settrace(_killer(moment))
                image.derive(derivation(), target, in_place=in_place)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, -signal.SIGKILL)
    return status


def _killer(moment: int):
    def line(frame: FrameType, event: str, argument: object):
        nonlocal moment
        if event == "line":
            moment -= 1
            if moment == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return line

    def call(frame: FrameType, event: str, argument: object):
        return line if _OURS in frame.f_code.co_filename and frame.f_code.co_name in _WRITERS else None

    return call
