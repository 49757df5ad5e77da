"""Entries of a manifest that share an id are variants of one patch: each its own diff for its own versions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from patchkit.catalog.model import Manifest, PatchEntry
from patchkit.errors import BadInput


@dataclass(frozen=True, slots=True)
class Choice:
    """The variant of one patch for one image, None where none is for it; ``by`` says what decided."""

    id: str
    entry: PatchEntry | None
    by: Literal["pre-image", "post-image", "version", "only", "platform", "none"]


def groups(manifest: Manifest) -> tuple[tuple[PatchEntry, ...], ...]:
    """The series as groups of variants, in the order in which each patch first appears."""
    found: dict[str, list[PatchEntry]] = {}
    for entry in manifest.patches:
        found.setdefault(entry.id, []).append(entry)
    return tuple(tuple(entries) for entries in found.values())


def choose(variants: Sequence[PatchEntry], hash_of: Callable[[str], str], version: str, platform: str) -> Choice:
    """The variant that is for an image.

    A pre-image decides before anything else, then a post-image (the image holds the patch already), then the version.
    A patch with one entry is chosen whatever its range says: versions advise, and the plan tells when they disagree.

    Args:
        variants: the entries of one patch, at least one.
        hash_of: path -> ``sha256:<hex>`` or ``absent`` of the file as it is when this patch's turn comes.
        version: the package's version in the image.
        platform: the image's platform, ``linux/amd64``.

    Raises:
        patchkit.errors.BadInput: ``several-variants`` fit equally well.
    """
    name = variants[0].id
    fitting = [entry for entry in variants if not entry.platforms or platform in entry.platforms]
    if not fitting:
        return Choice(name, None, "platform")
    if len(variants) == 1:
        return Choice(name, variants[0], "only")
    by_pre = [entry for entry in fitting if entry.pre and _all_equal(entry.pre, hash_of)]
    if by_pre:
        return Choice(name, _only_one(by_pre, "pre-image"), "pre-image")
    by_post = [entry for entry in fitting if entry.post and _all_equal(entry.post, hash_of)]
    if by_post:
        return Choice(name, _only_one(by_post, "post-image"), "post-image")
    by_version = [entry for entry in fitting if in_range(entry.versions, version)]
    if by_version:
        return Choice(name, _only_one(by_version, f"version {version}"), "version")
    return Choice(name, None, "none")


def in_range(versions: str, version: str) -> bool:
    """Whether a version lies in a PEP 440 range. A pre-release or nightly counts where its final release does
    (``0.33.0rc1.dev812+gabc`` is in ``>=0.33``); what is no version is in no range but the empty one."""
    if not versions:
        return True
    try:
        parsed = Version(version)
    except InvalidVersion:
        return False
    wanted = SpecifierSet(versions)
    return wanted.contains(parsed, prereleases=True) or wanted.contains(parsed.base_version, prereleases=True)


def _all_equal(listed: Mapping[str, str], hash_of: Callable[[str], str]) -> bool:
    return all(hash_of(path) == expected for path, expected in listed.items())


def _only_one(entries: Sequence[PatchEntry], fits: str) -> PatchEntry:
    if len(entries) > 1:
        raise BadInput(
            "several-variants",
            f"{len(entries)} variants of patch {entries[0].id} fit by {fits}: "
            + ", ".join(entry.file for entry in entries),
            where=entries[0].id,
            remedy="narrow their versions or platforms in the manifest",
        )
    return entries[0]
