"""Does a patched Python file still compile?"""

from __future__ import annotations

from patchkit.diff.model import Problem


def check_python(data: bytes, path: str, version: tuple[int, int]) -> Problem | None:
    """The first reason why the file does not compile as Python ``version`` (major, minor), or None."""
    raise NotImplementedError
