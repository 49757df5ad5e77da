"""The last step of every delivery: look at what was written, and compare."""

from __future__ import annotations

from collections.abc import Sequence

from patchkit.errors import Refused
from patchkit.images import edit
from patchkit.images.model import Change, Image


def check(image: Image, origin_config: bytes, changes: Sequence[Change]) -> None:
    """Compare the derived ``image`` with what was meant: every change's bytes, mode, owner and time, and a config that
    is the origin's but for the layer, its history entry, our labels and, where wanted, the entrypoint.

    Raises:
        patchkit.errors.Refused: ``read-back``, naming every difference.
    """
    found = [f"config: {key!r} differs from the origin's" for key in edit.differences(origin_config, image.config)]
    found += file_faults(image, changes)
    if found:
        raise Refused(
            "read-back",
            "the derived image is not what was written; do not use it",
            where=str(image.reference),
            remedy="remove the image and run the command again; if it stays so, the store is damaged",
            details=found,
        )


def file_faults(image: Image, changes: Sequence[Change]) -> list[str]:
    """In what the image's files differ from the changes as meant, one line a difference."""
    return [f"{change.path}: {fault}" for change in changes for fault in _faults(image, change)]


def _faults(image: Image, change: Change) -> list[str]:
    entry = image.fs.lstat(change.path)
    if change.data is None:
        return [] if entry is None else ["it is still there"]
    if entry is None or entry.kind != "file":
        return ["it is not there"]
    found = []
    if image.fs.read(change.path) != change.data:
        found.append("other bytes")
    wanted = (change.mode & 0o7777, change.uid, change.gid, change.mtime, dict(change.xattrs))
    actual = (entry.mode, entry.uid, entry.gid, entry.mtime, dict(entry.xattrs))
    names = ("mode", "uid", "gid", "mtime", "xattrs")
    return found + [
        f"{name} {b!r} instead of {a!r}" for name, a, b in zip(names, wanted, actual, strict=True) if a != b
    ]
