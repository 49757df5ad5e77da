"""A layer's bytes as a stream: unpacked, counted, bounded, and hashed on both sides of the compression."""

from __future__ import annotations

import hashlib
import io
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Protocol, cast

from patchkit.errors import Refused, Unreachable

if TYPE_CHECKING:
    from patchkit.images.toc import Toc

_CHUNK = 256 * 1024
_PIECE = 1024 * 1024
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
#: A place to start unpacking from is kept each so many bytes; one costs 40 KB of memory.
_MARK_EVERY = 16 * 1024 * 1024
#: zstd's own limit for the window without a special switch (zstd(1), --long).
_ZSTD_WINDOW = 1 << 27
#: No header, name list or extended header of a sane tar entry is larger.
MAX_HEADER = 16 * 1024 * 1024


class Blob(Protocol):
    """A layer as stored. ``open`` gives its bytes from ``offset`` on, ``size`` of them if no more are wanted; nothing
    is verified yet. ``toc`` is where its table of contents is, for a layer that is costly to read whole."""

    @property
    def toc(self) -> Toc | None: ...

    @property
    def digest(self) -> str: ...

    @property
    def size(self) -> int: ...

    def open(self, offset: int = 0, size: int | None = None) -> IO[bytes]: ...


def bad_layer(blob: Blob, why: str) -> Unreachable:
    """The error for a layer that is not what its name says."""
    remedy = "fetch or build the image again; its stored bytes are bad"
    return Unreachable("bad-layer", why, where=f"layer {blob.digest}", remedy=remedy)


