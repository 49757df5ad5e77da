"""``patchkit status``: the plan as a table, and the copies found. Nothing is written."""

from __future__ import annotations

import click

from patchkit import api
from patchkit.cli import options, show
from patchkit.cli.render import document, print_json
from patchkit.findings import worst


@click.command("status")
@options.image
@options.looking
@options.json_output
def command(image: str, options: api.Options, as_json: bool) -> int:
    """Show what each patch would do to an image, and every copy of the package in it.

    Exit status 0 when every patch applies (also at an offset) or is in the image already, else 1.

    \b
    patchkit status --image vllm-xpu:nightly
    patchkit status --image oci:./layout --json
    """
    plan = api.status(image, options)
    parts = show.plan_parts(plan)
    if as_json:
        print_json(document("status", **parts))
    else:
        show.print_plan(parts)
        show.print_findings(parts["findings"])
    return 1 if plan.refused or worst(plan.findings) == "error" else 0
