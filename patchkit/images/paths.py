"""Paths inside an image: resolved there, never on the host."""

from __future__ import annotations

import posixpath

from patchkit.errors import Refused
from patchkit.images.model import Entry, Filesystem

MAX_LINKS = 40  # Linux follows 40 symlinks before ELOOP: path_resolution(7)


def is_plain(path: str) -> bool:
    """Whether a path is absolute and nothing in it is to be worked out. Two leading slashes are: ``normpath`` keeps
    them, since POSIX lets them mean something else, and then no way up leads to the root."""
    return path.startswith("/") and not path.startswith("//") and posixpath.normpath(path) == path


def realpath(fs: Filesystem, path: str) -> str:
    """The absolute path with every symlink in it followed inside the image, as ``realpath -m`` would there.

    Components that do not exist are kept as they are. ``..`` above the root stays at the root.

    Raises:
        patchkit.errors.Refused: ``symlink-loop``, more than 40 links.
    """
    todo = [part for part in reversed(path.split("/")) if part not in ("", ".")]
    done = "/"
    links = 0
    while todo:
        part = todo.pop()
        if part in ("", "."):
            continue
        if part == "..":
            done = posixpath.dirname(done)
            continue
        here = posixpath.join(done, part)
        entry = fs.lstat(here)
        if entry is None or entry.kind != "symlink":
            done = here
            continue
        links += 1
        if links > MAX_LINKS:
            raise Refused("symlink-loop", f"more than {MAX_LINKS} symbolic links on the way", where=path)
        if entry.target.startswith("/"):
            done = "/"
        todo.extend(reversed(entry.target.split("/")))
    return done


def stat(fs: Filesystem, path: str) -> Entry | None:
    """The entry that ``path`` leads to when every symlink is followed, or None. Its ``path`` is the real one."""
    return fs.lstat(realpath(fs, path))


def read(fs: Filesystem, path: str) -> bytes | None:
    """The bytes of the regular file that ``path`` leads to, or None where there is no such file."""
    entry = stat(fs, path)
    return fs.read(entry.path) if entry is not None and entry.kind == "file" else None


def rows(fs: Filesystem, path: str) -> list[list[str]]:
    """The rows of a list as passwd(5) and group(5) are: one a line, fields between colons."""
    return [line.split(":") for line in (read(fs, path) or b"").decode("utf-8", "replace").splitlines()]
