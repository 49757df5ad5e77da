"""``patchkit save``: the work folder becomes a patch of the catalog."""

from __future__ import annotations

from pathlib import Path

import click

from patchkit import api
from patchkit.cli import options, render, show


@click.command()
@click.option("--name", required=True, metavar="ID", help="The patch's id in the series.")
@click.option(
    "--description", "-m", default="", metavar="TEXT", help="Why it is there; the first line is the short one."
)
@click.option("--author", default="", metavar="NAME", help="Who made it.")
@click.option("--origin", default="", metavar="TEXT", help="Where it comes from (DEP-3).  [default: vendor]")
@click.option("--upstream", default="", metavar="URL", help="The issue or pull request where upstream has it.")
@click.option("--work", "folder", type=click.Path(path_type=Path, file_okay=False), help="The work folder.")
@options.index
@options.json_output
def command(
    name: str,
    description: str,
    author: str,
    origin: str,
    upstream: str,
    folder: Path | None,
    url: str | None,
    as_json: bool,
) -> int:
    """Make a patch of the work folder: the smallest diff, its header, its hashes, its place in the series.

    \b
    patchkit save --name flint-norm-portable -m 'Norm kernels without CUDA-only operations'
    """
    prose = api.Prose(description, author, origin, upstream)
    saved, plan, task = api.save(name, prose, folder=folder, index=url)
    parts = show.plan_parts(plan)
    if as_json:
        render.print_json(render.document("save", **parts, patch=name, path=str(saved.path), changed=saved.changed))
    else:
        word = "written" if saved.changed else "unchanged"
        click.echo(render.clean(f"{saved.path}: {word}, listed in manifest {task.manifest} as {saved.entry.id}"))
        click.echo()
        rows = [(row.patch, row.path, row.told_state, row.detail) for row in plan.rows]
        click.echo(render.table(rows, ("PATCH", "FILE", "STATE", "DETAIL")))
        show.print_findings(parts["findings"])
        target = task.image or "IMAGE"
        click.echo(render.clean(f"next: patchkit apply --catalog {task.catalog} --image {target}"), err=True)
    return 1 if plan.refused else 0
