"""The one layer that patchkit writes: a pure function of an image's files and the changes to them."""

from __future__ import annotations

import hashlib
import posixpath
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from patchkit.errors import Refused
from patchkit.images import tar
from patchkit.images.model import Change, Entry, Filesystem

_WHITEOUT = ".wh."
_STORED_BLOCK = 0xFFFF


@dataclass(frozen=True, slots=True)
class Layer:
    """A finished layer. ``tar`` is the plain archive and ``diff_id`` its digest; ``blob`` is the same in gzip without
    compression and ``digest`` that blob's. ``changes`` are the changes as written, sorted, with their final times."""

    tar: bytes
    diff_id: str
    blob: bytes
    digest: str
    changes: tuple[Change, ...]


def build_layer(fs: Filesystem, changes: Sequence[Change]) -> Layer:
    """The layer that makes ``changes`` to the image whose files are ``fs`` (the origin's: without a layer of ours).

    Every parent folder is written with its true mode, owner, time and xattrs, since engines reset those of a parent
    that a layer leaves out (image-spec#737). Removing what is not there writes nothing. A file whose ``mtime`` is 0 or
    equals the replaced file's gets the replaced file's plus one second (a new file: its folder's), so that no size and
    time comparison can take the two for the same (CPython's stale bytecode, double-walk differs).

    Raises:
        patchkit.errors.Refused: ``unsafe-path`` (relative, dots, two changes to one path), ``path-not-real`` (a parent
            is a symlink: engines would replace the link by a folder, rules_oci#857), ``not-a-file`` (a folder or a
            device would be replaced).
    """
    done: list[Change] = []
    parents: dict[str, Entry] = {}
    for change in sorted(changes, key=lambda change: change.path.split("/")):
        _check_path(change.path)
        if done and done[-1].path == change.path:
            raise Refused("unsafe-path", "two changes to one path", where=change.path)
        original = fs.lstat(change.path)
        if change.data is None:
            if original is None:
                continue
        elif original is not None and original.kind != "file":
            raise Refused("not-a-file", f"a {original.kind} lies where a file is to be written", where=change.path)
        folder = _add_parents(fs, change, parents)
        done.append(change if change.data is None else replace(change, mtime=_mtime(change, original, folder)))
    members = [
        *((entry.path, _folder(entry)) for entry in parents.values()),
        *((change.path, _member(change)) for change in done),
    ]
    members.sort(key=lambda item: item[0].split("/"))
    archive = b"".join([*(data for _, data in members), tar.END])
    blob = stored_gzip(archive)
    return Layer(archive, sha256(archive), blob, sha256(blob), tuple(done))


def sha256(data: bytes) -> str:
    """The digest of ``data`` as images spell it."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def stored_gzip(data: bytes) -> bytes:
    """``data`` in gzip without compression (RFC 1951 section 3.2.4, stored blocks), so that no compressor's version can
    change the digest."""
    parts = [b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"]
    for start in range(0, max(len(data), 1), _STORED_BLOCK):
        block = data[start : start + _STORED_BLOCK]
        final = start + _STORED_BLOCK >= len(data)
        parts += [bytes([final]), len(block).to_bytes(2, "little"), (len(block) ^ 0xFFFF).to_bytes(2, "little"), block]
    parts += [zlib.crc32(data).to_bytes(4, "little"), (len(data) & 0xFFFFFFFF).to_bytes(4, "little")]
    return b"".join(parts)


def _check_path(path: str) -> None:
    parts = path.split("/")
    if parts[0] or len(parts) < 2 or any(part in ("", ".", "..") or "\0" in part for part in parts[1:]):
        raise Refused("unsafe-path", "not an absolute path in its plain form", where=path)
    if any(part.startswith(_WHITEOUT) for part in parts):
        raise Refused("unsafe-path", f"names that start with {_WHITEOUT} mean removal in a layer", where=path)


def _add_parents(fs: Filesystem, change: Change, parents: dict[str, Entry]) -> Entry:
    """Note every parent folder of the change and return the nearest. A folder that the image lacks is made for the
    file's owner, 0755, with its parent's time. The root is asked for only where it matters: no layer may say anything
    about it, and then all of them would have to be read."""
    parts = posixpath.dirname(change.path).split("/")[1:]
    nearest: Entry | None = None
    for count in range(1, len(parts) + 1):
        path = "/" + "/".join(parts[:count])
        if path == "/":
            break
        entry = parents.get(path) or fs.lstat(path)
        if entry is None:
            nearest = nearest or _root(fs)
            entry = Entry(path, "dir", 0o755, change.uid, change.gid, mtime=nearest.mtime)
        elif entry.kind == "symlink":
            raise Refused("path-not-real", f"{path} is a symbolic link in the image", where=change.path)
        elif entry.kind != "dir":
            raise Refused("path-not-real", f"{path} is no folder in the image", where=change.path)
        parents[path] = nearest = entry
    return nearest or _root(fs)


def _root(fs: Filesystem) -> Entry:
    return fs.lstat("/") or Entry("/", "dir", 0o755, 0, 0)


def _mtime(change: Change, original: Entry | None, folder: Entry) -> int:
    if original is None:
        return change.mtime or folder.mtime
    return change.mtime if change.mtime not in (0, original.mtime) else original.mtime + 1


def _folder(entry: Entry) -> bytes:
    return tar.member(
        entry.path[1:] + "/",
        tar.DIRECTORY,
        mode=entry.mode,
        uid=entry.uid,
        gid=entry.gid,
        mtime=entry.mtime,
        xattrs=entry.xattrs,
    )


def _member(change: Change) -> bytes:
    if change.data is None:
        folder, name = posixpath.split(change.path)
        path = posixpath.join(folder, _WHITEOUT + name)
        return tar.member(path[1:], tar.FILE, mode=0o600, uid=0, gid=0, mtime=0)
    return tar.member(
        change.path[1:],
        tar.FILE,
        mode=change.mode,
        uid=change.uid,
        gid=change.gid,
        mtime=change.mtime,
        data=change.data,
        xattrs=change.xattrs,
    )
