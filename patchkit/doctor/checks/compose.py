"""A compose project: is it wired at all, and onto the copy that serves?"""

from __future__ import annotations

from collections.abc import Iterator

from patchkit.catalog.model import Manifest
from patchkit.deliver.receipt import Receipt
from patchkit.doctor.model import Report, check
from patchkit.doctor.world import World
from patchkit.errors import PatchkitError
from patchkit.stack.compose_model import Model, plain_name


@check(
    "compose-invalid",
    "error",
    "the compose files do not make a project",
    "Compose itself reads the files; what it refuses, patchkit cannot judge.",
)
def invalid(world: World) -> Iterator[Report]:
    if isinstance(world.compose, PatchkitError):
        yield Report.of(world.compose)


@check(
    "compose-unwired",
    "error",
    "a service runs an image as it was before its patches",
    """The patches are declared and delivered, and this project starts the unpatched image without the mounts. Give the
    overlay with -f after the project's own files, each time.""",
)
def unwired(world: World) -> Iterator[Report]:
    if not isinstance(world.compose, Model):
        return
    origins: dict[str, Receipt | None] = {
        plain_name(image.origin_name): None for image in world.patched_images if image.origin_name
    }
    origins |= {
        plain_name(receipt.origin.partition(":")[2]): receipt
        for receipt in world.readable
        if receipt.origin.startswith("docker-daemon:")
    }
    for service in world.compose.services:
        name = plain_name(service.image) if service.image else ""
        if name not in origins:
            continue
        receipt = origins[name]
        targets = {mount.target for mount in service.mounts}
        if receipt is not None and receipt.kind == "bind" and {mount.target for mount in receipt.mounts} <= targets:
            continue
        yield Report(
            f"service {service.name} starts {service.image} without the patches",
            where=", ".join(map(str, world.question.compose)),
            remedy="docker compose -f compose.yaml -f .patchkit/compose.patchkit.yaml up -d",
        )


@check(
    "compose-undelivered",
    "warning",
    "a service runs an image that patches are for, and none were delivered",
    """A manifest claims this image, and nothing here was patched from it: the patches lie in the catalog, and this
    project starts without them (club-3090#145).""",
)
def undelivered(world: World) -> Iterator[Report]:
    if not isinstance(world.compose, Model):
        return
    known = {plain_name(image.origin_name) for image in world.patched_images if image.origin_name}
    known |= {plain_name(tag) for image in world.patched_images for tag in image.tags}
    known |= {plain_name(receipt.origin.partition(":")[2]) for receipt in world.readable}
    for service in world.compose.services:
        # A name by digest or ID is what an overlay pins.
        if not service.image or "sha256:" in service.image or plain_name(service.image) in known:
            continue
        manifest = world.manifest_for(service.image)
        if isinstance(manifest, Manifest):  # where several claim it, claimed-twice tells
            yield Report(
                f"manifest {manifest.name} is for {service.image}, and nothing of it was delivered",
                where=f"service {service.name}",
                remedy=f"patchkit compose --image {service.image} -f {world.question.compose[0]}",
            )


@check(
    "mount-on-decoy",
    "error",
    "a service mounts files onto a copy that does not serve",
    """The mount lands on a known decoy, a second copy of the package that the server does not import: it changes
    nothing and nobody notices.""",
)
def on_decoy(world: World) -> Iterator[Report]:
    if not isinstance(world.compose, Model) or world.catalog is None:
        return
    decoys = {decoy for manifest in world.catalog.manifests for decoy in manifest.decoys}
    for service in world.compose.services:
        for mount in service.mounts:
            for decoy in sorted(decoys):
                if mount.target.startswith(decoy.rstrip("/") + "/"):
                    yield Report(
                        f"service {service.name} mounts onto {decoy}",
                        where=mount.target,
                        remedy="see which copy serves: patchkit resolve --image IMAGE PACKAGE",
                    )
