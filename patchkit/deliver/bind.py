"""Delivery by bind mounts: content-addressed patched files on the host, shown at their real paths in the container."""

from __future__ import annotations

import struct
from pathlib import Path

from patchkit.deliver.output import content_mtime, store_file
from patchkit.errors import Refused
from patchkit.images.model import Mount
from patchkit.plan import Plan, PlannedFile

_PYC_HEADER = struct.Struct("<4sIII")


def write_mounts(plan: Plan, output: Path) -> tuple[Mount, ...]:
    """Write the patched files under ``output`` and return what must be mounted, ordered by target.

    A compiled file that Python would run instead of the mounted source is covered with an empty file, which Python
    recompiles; a tmpfs over ``__pycache__`` would hide the other modules' compiled files as well.

    Raises:
        patchkit.errors.Refused: ``removal-by-mount``, the series removes a file and a mount cannot.
        patchkit.errors.Unreachable: ``output-not-writable``.
    """
    removed = [file.image_path for file in plan.changed if file.data is None]
    if removed:
        raise Refused(
            "removal-by-mount",
            "the patches remove a file, which a mount cannot do",
            where=removed[0],
            remedy="deliver a derived image: --mode image",
        )
    mounts = []
    for file in plan.changed:
        assert file.data is not None
        stored = store_file(output, _name(file.image_path), file.data, executable=bool(file.mode & 0o111))
        mounts.append(Mount(str(stored), file.image_path))
        for path, pyc in sorted(plan.site.pycs.items()):
            if pyc.source == file.image_path and _would_run(pyc.head, file):
                mounts.append(Mount(str(store_file(output, _name(path), b"")), path))
    return tuple(sorted(mounts, key=lambda mount: mount.target))


def _would_run(header: bytes, file: PlannedFile) -> bool:
    """Whether a Python would take this compiled file for the mounted source (PEP 552: flags, then mtime and size). A
    hash-based one whatever its check_source bit: ``--check-hash-based-pycs never`` of any process overrules the bit."""
    if len(header) < _PYC_HEADER.size or file.data is None:
        return False
    flags: int
    _, flags, mtime, size = _PYC_HEADER.unpack(header[: _PYC_HEADER.size])
    if flags & 0b01:
        return True
    expected = content_mtime(file.post.removeprefix("sha256:"))
    return bool((mtime, size) == (expected & 0xFFFFFFFF, len(file.data) & 0xFFFFFFFF))


def _name(path: str) -> str:
    return path.rpartition("/")[2]
