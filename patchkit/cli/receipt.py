"""``patchkit receipt``: what was delivered into an image, as JSON or as a statement to sign."""

from __future__ import annotations

import json
from pathlib import Path

import click

from patchkit import api
from patchkit.cli import options
from patchkit.deliver import image as image_delivery
from patchkit.deliver import receipt as receipts
from patchkit.errors import Refused
from patchkit.lifecycle.attest import statement


@click.command()
@click.option("--image", metavar="REF", help="A patched image.")
@click.option(
    "--receipt",
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    help="A receipt file instead.  [default: .patchkit/receipt.json]",
)
@click.option("--format", "form", type=click.Choice(["json", "in-toto"]), default="json", show_default=True)
@options.platform
def command(image: str | None, path: Path | None, form: str, platform: str | None) -> None:
    """Print a delivery's receipt: patches, files before and after, fingerprint, proof.

    \b
    patchkit receipt --image vllm-xpu:nightly-patchkit
    patchkit receipt --format in-toto > statement.json
    """
    if image and path:
        raise click.UsageError("give either --image or --receipt")
    if image:
        with api.opened(image, api.Options(platform=platform)) as opened:
            found = image_delivery.receipt_in(opened)
        if found is None:
            raise Refused(
                "no-receipt", "the image is not a patched one", where=image, remedy=f"patchkit apply --image {image}"
            )
    else:
        found = receipts.load(path or Path(".patchkit") / "receipt.json")
    if form == "in-toto":
        click.echo(json.dumps(statement(found), indent=2, sort_keys=True, ensure_ascii=False))
    else:
        click.echo(receipts.to_bytes(found).decode(), nl=False)
