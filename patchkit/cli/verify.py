"""``patchkit verify``: prove, level by level, what a receipt says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from patchkit import api
from patchkit.cli import options, show
from patchkit.cli.render import clean, document, print_json
from patchkit.deliver.receipt import level_json
from patchkit.proof.model import LEVELS
from patchkit.proof.verdict import verdict

requirement = click.option(
    "--require", multiple=True, type=click.Choice(LEVELS), help="Fail unless this level passed, too (repeatable)."
)


@click.command("verify")
@click.option("--image", metavar="REF", help="The derived image, or the one that the mounts are for.")
@click.option("--receipt", type=click.Path(path_type=Path, dir_okay=False), help="A receipt file.")
@options.output
@options.looking
@requirement
@options.devices
@options.gpus
@options.json_output
def command(
    image: str | None,
    receipt: Path | None,
    output: Path,
    options: api.Options,
    require: tuple[str, ...],
    devices: tuple[str, ...],
    gpus: str | None,
    as_json: bool,
) -> int:
    """Prove that an image runs the patched files: bytes, resolves, compiles, bytecode, imports, asserts.

    The first four must pass; imports and asserts may be blocked by something that the patches do not touch (a missing
    module, a driver), unless --require names them.

    \b
    patchkit verify --image vllm-xpu:nightly-patchkit
    patchkit verify --receipt .patchkit/receipt.json --require imports
    """
    done = api.verify(image, options, receipt_path=receipt, output_folder=output, devices=devices, gpus=gpus)
    levels = level_json(done.proof)
    findings = show.finding_parts(done.findings)
    parts: dict[str, Any] = {
        "image": {
            **show.image_part(done.reference, done.receipt.delivered_identity),
            "fingerprint": done.receipt.fingerprint,
        },
        "files": [
            {"path": file.path, "image_path": file.image_path, "pre": file.pre, "post": file.post}
            for file in done.receipt.files
        ],
        "levels": levels,
        "findings": findings,
    }
    if as_json:
        print_json(document("verify", **parts))
    else:
        click.echo(clean(f"{done.reference}: {len(done.receipt.files)} files, fingerprint {done.receipt.fingerprint}"))
        show.print_levels(levels)
        show.print_findings(findings)
    return verdict(done.proof.levels, require)
