"""Patched images and what they were made from."""

from __future__ import annotations

from collections.abc import Iterator

from patchkit.doctor.model import Report, check
from patchkit.doctor.world import World


@check(
    "tag-moved",
    "warning",
    "the origin's tag holds another image now",
    """The tag that was patched has moved since. The derived image still holds the old base: whoever starts it gets old
    code, and whoever starts the tag gets unpatched code.""",
)
def moved(world: World) -> Iterator[Report]:
    if world.engine is None:
        return
    for image in world.images_asked:
        now = world.engine.inspect_image(image.origin_name) if image.origin_name else None
        if now is not None and image.origin_digest not in (now["Id"], *_digests(now)):
            yield Report(
                f"{image.origin_name} is {now['Id'][:19]} now, the patches were put on {image.origin_digest[:19]}",
                where=_name(image.tags, image.id),
                remedy=f"patchkit apply --image {image.origin_name}",
            )


@check(
    "origin-gone",
    "note",
    "a patched image's origin is no longer there",
    """The image that was patched was removed from this engine. A further apply rebuilds it from the derived one by
    dropping the patch layer, so nothing is lost.""",
)
def gone(world: World) -> Iterator[Report]:
    if world.engine is None:
        return
    for image in world.images_asked:
        if image.origin_digest and world.engine.inspect_image(image.origin_digest) is None:
            yield Report(
                f"its origin {image.origin_name} ({image.origin_digest[:19]}) is not on this engine",
                where=_name(image.tags, image.id),
            )


def _digests(inspect: object) -> list[str]:
    assert isinstance(inspect, dict)
    return [name.rpartition("@")[2] for name in inspect.get("RepoDigests") or []]


def _name(tags: tuple[str, ...], image_id: str) -> str:
    return tags[0] if tags else image_id[:19]
