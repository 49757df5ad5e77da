"""Writes several files of a catalog as one step, one run at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import patchkit
from patchkit.errors import Refused


@contextlib.contextmanager
def changing(root: Path) -> Iterator[None]:
    """Hold the catalog while it is read, changed and written: of two runs at once the second waits, and then reads what
    the first one wrote. The folder itself is what is locked, so that no file is left behind.

    Raises:
        patchkit.errors.Refused: ``installed-catalog``.
    """
    refuse_installed(root)
    handle = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def refuse_installed(root: Path) -> None:
    """Raise ``installed-catalog`` where an installation brought it: that is nobody's to change, and would be lost with
    the next one."""
    if root.resolve() == Path(patchkit.__file__).resolve().parent / "_catalog":
        raise Refused(
            "installed-catalog",
            "this catalog is a part of the installed patchkit",
            where=str(root),
            remedy=f"make it yours: cp -r {root} my-patches && export PATCHKIT_CATALOG=$PWD/my-patches",
        )


def write_all(changes: Mapping[Path, bytes | None]) -> None:
    """Give each path its new bytes, or remove it for None.

    All new bytes are on disk under temporary names before the first path changes; where a step fails, the paths changed
    before it get their old bytes back. A file that exists keeps its mode; a new one gets 0644.
    """
    waiting: dict[Path, Path] = {}
    before: dict[Path, bytes | None] = {}
    try:
        for path, data in changes.items():
            if data is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
                waiting[path] = _temporary(path, data)
        for path in changes:
            before[path] = path.read_bytes() if path.exists() else None
            if path in waiting:
                waiting[path].replace(path)
                del waiting[path]
            else:
                path.unlink(missing_ok=True)
    except BaseException:
        for path, data in before.items():
            with contextlib.suppress(OSError):
                if data is None:
                    path.unlink(missing_ok=True)
                else:
                    _temporary(path, data).replace(path)
        raise
    finally:
        for left in waiting.values():
            left.unlink(missing_ok=True)


def _temporary(path: Path, data: bytes) -> Path:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    with os.fdopen(handle, "wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    Path(name).chmod(path.stat().st_mode & 0o777 if path.exists() else 0o644)
    return Path(name)
