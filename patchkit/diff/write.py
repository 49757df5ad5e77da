"""Write a patch: the differences of two trees as one git-style unified diff."""

from __future__ import annotations

from collections.abc import Mapping

from patchkit.diff.filepatch import blob_id
from patchkit.diff.lines import split_lines
from patchkit.diff.matching import Change, changes
from patchkit.diff.names import quote

_NO_NEWLINE = b"\n\\ No newline at end of file\n"
_NULL_BLOB = "0" * 40


def write(old: Mapping[str, bytes], new: Mapping[str, bytes], *, context: int = 3) -> bytes:
    """The unified diff from one tree (path -> bytes) to another; empty when they are equal.

    Files come in the order of their paths, with git's headers and full blob ids, and nothing that depends on when or
    where it is written. GNU patch, git apply and ``parse`` read it back to the same bytes. Files are taken as text
    whatever they hold, and as mode 100644.
    """
    parts: list[bytes] = []
    for path in sorted({*old, *new}):
        before, after = old.get(path), new.get(path)
        if before != after:
            parts.append(_section(path, before, after, context))
    return b"".join(parts)


def _section(path: str, before: bytes | None, after: bytes | None, context: int) -> bytes:
    left, right = quote("a/" + path), quote("b/" + path)
    ids = tuple(_NULL_BLOB if data is None else blob_id(data) for data in (before, after))
    parts = [b"diff --git %s %s\n" % (left, right)]
    if before is None:
        parts.append(b"new file mode 100644\n")
    if after is None:
        parts.append(b"deleted file mode 100644\n")
    mode = b" 100644" if before is not None and after is not None else b""
    parts.append(f"index {ids[0]}..{ids[1]}".encode() + mode + b"\n")
    old, new = split_lines(before or b""), split_lines(after or b"")
    if old or new:
        parts.append(b"--- %s\n" % (_ended(left) if before is not None else b"/dev/null"))
        parts.append(b"+++ %s\n" % (_ended(right) if after is not None else b"/dev/null"))
        parts += [_hunk(group, old, new, context) for group in _groups(changes(old, new), context)]
    return b"".join(parts)


def _ended(name: bytes) -> bytes:
    """A name with blanks is ended by a TAB, so that GNU patch does not take the rest for a time stamp."""
    return name + b"\t" if b" " in name and not name.startswith(b'"') else name


def _groups(found: list[Change], context: int) -> list[list[Change]]:
    """Changes whose context meets go into one hunk."""
    groups: list[list[Change]] = []
    for change in found:
        if groups and change.old - groups[-1][-1].old_end <= 2 * context:
            groups[-1].append(change)
        else:
            groups.append([change])
    return groups


def _hunk(group: list[Change], old: list[bytes], new: list[bytes], context: int) -> bytes:
    first, last = group[0], group[-1]
    before = min(context, first.old)
    after = min(context, len(old) - last.old_end)
    top_old, end_old = first.old - before, last.old_end + after
    top_new, end_new = first.new - before, last.new_end + after
    parts = [b"@@ -%s +%s @@\n" % (_range(top_old, end_old), _range(top_new, end_new))]
    at = top_old
    for change in group:
        parts += [_line(b" ", line) for line in old[at : change.old]]
        parts += [_line(b"-", line) for line in old[change.old : change.old_end]]
        parts += [_line(b"+", line) for line in new[change.new : change.new_end]]
        at = change.old_end
    parts += [_line(b" ", line) for line in old[at:end_old]]
    return b"".join(parts)


def _range(start: int, end: int) -> bytes:
    count = end - start
    return b"%d" % (start + 1) if count == 1 else b"%d,%d" % (start + 1 if count else start, count)


def _line(sign: bytes, line: bytes) -> bytes:
    return sign + (line if line.endswith(b"\n") else line + _NO_NEWLINE)
