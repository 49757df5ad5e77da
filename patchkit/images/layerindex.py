"""What one layer holds, as a small database: made by one pass over the layer, kept by the layer's digest.

An index is a pure function of the layer's bytes; with it and the small files already read from the layer, a second look
at the same layer reads nothing of it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import posixpath
import sqlite3
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from patchkit import cache
from patchkit.errors import Refused
from patchkit.images.model import HOST_XATTRS, Entry
from patchkit.images.paths import MAX_LINKS
from patchkit.images.stream import MAX_HEADER, Blob, LayerStream, Mark, bad_layer, hostile_layer, read_at

#: Raised when the meaning of the tables changes: an old index is made again.
_FORMAT = 1
_MAX_ENTRIES = 5_000_000
#: Files up to this size get their own hash in the index and are kept in the cache once read.
_SMALL = 8 * 1024 * 1024
_WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"
_TABLES = """
CREATE TABLE entry (path BLOB PRIMARY KEY, kind TEXT, mode INT, uid INT, gid INT, size INT, mtime INT, target BLOB,
                    xattrs TEXT, offset INT, sparse TEXT, sha256 TEXT, parent BLOB) WITHOUT ROWID;
CREATE TABLE hidden (path BLOB PRIMARY KEY, parent BLOB) WITHOUT ROWID;
CREATE TABLE opaque (path BLOB PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE meta (format INT, diff_id TEXT);
"""
_COLUMNS = "path, kind, mode, uid, gid, size, mtime, target, xattrs, offset, sparse, sha256"
_Cells = tuple[bytes, str, int, int, int, int, int, bytes, str, int, str, str]


class Found(NamedTuple):
    """One row. ``kind`` has two values beside an Entry's: ``implicit`` is a folder that the layer only mentions as a
    parent, ``link`` a hard link to a file of a lower layer."""

    path: str
    kind: str
    mode: int = 0o755
    uid: int = 0
    gid: int = 0
    size: int = 0
    mtime: int = 0
    target: str = ""
    xattrs: str = ""
    offset: int = 0
    sparse: str = ""
    sha256: str = ""

    def entry(self, path: str) -> Entry:
        """The row as an entry at ``path``."""
        kind: Any = "dir" if self.kind == "implicit" else self.kind
        attributes = {name: bytes.fromhex(value) for name, value in json.loads(self.xattrs or "{}").items()}
        return Entry(path, kind, self.mode, self.uid, self.gid, self.size, self.mtime, self.target, attributes)


def _find(db: sqlite3.Connection, path: str) -> Found | None:
    query = f"SELECT {_COLUMNS} FROM entry WHERE path = ?"  # noqa: S608
    row: _Cells | None = db.execute(query, (_blob(path),)).fetchone()
    return Found(_text(row[0]), *row[1:7], _text(row[7]), *row[8:]) if row else None


class LayerIndex:
    """The entries of one layer, and the bytes of its files.

    Raises (when made):
        patchkit.errors.Unreachable: ``bad-layer``: the layer is not what its digest and diff-id say.
        patchkit.errors.Refused: ``hostile-layer``: paths that leave the image, or sizes that no layer has.
    """

    suffix = ".sqlite"

    def __init__(self, blob: Blob, diff_id: str) -> None:
        self._blob, self._diff_id = blob, diff_id
        self._marks: list[Mark] = []
        self._verified = False
        self._path = self._place(blob)
        self._db = self._cached() or self._made()

    @classmethod
    def _place(cls, blob: Blob) -> Path:
        return cache.folder("layers") / (blob.digest.partition(":")[2] + cls.suffix)

    @classmethod
    def is_known(cls, blob: Blob) -> bool:
        """Whether the layer was read before."""
        return cache.holds(cls._place(blob))

    def close(self) -> None:
        """Free the database."""
        self._db.close()

    def find(self, path: str) -> Found | None:
        """The row at exactly ``path``."""
        return _find(self._db, path)

    def hides(self, path: str) -> bool:
        """Whether the layer hides ``path`` of the layers below: removed, or within something that hides all below."""
        return self._has("SELECT 1 FROM hidden WHERE path = ?", path) or (
            path != "/" and self.hides_below(posixpath.dirname(path))
        )

    def hides_below(self, path: str) -> bool:
        """Whether the layer hides what the layers below hold in ``path``: it is removed, opaque, or no folder here, or
        one of its parents is."""
        while True:
            if (
                self._has("SELECT 1 FROM opaque WHERE path = ?", path)
                or self._has("SELECT 1 FROM entry WHERE path = ? AND kind NOT IN ('dir', 'implicit')", path)
                or self._has("SELECT 1 FROM hidden WHERE path = ?", path)
            ):
                return True
            if path == "/":
                return False
            path = posixpath.dirname(path)

    def names(self, path: str) -> tuple[set[str], set[str]]:
        """The names that the layer adds to the folder ``path``, and those that it removes from it."""
        found = self._db.execute("SELECT path FROM entry WHERE parent = ? AND path != parent", (_blob(path),))
        gone = self._db.execute("SELECT path FROM hidden WHERE parent = ?", (_blob(path),))
        return {posixpath.basename(_text(row[0])) for row in found}, {posixpath.basename(_text(row[0])) for row in gone}

    def read(self, found: Found) -> bytes:
        """The bytes of a file of this layer, checked against the hash that the index holds for it."""
        kept = cache.folder("files") / found.sha256 if found.sha256 else None
        if kept is not None:
            data = cache.read(kept)
            if data is not None and hashlib.sha256(data).hexdigest() == found.sha256:
                return data
        elif not self._verified:
            with LayerStream(self._blob, self._diff_id, self._marks) as stream:
                stream.finish()
                self._verified = True
        data = self._raw(found)
        if kept is not None:
            if hashlib.sha256(data).hexdigest() != found.sha256:
                raise bad_layer(self._blob, f"{found.path} is not what it was when the layer was first read")
            cache.write(kept, data)
        return data

    def _raw(self, found: Found) -> bytes:
        if not found.sparse:
            return read_at(self._blob, found.offset, found.size, self._marks)
        data = bytearray(found.size)
        position = found.offset
        for start, size in json.loads(found.sparse):
            data[start : start + size] = read_at(self._blob, position, size, self._marks)
            position += size
        return bytes(data[: found.size])

    def _has(self, query: str, path: str) -> bool:
        return self._db.execute(query, (_blob(path),)).fetchone() is not None

    def _cached(self) -> sqlite3.Connection | None:
        if not cache.holds(self._path):
            return None
        with contextlib.suppress(sqlite3.Error):  # damaged, or not for this user to read: made again
            db = sqlite3.connect(f"{self._path.as_uri()}?mode=ro&immutable=1", uri=True)
            with contextlib.suppress(sqlite3.Error):
                if db.execute("SELECT format, diff_id FROM meta").fetchone() == (_FORMAT, self._diff_id):
                    return db
            db.close()
        return None

    def _made(self) -> sqlite3.Connection:
        db = sqlite3.connect(":memory:")
        db.executescript(_TABLES)
        self._fill(Rows(db))
        db.execute("INSERT INTO meta VALUES (?, ?)", (_FORMAT, self._diff_id))
        db.execute("CREATE INDEX parents ON entry (parent)")
        db.execute("CREATE INDEX hidden_parents ON hidden (parent)")
        db.commit()
        cache.write(self._path, db.serialize())
        return db

    def _fill(self, rows: Rows) -> None:
        """Read the whole layer."""
        with LayerStream(self._blob, self._diff_id, self._marks) as stream:
            try:
                _scan(stream, rows, self._blob)
            except (tarfile.TarError, ValueError, OverflowError) as error:
                raise bad_layer(self._blob, f"damaged tar: {error}") from error
            stream.finish()
            self._verified = True


class Rows:
    """The layer's entries while they arrive, in the order of the tar: later ones replace earlier ones as they do when
    an engine unpacks the layer into an empty folder."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._folders: set[str] = set()  # folders that have a row
        self._links: dict[str, str] = {}
        self._real: dict[str, str] = {}

    def place(self, path: str) -> str:
        """``path`` with the symlinks of this layer followed in its parents, as unpacking would."""
        if not self._links or path == "/":
            return path
        head, name = posixpath.split(path)
        if head not in self._real:
            self._real[head] = self._follow(head)
        return posixpath.join(self._real[head], name)

    def _follow(self, path: str) -> str:
        todo, done, links = path.split("/")[:0:-1], "/", 0
        while todo:
            part = todo.pop()
            if part in ("", ".", ".."):
                done = posixpath.dirname(done) if part == ".." else done
                continue
            here = posixpath.join(done, part)
            target = self._links.get(here)
            if target is None:
                done = here
                continue
            links += 1
            if links > MAX_LINKS:
                raise Refused("hostile-layer", "symbolic links in a circle", where=path)
            done = "/" if target.startswith("/") else done
            todo.extend(reversed(target.split("/")))
        return done

    def add(self, row: Found) -> None:
        """Add an entry; what it replaces goes, a folder with everything below."""
        path = row.path
        self._mention(posixpath.dirname(path))
        if row.kind != "dir" and path in self._folders:
            self._remove_below(path)
        if self._links.pop(path, None) is not None or row.kind == "symlink":
            self._real.clear()
        if row.kind == "symlink":
            self._links[path] = row.target
        if row.kind == "dir":
            self._folders.add(path)
        self._insert(row)

    def add_link(self, row: Found) -> None:
        """A hard link: a second name for what ``row.target`` is now, or for a lower layer's file."""
        here = _find(self._db, row.target)
        known = here is not None and here.kind not in ("dir", "implicit")
        self.add(here._replace(path=row.path) if here is not None and known else row)

    def hide(self, path: str) -> None:
        self._mention(posixpath.dirname(path))
        self._db.execute("INSERT OR REPLACE INTO hidden VALUES (?, ?)", (_blob(path), _blob(posixpath.dirname(path))))

    def make_opaque(self, path: str) -> None:
        self._mention(path)
        self._db.execute("INSERT OR REPLACE INTO opaque VALUES (?)", (_blob(path),))

    def _mention(self, path: str) -> None:
        """Note the folders that the layer needs without having an entry for them (yet)."""
        while path not in self._folders and path != "/":
            self._folders.add(path)
            self._insert(Found(path, "implicit"))
            path = posixpath.dirname(path)

    def _insert(self, row: Found) -> None:
        cells = (_blob(row.path), *row[1:7], _blob(row.target), *row[8:], _blob(posixpath.dirname(row.path)))
        self._db.execute("INSERT OR REPLACE INTO entry VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?)", cells)

    def _remove_below(self, path: str) -> None:
        self._folders = {one for one in self._folders if one != path and not one.startswith(path + "/")}
        for table in ("entry", "hidden", "opaque"):
            self._db.execute(
                f"DELETE FROM {table} WHERE path > ? AND path < ?",  # noqa: S608
                (_blob(path + "/"), _blob(path + "0")),  # "0" follows "/"
            )


def _scan(stream: LayerStream, rows: Rows, blob: Blob) -> None:
    with tarfile.open(fileobj=stream, mode="r:", encoding="utf-8", errors="surrogateescape") as archive:
        for count, info in enumerate(iter(archive.next, None)):
            if count >= _MAX_ENTRIES:
                raise hostile_layer(blob, f"more than {_MAX_ENTRIES} entries")
            archive.members = []  # type: ignore[attr-defined]  # tarfile keeps every member otherwise
            stream.allowance = MAX_HEADER
            if info.size < 0:
                raise hostile_layer(blob, f"its entry {info.name!r} has a negative size")
            enter(rows, blob, info.name, _row(info, stream))


def enter(rows: Rows, blob: Blob, name: str, row: Found) -> None:
    """Enter what the layer says under ``name``: a removal (image-spec layer.md, "Whiteouts"), a hard link, or ``row``,
    whose path is not known yet."""
    if row.size < 0 or not 0 <= row.uid < 1 << 32 or not 0 <= row.gid < 1 << 32:
        raise hostile_layer(blob, f"the numbers of its entry {name!r} make no sense")
    path = rows.place(_inside(name, blob))
    head, name = posixpath.split(path)
    if name == _OPAQUE:
        rows.make_opaque(head)
    elif name.startswith(_WHITEOUT):
        if len(name) > len(_WHITEOUT) and not name.startswith(_WHITEOUT * 2):  # the rest is AUFS's own
            rows.hide(posixpath.join(head, name[len(_WHITEOUT) :]))
    elif row.kind == "link":
        rows.add_link(Found(path, "link", target=rows.place(_inside(row.target, blob))))
    else:
        rows.add(row._replace(path=path))


def _row(info: tarfile.TarInfo, stream: LayerStream) -> Found:
    checks = ((info.isreg, "file"), (info.isdir, "dir"), (info.issym, "symlink"), (info.islnk, "link"))
    kind = next((kind for check, kind in checks if check()), "other")
    size = info.size if kind == "file" else 0
    sparse = getattr(info, "sparse", None)
    small = kind == "file" and not sparse and size <= _SMALL
    return Found(
        "",
        kind,
        info.mode & 0o7777,
        info.uid,
        info.gid,
        size,
        math.floor(info.mtime),
        info.linkname if kind in ("symlink", "link") else "",
        _xattrs(info.pax_headers),
        info.offset_data,
        json.dumps(sparse) if sparse else "",
        stream.hash_next(size) if small else "",
    )


def _inside(name: str, blob: Blob) -> str:
    """A member's name as an absolute path inside the image, as engines take it: a leading slash means nothing."""
    path = posixpath.normpath(name.lstrip("/")) if name.strip("/") else "."
    if path == ".." or path.startswith("../"):
        raise hostile_layer(blob, f"its entry {name!r} leaves the image")
    if len(path) > 4096:
        raise hostile_layer(blob, "an entry with an endless name")
    return "/" if path == "." else "/" + path


def _xattrs(headers: Mapping[str, str]) -> str:
    found = {
        key.removeprefix("SCHILY.xattr."): value.encode("utf-8", "surrogateescape").hex()
        for key, value in headers.items()
        if key.startswith("SCHILY.xattr.") and not key.removeprefix("SCHILY.xattr.").startswith(HOST_XATTRS)
    }
    return json.dumps(found, sort_keys=True) if found else ""


def _blob(path: object) -> bytes:
    return str(path).encode("utf-8", "surrogateescape")


def _text(path: bytes) -> str:
    return path.decode("utf-8", "surrogateescape")
