"""The files of an image as a container with bind mounts sees them."""

from __future__ import annotations

import posixpath
import stat
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from patchkit.errors import Refused
from patchkit.images.hostfs import HostFilesystem
from patchkit.images.model import MAX_READ, Entry, Filesystem, Mount, kind_of


class MountedFiles:
    """A file system with files and folders of this machine laid over it. Folders on the way to them that are missing
    are made by the engine."""

    def __init__(self, below: Filesystem, mounts: Sequence[Mount]) -> None:
        self._below = below
        self._sources = {mount.target: Path(mount.source) for mount in mounts}
        self._children: dict[str, set[str]] = {}
        for path in self._sources:
            while path != "/":
                path, name = posixpath.split(path)
                self._children.setdefault(path, set()).add(name)

    def lstat(self, path: str) -> Entry | None:
        source = self._sources.get(path)
        if source is None:
            files, inside = self._at(path)
            found_there = files.lstat(inside)
            if found_there is None:
                return Entry(path, "dir", 0o755, 0, 0) if path in self._children else None
            return replace(found_there, path=path)
        try:
            found = source.stat()
        except OSError:
            # An engine would make an empty folder of a source that is missing.
            return Entry(path, "dir", 0o755, 0, 0)
        mode, mtime = stat.S_IMODE(found.st_mode), found.st_mtime_ns // 10**9
        return Entry(path, kind_of(found.st_mode), mode, found.st_uid, found.st_gid, found.st_size, mtime)

    def read(self, path: str, limit: int = MAX_READ) -> bytes:
        source = self._sources.get(path)
        if source is None:
            files, inside = self._at(path)
            return files.read(inside, limit)
        if not source.is_file():
            raise FileNotFoundError(path)
        if source.stat().st_size > limit:
            raise Refused("file-too-large", f"larger than {limit} bytes", where=str(source))
        return source.read_bytes()

    def listdir(self, path: str) -> Sequence[str]:
        files, inside = self._at(path)
        names = files.listdir(inside) if files.lstat(inside) is not None else ()
        return sorted({*self._children.get(path, ()), *names})

    def _at(self, path: str) -> tuple[Filesystem, str]:
        """Whose files lie there, and what the path is called among them: the nearest mount's, else those below."""
        above = path
        while above != "/":
            if above in self._sources:
                return HostFilesystem(str(self._sources[above])), path[len(above) :] or "/"
            above = posixpath.dirname(above)
        return self._below, path
