"""Which lines of two versions are the same: the ground of writing diffs and of merging.

By patience: lines that stand once in each version are matched first, in order, and what lies between them is matched
the same way; equal heads and tails go together. Where no such line is left, the shortest edit script decides. The
result reads as a person would tell the change: a diff does not hang on to blank lines and closing brackets.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

#: Ranges nested deeper than that come from input made for it.
_DEEPEST = 200
#: Edits that the shortest edit script may need before the whole range counts as replaced.
_MOST_EDITS = 300


@dataclass(frozen=True, slots=True)
class Change:
    """Lines ``[old, old_end)`` of the old version became lines ``[new, new_end)`` of the new one."""

    old: int
    old_end: int
    new: int
    new_end: int


def changes(old: Sequence[bytes], new: Sequence[bytes]) -> list[Change]:
    """The differences in order, with at least one equal line between any two. A pure insertion or removal that could
    stand at several places stands at the lowest: two versions with the same addition show it at the same place."""
    same = _same(old, new)
    found = []
    at_old = at_new = 0
    for i, j in [*same, (len(old), len(new))]:
        if i > at_old or j > at_new:
            found.append(Change(at_old, i, at_new, j))
        at_old, at_new = i + 1, j + 1
    return _slid(found, old, new)


def _same(old: Sequence[bytes], new: Sequence[bytes]) -> list[tuple[int, int]]:
    """Pairs of equal lines, rising on both sides."""
    pairs: list[tuple[int, int]] = []
    todo = [(0, len(old), 0, len(new), 0)]
    while todo:
        low, high, start, end, depth = todo.pop()
        while low < high and start < end and old[low] == new[start]:
            pairs.append((low, start))
            low, start = low + 1, start + 1
        while low < high and start < end and old[high - 1] == new[end - 1]:
            high, end = high - 1, end - 1
            pairs.append((high, end))
        if low == high or start == end:
            continue
        anchors = _unique(old, low, high, new, start, end) if depth < _DEEPEST else []
        if not anchors:
            pairs += _shortest(old, low, high, new, start, end)
            continue
        pairs += anchors
        for i, j in anchors:
            todo.append((low, i, start, j, depth + 1))
            low, start = i + 1, j + 1
        todo.append((low, high, start, end, depth + 1))
    return sorted(pairs)


def _unique(
    old: Sequence[bytes], low: int, high: int, new: Sequence[bytes], start: int, end: int
) -> list[tuple[int, int]]:
    """The longest rising run of lines that stand exactly once on each side."""
    places: dict[bytes, int] = {}
    for i in range(low, high):
        places[old[i]] = -1 if old[i] in places else i
    mates: dict[bytes, int] = {}
    for j in range(start, end):
        mates[new[j]] = -1 if new[j] in mates else j
    pairs = [(i, mates[line]) for line, i in places.items() if i >= 0 and mates.get(line, -1) >= 0]
    piles: list[int] = []
    tops: list[int] = []
    before: list[int] = []
    for number, (_, j) in enumerate(pairs):
        pile = bisect_left(piles, j)
        before.append(tops[pile - 1] if pile else -1)
        if pile == len(piles):
            piles.append(j)
            tops.append(number)
        else:
            piles[pile], tops[pile] = j, number
    run: list[tuple[int, int]] = []
    at = tops[-1] if tops else -1
    while at >= 0:
        run.append(pairs[at])
        at = before[at]
    return run[::-1]


def _shortest(
    old: Sequence[bytes], low: int, high: int, new: Sequence[bytes], start: int, end: int
) -> list[tuple[int, int]]:
    """The pairs of a shortest edit script, or none when it would be long.

    Source: E. W. Myers, "An O(ND) Difference Algorithm and Its Variations", Algorithmica 1 (1986), figure 2.
    """
    n, m = high - low, end - start
    reach = {1: 0}
    steps: list[dict[int, int]] = []
    for edits in range(min(n + m, _MOST_EDITS) + 1):
        steps.append(dict(reach))
        for diagonal in range(-edits, edits + 1, 2):
            down = diagonal == -edits or (diagonal != edits and reach[diagonal - 1] < reach[diagonal + 1])
            x = reach[diagonal + 1] if down else reach[diagonal - 1] + 1
            y = x - diagonal
            while x < n and y < m and old[low + x] == new[start + y]:
                x, y = x + 1, y + 1
            reach[diagonal] = x
            if x >= n and y >= m:
                return _walked_back(steps, n, m, low, start)
    return []


def _walked_back(steps: list[dict[int, int]], x: int, y: int, low: int, start: int) -> list[tuple[int, int]]:
    pairs = []
    for edits in range(len(steps) - 1, -1, -1):
        reach = steps[edits]
        diagonal = x - y
        down = diagonal == -edits or (diagonal != edits and reach[diagonal - 1] < reach[diagonal + 1])
        previous = diagonal + 1 if down else diagonal - 1
        from_x = reach[previous]
        from_y = from_x - previous
        while x > max(from_x, 0) and y > max(from_y, 0) and x - y == diagonal and (x, y) != (from_x, from_y):
            if (down and y - 1 < from_y + 1 and edits) or (not down and x - 1 < from_x + 1 and edits):
                break
            x, y = x - 1, y - 1
            pairs.append((low + x, start + y))
        x, y = from_x, from_y
    return pairs


def _slid(found: list[Change], old: Sequence[bytes], new: Sequence[bytes]) -> list[Change]:
    """Each pure insertion or removal moved down as far as the text allows, joined with the next where they meet."""
    slid: list[Change] = []
    limit_old, limit_new = len(old), len(new)
    for change in reversed(found):
        while True:
            pure_new = change.old == change.old_end
            pure_old = change.new == change.new_end
            if pure_new:
                down = change.new_end < limit_new and new[change.new] == new[change.new_end]
            else:
                down = pure_old and change.old_end < limit_old and old[change.old] == old[change.old_end]
            if not down or change.old_end >= limit_old or change.new_end >= limit_new:
                break
            change = Change(change.old + 1, change.old_end + 1, change.new + 1, change.new_end + 1)
        if slid and change.old_end == slid[-1].old and change.new_end == slid[-1].new:
            below = slid.pop()
            change = Change(change.old, below.old_end, change.new, below.new_end)
        slid.append(change)
        limit_old, limit_new = change.old, change.new
    return slid[::-1]
