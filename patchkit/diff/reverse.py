"""Turn a patch round."""

from __future__ import annotations

from dataclasses import replace

from patchkit.diff.model import FileKind, FilePatch, Hunk, Patch
from patchkit.errors import Refused

_BACK: dict[FileKind, FileKind] = {
    "modify": "modify",
    "create": "delete",
    "delete": "create",
    "rename": "rename",
    "mode": "mode",
}


def is_reversible(patch: Patch) -> bool:
    """Whether the patch can be turned round: it copies no file."""
    return all(section.kind in _BACK for section in patch.files)


def reverse(patch: Patch) -> Patch:
    """The patch that undoes ``patch``: the sides of every hunk swapped, and the sections last first, since later ones
    may build on earlier ones.

    Raises:
        patchkit.errors.Refused: ``copy-not-reversible``: a copy does not say what was there before, nor all of what
            it made.
    """
    if not is_reversible(patch):
        raise Refused(
            "copy-not-reversible",
            "the patch copies a file, and a copy does not tell all that must be there to remove it safely",
            where=patch.name,
            remedy="remove the copied file by hand, and reverse a patch without that section",
        )
    return replace(patch, files=tuple(_section(section) for section in reversed(patch.files)))


def _section(section: FilePatch) -> FilePatch:
    return replace(
        section,
        kind=_BACK[section.kind],
        old_name=section.new_name,
        new_name=section.old_name,
        old_mode=section.new_mode,
        new_mode=section.old_mode,
        old_blob=section.new_blob,
        new_blob=section.old_blob,
        hunks=tuple(_hunk(hunk) for hunk in section.hunks),
    )


def _hunk(hunk: Hunk) -> Hunk:
    return hunk._replace(old_start=hunk.new_start, new_start=hunk.old_start, old=hunk.new, new=hunk.old)
