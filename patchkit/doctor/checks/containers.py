"""Running containers: do they run what was patched?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from patchkit.deliver.receipt import Receipt
from patchkit.doctor.model import Report, check
from patchkit.doctor.world import World


@check(
    "container-unpatched",
    "error",
    "a container runs the image as it was before the patches",
    """A derived image with the patches is on this engine, and this container was started from its origin: the patches
    are declared and do nothing. A container started before apply keeps the old image until it is recreated.""",
)
def unpatched(world: World) -> Iterator[Report]:
    by_origin = {image.origin_digest: image for image in world.patched_images}
    receipts = [receipt for receipt in world.receipts.values() if isinstance(receipt, Receipt)]
    for container in world.containers:
        targets = {str(mount.get("Destination")) for mount in container.mounts}
        patched = by_origin.get(container.image_id)
        bound = next(
            (
                receipt
                for receipt in receipts
                if receipt.kind == "bind" and container.image_id in receipt.delivered_identity.digests
            ),
            None,
        )
        if bound is not None and not {mount.target for mount in bound.mounts} <= targets:
            missing = sorted({mount.target for mount in bound.mounts} - targets)
            yield Report(
                f"{len(missing)} of the patched files are not mounted, first {missing[0]}",
                where=container.name,
                remedy="start it with the overlay: docker compose -f compose.yaml -f OVERLAY up -d",
            )
        elif bound is None and patched is not None:
            tag = patched.tags[0] if patched.tags else patched.id[:19]
            yield Report(
                f"it runs {container.image_name}, which {tag} was made from",
                where=container.name,
                remedy=f"recreate it from {tag}",
            )


@check(
    "container-older",
    "error",
    "a container runs an older patched image than its tag names",
    "The tag was patched again after this container started. A restart keeps the old image: recreate the container.",
)
def older(world: World) -> Iterator[Report]:
    tags = {tag: image for image in world.patched_images for tag in image.tags}
    for container in world.containers:
        image = tags.get(container.image_name)
        if image is not None and image.id != container.image_id:
            yield Report(
                f"it runs {container.image_id[:19]}, {container.image_name} is {image.id[:19]} now",
                where=container.name,
                remedy="recreate it: docker compose up -d --force-recreate",
            )


@check(
    "mount-source-missing",
    "error",
    "a patched file that is mounted is gone on the host",
    """Where a bind mount's source is missing the engine makes an empty folder in its place (moby#13121): the module is
    hidden and the error surfaces far away.""",
)
def source_missing(world: World) -> Iterator[Report]:
    if world.engine is None or world.engine.is_remote:
        return
    for container in world.containers:
        if world.receipt_of(container) is None:
            continue
        for mount in container.mounts:
            source = Path(str(mount.get("Source", "")))
            if mount.get("Type") == "bind" and "/files/" in str(source) and not source.is_file():
                word = "is a folder" if source.is_dir() else "is missing"
                yield Report(
                    f"{source} {word}",
                    where=f"{container.name}:{mount.get('Destination')}",
                    remedy="write it again with patchkit apply --mode bind, then recreate the container",
                )


@check(
    "receipt-unreadable",
    "error",
    "a container's label names a receipt that cannot be read",
    "Without its receipt nobody can tell what a container should run.",
)
def receipt_unreadable(world: World) -> Iterator[Report]:
    for place, receipt in world.receipts.items():
        if not isinstance(receipt, Receipt):
            yield Report(receipt.what, where=str(place), remedy=receipt.remedy or "")