def hostile_layer(blob: Blob, why: str) -> Refused:
    """The error for a layer that no honest builder writes."""
    return Refused("hostile-layer", why, where=f"layer {blob.digest}")


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in a gzip stream: unpacking can start at ``packed`` with ``decoder`` (None: at a new member) and gives
    the bytes from ``unpacked`` on."""

    unpacked: int
    packed: int
    decoder: zlib._Decompress | None


class LayerStream(io.RawIOBase):
    """The unpacked tar of a layer, forward only. ``tarfile`` reads from it as from a file, since it never goes back.

    After ``finish`` the digests of the whole blob and of the whole tar are known to be the promised ones. ``allowance``
    is how many bytes ``read`` may still give: set it anew for each entry.

    Raises (while reading):
        patchkit.errors.Refused: ``hostile-layer``: it unpacks to more than ``limit`` bytes, or a header never ends.
        patchkit.errors.Unreachable: ``bad-layer``: damaged, cut, or not what its digests say.
    """

    def __init__(self, blob: Blob, diff_id: str, marks: list[Mark], limit: int | None = None) -> None:
        super().__init__()
        self.allowance = MAX_HEADER
        self._blob, self._diff_id = blob, diff_id
        self._limit = limit if limit is not None else max(16 * 1024**3, 100 * blob.size)
        self._raw = blob.open()
        self._packed_size, self._packed_hash = 0, hashlib.sha256()
        self._unpacked_size, self._unpacked_hash = 0, hashlib.sha256()
        self._position = 0
        self._buffer = memoryview(b"")
        self._pieces = _pieces(self._next_packed, blob, marks)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence != io.SEEK_SET or offset < self._position:
            raise io.UnsupportedOperation("a layer is read forward only")
        while self._position < offset and self._fill():
            self._take(offset - self._position)
        return self._position

    def read(self, size: int = -1) -> bytes:
        self.allowance -= size
        if size < 0 or self.allowance < 0:
            raise hostile_layer(self._blob, "a tar header that does not end")
        parts = []
        while size and self._fill():
            part = bytes(self._take(size))
            size -= len(part)
            parts.append(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def hash_next(self, size: int) -> str:
        """The sha256 (hex) of the next ``size`` bytes."""
        digest = hashlib.sha256()
        while size:
            if not self._fill():
                raise bad_layer(self._blob, "it ends within a file")
            part = self._take(size)
            size -= len(part)
            digest.update(part)
        return digest.hexdigest()

    def finish(self) -> None:
        """Read what is left and check both digests."""
        while self._fill():
            self._take(len(self._buffer))
        while self._next_packed():
            pass
        if self._packed_size != self._blob.size or f"sha256:{self._packed_hash.hexdigest()}" != self._blob.digest:
            raise bad_layer(self._blob, "its bytes do not match its digest")
        if f"sha256:{self._unpacked_hash.hexdigest()}" != self._diff_id:
            raise bad_layer(self._blob, f"it unpacks to something else than the config's diff-id {self._diff_id}")

    def close(self) -> None:
        self._raw.close()
        super().close()

    def _take(self, size: int) -> memoryview:
        part = self._buffer[:size]
        self._buffer = self._buffer[size:]
        self._position += len(part)
        return part

    def _fill(self) -> bool:
        """Have at least one byte in the buffer, or say that there is none left."""
        while not self._buffer:
            piece = next(self._pieces, None)
            if piece is None:
                return False
            self._unpacked_size += len(piece)
            if self._unpacked_size > self._limit:
                raise hostile_layer(self._blob, f"{self._blob.size} bytes unpack to more than {self._limit}")
            self._unpacked_hash.update(piece)
            self._buffer = memoryview(piece)
        return True

    def _next_packed(self) -> bytes:
        try:
            chunk = self._raw.read(_CHUNK)
        except OSError as error:
            raise bad_layer(self._blob, f"cannot be read: {error.strerror or error}") from error
        self._packed_size += len(chunk)
        self._packed_hash.update(chunk)
        return chunk


def is_packed(blob: Blob) -> bool:
    """Whether the layer is stored compressed."""
    with blob.open() as raw:
        return raw.read(len(_ZSTD)).startswith((_GZIP, _ZSTD))


def read_at(blob: Blob, offset: int, size: int, marks: list[Mark]) -> bytes:
    """``size`` bytes of the unpacked layer at ``offset``, unverified; reads from the nearest of ``marks`` before it and
    adds those that it passes."""
    start = max((mark for mark in marks if mark.unpacked <= offset), key=lambda mark: mark.unpacked, default=None)
    with blob.open(start.packed if start else 0) as raw:
        if start is not None:
            pieces = _gunzip(b"", lambda: raw.read(_CHUNK), blob, marks, start)
            return _exactly(pieces, offset - start.unpacked, size, blob)
        head = raw.read(len(_ZSTD))
        if head.startswith((_GZIP, _ZSTD)):
            first = [head]
            pieces = _pieces(lambda: first.pop() if first else raw.read(_CHUNK), blob, marks)
            return _exactly(pieces, offset, size, blob)
    with blob.open(offset) as raw:
        return _exactly(iter(lambda: raw.read(min(size, _CHUNK)), b""), 0, size, blob)


def unpacked_from(blob: Blob, place: int, length: int, skip: int, size: int, marks: list[Mark]) -> bytes:
    """``size`` bytes, unverified, ``skip`` bytes into what the ``length`` bytes of the blob at ``place`` unpack to: a
    gzip member or zstd frame begins there."""
    with blob.open(place, length) as raw:
        left = length

        def read() -> bytes:
            nonlocal left
            piece = raw.read(min(left, _CHUNK))
            left -= len(piece)
            return piece

        return _exactly(_pieces(read, blob, marks), skip, size, blob)


def _exactly(pieces: Iterator[bytes], skip: int, size: int, blob: Blob) -> bytes:
    parts: list[bytes] = []
    while size:
        piece = next(pieces, b"")
        if not piece:
            raise bad_layer(blob, "it ends too early")
        part = piece[skip : skip + size]
        skip = max(0, skip - len(piece))
        size -= len(part)
        parts.append(part)
    return b"".join(parts)


def _pieces(read: Callable[[], bytes], blob: Blob, marks: list[Mark]) -> Iterator[bytes]:
    """The unpacked pieces of what ``read`` gives chunk by chunk; the first bytes tell the compression."""
    first = read()
    if first.startswith(_GZIP):
        yield from _gunzip(first, read, blob, marks, Mark(0, 0, None))
    elif first.startswith(_ZSTD):
        yield from _unzstd(first, read, blob)
    else:
        while first:
            yield first
            first = read()


def _gunzip(chunk: bytes, read: Callable[[], bytes], blob: Blob, marks: list[Mark], start: Mark) -> Iterator[bytes]:
    """All members of a gzip file (eStargz makes one a file) from ``start`` on."""
    packed, unpacked = start.packed, start.unpacked
    decoder = start.decoder.copy() if start.decoder else None
    try:
        while chunk := chunk or read():
            packed += len(chunk)
            while chunk:
                decoder = decoder or zlib.decompressobj(wbits=31)
                more = True
                while more:  # a full piece may leave output inside the decoder after the last input byte
                    piece = decoder.decompress(chunk, _PIECE)
                    chunk = decoder.unconsumed_tail
                    more = len(piece) == _PIECE and not decoder.eof
                    unpacked += len(piece)
                    if piece:
                        yield piece
                if decoder.eof:
                    chunk, decoder = decoder.unused_data, None
            if unpacked >= (marks[-1].unpacked if marks else 0) + _MARK_EVERY:
                marks.append(Mark(unpacked, packed, decoder.copy() if decoder else None))
    except zlib.error as error:
        raise bad_layer(blob, f"damaged gzip: {error}") from error
    if decoder is not None:
        raise bad_layer(blob, "its gzip stream is cut")


def _unzstd(chunk: bytes, read: Callable[[], bytes], blob: Blob) -> Iterator[bytes]:
    import zstandard

    class Packed:
        def read(self, size: int) -> bytes:
            nonlocal chunk
            given, chunk = chunk or read(), b""
            return given

    decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW)
    try:
        with decompressor.stream_reader(cast(IO[bytes], Packed()), read_size=_CHUNK, read_across_frames=True) as reader:
            while piece := reader.read(_PIECE):
                yield piece
    except zstandard.ZstdError as error:
        raise bad_layer(blob, f"damaged zstd: {error}") from error
