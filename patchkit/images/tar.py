"""Tar members as bytes: ustar headers, with PAX records only where ustar cannot say it.

Written here and not with ``tarfile`` because a layer's digest must be the same under every Python version; how
``tarfile`` fills unused header fields has changed between them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

BLOCK = 512
END = bytes(2 * BLOCK)
FILE, DIRECTORY = b"0", b"5"
_PAX = b"x"
_OCTAL_7, _OCTAL_11 = 0o7777777, 0o77777777777


def member(
    name: str,
    kind: bytes,
    *,
    mode: int,
    uid: int,
    gid: int,
    mtime: int,
    data: bytes = b"",
    xattrs: Mapping[str, bytes] | None = None,
) -> bytes:
    """One whole member: header, data, padding. ``name`` is relative; a folder's ends with a slash."""
    path = os.fsencode(name)
    records: dict[str, bytes] = {f"SCHILY.xattr.{key}": value for key, value in (xattrs or {}).items()}
    if len(path) > 100 or not path.isascii():
        records["path"] = path
    for key, value, most in (("uid", uid, _OCTAL_7), ("gid", gid, _OCTAL_7), ("mtime", mtime, _OCTAL_11)):
        if not 0 <= value <= most:
            records[key] = b"%d" % value
    pax = b"".join(_record(key, records[key]) for key in sorted(records))
    head = _header(b"././@PaxHeader", _PAX, 0o644, 0, 0, 0, len(pax)) + _padded(pax) if pax else b""
    return head + _header(path, kind, mode, uid, gid, mtime, len(data)) + _padded(data)


def _header(path: bytes, kind: bytes, mode: int, uid: int, gid: int, mtime: int, size: int) -> bytes:
    fields = (
        path[:100].ljust(100, b"\0"),
        b"%07o\0" % (mode & 0o7777),
        b"%07o\0" % (uid if 0 <= uid <= _OCTAL_7 else 0),
        b"%07o\0" % (gid if 0 <= gid <= _OCTAL_7 else 0),
        b"%011o\0" % size,
        b"%011o\0" % (mtime if 0 <= mtime <= _OCTAL_11 else 0),
    )
    tail = kind + bytes(100) + b"ustar\x0000" + bytes(64) + bytes(16) + bytes(155) + bytes(12)
    checksum = sum(b"".join(fields)) + 8 * ord(" ") + sum(tail)
    return b"".join(fields) + b"%06o\0 " % checksum + tail


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % BLOCK)


def _record(key: str, value: bytes) -> bytes:
    """One PAX record ``LENGTH KEY=VALUE\\n`` whose LENGTH counts itself (POSIX.1-2001 pax, extended header)."""
    rest = b" " + os.fsencode(key) + b"=" + value + b"\n"
    length = len(rest)
    while length != len(rest) + len(str(length)):
        length = len(rest) + len(str(length))
    return str(length).encode() + rest
