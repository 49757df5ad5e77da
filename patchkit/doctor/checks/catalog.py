"""The catalog: manifests and patches."""

from __future__ import annotations

from collections.abc import Iterator

from patchkit.catalog.check import claims, unlisted
from patchkit.doctor.model import Report, Unseen, check
from patchkit.doctor.world import World
from patchkit.errors import PatchkitError
from patchkit.findings import Finding
from patchkit.lifecycle import lock
from patchkit.lifecycle.retired import cases
from patchkit.stack.compose_model import Model


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
    "patch-not-listed",
    "warning",
    "a patch file that no manifest lists",
    """A diff in patches/ that no manifest lists is never applied to anything: it lies in the repository and does
    nothing.""",
)
def not_listed(world: World) -> Iterator[Finding]:
    if world.catalog is not None:
        yield from unlisted(world.catalog)


@check(
    "targets-shared",
    "note",
    "two patches of one series change the same file",
    """They apply in the order of the series, the later on top of the earlier: leaving one out with --only may make the
    other fail.""",
)
def shared_targets(world: World) -> Iterator[Report]:
    for manifest in world.catalog.manifests if world.catalog else ():
        by_path: dict[str, list[str]] = {}
        for entry in manifest.patches:
            for path in entry.post or entry.pre:
                if entry.id not in by_path.setdefault(path, []):
                    by_path[path].append(entry.id)
        for path, names in sorted(by_path.items()):
            if len(names) > 1:
                yield Report(f"{', '.join(names)} change it in this order", where=f"{manifest.name}: {path}")


@check(
    "claimed-twice",
    "warning",
    "two manifests claim the same images",
    """An image that two manifests claim is refused until the person names one: narrow their patterns. Looked at are the
    patterns and digests themselves, and the images of the containers and services here.""",
)
def claimed_twice(world: World) -> Iterator[Report | Finding]:
    if world.catalog is not None:
        yield from claims(world.catalog)
    matched = [(container.name, world.manifests.get(container.id)) for container in world.containers]
    if isinstance(world.compose, Model):
        images = [service.image for service in world.compose.services if service.image]
        matched += [(image, world.manifest_for(image)) for image in images]
    errors = [(where, each) for where, each in matched if isinstance(each, PatchkitError)]
    yield from dict.fromkeys(
        Report.of(error) if error.code == "several-manifests" else Unseen.of(error, where) for where, error in errors
    )


@check(
    "retirable",
    "note",
    "no known image needs a patch any more",
    """Of the images in patchkit.lock at least one holds every hunk of the patch or fulfils its drop condition, and none
    needs it. A patch that stays too long is carried over to each new image for nothing.""",
)
def retirable(world: World) -> Iterator[Report]:
    catalog = world.catalog
    known = lock.load(catalog.root).values() if catalog else ()
    for manifest in catalog.manifests if catalog else ():
        for case in cases(manifest, known):
            if case.proven:
                yield Report(
                    f"{len(case.done_in)} known images have it, none needs it",
                    where=f"{manifest.name}: {case.patch}",
                    evidence=", ".join(case.done_in[:3]),
                    remedy=f"patchkit retire {case.patch} --manifest {manifest.name}",
                )
