"""Files as lines, and finding runs of lines in them.

A line ends at LF and nowhere else: form feeds, lone carriage returns and Unicode separators are part of a line.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence

from patchkit.errors import BadInput

#: As many places are looked for and told; more than that says nothing new.
MAX_PLACES = 20
#: Comparisons that one file may cost. Honest input needs a few for each hunk; input made of equal lines needs
#: (hunks x lines), and is refused.
MAX_WORK = 5_000_000
#: A line that stands more often than this in a file tells nothing about where a hunk belongs.
_COMMON = 64
#: An index of all lines pays from about so many searches on.
_FEW_SEARCHES = 8


def split_lines(data: bytes) -> list[bytes]:
    """The lines with their line feeds; the last may lack one."""
    if b"\r" not in data:
        return data.splitlines(keepends=True)  # bytes have no other line ends than these two; this is the fast way
    lines = data.split(b"\n")
    last = lines.pop()
    found = [line + b"\n" for line in lines]
    if last:
        found.append(last)
    return found


def is_crlf(data: bytes) -> bool:
    """Whether every line end is CRLF, and there is one."""
    return b"\r" in data and 0 < data.count(b"\n") == data.count(b"\r\n")  # most files have none: no need to count


def drop_cr(lines: Iterable[bytes]) -> list[bytes]:
    """Lines with LF where they had CRLF."""
    return [line[:-2] + b"\n" if line.endswith(b"\r\n") else line for line in lines]


def is_blank(line: bytes) -> bool:
    return not line.strip()


class Haystack:
    """The lines of one file, indexed for finding runs of lines."""

    def __init__(self, lines: Iterable[bytes]) -> None:
        self.lines = tuple(lines)
        self._index: dict[bytes, list[int]] | None = None
        self._counts: Counter[bytes] | None = None
        self._searches = 0
        self._work = 0

    def __len__(self) -> int:
        return len(self.lines)

    def at(self, place: int, run: tuple[bytes, ...]) -> bool:
        """Whether ``run`` stands at ``place`` (0-based)."""
        return place >= 0 and self.lines[place : place + len(run)] == run

    def places(self, run: tuple[bytes, ...], guess: int, floor: int = 0) -> list[int]:
        """Where ``run`` stands at or after ``floor``: at most ``MAX_PLACES`` places, the nearest to ``guess`` first,
        of two equally near ones the later first.

        Raises:
            patchkit.errors.BadInput: ``patch-too-costly`` when patch and file are made to keep the search busy.
        """
        if not run:
            return []
        if guess >= floor and self.at(guess, run) and self.has_single(run):
            return [guess]
        counts = [self.counts.get(line, 0) for line in run]
        inside = counts.index(min(counts))
        if not counts[inside]:
            return []
        rarest = self.standing(run[inside])
        found: list[int] = []
        first, last = run[0], run[-1]
        lines, length = self.lines, len(run)
        top = len(lines) - length
        right = bisect_left(rarest, guess + inside)
        left = right - 1
        while len(found) < MAX_PLACES and (left >= 0 or right < len(rarest)):
            ahead = rarest[right] - inside - guess if right < len(rarest) else None
            behind = guess - (rarest[left] - inside) if left >= 0 else None
            if behind is None or (ahead is not None and ahead <= behind):
                place = rarest[right] - inside
                right += 1
            else:
                place = rarest[left] - inside
                left -= 1
            self._work += 1
            if not floor <= place <= top or lines[place] != first or lines[place + length - 1] != last:
                continue
            self.spend(length)
            if lines[place : place + length] == run:
                found.append(place)
        self.spend(0)
        return found

    def has_single(self, run: tuple[bytes, ...]) -> bool:
        """Whether any line of ``run`` stands but once in the file, so that the run can stand at one place only."""
        return 1 in map(self.counts.get, run)

    def most_like(self, run: Sequence[bytes], guess: int) -> tuple[int, int] | None:
        """The place where most lines of ``run`` stand, and how many; the nearest to ``guess`` among equals. None
        where not one line that tells anything stands in the file."""
        votes: Counter[int] = Counter()
        for at, line in enumerate(run):
            if is_blank(line) or not 0 < self.counts[line] <= _COMMON:
                continue
            standing = self.standing(line)
            self.spend(len(standing))
            for place in standing:
                votes[place - at] += 1
        if not votes:
            return None
        place = min(votes, key=lambda place: (-votes[place], abs(place - guess), -place))
        place = max(0, min(place, len(self.lines) - 1))
        same = sum(1 for mine, theirs in zip(run, self.lines[place:], strict=False) if mine == theirs)
        return place, same

    def spend(self, amount: int) -> None:
        self._work += amount
        if self._work > MAX_WORK:
            raise BadInput(
                "patch-too-costly",
                "the patch and the file repeat the same lines so often that placing the hunks takes too long",
                remedy="make the patch anew with more context (diff -U10), or in smaller pieces",
            )

    @property
    def counts(self) -> Counter[bytes]:
        """Line -> how often it stands in the file."""
        if self._counts is None:
            self._counts = Counter(self.lines)
        return self._counts

    def standing(self, line: bytes) -> Sequence[int]:
        """Where ``line`` stands, in order."""
        if self._index is None and self._searches < _FEW_SEARCHES:
            self._searches += 1
            found = [self.lines.index(line)] if self.counts[line] else []
            while len(found) < self.counts[line]:
                found.append(self.lines.index(line, found[-1] + 1))
            return found
        if self._index is None:
            self._index = {}
            for at, each in enumerate(self.lines):
                self._index.setdefault(each, []).append(at)
        return self._index.get(line, ())
