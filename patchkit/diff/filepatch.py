"""What one section of a patch does to one file."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from patchkit.diff.lines import Haystack, drop_cr, is_crlf, split_lines
from patchkit.diff.locate import Placed, Rules, locate
from patchkit.diff.model import FilePatch, FileResult, Hunk, HunkResult, State

Known = Literal["pre-image", "post-image", "blob-id", ""]

#: Shorter blob ids prove nothing: seven digits are the least that git ever writes for itself.
_LEAST_BLOB = 7
#: Words that stand beside one another everywhere prove nothing.
_SAYS_SOMETHING = re.compile(rb"^(?!(?:else|try|finally|pass|return|return None|continue|break):?$).*[A-Za-z_]{3}")
#: How far beyond a hunk's own context a doubled line is looked for.
_BESIDE = 5


@dataclass(frozen=True, slots=True)
class Pins:
    """The pinned hashes of one file, ``sha256:<hex>`` or bare hex; empty where there are none."""

    pre: str = ""
    post: str = ""


def sha256_is(data: bytes, pin: str) -> bool:
    """Whether ``data`` has the pinned hash."""
    return bool(pin) and hashlib.sha256(data).hexdigest() == pin.removeprefix("sha256:").lower()


def blob_id(data: bytes) -> str:
    """The git blob id (SHA-1). Source: gitformat-loose(5): the hash of ``blob <length> NUL <data>``."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def _blob_is(data: bytes, blob: str) -> bool:
    """Whether ``data`` has the (abbreviated) blob id."""
    return len(blob) >= _LEAST_BLOB and blob_id(data).startswith(blob)


def modified(section: FilePatch, path: str, before: bytes, pins: Pins, rules: Rules, *, complete: bool) -> FileResult:
    """The result of a section's hunks on a file that is there."""
    known, there = _vouched(section, before, pins)
    if there:
        hunks = tuple(
            HunkResult(i, "applied", hunk.old_start, hunk.new_start, "the file is the patch's result, as its hash says")
            for i, hunk in enumerate(section.hunks, 1)
        )
        why = f"the file is the post-image: {'its pinned hash' if known == 'post-image' else 'its blob id'} says so"
        count = len(hunks)
        return FileResult(
            path, "applied", hunks, before, before, True, section.kind, why, known=known, done=count, total=count
        )
    hunks_here, lines, crlf = _same_line_ends(section, before)
    hay = Haystack(lines)
    rules = replace(rules, trusted=bool(known), alone=len(hunks_here) == 1)
    placed, results = _locate_all(hunks_here, hay, rules)
    done = sum(hunk.state == "applied" for hunk in placed)
    state = _file_state([hunk.state for hunk in placed])
    ok = all(hunk.take or hunk.state == "applied" for hunk in placed) and (state != "partial" or complete)
    notes = _notes(section, path, pins, known, placed, crlf=crlf)
    after = before
    why = _why(state, results, done)
    if ok:
        made = _put_in(placed, hay)
        if made is None:
            state, ok = "conflict", False
            why = "the patch would join two lines: it removes a line end in the middle of the file"
        else:
            after = b"".join(made)
            if crlf:
                after = after.replace(b"\n", b"\r\n")
            notes += _doubled(placed, hay)
            if pins.post and (known == "pre-image" or state == "fuzzy") and not sha256_is(after, pins.post):
                state, ok, after = "fuzzy" if state == "fuzzy" else "conflict", False, before
                why = "the result is not the pinned post-image"
    return FileResult(
        path, state, tuple(results), before, after, ok, section.kind, why, notes, known, done=done, total=len(placed)
    )


def _vouched(section: FilePatch, before: bytes, pins: Pins) -> tuple[Known, bool]:
    """What vouches for the file as it is, and whether it says that the patch is there already."""
    if sha256_is(before, pins.post):
        return "post-image", True
    if sha256_is(before, pins.pre):
        return "pre-image", False
    if section.old_blob != section.new_blob:
        unix = _unix(before)  # git may have stored a CRLF file with LF
        for form in (before, unix) if unix != before else (before,):
            if _blob_is(form, section.new_blob):
                return "blob-id", True
            if _blob_is(form, section.old_blob):
                return "blob-id", False
    return "", False


def _same_line_ends(section: FilePatch, before: bytes) -> tuple[tuple[Hunk, ...], list[bytes], bool]:
    """Hunks and lines brought to one kind of line end where both are of one kind throughout; True when the result
    must get CRLF again. Mixed ones stay as they are: there the carriage return belongs to the line."""
    hunks = section.hunks
    if _blob_is(before, section.old_blob):  # the patch was made from these very bytes
        return hunks, split_lines(before), False
    if is_crlf(before) and not any(
        b"\r" in line[-2:] for hunk in hunks for side in (hunk.old, hunk.new) for line in side
    ):
        return hunks, drop_cr(split_lines(before)), True
    if section.crlf and b"\r\n" not in before:
        return tuple(map(without_cr, hunks)), split_lines(before), False
    return hunks, split_lines(before), False


