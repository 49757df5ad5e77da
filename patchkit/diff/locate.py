"""Where one hunk belongs in one file, and whether it is there already.

The order of the tests: the old side exactly at its place; then the new side, where it stands nearer than any old side
(as near means there already: a hunk must not be put in twice); then the old side at one unique place elsewhere.
GNU patch takes the first place it meets, git apply forgets the offset of earlier hunks, and both call a file patched on
the word of its first hunk: here every place is looked at, every hunk is asked, and doubt is told as doubt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from patchkit.diff.lines import Haystack, is_blank
from patchkit.diff.model import Hunk, HunkResult, HunkState, Nearest

#: GNU patch's own limit; more would compare the changed lines alone.
MAX_FUZZ = 2


@dataclass(frozen=True, slots=True)
class Rules:
    """What is allowed and known for one file. ``trusted``: a hash says that this is the very file that the patch was
    made from. ``alone``: the hunk is the only one of its section."""

    fuzz: int = 0
    context_free: bool = False
    trusted: bool = False
    alone: bool = False


class Placed(NamedTuple):
    """A hunk and its place: ``at`` is 0-based, ``drop`` the context lines dropped at the front and the end, ``take``
    whether the hunk may be put in there."""

    hunk: Hunk
    state: HunkState
    at: int | None
    why: str
    others: tuple[int, ...] = ()
    fuzz: int = 0
    drop: tuple[int, int] = (0, 0)
    nearest: Nearest | None = None
    take: bool = False

    def result(self, number: int, grown: int) -> HunkResult:
        """The public form. ``grown`` is by how much applied hunks before this one had lengthened the file."""
        fits: list[int] = []
        if self.others:
            fits = sorted({place + 1 for place in (*self.others, *([] if self.at is None else [self.at]))})
        return HunkResult(
            number,
            self.state,
            self.hunk.old_start,
            None if self.at is None else self.at + 1,
            self.why,
            0 if self.at is None else self.at - self.hunk.place - grown,
            tuple(fits) if len(fits) > 1 else (),
            self.fuzz,
            self.nearest,
        )


def locate(hunk: Hunk, hay: Haystack, guess: int, floor: int, stated: int, rules: Rules) -> Placed:
    """Classify one hunk.

    Args:
        hunk: the hunk.
        hay: the file.
        guess: where the old side should start, 0-based: the stated place moved by what earlier hunks were moved.
        floor: the first line that earlier hunks leave free.
        stated: the place as the patch states it, moved only by the growth of hunks that are there already; against
            it the offset is told.
        rules: what is allowed and known.
    """
    if not hunk.old:
        return _without_context(hunk, hay, guess, floor, stated, rules)
    if rules.trusted and guess >= floor and hay.at(guess, hunk.old):
        return _fits(hunk, guess, (), stated)
    old = _old_places(hunk, hay, guess, floor)
    if old and old[0] == guess:
        if hunk.new and _new_at(hunk, hay, guess):
            return Placed(
                hunk, "ambiguous", guess,
                f"fits line {guess + 1} before and after alike, so the text cannot tell whether it is there already; "
                "a blob id or a pinned hash can",
            )  # fmt: skip
        others = tuple(old[1:])
        if (end := _ends_elsewhere(hunk, hay, guess, others)) is not None:
            return Placed(
                hunk, "ambiguous", guess,
                f"fits at line {guess + 1}, and at line {end + 1} at the file's end, as its short context says",
                others,
            )  # fmt: skip
        return _fits(hunk, guess, others, stated)
    there = _applied(hunk, hay, guess, floor, old)
    if there is not None:
        return there
    if len(old) == 1 and not all(is_blank(line) for line in hunk.old):
        fits = _fits(hunk, old[0], (), stated)
        near = _looks_old(hunk, hay, guess, floor)
        if near is None or near == old[0]:
            return fits
        return fits._replace(
            why=f"{fits.why}; line {near + 1}, nearer to it, has the text in other context: look at both"
        )
    if len(old) == 1:
        return Placed(
            hunk, "ambiguous", None,
            f"has only blank lines to compare: they stand at {_line(old[0])}, not at the stated {_line(guess)}",
            tuple(old),
        )  # fmt: skip
    if old:
        return Placed(
            hunk, "ambiguous", None,
            f"fits at {_lines(old)}, and not at the stated {_line(guess)}: the text cannot tell which is meant",
            tuple(old),
        )  # fmt: skip
    return _fuzzy(hunk, hay, guess, floor, rules) or _conflict(hunk, hay, guess, floor)


def _fits(hunk: Hunk, at: int, others: tuple[int, ...], stated: int) -> Placed:
    if at == stated:
        why = f"fits exactly at line {at + 1}"
    else:
        why = f"fits at line {at + 1}, {_distance(at - stated)} the stated place"
    if others:
        why += f"; it would fit at {_lines(others)} too"
    return Placed(hunk, "applies" if at == stated else "offset", at, why, others, take=True)


def _ends_elsewhere(hunk: Hunk, hay: Haystack, guess: int, others: tuple[int, ...]) -> int | None:
    """Another place that ends the file, for a hunk with less context after its change than before: the file that the
    patch was made from ended there."""
    end = len(hay) - len(hunk.old)
    return end if hunk.suffix < hunk.prefix and guess != end and end in others else None


def _old_places(hunk: Hunk, hay: Haystack, guess: int, floor: int) -> list[int]:
    pinned = _pinned(hunk, len(hay), len(hunk.old), 0)
    if pinned is None:
        return hay.places(hunk.old, guess, floor)
    return [pinned] if pinned >= floor and hay.at(pinned, hunk.old) else []


def _pinned(hunk: Hunk, total: int, length: int, fuzz: int) -> int | None:
    """The only place that counts for a hunk at the very start or end of its file: ``diff`` gives less context there
    because there is none, so the hunk says that the file starts or ends here.

    GNU patch and git apply both hold a hunk at line 1 without leading context to line 1, and one without trailing
    context to the end. Where some context is there both go on to look elsewhere, GNU patch as fuzz.
    """
    prefix, suffix = hunk.prefix, hunk.suffix
    if hunk.old_start <= 1 and prefix + fuzz < suffix and (prefix == 0 or suffix - prefix > MAX_FUZZ):
        return 0
    if suffix == 0 and prefix > fuzz:
        return total - length
    return None


# There already


def _new_at(hunk: Hunk, hay: Haystack, place: int) -> bool:
    """Whether the new side stands at ``place``. Where it is but the beginning of the old side (lines removed from the
    end of the file), it stands there only when the file ends there."""
    if hunk.suffix == 0 and hunk.new == hunk.old[: len(hunk.new)] and place + len(hunk.new) != len(hay):
        return False
    return hay.at(place, hunk.new)


def _applied(hunk: Hunk, hay: Haystack, guess: int, floor: int, old: list[int]) -> Placed | None:
    """The hunk as there already, or as undecidable, where the new side stands nearer than the old one."""
    if not hunk.new:
        return None
    new = [place for place in hay.places(hunk.new, guess, floor) if _new_at(hunk, hay, place)]
    if not new or (old and abs(old[0] - guess) < abs(new[0] - guess)):
        return None
    if not _tells(hunk, away=new[0] != guess):
        if not old:
            return None
        return Placed(
            hunk, "ambiguous", None,
            f"fits at {_lines(old)}, and what it leaves stands at {_line(new[0])}, which is too little text to tell",
            tuple(old),
        )  # fmt: skip
    if new[0] != guess and len(new) > 1:
        return Placed(
            hunk, "ambiguous", None,
            f"has its new text at {_lines(new)}, not at the stated {_line(guess)}: the text cannot tell which is meant",
            tuple(new),
        )  # fmt: skip
    looks_old = _looks_old(hunk, hay, guess, floor) if new[0] != guess and not old else None
    if looks_old is not None and abs(looks_old - guess) < abs(new[0] - guess):
        return Placed(
            hunk, "ambiguous", None,
            f"has its new text at {_line(new[0])}, but nearer to its place {_line(looks_old)} still has the old "
            "text in other context: another place may hold the same fix",
            (looks_old, new[0]),
        )  # fmt: skip
    return Placed(hunk, "applied", new[0], f"is there already: the new text stands at line {new[0] + 1}")


def _looks_old(hunk: Hunk, hay: Haystack, guess: int, floor: int) -> int | None:
    """The nearest place where the old side stands but for its outer context lines."""
    most = max(hunk.prefix, hunk.suffix)
    front, back = _dropped(hunk, min(MAX_FUZZ, most))
    run = hunk.old[front : len(hunk.old) - back]
    places = [] if all(map(is_blank, run)) else hay.places(run, guess + front, floor)
    return places[0] - front if places else None


def _tells(hunk: Hunk, *, away: bool) -> bool:
    """Whether finding the new side proves anything: added text does, context alone only where there is enough of it.
    ``away`` from the stated place an addition needs context too, and a removal context on both sides."""
    context = [line for line in hunk.new[: hunk.prefix] if not is_blank(line)]
    after = [line for line in hunk.new[len(hunk.new) - hunk.suffix :] if not is_blank(line)]
    told = len(context) + len(after)
    if any(not is_blank(line) for line in _core(hunk.new, hunk)):
        return bool(told) or not away
    if away:
        return told >= 4 and bool(context) and bool(after)
    return told >= 2


def _core(side: Sequence[bytes], hunk: Hunk) -> Sequence[bytes]:
    return side[hunk.prefix : len(side) - hunk.suffix]


# Without anything to compare


def _without_context(hunk: Hunk, hay: Haystack, guess: int, floor: int, stated: int, rules: Rules) -> Placed:
    """An insertion that compares nothing: right only when something else vouches for the place."""
    if hay.at(guess, hunk.new):
        return Placed(hunk, "applied", guess, f"is there already: the new text stands at line {guess + 1}")
    if hunk.old_start == 0 and rules.alone and not rules.trusted:
        if len(hay) == 0:
            return Placed(hunk, "applies", 0, "fills the empty file", take=True)
        return Placed(hunk, "conflict", None, "expects an empty file, and the file has text")
    if not floor <= guess <= len(hay):
        return Placed(hunk, "conflict", None, f"belongs after line {guess}, and the file ends at line {len(hay)}")
    if rules.trusted or rules.context_free:
        known = "" if rules.trusted else "; nothing of the file could be compared"
        state: HunkState = "applies" if guess == stated else "offset"
        return Placed(hunk, state, guess, f"inserts after line {guess}{known}", take=True)
    return Placed(
        hunk, "fuzzy", guess,
        f"would insert after line {guess} without any context to compare: it needs the old file's blob id or hash",
    )  # fmt: skip


# With context dropped


def _fuzzy(hunk: Hunk, hay: Haystack, guess: int, floor: int, rules: Rules) -> Placed | None:
    """The hunk with context lines dropped at its ends, as GNU patch does it, but never until nothing is left."""
    most = max(hunk.prefix, hunk.suffix)
    for fuzz in range(1, min(max(MAX_FUZZ, rules.fuzz), most) + 1):
        front, back = _dropped(hunk, fuzz)
        run = hunk.old[front : len(hunk.old) - back]
        if all(is_blank(line) for line in run):
            return None
        pinned = _pinned(hunk, len(hay), len(hunk.old), fuzz)
        if pinned is None:
            places = [place - front for place in hay.places(run, guess + front, floor + front)]
        else:
            places = [pinned] if pinned >= floor and hay.at(pinned + front, run) else []
        places = [place for place in places if place + len(hunk.old) - back <= len(hay)]
        there = _applied_with_fuzz(hunk, hay, guess, floor, front, back)
        if there is not None and (not places or abs(there - guess) <= abs(places[0] - guess)):
            return Placed(
                hunk, "conflict", None,
                f"seems to be there already, near line {there + front + 1}, with other lines around it",
                fuzz=fuzz,
            )  # fmt: skip
        if not places:
            continue
        unsure = len(places) > 1 and places[0] != guess
        dropped = f"only with {front + back} context line{'s' if front + back > 1 else ''} dropped (fuzz {fuzz})"
        if unsure:
            return Placed(
                hunk, "ambiguous", None, f"fits at {_lines(places)} {dropped}", tuple(places), fuzz, (front, back)
            )
        return Placed(
            hunk, "fuzzy", places[0], f"fits at line {places[0] + 1} {dropped}", tuple(places[1:]), fuzz, (front, back),
            take=fuzz <= rules.fuzz,
        )  # fmt: skip
    return None


def _dropped(hunk: Hunk, fuzz: int) -> tuple[int, int]:
    """How many context lines the level drops in front and at the end: both ends get as short as the shorter one."""
    most = max(hunk.prefix, hunk.suffix)
    return max(0, fuzz + hunk.prefix - most), max(0, fuzz + hunk.suffix - most)


def _applied_with_fuzz(hunk: Hunk, hay: Haystack, guess: int, floor: int, front: int, back: int) -> int | None:
    if all(is_blank(line) for line in _core(hunk.new, hunk)):
        return None
    places = hay.places(hunk.new[front : len(hunk.new) - back], guess + front, floor)
    return places[0] - front if places else None


# Nowhere


def _conflict(hunk: Hunk, hay: Haystack, guess: int, floor: int) -> Placed:
    length = len(hunk.old)
    end = _pinned(hunk, len(hay), length, 0)
    if end is not None and (elsewhere := hay.places(hunk.old, guess, floor)):
        side = "start" if end == 0 and hunk.prefix < hunk.suffix else "end"
        return Placed(
            hunk, "conflict", None,
            f"expects the file to {side} here, but other text stands "
            f"{'before' if side == 'start' else 'after'} line {elsewhere[0] + (1 if side == 'start' else length)}",
            nearest=_nearest(hunk, hay, elsewhere[0], length),
        )  # fmt: skip
    if (before := hay.places(hunk.old, guess)) and before[0] < floor:
        return Placed(
            hunk, "conflict", None,
            f"fits at line {before[0] + 1} only, among or above the lines of an earlier hunk",
        )  # fmt: skip
    like = hay.most_like(hunk.old, guess)
    if like is None:
        return Placed(hunk, "conflict", None, "fits nowhere, and nothing like its old text stands in the file")
    nearest = _nearest(hunk, hay, like[0], like[1])
    found = "the file ends" if nearest.found is None else f"the file has {_quoted(nearest.found)}"
    return Placed(
        hunk, "conflict", None,
        f"fits nowhere; most like it is line {nearest.line} ({nearest.matched} of {nearest.total} lines), where line "
        f"{nearest.differs_at} should be {_quoted(nearest.expected)}, and {found}",
        nearest=nearest,
    )  # fmt: skip


def _nearest(hunk: Hunk, hay: Haystack, place: int, matched: int) -> Nearest:
    lines = hay.lines[place : place + len(hunk.old)]
    differs = next((i for i, line in enumerate(hunk.old) if i >= len(lines) or lines[i] != line), 0)
    return Nearest(
        place + 1, matched, len(hunk.old), place + differs + 1, hunk.old[differs],
        lines[differs] if differs < len(lines) else None,
    )  # fmt: skip


# Words


def _quoted(line: bytes) -> str:
    shown = line.decode("utf-8", "replace").rstrip("\n")
    return repr(shown if len(shown) <= 100 else shown[:97] + "...") + ("" if line.endswith(b"\n") else " (no newline)")


def _line(place: int) -> str:
    return f"line {place + 1}"


def _lines(places: Sequence[int]) -> str:
    numbers = [str(place + 1) for place in sorted(places)]
    if len(numbers) == 1:
        return f"line {numbers[0]}"
    return f"lines {', '.join(numbers[:-1])} and {numbers[-1]}"


def _distance(offset: int) -> str:
    return f"{abs(offset)} line{'s' if abs(offset) != 1 else ''} {'below' if offset > 0 else 'above'}"
