"""Which files a patch is about."""

from __future__ import annotations

from typing import Literal

from patchkit.diff import Patch

TargetKind = Literal["modify", "create", "delete"]


def targets_of(patch: Patch, strip: int = 1) -> dict[str, TargetKind]:
    """Each path that the patch touches, relative to site-packages, and what becomes of it. A rename deletes one file
    and creates another.

    Raises:
        patchkit.errors.BadInput: a name leads out of the tree.
    """
    found: dict[str, TargetKind] = {}
    for section in patch.files:
        old, new = section.names(strip)
        if section.kind == "rename" and old and new:
            found[old], found[new] = "delete", "create"
        elif section.kind in ("create", "copy") and new:
            found[new] = "create"
        elif section.kind == "delete" and old:
            found[old] = "delete"
        else:
            found[section.target(strip)] = "modify"
    return found
