"""Three-way merge: bring one side's changes into a file that has changed as well."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from patchkit.diff.lines import is_crlf, split_lines
from patchkit.diff.matching import Change, changes
from patchkit.diff.model import Merge

#: Conflicts with no more equal lines than that between them are told as one: easier to mend.
_CLOSE = 3


def merge3(base: bytes, theirs: bytes, ours: bytes, labels: tuple[str, str] = ("ours", "theirs")) -> Merge:
    """Bring the changes from ``base`` to ``theirs`` into ``ours``.

    Changes that overlap or touch are a conflict unless they are the same, as for git merge-file. ``labels`` say in the
    conflict markers what ours and theirs are. Line ends are part of the lines: nothing is renormalised.
    """
    old, left, right = split_lines(base), split_lines(ours), split_lines(theirs)
    mine, other = changes(old, left), changes(old, right)
    merged: list[bytes] = []
    conflicts = 0
    at = 0
    for region in _regions(mine, other):
        merged += old[at : region.low]
        at = region.high
        if not region.theirs:
            merged += _side(left, region.ours, region)
        elif not region.ours:
            merged += _side(right, region.theirs, region)
        else:
            ours_here, theirs_here = _side(left, region.ours, region), _side(right, region.theirs, region)
            lines, count = _both(ours_here, theirs_here, labels)
            merged += lines
            conflicts += count
    merged += old[at:]
    return Merge(b"".join(merged), conflicts)


@dataclass(slots=True)
class _Region:
    """A range of the base that changes of either side cover."""

    low: int
    high: int
    ours: list[Change]
    theirs: list[Change]


def _regions(mine: list[Change], other: list[Change]) -> list[_Region]:
    """The changes of both sides in order; what overlaps or touches goes into one region."""
    regions: list[_Region] = []
    marked = [(change, True) for change in mine] + [(change, False) for change in other]
    for change, is_mine in sorted(marked, key=lambda pair: (pair[0].old, pair[0].old_end)):
        if not regions or change.old > regions[-1].high:
            regions.append(_Region(change.old, change.old_end, [], []))
        region = regions[-1]
        region.high = max(region.high, change.old_end)
        (region.ours if is_mine else region.theirs).append(change)
    return regions


def _side(lines: Sequence[bytes], here: list[Change], region: _Region) -> list[bytes]:
    """One side's text for the region."""
    first, last = here[0], here[-1]
    return list(lines[first.new - (first.old - region.low) : last.new_end + (region.high - last.old_end)])


@dataclass(slots=True)
class _Conflict:
    ours: list[bytes]
    theirs: list[bytes]


def _both(ours: list[bytes], theirs: list[bytes], labels: tuple[str, str]) -> tuple[list[bytes], int]:
    """The text where both sides changed: what they agree on stays outside of the markers."""
    parts: list[list[bytes] | _Conflict] = []
    at = 0
    for change in changes(ours, theirs):
        same = ours[at : change.old]
        conflict = _Conflict(ours[change.old : change.old_end], theirs[change.new : change.new_end])
        last = parts[-1] if parts else None
        if isinstance(last, _Conflict) and (len(same) <= _CLOSE or not any(map(_has_word, same))):
            last.ours += same + conflict.ours
            last.theirs += same + conflict.theirs
        else:
            parts += [same, conflict]
        at = change.old_end
    parts.append(ours[at:])
    lines: list[bytes] = []
    for part in parts:
        lines += part if isinstance(part, list) else _marked(part, labels)
    return lines, sum(isinstance(part, _Conflict) for part in parts)


def _has_word(line: bytes) -> bool:
    return any(chr(byte).isalnum() for byte in line if byte < 0x80)


def _marked(conflict: _Conflict, labels: tuple[str, str]) -> list[bytes]:
    ours, theirs = (label.encode("utf-8", "surrogateescape") for label in labels)
    text = b"".join((*conflict.ours, *conflict.theirs))
    end = b"\r\n" if is_crlf(text) else b"\n"

    def ended(lines: list[bytes]) -> list[bytes]:
        return [line if line.endswith(b"\n") else line + end for line in lines]

    return [
        b"<<<<<<< " + ours + end, *ended(conflict.ours), b"=======" + end, *ended(conflict.theirs),
        b">>>>>>> " + theirs + end,
    ]  # fmt: skip
