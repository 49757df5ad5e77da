"""The second opinion: unidiff reads the hunks that our own scan found, and must find the same.

Only the hunks are shown to it, below names of our own making: what it makes of prose, of names and of git's headers is
known to go wrong in silence (it splits names at `` b/``, loses modes in CRLF patches, takes prose for sections), and is
not needed. It counts lines without keeping them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from unidiff.errors import UnidiffParseError
from unidiff.patch import PatchSet

from patchkit.diff.model import FilePatch

#: The second opinion takes longer than our own reading. No patch of one fix comes near so many lines; beyond them the
#: scan stands alone, and has the same tests.
_MOST_LINES = 10_000


def disagreement(
    lines: Sequence[bytes], bodies: Sequence[tuple[int, int]], files: Sequence[FilePatch]
) -> tuple[int, str] | None:
    """Where and how unidiff's reading differs from ours: line index and sentence, or None where the two agree.

    Args:
        lines: the patch's lines.
        bodies: the line ranges that hold each section's hunks, for the sections that have any.
        files: our reading of all sections.
    """
    if sum(end - start for start, end in bodies) > _MOST_LINES:
        return None
    try:
        theirs = PatchSet(_shown(lines, bodies), metadata_only=True)
    except UnidiffParseError as error:
        return bodies[0][0], f"unidiff cannot read the patch: {error}"
    ours = [file for file in files if file.hunks]
    if len(theirs) != len(ours):
        return bodies[0][0], f"unidiff reads {len(theirs)} file sections, we read {len(ours)}"
    for mine, other in zip(ours, theirs, strict=True):
        if len(mine.hunks) != len(other):
            return mine.line - 1, f"unidiff reads {len(other)} hunks in this section, we read {len(mine.hunks)}"
        for hunk, seen in zip(mine.hunks, other, strict=True):
            told = (seen.source_start, seen.source_length, seen.target_start, seen.target_length)
            if told != (hunk.old_start, len(hunk.old), hunk.new_start, len(hunk.new)):
                return hunk.line - 1, "unidiff reads another range in this hunk"
            if seen.added - seen.removed != len(hunk.new) - len(hunk.old):
                return hunk.line - 1, "unidiff counts other lines in this hunk"
    return None


def _shown(lines: Sequence[bytes], bodies: Sequence[tuple[int, int]]) -> Iterator[str]:
    for number, (start, end) in enumerate(bodies):
        yield f"--- {number}\n"
        yield f"+++ {number}\n"
        for line in lines[start:end]:
            yield line.decode("latin-1")
