"""Patches that are no longer needed: when that is proven, and where they are kept."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from patchkit.catalog import edit, header
from patchkit.catalog.check import RETIRED
from patchkit.catalog.faults import near
from patchkit.catalog.header import Header
from patchkit.catalog.load import load_text
from patchkit.catalog.model import Catalog, Manifest
from patchkit.errors import BadInput, Refused
from patchkit.lifecycle.files import write_all
from patchkit.lifecycle.lock import Locked

_REASON = "Retired"
#: States in which an image needs nothing of a patch.
DONE = frozenset({"upstream"})


@dataclass(frozen=True, slots=True)
class Retired:
    """A patch in ``patches/retired``."""

    id: str
    path: Path
    prose: Header

    @property
    def reason(self) -> str:
        """Why it was retired."""
        return self.prose.get(_REASON)


@dataclass(frozen=True, slots=True)
class Case:
    """What the known images say of one patch: which still need it, which do not, and the package's version in the first
    of those."""

    patch: str
    needed_by: tuple[str, ...]
    done_in: tuple[str, ...]
    version: str = ""

    @property
    def proven(self) -> bool:
        """Whether at least one known image has the fix and none needs the patch."""
        return bool(self.done_in) and not self.needed_by


def cases(manifest: Manifest, locked: Iterable[Locked]) -> list[Case]:
    """One case a patch of the manifest, from the images that the lock knows."""
    images = [each for each in locked if each.manifest == manifest.name]
    found = []
    for patch in dict.fromkeys(entry.id for entry in manifest.patches):
        told = [(each, state) for each in images for state in each.patches if state.id == patch]
        done = [each for each, state in told if state.state in DONE or state.droppable]
        needed = [each for each, _ in told if each not in done]
        first = done[0].version if done else ""
        found.append(Case(patch, tuple(map(_label, needed)), tuple(map(_label, done)), first))
    return found


def _label(each: Locked) -> str:
    return f"{each.package} {each.version} ({each.image[:19]})"


def retire(catalog: Catalog, manifest: Manifest, patch: str, reason: str, upstream: str) -> list[Path]:
    """Take a patch with all its variants out of the series and keep its diffs in ``patches/retired``.

    Args:
        reason: why; stands in the kept diffs' headers.
        upstream: where the fix is in (DEP-3 ``Applied-Upstream``), empty where it is not.

    Returns:
        The kept diffs.

    Raises:
        patchkit.errors.BadInput: ``unknown-patch``.
        patchkit.errors.Refused: ``file-exists``: another retired patch has its name.
    """
    entries = [entry for entry in manifest.patches if entry.id == patch]
    if not entries:
        raise BadInput(
            "unknown-patch",
            f"manifest {manifest.name} has no patch {patch}{near(patch, [entry.id for entry in manifest.patches])}",
            where=str(manifest.path),
            remedy="see what there is: patchkit list",
        )
    shared = {
        entry.file
        for each in catalog.manifests
        for entry in each.patches
        if (each.name, entry.id) != (manifest.name, patch)
    }
    changes: dict[Path, bytes | None] = {}
    kept = []
    for file in dict.fromkeys(entry.file for entry in entries):
        data = (catalog.root / file).read_bytes()
        prose = header.parse(data).with_field(_REASON, reason)
        if upstream:
            prose = prose.with_field("Applied-Upstream", upstream)
        place = catalog.root / RETIRED / posixpath.basename(file)
        new = header.render(prose) + header.split(data)[1]
        if place.exists() and place.read_bytes() != new:
            raise Refused("file-exists", "another retired patch has this name", where=str(place), remedy="rename it")
        changes[place] = new
        kept.append(place)
        if file not in shared:
            changes[catalog.root / file] = None
    text = edit.without_patch(manifest.path.read_bytes().decode("utf-8-sig"), patch)
    load_text(manifest.path, text.encode(), catalog.root)
    write_all({manifest.path: text.encode(), **changes})
    return kept


def all_of(root: Path) -> list[Retired]:
    """The retired patches of a catalog, by name."""
    return [
        Retired(file.name.removesuffix(".patch"), file, header.parse(file.read_bytes()))
        for file in sorted((root / RETIRED).glob("*.patch"))
    ]
