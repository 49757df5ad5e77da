"""``patchkit rebase``: the series carried over to another image or release."""

from __future__ import annotations

import click

from patchkit import api
from patchkit.cli import options, render, show
from patchkit.deliver.receipt import level_json
from patchkit.lifecycle.rebase import MEANING


@click.command()
@click.option("--image", metavar="REF", help="The image to carry the patches over to.")
@click.option("--onto", metavar="V", help="The release to carry them over to instead; latest is the newest.")
@click.option("--patch", "patches", multiple=True, metavar="ID", help="Carry over only this one (repeatable).")
@click.option("--from", "made_on", metavar="V", help="The release that they were made on.  [default: found by hash]")
@click.option("--from-image", "made_on_image", metavar="REF", help="The image that they were made on.")
@options.index
@click.option("--dry-run", is_flag=True, help="Only tell what would become of each patch.")
@options.looking
@options.json_output
def command(
    image: str | None,
    onto: str | None,
    patches: tuple[str, ...],
    made_on: str | None,
    made_on_image: str | None,
    url: str | None,
    dry_run: bool,
    options: api.Options,
    as_json: bool,
) -> int:
    """Carry the series over by a three-way merge: old pristine file, patched file, new pristine file.

    What merges cleanly and compiles is written as a variant for the new version; the old variant keeps its range.
    Conflicts go to a work folder with labelled markers, for `patchkit save`. Exit status 1 where one needs a person.

    \b
    patchkit rebase --image vllm-xpu:nightly
    patchkit rebase --onto latest --patch flint-norm-portable --dry-run
    """
    done = api.rebase(
        image=image,
        onto=onto,
        patches=patches,
        made_on=made_on,
        made_on_image=made_on_image,
        dry_run=dry_run,
        options=options,
        index=url,
    )
    levels = level_json(done.proof) if done.proof else []
    if as_json:
        rows = [
            {
                "patch": each.id,
                "state": each.outcome,
                "detail": each.detail,
                "path": str(each.path or ""),
                "work": str(each.work or ""),
            }
            for each in done.patches
        ]
        render.print_json(render.document("rebase", image={"release": done.release}, files=rows, levels=levels))
    else:
        _tell(done, image)
        if levels:
            show.print_levels(levels)
    return 0 if done.good and all(level["state"] != "failed" for level in levels) else 1


def _tell(done: api.Rebase, image: str | None) -> None:
    rows = [(each.id, each.outcome, each.detail) for each in done.patches]
    click.echo(render.table(rows, ("PATCH", "STATE", "DETAIL")))
    for each in done.patches:
        if each.path:
            click.echo(render.clean(f"{each.path}: written"))
        elif each.work:
            click.echo(render.clean(f"{each.id}: {each.work} holds its conflicts"))
    for each in done.patches:
        if each.work:
            click.echo(render.clean(f"next: settle them, then: patchkit save --name {each.id}"), err=True)
        elif each.outcome == "upstream":
            click.echo(render.clean(f"next: patchkit retire {each.id}"), err=True)
        elif each.outcome in ("gone", "not-applicable"):
            click.echo(render.clean(f"{each.id}: {MEANING[each.outcome]}"), err=True)
    if done.good:
        click.echo(render.clean(f"next: patchkit apply --image {image or 'IMAGE'}"), err=True)
