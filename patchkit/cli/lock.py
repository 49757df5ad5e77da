"""``patchkit lock``: note what was looked at; compare it with what is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from patchkit import api
from patchkit.catalog.load import load_catalog
from patchkit.cli import options, render, show
from patchkit.errors import Refused
from patchkit.findings import Finding
from patchkit.lifecycle import lock
from patchkit.lifecycle.files import write_all
from patchkit.lifecycle.lock import Locked
from patchkit.plan import Plan


@click.command()
@click.option("--image", "images", multiple=True, metavar="REF", help="Look at this image (repeatable).")
@click.option("--check", is_flag=True, help="Write nothing; exit status 1 where lock, catalog and images differ.")
@click.option("--drop", multiple=True, metavar="DIGEST", help="Forget this image (repeatable).")
@options.looking
@options.json_output
def command(images: tuple[str, ...], check: bool, drop: tuple[str, ...], options: api.Options, as_json: bool) -> int:
    """Write images into the catalog's patchkit.lock: digests, version, chosen variants, files before and after.

    With a lock, `apply --locked` takes nothing else. Without --image the lock is put in order after a merge.

    \b
    patchkit lock --image vllm-xpu:nightly
    patchkit lock --check
    """
    catalog = load_catalog(options.catalog)
    path = catalog.root / lock.NAME
    lines = lock.load(catalog.root)
    plans = [_plan(image, options) for image in images]
    if check:
        findings = [*lock.check(lines, catalog), *(each for plan in plans for each in _compared(lines, plan))]
    else:
        findings = []
        lines = {key: line for key, line in lines.items() if line.image not in drop}
        lines |= {line.key: line for line in map(lock.locked, plans)}
        text = lock.dumps(lines.values()).encode()
        # An empty lock would make CI refuse every image.
        if path.read_bytes() != text if path.exists() else lines:
            write_all({path: text})
    if as_json:
        render.print_json(
            render.document(
                "lock", files=[_row(line) for line in lines.values()], findings=show.finding_parts(findings)
            )
        )
    else:
        click.echo(render.clean(f"{path}: {len(lines)} image{'' if len(lines) == 1 else 's'}"))
        show.print_findings(show.finding_parts(findings))
    return 1 if findings else 0


def _plan(image: str, options: api.Options) -> Plan:
    """The plan of the image before any patch of ours; one that cannot be delivered is not locked."""
    with api.opened(image, options) as opened:
        plan = api.look(opened.origin(), options)
    api.refuse_unless_deliverable(plan)
    return plan


def _compared(lines: Mapping[tuple[str, str], Locked], plan: Plan) -> list[Finding]:
    try:
        lock.require(lines, plan)
    except Refused as error:
        text = "; ".join([error.what, *error.details])
        return [Finding(error.code, "error", text, where=str(plan.reference), remedy=error.remedy or "")]
    return []


def _row(line: Locked) -> dict[str, Any]:
    return {
        "image": line.image,
        "manifest": line.manifest,
        "version": line.version,
        "fingerprint": line.fingerprint,
        "patches": {patch.id: patch.state for patch in line.patches},
    }
