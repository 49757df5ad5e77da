"""File names in patches: unquoting, stripping, and refusing what leads out of the tree."""

from __future__ import annotations

import re

from patchkit.errors import BadInput

NULL = "/dev/null"

_ESCAPE = re.compile(rb"\\([0-7]{3}|[abtnvfr\"\\])")
_SIMPLE = {b"a": b"\a", b"b": b"\b", b"t": b"\t", b"n": b"\n", b"v": b"\v", b"f": b"\f", b"r": b"\r"}
_DRIVE = re.compile(r"[A-Za-z]:")
_BACKUPS = (".orig", ".old", ".bak", "~")


def unquote(raw: bytes) -> bytes:
    """A name as git writes it: in double quotes with C escapes when it holds anything unusual, else as it is.

    Source: git-config(1), ``core.quotePath``.
    """
    if len(raw) < 2 or raw[:1] != b'"' or raw[-1:] != b'"':
        return raw
    return _ESCAPE.sub(_unescape, raw[1:-1])


def _unescape(match: re.Match[bytes]) -> bytes:
    code = match.group(1)
    if code.isdigit():
        return bytes([int(code, 8) & 0xFF])
    return _SIMPLE.get(code, code)


def quote(name: str) -> bytes:
    """The name as git would write it: quoted when it holds control characters, quotes, backslashes or non-ASCII."""
    raw = name.encode("utf-8", "surrogateescape")
    if all(0x20 <= byte < 0x7F and byte not in b'"\\' for byte in raw):
        return raw
    escapes = {value[0]: b"\\" + code for code, value in _SIMPLE.items()} | {0x22: b'\\"', 0x5C: b"\\\\"}
    parts = (escapes.get(byte) or (bytes([byte]) if 0x20 <= byte < 0x7F else b"\\%03o" % byte) for byte in raw)
    return b'"' + b"".join(parts) + b'"'


def text(raw: bytes) -> str:
    """A name's bytes as the text that the file system calls use for them."""
    return raw.decode("utf-8", "surrogateescape")


def strip_name(name: str, strip: int) -> str:
    """The path inside the tree that ``name`` means when its first ``strip`` components are removed.

    Raises:
        patchkit.errors.BadInput: ``unsafe-path`` or ``strip-too-deep``, see ``FilePatch.names``.
    """
    parts = name.split("/")
    bad = (
        "is empty"
        if not name
        else "is absolute"
        if not parts[0] or name[0] == "\\" or _DRIVE.match(name)
        else "holds a NUL byte or a line break"
        if "\0" in name or "\n" in name
        else "holds a '..' component"
        if ".." in parts or ".." in name.split("\\")
        else "is a folder"
        if not parts[-1]
        else ""
    )
    parts = [part for part in parts if part]
    left = parts[strip:]
    if not bad and left and (_DRIVE.match(left[0]) or left[0].startswith("\\")):
        bad = "is absolute once stripped"
    if not bad and strip == 0 and parts[0] == ".":
        left = left[1:]
    if not bad and "." in left:
        bad = "holds a '.' component"
    if not bad and ".git" in (part.lower() for part in left):
        bad = "leads into a git repository's own folder"
    if bad:
        raise BadInput(
            "unsafe-path",
            f"the name {name!r} {bad}: a patch may only name files inside the tree",
            where=name,
            remedy="correct the file names in the patch",
        )
    if not left:
        raise BadInput(
            "strip-too-deep",
            f"removing {strip} leading folder(s) leaves nothing of the name {name!r}",
            where=name,
            remedy="use a smaller strip level: -p0, or -p auto",
        )
    return "/".join(left)


def choose_target(old: str | None, new: str | None) -> str:
    """The one of two stripped names that a section is about: the new one, unless only the old one is a real file's."""
    if new is None:
        assert old is not None, "a section with two /dev/null names is refused by the parser"
        return old
    if old is not None and any(new == old + suffix for suffix in _BACKUPS):
        return old
    return new
