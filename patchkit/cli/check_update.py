"""``patchkit check-update``: is there a new image under the name, and what is to do?"""

from __future__ import annotations

from pathlib import Path

import click

from patchkit import api
from patchkit.cli import options, render, show


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
    found = api.check_update(image, options, output=output)
    parts = show.plan_parts(found.plan) if found.plan else {}
    findings = show.finding_parts(found.findings)
    if as_json:
        told = {**parts, "image": show.image_part(found.registry, found.identity), "findings": findings}
        render.print_json(render.document("check-update", **told, new=found.plan is not None))
    elif found.plan is None:
        click.echo(render.clean(f"{found.called}: nothing new in the registry"))
    else:
        show.print_plan(parts)
        show.print_findings(findings)
    return 1 if findings else 0
