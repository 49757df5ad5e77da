"""Read the hunks of one section, and let no line get lost: counts must be met exactly, and nothing that looks like a
line of a hunk may be left over."""

from __future__ import annotations

import re

from patchkit.diff.model import Hunk
from patchkit.diff.source import Source

_HEADER = re.compile(rb"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@([^\n]*)")
_VERSION = re.compile(rb"\d+(?:\.\d+)+\S*\r?")
#: What mails put under a patch: git's signature, and lines of dashes.
_RULER = re.compile(rb"-- ?\r?|-{3,}\r?|-{5}.*")

_LF, _BLANK, _PLUS, _MINUS, _BACKSLASH = b"\n +-\\"


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
    olds, news, at = _sides(source, start, int(old_count or b"1"), int(new_count or b"1"), crlf)
    old, new = tuple(olds), tuple(news)
    signs = source.signs[start + 1 : at]
    if _BACKSLASH in signs:
        if not all(line.endswith(b"\n") for side in (old, new) for line in side[:-1]):
            mark = start + 1 + signs.index(_BACKSLASH)
            source.malformed(mark, "a marker for a missing newline stands before the last line of the file")
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


def _sides(source: Source, start: int, olds: int, news: int, crlf: bool) -> tuple[list[bytes], list[bytes], int]:
    """The old and the new side of the hunk that starts at ``start`` and counts so many lines, and the line after it."""
    signs, lines = source.signs, source.lines
    old: list[bytes] = []
    new: list[bytes] = []
    at = start + 1
    while len(old) < olds or len(new) < news:
        if at == len(signs):
            source.malformed(at, f"the patch ends inside the hunk of line {start + 1}: it is cut off")
        sign = signs[at]
        line = lines[at][1:]
        if sign == _BLANK:
            old.append(line)
            new.append(line)
        elif sign == _PLUS:
            new.append(line)
        elif sign == _MINUS:
            old.append(line)
        elif sign == _BACKSLASH:
            _unmark(source, start, at, old, new, crlf)
        elif sign == _LF or lines[at] == b"\r\n":  # editors strip the blank of an empty context line
            old.append(lines[at])
            new.append(lines[at])
        else:
            source.malformed(at, _foreign(sign, start))
        at += 1
    if len(old) > olds or len(new) > news:
        source.malformed(start, "the hunk has other lines than its header counts")
    if at < len(signs) and signs[at] == _BACKSLASH:
        _unmark(source, start, at, old, new, crlf)
        at += 1
    return old, new, at


def _unmark(source: Source, start: int, mark: int, old: list[bytes], new: list[bytes], crlf: bool) -> None:
    """``\\ No newline at end of file``, in whatever language: the line before it has no line feed."""
    before = source.signs[mark - 1]
    if mark == start + 1 or before == _BACKSLASH or not source.lines[mark].startswith(b"\\ "):
        source.malformed(mark, "a marker for a missing newline that follows no line")
    for side, other in ((old, _PLUS), (new, _MINUS)):
        if before != other:
            bare = side[-1].removesuffix(b"\n")
            side[-1] = bare.removesuffix(b"\r") if crlf else bare


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
