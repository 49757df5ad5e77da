"""The files below one folder of the host, read and written so that no symlink in them can lead out of it."""

from __future__ import annotations

import contextlib
import errno
import os
import posixpath
import stat
from collections.abc import Iterator, Mapping, Sequence

from patchkit.errors import Refused, Unreachable
from patchkit.images.model import HOST_XATTRS, MAX_READ, Change, Entry, kind_of

_PART = ".patchkit-part"


class HostFilesystem:
    """A ``Filesystem`` over an unpacked root. Every folder on the way is opened from the one before, never through a
    link, so a hostile root shows nothing of the host.

    Raises (from every method):
        patchkit.errors.Unreachable: ``cannot-read``: the root's files are not ours to read.
    """

    def __init__(self, root: str) -> None:
        self.root = root

    def lstat(self, path: str) -> Entry | None:
        """See ``Filesystem.lstat``."""
        with self._parent(path) as (folder, name):
            if folder is None:
                return None
            try:
                facts = os.lstat(name, dir_fd=folder)
            except FileNotFoundError:
                return None
            mode = facts.st_mode
            target = os.readlink(name, dir_fd=folder) if stat.S_ISLNK(mode) else ""
            attributes = _xattrs(f"/proc/self/fd/{folder}/{name}")
        kind = kind_of(mode)
        size = facts.st_size if kind == "file" else 0
        return Entry(
            path,
            kind,
            mode & 0o7777,
            facts.st_uid,
            facts.st_gid,
            size,
            facts.st_mtime_ns // 1_000_000_000,
            target,
            attributes,
        )

    def read(self, path: str, limit: int = MAX_READ) -> bytes:
        """See ``Filesystem.read``."""
        with self._parent(path) as (folder, name):
            if folder is None:
                raise FileNotFoundError(path)
            try:
                handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
            except OSError:
                raise FileNotFoundError(path) from None
            with os.fdopen(handle, "rb") as stream:
                facts = os.fstat(handle)
                if not stat.S_ISREG(facts.st_mode):
                    raise FileNotFoundError(path)
                data = stream.read(limit + 1) if facts.st_size <= limit else b""
                if facts.st_size > limit or len(data) > limit:
                    raise Refused("too-large", f"more than the {limit} bytes that are read", where=path)
                return data

    def listdir(self, path: str) -> Sequence[str]:
        """See ``Filesystem.listdir``."""
        with self._parent(posixpath.join(path, ".")) as (folder, _):
            return sorted(os.listdir(folder)) if folder is not None else []  # noqa: PTH208 - an open folder

    def write(self, change: Change) -> None:
        """Make one change: the whole file or none of it.

        Raises:
            patchkit.errors.Unreachable: ``cannot-write``.
        """
        self._make_folders(change)
        with self._parent(change.path) as (folder, name), self._writing(change.path):
            if folder is None:
                raise FileNotFoundError(change.path)
            if change.data is None:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=folder)
            else:
                self._put(folder, name, change)

    def remove_folder(self, path: str) -> None:
        """Remove a folder that a change had made, if it is empty."""
        with self._parent(path) as (folder, name):
            if folder is not None:
                with contextlib.suppress(OSError):
                    os.rmdir(name, dir_fd=folder)

    def time(self, path: str) -> int:
        """When a folder was changed last, in nanoseconds; of one that is not there, its nearest parent."""
        while True:
            with self._parent(path) as (folder, name), contextlib.suppress(FileNotFoundError):
                if folder is not None:
                    return os.lstat(name, dir_fd=folder).st_mtime_ns
            path = posixpath.dirname(path)

    def set_time(self, path: str, time: int) -> None:
        """Give a folder back the time that it had; one that is gone needs none."""
        with self._parent(path) as (folder, name), self._writing(path), contextlib.suppress(FileNotFoundError):
            if folder is not None:
                os.utime(name, ns=(time, time), dir_fd=folder, follow_symlinks=False)

    def missing_folders(self, path: str) -> list[str]:
        """The parents of ``path`` that are not there, topmost first."""
        parts = posixpath.dirname(path).split("/")[1:]
        found = ["/" + "/".join(parts[:count]) for count in range(1, len(parts) + 1)]
        return [one for one in found if one != "/" and self.lstat(one) is None]

    def _make_folders(self, change: Change) -> None:
        for path in self.missing_folders(change.path) if change.data is not None else ():
            with self._parent(path) as (folder, name), self._writing(path):
                if folder is None:
                    raise FileNotFoundError(path)
                os.mkdir(name, 0o700, dir_fd=folder)
                os.chown(name, change.uid, change.gid, dir_fd=folder, follow_symlinks=False)
                os.chmod(name, 0o755, dir_fd=folder)  # noqa: S103 - whatever the umask

    def _put(self, folder: int, name: str, change: Change) -> None:
        part = _PART + name[:200]
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part, dir_fd=folder)
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=folder)
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(change.data or b"")
                stream.flush()
                if (os.fstat(handle).st_uid, os.fstat(handle).st_gid) != (change.uid, change.gid):
                    os.fchown(handle, change.uid, change.gid)
                os.fchmod(handle, change.mode)
                for key, value in change.xattrs.items():
                    os.setxattr(handle, key, value)
                os.utime(handle, (change.mtime, change.mtime))
                os.fsync(handle)
            os.replace(part, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(part, dir_fd=folder)
            raise

    @contextlib.contextmanager
    def _writing(self, path: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            what = f"cannot write: {error.strerror or error}"
            remedy = "run it as the owner of the root's files"
            raise Unreachable("cannot-write", what, where=f"rootfs:{self.root} {path}", remedy=remedy) from error

    @contextlib.contextmanager
    def _parent(self, path: str) -> Iterator[tuple[int | None, str]]:
        """The open folder of ``path`` and its last part; None where a part on the way is missing or no folder."""
        *parts, name = [part for part in path.split("/") if part] or ["."]
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
        handle: int | None = None
        try:
            handle = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
            for part in parts:
                try:
                    below = os.open(part, flags, dir_fd=handle)
                except (FileNotFoundError, NotADirectoryError):
                    below = None
                except OSError as error:
                    if error.errno != errno.ELOOP:  # a link where a folder was asked for
                        raise
                    below = None
                os.close(handle)
                handle = below
                if handle is None:
                    break
        except OSError as error:
            if handle is not None:
                os.close(handle)
            where = f"rootfs:{self.root}"
            raise Unreachable("cannot-read", f"cannot read {path}: {error.strerror}", where=where) from error
        try:
            yield handle, name
        finally:
            if handle is not None:
                os.close(handle)


def _xattrs(path: str) -> Mapping[str, bytes]:
    try:
        names = [name for name in os.listxattr(path, follow_symlinks=False) if not name.startswith(HOST_XATTRS)]
        return {name: os.getxattr(path, name, follow_symlinks=False) for name in sorted(names)}
    except OSError:  # a file system without them
        return {}
