"""Undoing deliveries, each with proof that every file is as it was."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from pathlib import Path

from patchkit.api.look import Options, facts, launch_for, opened
from patchkit.catalog.load import load_catalog
from patchkit.catalog.match import match
from patchkit.deliver import image as image_delivery
from patchkit.deliver import receipt as receipts
from patchkit.deliver.output import RECEIPT_NAME
from patchkit.errors import BadInput, Refused, Unreachable
from patchkit.images import edit
from patchkit.images.containers import Container
from patchkit.images.daemon import DaemonImage
from patchkit.images.engine import engine
from patchkit.lifecycle import revert
from patchkit.lifecycle.revert import Restored
from patchkit.plan import load_series
from patchkit.site.facts import copy_of


@dataclass(frozen=True, slots=True)
class Reverted:
    """What is as it was again: the files with their hashes, and what else is to be said. ``finished`` is False where a
    process still has patched modules in memory."""

    files: tuple[Restored, ...]
    said: tuple[str, ...]
    finished: bool = True


def revert_image(reference: str) -> Reverted:
    """Let a derived image's name go: back to the origin where the origin had it, else away.

    Raises:
        patchkit.errors.Refused: ``not-patched``, ``not-the-origin``, ``image-in-use``.
        patchkit.errors.BadInput: ``revert-elsewhere``: only an engine's names are put back.
    """
    with opened(reference) as derived:
        receipt = image_delivery.receipt_in(derived)
        if receipt is None:
            raise Refused("not-patched", "the image is not a patched one", where=reference, remedy="nothing to undo")
        if derived.reference.transport != "docker-daemon":
            raise BadInput(
                "revert-elsewhere",
                f"only an engine's names are put back; the origin is untouched at {receipt.origin}",
                where=reference,
                remedy=shlex.join(["skopeo", "copy", receipt.origin, str(derived.reference)]),
            )
        name = edit.labels(json.loads(derived.config)).get(image_delivery.LABEL_ORIGIN_NAME, "")
        with derived.origin() as origin:
            assert isinstance(origin, DaemonImage)
            restored = revert.proven(origin.fs, receipt, str(origin.reference))
            revert.image(engine(), derived, origin.id, name)
    return Reverted(tuple(restored), (f"{derived.reference.name}: back to {name}",))


def revert_overlay(place: Path) -> Reverted:
    """Remove an overlay, its receipt and its mounted files; ``place`` is the overlay or its folder.

    Raises:
        patchkit.errors.Refused: ``no-receipt``, ``not-the-origin``, ``overlay-in-use``.
    """
    folder = place if place.is_dir() else place.parent
    try:
        receipt = receipts.load(folder / RECEIPT_NAME)
    except Refused as error:
        raise Refused(
            error.code,
            f"no receipt lies beside it ({RECEIPT_NAME}), so it is no overlay that patchkit can take back",
            where=str(place),
            remedy="name the folder that apply wrote to: patchkit revert --compose .patchkit",
        ) from None
    try:
        reached = engine()
    except Unreachable:
        reached = None  # no engine, no container that could use it
    restored: list[Restored] = []
    if receipt.kind == "bind":
        with opened(receipt.origin) as origin:
            restored = revert.proven(origin.fs, receipt, receipt.origin)
    removed = revert.overlay(reached, folder)
    return Reverted(tuple(restored), tuple(f"removed {path}" for path in removed))


def revert_container(name: str, options: Options = Options(), *, restart: bool = False) -> Reverted:
    """Give a running container its image's own files back.

    Raises:
        patchkit.errors.Refused: ``image-is-patched``, ``package-absent``, ``on-a-mount``, ``cannot-write``.
        patchkit.errors.Unreachable: ``no-such-container``, ``not-running``.
    """
    reached = engine()
    running = Container(reached, name)
    catalog = load_catalog(options.catalog)
    with DaemonImage(reached, running.image, no_run=not options.run) as image:
        if image_delivery.receipt_in(image) is not None:
            raise Refused(
                "image-is-patched",
                "its image is a patched one: the container must be made anew from the origin",
                where=name,
                remedy="make it anew; the image's name goes back with: patchkit revert --image NAME",
            )
        called = image.called(running.image_name)
        manifest = match(catalog, image.identity.digests, image.reference, options.manifest, called).manifest
        series = load_series(catalog, manifest, options.only)
        site = facts(image, launch_for(image, options), manifest.package, series.paths, manifest.decoys, options)
        copy = copy_of(site, manifest.package)
        places = [copy.place_of(manifest.package, path) for path in series.paths]
        restored = tuple(revert.container(running, image, site.launch.interpreter, places))
    if not restored:
        return Reverted((), (f"{name}: every file is the image's",))
    if restart:
        running.restart()
        return Reverted(restored, (f"{name}: restarted",))
    said = f"{name}: what is imported already stays patched until it restarts: docker restart {name}"
    return Reverted(restored, (said,), finished=False)
