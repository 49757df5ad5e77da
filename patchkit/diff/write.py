"""Write a patch."""

from __future__ import annotations

from collections.abc import Mapping


def write(old: Mapping[str, bytes], new: Mapping[str, bytes], *, context: int = 3) -> bytes:
    """The git-style unified diff from one tree (path -> bytes) to another, with full blob ids, sorted by path; empty
    when they are equal."""
    raise NotImplementedError