def without_cr(hunk: Hunk) -> Hunk:
    """The hunk of a patch whose line ends were turned into CRLF on the way, turned back."""
    return hunk._replace(old=tuple(drop_cr(hunk.old)), new=tuple(drop_cr(hunk.new)))


# All hunks of one file


def _locate_all(hunks: Sequence[Hunk], hay: Haystack, rules: Rules) -> tuple[list[Placed], list[HunkResult]]:
    """Every hunk's place, in the order of the file: a hunk that was moved moves the next one's guess."""
    places = [hunk.place for hunk in hunks]
    order = sorted(range(len(hunks)), key=places.__getitem__)
    placed: list[Placed] = []
    growths: list[int] = []
    drift = grown = floor = 0
    for i in order:
        hunk = hunks[i]
        stated = places[i] + grown
        found = locate(hunk, hay, stated + drift, floor, stated, rules)
        growths.append(grown)
        placed.append(found)
        if found.at is None or found.state == "ambiguous":
            continue
        drift = found.at - stated
        side = hunk.new if found.state == "applied" else hunk.old
        floor = max(floor, found.at + len(side) - hunk.suffix)
        if found.state == "applied":
            grown += len(hunk.new) - len(hunk.old)
    if any(hunk.others for hunk in placed):
        placed = _doubt(placed, growths, hay)
    results = [hunk.result(order[i] + 1, growths[i]) for i, hunk in enumerate(placed)]
    return placed, sorted(results, key=lambda result: result.number)


def _doubt(placed: list[Placed], growths: list[int], hay: Haystack) -> list[Placed]:
    """A hunk that fits at its place and elsewhere too is in doubt when the next hunk that fits at one place only was
    moved otherwise, and this hunk would fit there as well: the file may have drifted before it."""
    checked = list(placed)
    sure: int | None = None
    for i in range(len(placed) - 1, -1, -1):
        hunk = placed[i]
        if hunk.at is None or not hunk.hunk.old or hunk.state not in ("applies", "offset"):
            continue
        drift = hunk.at - hunk.hunk.place - growths[i]
        if not hunk.others:
            sure = drift
            continue
        other = hunk.hunk.place + growths[i] + (drift if sure is None else sure)
        if sure is not None and sure != drift and hay.at(other, hunk.hunk.old):
            checked[i] = hunk._replace(
                state="ambiguous",
                take=False,
                why=f"fits at line {hunk.at + 1}, and at line {other + 1} to which the next hunk's offset points",
            )
    return checked


def _file_state(states: Sequence[str]) -> State:
    found: State
    for found in ("conflict", "ambiguous", "fuzzy"):
        if found in states:
            return found
    if "applied" in states:
        return "applied" if all(state == "applied" for state in states) else "partial"
    return "offset" if "offset" in states else "applies"


def _why(state: State, results: Sequence[HunkResult], done: int) -> str:
    if state == "partial":
        return f"{done} of {len(results)} hunks are there already, the others still apply"
    telling = [hunk for hunk in results if hunk.state == state]
    first = telling[0] if telling else results[0]
    more = f" (and {len(telling) - 1} more)" if len(telling) > 1 else ""
    return f"hunk {first.number} {first.why}{more}"


def _put_in(placed: Sequence[Placed], hay: Haystack) -> list[bytes] | None:
    """The lines with every hunk that is not there yet put in; None where that would join two lines."""
    made: list[bytes] = []
    copied = 0
    for one in placed:
        if one.state == "applied":
            continue
        assert one.at is not None
        hunk = one.hunk
        for piece in (hay.lines[copied : one.at + hunk.prefix], hunk.new[hunk.prefix : len(hunk.new) - hunk.suffix]):
            if piece and made and not made[-1].endswith(b"\n"):
                return None
            made += piece
        copied = one.at + len(hunk.old) - hunk.suffix
    rest = hay.lines[copied:]
    if rest and made and not made[-1].endswith(b"\n"):
        return None
    made += rest
    return made


# Things worth telling


