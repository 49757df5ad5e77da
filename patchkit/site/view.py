"""One image's files as an interpreter in it would see them, each asked for once."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence

from patchkit.errors import Refused
from patchkit.images import paths
from patchkit.images.model import Entry, Filesystem


class View:
    """Follows symlinks inside the image and remembers what it saw: some transports answer slowly."""

    def __init__(self, fs: Filesystem) -> None:
        self.fs = fs
        self._folders: dict[str, str] = {"/": "/", "": "/"}
        self._entries: dict[str, Entry | None] = {}
        self._names: dict[str, frozenset[str]] = {}

    def real(self, path: str) -> str:
        """The real path, as ``realpath -m`` in the image. A loop of symlinks leads nowhere and stays as it is."""
        try:
            return self._real(path)
        except Refused:
            return path

    def _real(self, path: str) -> str:
        if path in self._folders:
            return self._folders[path]
        parent, name = posixpath.split(posixpath.normpath(path) if "/./" in path or "//" in path else path)
        if not name or name in (".", "..") or "/../" in path:
            found = paths.realpath(self.fs, path)
        else:
            here = posixpath.join(self._real(parent), name)
            entry = self.lstat(here)
            symlink = entry is not None and entry.kind == "symlink"
            found = paths.realpath(self.fs, here) if symlink else here
        self._folders[path] = found
        return found

    def lstat(self, path: str) -> Entry | None:
        """The entry at a real path."""
        if path not in self._entries:
            self._entries[path] = self.fs.lstat(path)
        return self._entries[path]

    def stat(self, path: str) -> Entry | None:
        """What the path leads to."""
        entry = self.lstat(self.real(path))
        return None if entry is not None and entry.kind == "symlink" else entry

    def exists(self, path: str) -> bool:
        return self.stat(path) is not None

    def is_file(self, path: str) -> bool:
        entry = self.stat(path)
        return entry is not None and entry.kind == "file"

    def is_dir(self, path: str) -> bool:
        entry = self.stat(path)
        return entry is not None and entry.kind == "dir"

    def read(self, path: str) -> bytes | None:
        """The bytes of the file that the path leads to, None where there is none."""
        entry = self.stat(path)
        return self.fs.read(entry.path) if entry is not None and entry.kind == "file" else None

    def text(self, path: str) -> str | None:
        data = self.read(path)
        return None if data is None else data.decode("utf-8", "surrogateescape")

    def names(self, path: str) -> frozenset[str]:
        """The names in the folder that the path leads to; none where it is no folder."""
        real = self.real(path)
        if real not in self._names:
            self._names[real] = frozenset(self.fs.listdir(real))
        return self._names[real]

    def sorted_names(self, path: str) -> Sequence[str]:
        return sorted(self.names(path))


def as_view(fs: Filesystem | View) -> View:
    """The view itself, or a new one over the files."""
    return fs if isinstance(fs, View) else View(fs)
