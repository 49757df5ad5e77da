"""Read a patch."""

from __future__ import annotations

from patchkit.diff.model import Patch


def parse(data: bytes, name: str = "<patch>") -> Patch:
    """The patch that ``data`` holds.

    Raises:
        patchkit.errors.BadInput: ``malformed-patch`` (``where`` is ``name:line``), ``unsupported-patch`` for binary,
            combined, context and other diffs that are no unified ones.
    """
    raise NotImplementedError
