"""The values of the patch engine: what a patch says, and what it would do to a file.

Hunks come by the thousand, and are named tuples: making one costs a third of a frozen dataclass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from patchkit.diff.names import NULL, choose_target, strip_name

FileKind = Literal["modify", "create", "delete", "rename", "copy", "mode"]

#: States of a hunk. ``applies``: the old side stands exactly at the stated place (earlier hunks' offset carried).
#: ``offset``: at one unique place elsewhere. ``applied``: the new side is there. ``ambiguous``: several places fit, or
#: the place fits before and after alike. ``fuzzy``: only with context dropped, or with nothing to compare at all.
#: ``conflict``: nowhere.
HunkState = Literal["applies", "offset", "applied", "ambiguous", "fuzzy", "conflict"]

#: States of a file and of a whole patch: a hunk's, and ``partial`` (some hunks are there, the others still apply) and
#: ``target-missing`` (the file to patch is not there).
State = Literal["applies", "offset", "applied", "partial", "ambiguous", "fuzzy", "conflict", "target-missing"]


class Hunk(NamedTuple):
    """One hunk as the patch states it.

    ``old`` and ``new`` are the two sides as lines with their line feed; a last line without one is a line that ends the
    file without one. ``prefix`` and ``suffix`` count the context lines before the first and after the last change.
    Starts are 1-based as in the header (0 where the side is empty and the file begins). ``line`` is the header's line
    in the patch.
    """

    old_start: int
    new_start: int
    old: tuple[bytes, ...]
    new: tuple[bytes, ...]
    prefix: int
    suffix: int
    line: int
    heading: bytes = b""

    @property
    def place(self) -> int:
        """Where the old side starts, 0-based: ``diff`` counts from the line before where a side is empty."""
        return self.old_start if not self.old else self.old_start - 1


@dataclass(frozen=True, slots=True)
class FilePatch:
    """One section of a patch: what happens to one file.

    ``old_name`` and ``new_name`` are as written, unquoted but not stripped; ``/dev/null`` for a side that does not
    exist. Bytes that are no UTF-8 are held as surrogate escapes. For renames and copies they come from
    the ``diff --git`` line, so that they strip like all others. Modes are octal text as git writes it (``100644``)
    or None where the patch is silent; blob ids are lower-case hex, often abbreviated, or empty. ``crlf`` marks a
    section whose header lines end in CRLF too: its line ends were changed on the way. ``line`` is the section's first
    line in the patch.
    """

    kind: FileKind
    old_name: str
    new_name: str
    hunks: tuple[Hunk, ...]
    line: int
    git: bool = False
    old_mode: str | None = None
    new_mode: str | None = None
    old_blob: str = ""
    new_blob: str = ""
    crlf: bool = False

    def names(self, strip: int = 1) -> tuple[str | None, str | None]:
        """Old and new path inside the tree with ``strip`` leading components removed; None for ``/dev/null``.

        Raises:
            patchkit.errors.BadInput: ``unsafe-path`` for a name that is absolute, has ``.`` or ``..`` components, NUL
                or a drive letter, or leads out of the tree any other way; ``strip-too-deep`` when nothing would be
                left of it.
        """
        return (
            None if self.old_name == NULL else strip_name(self.old_name, strip),
            None if self.new_name == NULL else strip_name(self.new_name, strip),
        )

    def target(self, strip: int = 1) -> str:
        """The path that this section is about: the new name, or the old one of a deletion. Where a plain diff names a
        backup file and the file itself (``f.orig`` and ``f``) it is the file itself. Raises as ``names`` does."""
        return choose_target(*self.names(strip))


@dataclass(frozen=True, slots=True)
class Patch:
    """A whole patch. ``name`` is how messages call it, ``header`` the prose before the first section (DEP-3 fields,
    a mail's head and text), ``files`` its sections in order; one file may have several."""

    name: str
    header: str
    files: tuple[FilePatch, ...]


@dataclass(frozen=True, slots=True)
class Nearest:
    """The place that looks most like a hunk which fits nowhere. ``line`` is where it starts (1-based), ``matched`` of
    ``total`` old-side lines are equal there; ``differs_at`` is the first line that is not, with what the patch expects
    and what the file holds (None past its end)."""

    line: int
    matched: int
    total: int
    differs_at: int
    expected: bytes
    found: bytes | None


class HunkResult(NamedTuple):
    """What one hunk would do. Lines are 1-based in the file before the patch.

    ``stated`` is the old side's line in the patch, ``found`` where it stands (the new side's place for ``applied``),
    None where nowhere; ``offset`` is their distance, less what hunks that are there already have added. ``candidates``
    are all lines that fit when it is more than one (at most 20 told). ``fuzz`` is the number of context lines that had
    to be dropped at an end. ``why`` says it to people; "hunk 2" is its subject.
    """

    number: int
    state: HunkState
    stated: int
    found: int | None
    why: str
    offset: int = 0
    candidates: tuple[int, ...] = ()
    fuzz: int = 0
    nearest: Nearest | None = None


@dataclass(frozen=True, slots=True)
class FileResult:
    """What one section would do to its file.

    ``ok`` says whether ``after`` may be delivered: true for ``applies``, ``offset`` and ``applied``, for ``partial``
    when completing was allowed, and for ``fuzzy`` within the allowed fuzz. ``before`` and ``after`` are the file's
    bytes, None where there is no file; ``after`` equals ``before`` whenever ``ok`` is false. ``known`` tells what
    vouches for the file as it was found: a listed ``pre-image``, the ``post-image``, the patch's ``blob-id`` line, or
    nothing (``""``). ``source`` is the path that a rename or copy starts from, ``mode`` the git mode that the file must
    have afterwards (None: as it was). ``done`` of ``total`` hunks were there already.
    """

    path: str
    state: State
    hunks: tuple[HunkResult, ...]
    before: bytes | None
    after: bytes | None
    ok: bool
    kind: FileKind = "modify"
    why: str = ""
    notes: tuple[str, ...] = ()
    known: Literal["pre-image", "post-image", "blob-id", ""] = ""
    source: str | None = None
    mode: str | None = None
    done: int = 0
    total: int = 0


@dataclass(frozen=True, slots=True)
class PatchResult:
    """What one patch would do: one result a section, in order. ``state`` is the state of the whole: the worst of its
    files, ``partial`` where some hunks are there and others are not. ``changes`` maps each path that would change to
    its new bytes, None for removal; empty unless ``ok``. ``modes`` maps paths to the git mode to set. ``done`` of
    ``total`` hunks (or whole files, where a section has none) were there already."""

    patch: Patch
    state: State
    files: tuple[FileResult, ...]
    ok: bool
    changes: Mapping[str, bytes | None] = field(default_factory=dict)
    modes: Mapping[str, str] = field(default_factory=dict)
    done: int = 0
    total: int = 0


@dataclass(frozen=True, slots=True)
class SeriesResult:
    """What a series would do, later patches on top of earlier ones' results. ``changes`` is the difference between the
    tree as read and the tree after the whole series, empty unless every patch is ``ok``: all or nothing."""

    patches: tuple[PatchResult, ...]
    ok: bool
    changes: Mapping[str, bytes | None] = field(default_factory=dict)
    modes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Merge:
    """A three-way merge: the text, with conflict markers where both sides changed the same lines, and how many."""

    data: bytes
    conflicts: int


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a Python file does not compile. ``line`` is 1-based (0: the whole file), ``text`` that line. ``sure`` is
    false where only a newer Python than the running one could tell."""

    path: str
    line: int
    what: str
    text: str = ""
    sure: bool = True
