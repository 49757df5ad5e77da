"""Patches carried over to another release: a three-way merge of the old pristine file, the patched one and the new."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from patchkit import diff
from patchkit.catalog.model import PatchEntry
from patchkit.catalog.variants import choose, groups
from patchkit.errors import Refused
from patchkit.lifecycle.edit import ground
from patchkit.lifecycle.releases import Release
from patchkit.lifecycle.save import Changes
from patchkit.plan import Series, digest_of

Outcome = Literal["unchanged", "clean", "upstream", "partial", "conflict", "gone", "not-applicable"]
#: What each outcome means.
MEANING = {
    "unchanged": "its files are as they were: nothing to do",
    "clean": "carried over",
    "partial": "the release holds a part of it; the rest was carried over",
    "upstream": "the release holds all of it: retire it",
    "conflict": "somebody must look: see the work folder",
    "gone": "a file of it is not in the release any more",
    "not-applicable": "not for this platform",
}
#: Where the old pristine files of a patch are found: its entry -> a release that has its pre-images, None for none.
Finder = Callable[[PatchEntry], Release | None]


@dataclass(frozen=True, slots=True)
class Rebased:
    """One patch on the new release. ``entry`` is the variant that it was carried over from; ``changes`` (path -> the
    new release's file and the patched one) is empty unless something was carried; conflicts stand in it with markers.
    """

    id: str
    outcome: Outcome
    detail: str
    entry: PatchEntry | None = None
    changes: Changes | None = None
    conflicts: int = 0


def rebase(
    series: Series, new: Release, old: Finder, platform: str, only: frozenset[str] = frozenset()
) -> list[Rebased]:
    """The series on the new release, each patch on top of the ones before it.

    Args:
        old: finds the release that a variant was made on.
        only: the patches to carry over; those before them count where they stand. Empty for all.

    Raises:
        patchkit.errors.Refused: ``old-release-unknown``: nothing has the pre-images of a patch that must be merged.
    """
    tree: dict[str, bytes | None] = {}

    def read(path: str) -> bytes | None:
        return tree[path] if path in tree else new.read(path)

    found = []
    for variants in groups(series.manifest):
        one = _one(variants, series, new, old, platform, read)
        if one.changes is not None and not one.conflicts:
            tree.update({path: after for path, (_, after) in one.changes.items()})
        if not only or one.id in only:
            found.append(one)
    return found


def _one(
    variants: tuple[PatchEntry, ...],
    series: Series,
    new: Release,
    old: Finder,
    platform: str,
    read: Callable[[str], bytes | None],
) -> Rebased:
    choice = choose(variants, lambda path: digest_of(read(path)), new.version, platform)
    if choice.by == "platform":
        return Rebased(choice.id, "not-applicable", f"this is {platform}")
    # Without a variant for the new version the last one listed is the one to carry over.
    entry = choice.entry or variants[-1]
    patch = series.patches[entry.file]
    result = diff.evaluate(patch, read, pre=entry.pre, post=entry.post, fuzz=entry.fuzz)
    if result.state == "applied":
        return Rebased(entry.id, "upstream", f"{new.label} holds all {result.total} hunks", entry)
    known = bool(entry.pre) and all(digest_of(read(path)) == pre for path, pre in entry.pre.items())
    if known and result.ok:
        drawn = {path: (read(path), data) for path, data in result.changes.items()}
        return Rebased(entry.id, "unchanged", MEANING["unchanged"], entry, drawn)
    return _merged(entry, series, result, new, old, platform, read)


def _merged(
    entry: PatchEntry,
    series: Series,
    result: diff.PatchResult,
    new: Release,
    old: Finder,
    platform: str,
    read: Callable[[str], bytes | None],
) -> Rebased:
    patch = series.patches[entry.file]
    base = old(entry)
    if base is None:
        if result.ok:
            # Every hunk has its one place: the merge could only say the same.
            drawn = {path: (read(path), data) for path, data in result.changes.items()}
            return Rebased(entry.id, "clean", "every hunk has one place", entry, drawn)
        raise Refused(
            "old-release-unknown",
            f"patch {entry.id} is {result.state} on {new.label}, and no release on the index has its pre-images: "
            "there is nothing to merge from",
            where=entry.file,
            remedy=f"name the release that it was made on with --from V, or change it by hand: "
            f"patchkit edit --version {new.version} FILE",
            details=[f"{path}: {pre}" for path, pre in entry.pre.items()],
        )
    # The earlier patches of the series stand below this one on the old release too.
    old_files = ground(base, series, entry.id, (), platform).files
    before = diff.evaluate(patch, old_files.get, pre=entry.pre, post=entry.post, fuzz=entry.fuzz)
    if not before.ok:
        raise Refused(
            "old-release-differs",
            f"patch {entry.id} is {before.state} on {base.label}, where it should apply",
            where=entry.file,
            remedy="name the release that it was made on with --from V",
        )
    changes: dict[str, tuple[bytes | None, bytes | None]] = {}
    conflicts = 0
    gone = []
    for path, theirs in before.changes.items():
        ours = read(path)
        if ours is None and old_files.get(path) is not None and theirs is not None:
            gone.append(path)
            continue
        merged, count = _file(old_files.get(path), theirs, ours, (new.label, f"patch {entry.id}"))
        conflicts += count
        if merged != ours:
            changes[path] = (ours, merged)
    if gone:
        return Rebased(entry.id, "gone", f"{new.label} has no {', '.join(gone)}", entry)
    if not changes:
        return Rebased(entry.id, "upstream", f"after the merge with {base.label} nothing is left of it", entry)
    if conflicts:
        told = f"{conflicts} conflicts in {', '.join(changes)}"
        return Rebased(entry.id, "conflict", told, entry, changes, conflicts)
    if result.done:
        told = f"{new.label} holds {result.done} of {result.total} hunks"
        return Rebased(entry.id, "partial", told, entry, changes)
    return Rebased(entry.id, "clean", f"merged from {base.label}", entry, changes)


def _file(
    base: bytes | None, theirs: bytes | None, ours: bytes | None, names: tuple[str, str]
) -> tuple[bytes | None, int]:
    """One file merged, and its conflicts. A file that only one side has, or that a side removed, has nothing to merge
    line by line: equal sides agree, a side that is as the base was gives way."""
    if ours in (theirs, base):
        return theirs, 0
    if theirs == base:
        return ours, 0
    if theirs is None or ours is None:
        return theirs if ours is None else ours, 1
    merged = diff.merge3(base or b"", theirs, ours, names)
    return merged.data, merged.conflicts
