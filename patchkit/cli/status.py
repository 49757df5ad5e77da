"""``patchkit status``: the plan as a table, and the copies found. Nothing is written."""

from __future__ import annotations

import click

from patchkit import api
from patchkit.cli import options, show
from patchkit.cli.render import clean, document, print_json
from patchkit.findings import worst


@click.command("status")
@click.option("--image", metavar="REF", help="The image, as skopeo spells it; a bare name is docker's.")
@click.option("--container", metavar="NAME", help="Look at a running container's files instead.")
@options.looking
@options.json_output
def command(image: str | None, container: str | None, options: api.Options, as_json: bool) -> int:
    """Show what each patch would do to an image, and every copy of the package in it.

    Exit status 0 when every patch applies (also at an offset) or is in the image already, else 1.

    \b
    patchkit status --image vllm-xpu:nightly
    patchkit status --image oci:./layout --json
    """
    if (image is None) == (container is None):
        raise click.UsageError("give either --image or --container")
    plan = api.status(image, options) if image else api.container_status(str(container), options)
    parts = show.plan_parts(plan)
    if as_json:
        print_json(document("status", **parts))
    else:
        show.print_plan(parts)
        show.print_findings(parts["findings"])
        if plan.refused:
            click.echo(clean(f"next: {api.remedy_for(plan, options)}"))
    return 1 if plan.refused or worst(plan.findings) == "error" else 0
