"""Where patchkit keeps what it can always make again, and how a file gets there without being seen half-written."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path


def home() -> Path:
    """The person's home; ``/`` where nothing tells it, as engines set it for a user that no passwd file knows."""
    try:
        return Path.home()
    except RuntimeError:
        return Path("/")


def folder(kind: str) -> Path:
    """The cache folder for one kind of thing: below ``PATCHKIT_CACHE``, else ``$XDG_CACHE_HOME/patchkit``, else
    ``~/.cache/patchkit``. It need not exist yet."""
    root = os.environ.get("PATCHKIT_CACHE")
    if root:
        return Path(root).absolute() / kind
    # An empty or relative XDG_CACHE_HOME counts as unset: XDG Base Directory Specification, "Environment variables".
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base.startswith("/") else home() / ".cache") / "patchkit" / kind


def read(path: Path) -> bytes | None:
    """The cached bytes, or None where there are none, or none that this user may read: that costs time and no truth."""
    try:
        return path.read_bytes()
    except OSError:
        return None


def holds(path: Path) -> bool:
    """Whether there is a file at ``path``; a folder that this user may not look into holds none."""
    try:
        return path.is_file()
    except OSError:
        return False


def write(path: Path, data: bytes) -> None:
    """Put ``data`` at ``path`` whole or not at all, whoever else writes there at the same time. A cache that cannot be
    written (a read-only home, a full disk) keeps nothing, which costs time and no truth."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".part-")
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(data)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
