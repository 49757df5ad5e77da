"""Layers that carry a table of contents (eStargz, zstd:chunked): single files are read out of them by ranges.

The table's digest stands in the manifest, and each file's digest in the table, so what is read is verified without
reading the rest. eStargz: stargz-snapshotter docs/estargz.md; zstd:chunked: containers/storage pkg/chunked.
"""

from __future__ import annotations

import base64
import binascii
import bisect
import hashlib
import io
import json
import math
import re
import tarfile
import zlib
from datetime import datetime
from typing import Any, NamedTuple

from patchkit.errors import PatchkitError
from patchkit.images.layer import sha256
from patchkit.images.layerindex import Found, LayerIndex, Rows, enter
from patchkit.images.model import HOST_XATTRS
from patchkit.images.rawjson import Object, parse
from patchkit.images.stream import Blob, Mark, bad_layer, unpacked_from

_ESTARGZ = "containerd.io/snapshot/stargz/toc.digest"
_ESTARGZ_FOOTER = 51
_CHUNKED = ("io.github.containers.zstd-chunked.manifest-", "io.containers.zstd-chunked.manifest-")
#: A table of a million entries is about 300 MB; more is not believed.
_MAX_TABLE = 512 * 1024 * 1024
#: Smaller layers are read whole: that is one request, a table and a file are three.
_WORTH = 4 * 1024 * 1024


class Toc(NamedTuple):
    """Where a layer's table of contents is: at ``offset`` with ``length`` bytes (zstd:chunked), or found through the
    footer (eStargz, ``length`` 0). ``digest`` is that of the table as the format counts it."""

    digest: str
    offset: int = 0
    length: int = 0


def toc_of(descriptor: Object) -> Toc | None:
    """The table of contents that a layer's descriptor tells of."""
    notes = descriptor.get("annotations") or {}
    if isinstance(notes.get(_ESTARGZ), str):
        return Toc(notes[_ESTARGZ])
    for head in _CHUNKED:
        place = re.fullmatch(r"(\d{1,15}):(\d{1,12}):\d+:1", str(notes.get(head + "position", "")))
        if place and isinstance(notes.get(head + "checksum"), str):
            return Toc(notes[head + "checksum"], int(place[1]), int(place[2]))
    return None


def open_index(blob: Blob, diff_id: str) -> LayerIndex:
    """The layer's index: from its table of contents where it has one and is large, else from all of it. A table that
    is damaged counts as none."""
    if blob.toc is not None and blob.size >= _WORTH and not LayerIndex.is_known(blob):
        try:
            return TocIndex(blob, diff_id)
        except PatchkitError as error:
            if error.code not in ("bad-layer", "bad-json"):
                raise
    return LayerIndex(blob, diff_id)


class TocIndex(LayerIndex):
    """A layer's index that was made from its table of contents. In its rows ``offset`` is a place in the blob, and
    ``sparse`` holds how much to skip there and how many bytes to fetch."""

    suffix = ".toc.sqlite"

    def _fill(self, rows: Rows) -> None:
        table = parse(_table(self._blob), f"table of layer {self._blob.digest}", limit=_MAX_TABLE)
        entries = table.get("entries")
        if not isinstance(entries, list) or not all(isinstance(one, dict) for one in entries):
            raise bad_layer(self._blob, "its table of contents is no list")
        try:
            files = [one for one in entries if one.get("offset") and one.get("type") != "chunk"]
            starts = sorted({int(one["offset"]) for one in files} | {self._blob.size})
            for one in entries:
                if one.get("chunkType") == "zeros":
                    raise bad_layer(self._blob, "its table of contents has holes")
                if one.get("type") != "chunk":
                    self._enter(rows, one, starts)
        except (ValueError, TypeError, LookupError, AttributeError, OverflowError, binascii.Error) as error:
            raise bad_layer(self._blob, f"its table of contents makes no sense: {error}") from error

    def _enter(self, rows: Rows, one: dict[str, Any], starts: list[int]) -> None:
        kind = {"reg": "file", "dir": "dir", "symlink": "symlink", "hardlink": "link"}.get(one["type"], "other")
        size, offset, skip = int(one.get("size") or 0), int(one.get("offset") or 0), int(one.get("innerOffset") or 0)
        end = int(one.get("endOffset") or starts[bisect.bisect_right(starts, offset)] if size else 0)
        digest = str(one.get("digest", "")).removeprefix("sha256:")
        if kind == "file" and (len(digest) != 64 if size else False):
            raise bad_layer(self._blob, "its table of contents lacks a digest")
        given = sorted((one.get("xattrs") or {}).items())
        attributes = {key: base64.b64decode(text).hex() for key, text in given if not key.startswith(HOST_XATTRS)}
        row = Found(
            "",
            kind,
            int(one.get("mode") or 0) & 0o7777,
            int(one.get("uid") or 0),
            int(one.get("gid") or 0),
            size if kind == "file" else 0,
            _seconds(one.get("modtime")),
            str(one.get("linkName") or ""),
            json.dumps(attributes, sort_keys=True) if attributes else "",
            offset,
            json.dumps([skip, end - offset]),
            digest if size else hashlib.sha256(b"").hexdigest(),
        )
        enter(rows, self._blob, str(one["name"]), row)

    def _raw(self, found: Found) -> bytes:
        if not found.size:
            return b""
        skip, length = json.loads(found.sparse)
        marks: list[Mark] = []
        return unpacked_from(self._blob, found.offset, length, skip, found.size, marks)


def _table(blob: Blob) -> bytes:
    """The table's JSON, verified."""
    assert blob.toc is not None
    if blob.toc.length:
        with blob.open(blob.toc.offset, blob.toc.length) as raw:
            packed = _all(raw, blob.toc.length)
        if sha256(packed) != blob.toc.digest:
            raise bad_layer(blob, "its table of contents does not match its digest")
        import zstandard

        try:
            with zstandard.ZstdDecompressor().stream_reader(packed) as reader:
                return reader.read(_MAX_TABLE)
        except zstandard.ZstdError as error:
            raise bad_layer(blob, f"damaged table of contents: {error}") from error
    with blob.open(blob.size - _ESTARGZ_FOOTER) as raw:
        found = re.search(rb"([0-9a-f]{16})STARGZ", _all(raw, _ESTARGZ_FOOTER))
    if not found or int(found[1], 16) >= blob.size:
        raise bad_layer(blob, "its footer names no table of contents")
    start = int(found[1], 16)
    with blob.open(start) as raw:
        packed = _all(raw, blob.size - start)
    try:
        plain = zlib.decompressobj(wbits=31).decompress(packed, _MAX_TABLE)
        with tarfile.open(fileobj=io.BytesIO(plain)) as archive:
            stream = archive.extractfile("stargz.index.json")
            table = stream.read() if stream else b""
    except (zlib.error, tarfile.TarError, KeyError) as error:
        raise bad_layer(blob, f"damaged table of contents: {error}") from error
    if sha256(table) != blob.toc.digest:
        raise bad_layer(blob, "its table of contents does not match its digest")
    return table


def _all(raw: Any, size: int) -> bytes:
    parts = []
    while size > 0 and (piece := raw.read(size)):
        parts.append(piece)
        size -= len(piece)
    return b"".join(parts)


def _seconds(text: object) -> int:
    """RFC 3339 as whole seconds since the epoch."""
    return math.floor(datetime.fromisoformat(text).timestamp()) if isinstance(text, str) and text else 0
