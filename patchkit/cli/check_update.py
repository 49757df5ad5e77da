"""``patchkit check-update``: is there a new image under the name, and what is to do?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from patchkit import api
from patchkit.catalog.load import load_catalog
from patchkit.cli import options, render, show
from patchkit.deliver import receipt as receipts
from patchkit.deliver.output import RECEIPT_NAME
from patchkit.errors import BadInput, Refused, Unreachable
from patchkit.images import parse_reference
from patchkit.images.model import Reference
from patchkit.lifecycle import lock, update


@click.command()
@click.option("--image", metavar="REF", help="The image.  [default: the one that the receipt in --output was made of]")
@options.output
@options.looking
@options.json_output
def command(image: str | None, output: Path, options: api.Options, as_json: bool) -> int:
    """Ask the registry whether the image's name stands for a new one; nothing is pulled.

    Then: the state of every patch on it, which can be dropped, which flags can be swapped, what to run. Exit status 1
    when there is something to do, so that cron and CI can call it.

    \b
    patchkit check-update --image vllm-xpu:nightly
    patchkit check-update --json
    """
    reference, known = _known(image, output, options)
    registry = update.in_registry(reference)
    with api.opened(str(registry), options) as there:
        found = update.news(there, known)
        if not found.is_new:
            findings, parts = [], {}
        else:
            plan = api.look(there, options, load_catalog(options.catalog))
            findings, parts = update.to_do(plan, there, _called(reference)), show.plan_parts(plan)
    told = show.finding_parts(findings)
    if as_json:
        image_part = show.image_part(registry, found.identity)
        answer: dict[str, Any] = {"image": image_part, **parts, "findings": told}
        render.print_json(render.document("check-update", **answer, new=found.is_new))
        return 1 if findings else 0
    if not found.is_new:
        click.echo(render.clean(f"{_called(reference)}: nothing new in the registry"))
        return 0
    show.print_plan(parts)
    show.print_findings(told)
    return 1


def _called(reference: Reference) -> str:
    return reference.name if reference.transport == "docker-daemon" else str(reference)


def _known(image: str | None, folder: Path, options: api.Options) -> tuple[Reference, set[str]]:
    """The image's name, and every digest under which it was seen: in the receipt, in the engine, in the lock."""
    known = {digest for line in lock.load(load_catalog(options.catalog).root).values() for digest in _digests(line)}
    try:
        receipt = receipts.load(folder / RECEIPT_NAME)
    except (Refused, BadInput):
        if image is None:
            raise
        receipt = None
    reference = parse_reference(image or (receipt.origin if receipt else ""))
    if receipt is not None and receipt.origin == str(reference):
        return reference, known | set(receipt.origin_identity.digests)
    if reference.transport == "docker-daemon":
        try:
            with api.opened(str(reference), options) as here, here.origin() as origin:
                known |= set(origin.identity.digests)
        except (Unreachable, Refused):
            pass  # it is not here yet: whatever the registry has is new
    return reference, known


def _digests(line: lock.Locked) -> tuple[str, ...]:
    return (line.image, *line.digests)
