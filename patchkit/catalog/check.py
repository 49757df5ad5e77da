"""What is sound in a catalog and still worth a word: things that a person meant and that have no effect."""

from __future__ import annotations

from collections.abc import Iterator

from patchkit.catalog import header
from patchkit.catalog.model import Catalog
from patchkit.findings import Finding

#: Patches that are no longer in any series, kept with the reason.
RETIRED = "patches/retired"


def findings(catalog: Catalog) -> list[Finding]:
    """Warnings and notes about a loaded catalog, in a fixed order."""
    return [*unlisted(catalog), *_prose(catalog), *_unpinned(catalog), *claims(catalog)]


def unlisted(catalog: Catalog) -> Iterator[Finding]:
    """A warning for each patch that no manifest lists."""
    listed = {entry.file for manifest in catalog.manifests for entry in manifest.patches}
    for file in sorted((catalog.root / "patches").rglob("*.patch")):
        name = file.relative_to(catalog.root).as_posix()
        if name not in listed and not name.startswith(f"{RETIRED}/"):
            yield Finding(
                "patch-not-listed",
                "warning",
                "no manifest lists this patch: it is never applied",
                where=str(file),
                remedy=f"list it in a manifest's patches, or move it to {RETIRED}",
            )


def _prose(catalog: Catalog) -> Iterator[Finding]:
    for manifest in catalog.manifests:
        for entry in manifest.patches:
            prose = header.parse(catalog.patch_bytes(entry))
            missing = [name for name in ("Description", "Origin") if not prose.get(name)]
            if missing:
                yield Finding(
                    "patch-without-prose",
                    "note",
                    f"the patch's header has no {' and no '.join(missing)}",
                    where=str(catalog.root / entry.file),
                    remedy="say in front of the diff why the patch is there and where it comes from (DEP-3 fields)",
                )


def _unpinned(catalog: Catalog) -> Iterator[Finding]:
    for manifest in catalog.manifests:
        for entry in manifest.patches:
            missing = [name for name, listed in (("pre", entry.pre), ("post", entry.post)) if not listed]
            if missing:
                yield Finding(
                    "patch-not-pinned",
                    "note",
                    f"patch {entry.id} lists no {' and no '.join(missing)}: every image counts as not looked at",
                    where=str(manifest.path),
                    remedy=f"patchkit edit --image X --patch {entry.id}, then patchkit save",
                )


def claims(catalog: Catalog) -> Iterator[Finding]:
    """A warning for each image pattern or digest that stands in a second manifest."""
    seen: dict[str, str] = {}
    for manifest in catalog.manifests:
        for text in (*(each.match for each in manifest.images), *manifest.digests):
            if text in seen and seen[text] != manifest.name:
                yield Finding(
                    "claimed-twice",
                    "warning",
                    f"{text} stands in {seen[text]} too: such an image is refused without --manifest",
                    where=str(manifest.path),
                    remedy="leave it in one of them",
                )
            seen.setdefault(text, manifest.name)