def _notes(
    section: FilePatch, path: str, pins: Pins, known: Known, placed: Sequence[Placed], *, crlf: bool
) -> tuple[str, ...]:
    notes = []
    if pins.pre and known != "pre-image":
        notes.append("pre-image not listed")
    if crlf:
        notes.append("the file has CRLF line ends and keeps them")
    if any(not hunk.hunk.old and hunk.take and not known and hunk.hunk.old_start for hunk in placed):
        notes.append("an insertion without context: nothing of the file could be compared")
    if [hunk.hunk.line for hunk in placed] != sorted(hunk.hunk.line for hunk in placed):
        notes.append("the patch's hunks are not in the order of the file")
    return tuple(notes)


def _doubled(placed: Sequence[Placed], hay: Haystack) -> tuple[str, ...]:
    """Added lines that stand right beside the hunk already: upstream may have added the same in another place."""
    notes = []
    for one in placed:
        if one.state == "applied" or one.at is None:
            continue
        hunk = one.hunk
        for line in hunk.new[hunk.prefix : len(hunk.new) - hunk.suffix]:
            if line not in hay.counts or line in hunk.old or not _SAYS_SOMETHING.search(line.strip()):
                continue
            start, end = one.at + one.drop[0], one.at + len(hunk.old) - one.drop[1]
            for at in (*range(max(0, start - _BESIDE), start), *range(end, min(len(hay), end + _BESIDE))):
                if hay.lines[at] == line:
                    shown = line.decode("utf-8", "replace").strip()
                    notes.append(f"the added line {shown!r} stands at line {at + 1} already, beside the hunk")
    return tuple(notes)


# Files that come and go


def created(section: FilePatch, path: str, before: bytes | None, pins: Pins) -> FileResult:
    """The result of a section that creates a file."""
    sides = [hunk.new for hunk in section.hunks]
    lines = [line for side in sides for line in side]
    after = b"".join(lines)
    notes: tuple[str, ...] = ()
    if section.crlf and not _blob_is(after, section.new_blob):
        after = b"".join(drop_cr(lines))
        notes = ("the whole patch has CRLF line ends, which came on the way: the file gets LF",)

    def result(state: State, why: str, ok: bool) -> FileResult:
        hunks = tuple(
            HunkResult(
                i, "applied" if state == "applied" else "applies" if ok else "conflict", 0, 1 if ok else None, why
            )
            for i, _ in enumerate(section.hunks, 1)
        )
        done = max(1, len(hunks)) if state == "applied" else 0
        return FileResult(
            path, state, hunks, before, after if ok and state != "applied" else before, ok, section.kind, why, notes,
            mode=section.new_mode, done=done, total=max(1, len(hunks)),
        )  # fmt: skip

    if before is None:
        return result("applies", "the file is created", True)
    if before == after or _unix(before) == _unix(after) or sha256_is(before, pins.post):
        return result("applied", "the file is there already, as the patch makes it", True)
    if not before:
        return result("conflict", "the patch creates this file, and an empty one is there", False)
    return result("conflict", f"the patch creates this file, and another is there: {_difference(before, after)}", False)


def deleted(section: FilePatch, path: str, before: bytes | None, pins: Pins) -> FileResult:
    """The result of a section that deletes a file."""
    lines = [line for hunk in section.hunks for line in hunk.old]
    content = b"".join(lines)
    if section.crlf and before is not None and b"\r\n" not in before:
        content = b"".join(drop_cr(lines))

    def result(state: State, why: str, ok: bool) -> FileResult:
        hunks = tuple(
            HunkResult(
                i, "applied" if state == "applied" else "applies" if ok else "conflict", 1, 1 if ok else None, why
            )
            for i, _ in enumerate(section.hunks, 1)
        )
        done = max(1, len(hunks)) if state == "applied" else 0
        return FileResult(
            path, state, hunks, before, None if ok else before, ok, section.kind, why, done=done,
            total=max(1, len(hunks)),
        )  # fmt: skip

    if before is None:
        return result("applied", "there is no such file: it is deleted already, or never was", True)
    if before == content or (section.hunks and _unix(before) == _unix(content)) or sha256_is(before, pins.pre):
        return result("applies", "the file is deleted", True)
    if not section.hunks:
        if _blob_is(before, section.old_blob):
            return result("applies", "the file is deleted", True)
        return result("conflict", "the patch deletes an empty file, and this one has text", False)
    return result("conflict", f"the patch deletes another file than this: {_difference(before, content)}", False)


def _unix(data: bytes) -> bytes:
    return data.replace(b"\r\n", b"\n") if is_crlf(data) else data


def _difference(found: bytes, expected: bytes) -> str:
    have, want = split_lines(found), split_lines(expected)
    at = next((i for i, (a, b) in enumerate(zip(have, want, strict=False)) if a != b), min(len(have), len(want)))
    if at >= len(want):
        return f"it goes on after line {at}"
    if at >= len(have):
        return f"it ends after line {at}"
    return f"line {at + 1} differs"
