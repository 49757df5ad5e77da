"""Compiled files and the sources that they stand for."""

from __future__ import annotations

import posixpath


def source_of(pyc: str) -> str:
    """The source of a compiled file (PEP 3147): ``a/__pycache__/m.cpython-312.opt-1.pyc`` is of ``a/m.py``; a ``.pyc``
    outside of ``__pycache__`` is of the ``.py`` beside it."""
    folder, name = posixpath.split(pyc)
    if posixpath.basename(folder) == "__pycache__":
        return posixpath.join(posixpath.dirname(folder), name.split(".")[0] + ".py")
    return pyc.removesuffix("c")
