"""``patchkit revert``: back to the origin, with proof that it is."""

from __future__ import annotations

import json
from pathlib import Path

import click

from patchkit import api
from patchkit.catalog.load import load_catalog
from patchkit.catalog.match import match
from patchkit.cli import options, render
from patchkit.deliver import image as image_delivery
from patchkit.deliver import output
from patchkit.deliver import receipt as receipts
from patchkit.errors import BadInput, Refused, Unreachable
from patchkit.images.containers import Container
from patchkit.images.engine import engine
from patchkit.images.model import Reference
from patchkit.lifecycle import revert
from patchkit.lifecycle.revert import Restored
from patchkit.plan import load_series


@click.command()
@click.option("--image", metavar="REF", help="A patched image of an engine: its name goes back to the origin, or away.")
@click.option("--container", "name", metavar="NAME", help="A running container whose own files were patched.")
@click.option(
    "--compose",
    "overlay",
    type=click.Path(path_type=Path, exists=True),
    help="An overlay (or its folder): it, its receipt and its mounted files are removed.",
)
@click.option("--restart", is_flag=True, help="Restart the container, so that no patched module stays in memory.")
@options.looking
@options.json_output
def command(
    image: str | None, name: str | None, overlay: Path | None, restart: bool, options: api.Options, as_json: bool
) -> int:
    """Undo a delivery, and show that every file is as it was before.

    \b
    patchkit revert --image vllm-xpu:nightly-patchkit
    patchkit revert --compose .patchkit/compose.patchkit.yaml
    patchkit revert --container vllm-1 --restart
    """
    if sum(each is not None for each in (image, name, overlay)) != 1:
        raise click.UsageError("give one of --image, --container and --compose")
    if image is not None:
        restored, said, status = _image(image)
    elif overlay is not None:
        restored, said, status = _overlay(overlay)
    else:
        restored, said, status = _container(name or "", restart, options)
    if as_json:
        files = [{"path": each.path, "now": each.digest} for each in restored]
        render.print_json(render.document("revert", files=files, said=said))
        return status
    if restored:
        click.echo(render.table([(each.path, each.digest) for each in restored], ("FILE", "AS IT WAS")))
    for line in said:
        click.echo(render.clean(line))
    return status


def _image(reference: str) -> tuple[list[Restored], list[str], int]:
    with api.opened(reference) as derived:
        receipt = image_delivery.receipt_in(derived)
        if receipt is None:
            raise Refused("not-patched", "the image is not a patched one", where=reference, remedy="nothing to undo")
        if derived.reference.transport != "docker-daemon":
            raise BadInput(
                "revert-elsewhere",
                f"only an engine's names are put back; the origin is untouched at {receipt.origin}",
                where=reference,
                remedy=f"skopeo copy {receipt.origin} {derived.reference}",
            )
        labels = (json.loads(derived.config).get("config") or {}).get("Labels") or {}
        with derived.origin() as origin:
            restored = revert.proven(origin.fs, receipt, str(origin.reference))
            name = revert.image(
                engine(), derived, origin.reference.name, str(labels.get(image_delivery.LABEL_ORIGIN_NAME, ""))
            )
    return restored, [f"{derived.reference.name}: back to {name}"], 0


def _overlay(place: Path) -> tuple[list[Restored], list[str], int]:
    folder = place if place.is_dir() else place.parent
    receipt = receipts.load(folder / output.RECEIPT_NAME)
    try:
        reached = engine()
    except Unreachable:
        reached = None  # no engine, no container that could use it
    restored: list[Restored] = []
    if receipt.kind == "bind":
        with api.opened(receipt.origin) as origin:
            restored = revert.proven(origin.fs, receipt, receipt.origin)
    removed = revert.overlay(reached, folder)
    return restored, [f"removed {path}" for path in removed], 0


def _container(name: str, restart: bool, options: api.Options) -> tuple[list[Restored], list[str], int]:
    reached = engine()
    running = Container(reached, name)
    catalog = load_catalog(options.catalog)
    with api.opened(str(running.image), options) as image:
        if image_delivery.receipt_in(image) is not None:
            raise Refused(
                "image-is-patched",
                "its image is a patched one: the container must be made anew from the origin",
                where=name,
                remedy="make it anew; the image's name goes back with: patchkit revert --image",
            )
        called = Reference("docker-daemon", running.image_name)
        manifest = match(catalog, image.identity.digests, called, options.manifest).manifest
        series = load_series(catalog, manifest, options.only)
        site = api.facts(
            image, api.launch_for(image, options), manifest.package, series.paths, manifest.decoys, options
        )
        if site.winner is None:
            raise Refused("package-absent", f"the launch imports no copy of {manifest.package}", where=name)
        restored = revert.container(running, image, site, series.paths)
    if not restored:
        return [], [f"{name}: every file is the image's"], 0
    if restart:
        reached.call("POST", f"/containers/{running.id}/restart", timeout=120)
        return restored, [f"{name}: restarted"], 0
    said = f"{name}: what is imported already stays patched until it restarts: docker restart {name}"
    return restored, [said], 1
