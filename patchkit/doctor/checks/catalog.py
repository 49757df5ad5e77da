"""The catalog: manifests and patches."""

from __future__ import annotations

from collections.abc import Iterator

from patchkit.doctor.model import Report, check
from patchkit.doctor.world import World


@check(
    "catalog-invalid",
    "error",
    "the catalog has faults",
    "A catalog with a fault is not used at all, so that no patch is left out without a word.",
)
def invalid(world: World) -> Iterator[Report]:
    error = world.catalog_error
    if error is not None:
        for detail in error.details or (error.what,):
            yield Report(detail, where=error.where or "", remedy="patchkit manifest check")


@check(
    "catalog",
    "note",
    "which catalog is in use",
    "Tells the folder, the manifests and the number of patches.",
)
def which(world: World) -> Iterator[Report]:
    catalog = world.catalog
    if catalog is not None:
        names = ", ".join(f"{each.name} ({len(each.patches)})" for each in catalog.manifests)
        yield Report(f"manifests: {names}", where=str(catalog.root))


@check(
    "patch-unused",
    "warning",
    "a patch file that no manifest lists",
    """A diff in patches/ that no manifest lists is never applied to anything: it lies in the repository and does
    nothing.""",
)
def unused(world: World) -> Iterator[Report]:
    catalog = world.catalog
    if catalog is None:
        return
    listed = {entry.file for manifest in catalog.manifests for entry in manifest.patches}
    for path in sorted((catalog.root / "patches").rglob("*.patch")):
        name = path.relative_to(catalog.root).as_posix()
        if name not in listed and not name.startswith("patches/retired/"):
            yield Report("no manifest lists this patch", where=str(path), remedy="list it in a manifest, or remove it")
