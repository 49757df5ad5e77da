"""Files on disk that are there whole or not at all, and locks between runs."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from patchkit.errors import Unreachable


def write_whole(path: Path, data: bytes) -> None:
    """Put ``data`` at ``path`` whole or not at all, safe against a power cut.

    The temporary name is fixed, so that what a killed run left is overwritten by the next: call it under ``lock``.

    Raises:
        patchkit.errors.Unreachable: ``cannot-write``: the disk is full, or the folder is not ours to write.
    """
    with replacing(path) as part, part.open("wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a name beside ``path`` to write to. What lies there in the end takes the place of ``path``, or on a failure
    is removed.

    Raises:
        patchkit.errors.Unreachable: ``cannot-write``.
    """
    part = path.with_name(f".{path.name}.patchkit-part")
    with writing(path):
        try:
            yield part
            part.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Have a rename in the folder survive a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn the system's refusal to write at ``path`` into ``cannot-write``."""
    try:
        yield
    except OSError as error:
        why = error.strerror or str(error)
        raise Unreachable("cannot-write", f"cannot write: {why}; nothing was changed", where=str(path)) from error


@contextlib.contextmanager
def lock(path: Path) -> Iterator[None]:
    """Hold the file or folder at ``path`` against other runs of patchkit; waits for them. Leaves nothing behind."""
    with writing(path):
        handle = os.open(path, os.O_RDONLY)
    try:
        with writing(path):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def link_or_copy(source: Path, target: Path) -> None:
    """Have ``source``'s content at ``target`` too, on no more disk where the file system can do that; for files that
    are never written again."""
    with contextlib.suppress(OSError):
        os.link(source, target)
        return
    with replacing(target) as part:
        copy(source, part)


def copy(source: Path, target: Path, size: int | None = None) -> None:
    """Copy the first ``size`` bytes of a file (None: all), sharing blocks where the file system can."""
    with source.open("rb") as old, target.open("wb") as new:
        left = os.fstat(old.fileno()).st_size if size is None else size
        with contextlib.suppress(OSError):
            fcntl.ioctl(new.fileno(), 0x40049409, old.fileno())  # FICLONE: ioctl_ficlonerange(2)
            new.truncate(left)
            return
        while left and (done := os.copy_file_range(old.fileno(), new.fileno(), left)):
            left -= done
