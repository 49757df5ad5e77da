"""Three-way merge."""

from __future__ import annotations

from patchkit.diff.model import Merge


def merge3(base: bytes, theirs: bytes, ours: bytes, labels: tuple[str, str, str] = ("base", "theirs", "ours")) -> Merge:
    """Bring the changes from ``base`` to ``theirs`` into ``ours``.

    ``labels`` name base, theirs and ours in conflict markers.
    """
    raise NotImplementedError
