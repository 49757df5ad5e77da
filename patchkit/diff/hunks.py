"""Read the hunks of one section, and let no line get lost: counts must be met exactly, and nothing that looks like a
line of a hunk may be left over."""

from __future__ import annotations

import re
from itertools import compress

from patchkit.diff.model import Hunk
from patchkit.diff.source import Source

_HEADER = re.compile(rb"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@([^\n]*)")
_VERSION = re.compile(rb"\d+(?:\.\d+)+\S*\r?")
#: What mails put under a patch: git's signature, and lines of dashes.
_RULER = re.compile(rb"-- ?\r?|-{3,}\r?|-{5}.*")

_LF, _CR, _BLANK, _PLUS, _MINUS, _BACKSLASH = b"\n\r +-\\"
_ON_OLD_SIDE = bytes(sign in b" -\n\r" for sign in range(256))
_ON_NEW_SIDE = bytes(sign in b" +\n\r" for sign in range(256))


def read_hunks(source: Source, at: int, crlf: bool) -> tuple[tuple[Hunk, ...], int]:
    """The hunks from line ``at`` on, and the line after the last."""
    found = []
    while at < len(source.lines) and source.lines[at].startswith(b"@@"):
        hunk, at = _hunk(source, at, crlf)
        found.append(hunk)
    _nothing_left_over(source, at)
    return tuple(found), at


def _hunk(source: Source, start: int, crlf: bool) -> tuple[Hunk, int]:
    header = _HEADER.match(source.lines[start])
    if not header:
        source.malformed(start, "a hunk header that cannot be read: '@@ -LINE,COUNT +LINE,COUNT @@' is the form")
    old_start, old_count, new_start, new_count, heading = header.groups()
    at, marks = _body(source, start, int(old_count or b"1"), int(new_count or b"1"))
    signs = source.signs[start + 1 : at]
    lines = source.lines[start + 1 : at]
    if _LF in signs or _CR in signs:  # editors strip the blank of an empty context line
        lines = [b" " + line if line[:1] in b"\n\r" else line for line in lines]
    for mark in marks:
        _unmark(source, start, mark, lines, crlf)
    contents = [line[1:] for line in lines]
    old = tuple(compress(contents, signs.translate(_ON_OLD_SIDE)))
    new = tuple(compress(contents, signs.translate(_ON_NEW_SIDE)))
    if marks:
        if not all(line.endswith(b"\n") for side in (old, new) for line in side[:-1]):
            source.malformed(marks[0], "a marker for a missing newline stands before the last line of the file")
        signs = signs.replace(b"\\", b"")
    prefix = len(signs) - len(signs.lstrip(b" \n\r"))
    suffix = len(signs) - len(signs.rstrip(b" \n\r"))
    if old == new:
        source.malformed(start, "a hunk that changes nothing")
    if signs[-1:] == b"-" and old[-1].rstrip(b"\r\n") == b"- " and _VERSION.fullmatch(source.line(at)):
        source.malformed(at - 1, "the hunk takes the mail's signature for a removed line: its counts are wrong")
    if (old and old_start == b"0") or (new and new_start == b"0"):
        source.malformed(start, "a hunk that starts at line 0 and has lines there")
    return Hunk(int(old_start), int(new_start), old, new, prefix, suffix, start + 1, heading.strip()), at


def _body(source: Source, start: int, olds: int, news: int) -> tuple[int, list[int]]:
    """The line after the hunk that starts at ``start`` and counts so many lines, and where its markers are."""
    signs = source.signs
    marks = []
    at = start + 1
    try:
        while olds > 0 or news > 0:
            sign = signs[at]
            at += 1
            if sign == _BLANK:
                olds -= 1
                news -= 1
            elif sign == _PLUS:
                news -= 1
            elif sign == _MINUS:
                olds -= 1
            elif sign == _BACKSLASH:
                marks.append(at - 1)
            elif sign == _LF or source.lines[at - 1] == b"\r\n":
                olds -= 1
                news -= 1
            else:
                source.malformed(at - 1, _foreign(sign, start))
    except IndexError:
        source.malformed(len(signs), f"the patch ends inside the hunk of line {start + 1}: it is cut off")
    if olds < 0 or news < 0:
        source.malformed(start, "the hunk has other lines than its header counts")
    if at < len(signs) and signs[at] == _BACKSLASH:
        marks.append(at)
        at += 1
    return at, marks


def _unmark(source: Source, start: int, mark: int, lines: list[bytes], crlf: bool) -> None:
    """``\\ No newline at end of file``, in whatever language: the line before it has no line feed."""
    before = mark - start - 2
    if before < 0 or source.signs[mark - 1] == _BACKSLASH or not source.lines[mark].startswith(b"\\ "):
        source.malformed(mark, "a marker for a missing newline that follows no line")
    bare = lines[before].removesuffix(b"\n")
    lines[before] = bare.removesuffix(b"\r") if crlf else bare


def _nothing_left_over(source: Source, at: int) -> None:
    """Lines like a hunk's right after a complete hunk mean that its counts are wrong: patch tools drop them."""
    line = source.line(at)
    if at >= len(source.lines) or source.starts_section(at):
        return
    if line.rstrip(b"\r") in (b"-- ", b"--"):
        at += 1
        line = source.line(at)
        if line[:1] not in (b" ", b"+", b"-"):
            return
    if line[:1] in (b" ", b"+", b"-", b"\\"):
        source.malformed(at, "a line of a hunk after the hunk is complete: the counts in its header are wrong")
    if line.strip():
        return
    while at < len(source.lines) and (source.signs[at] == _BLANK or not source.lines[at].strip()):
        at += 1
    line = source.line(at)
    if line[:1] in (b"+", b"-") and not _RULER.fullmatch(line) and not source.starts_section(at):
        source.malformed(at, "a line of a hunk after the hunk is complete: the counts in its header are wrong")


def _foreign(sign: int, start: int) -> str:
    if sign == 0x09:
        return "a line in a hunk starts with a TAB: the blank before it was lost on the way"
    return f"a line that belongs to no hunk, before the hunk of line {start + 1} is complete"
