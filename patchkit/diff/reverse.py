"""Turn a patch round."""

from __future__ import annotations

from patchkit.diff.model import Patch


def reverse(patch: Patch) -> Patch:
    """The patch that undoes ``patch``: sides swapped, sections last first."""
    raise NotImplementedError
