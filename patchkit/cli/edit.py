"""``patchkit edit``: pristine files into a work folder."""

from __future__ import annotations

from pathlib import Path

import click

from patchkit import api
from patchkit.cli import options, render


@click.command()
@click.argument("files", nargs=-1)
@click.option("--image", metavar="REF", help="The image whose files are wanted.")
@click.option("--version", "version", metavar="V", help="A release on the package index instead; latest is the newest.")
@options.index
@click.option("--patch", default="", metavar="ID", help="Change this patch of the series: its files, with it applied.")
@click.option("--work", "folder", type=click.Path(path_type=Path, file_okay=False), help="The work folder.")
@options.looking
@options.json_output
def command(
    files: tuple[str, ...],
    image: str | None,
    version: str | None,
    url: str | None,
    patch: str,
    folder: Path | None,
    options: api.Options,
    as_json: bool,
) -> None:
    """Put pristine FILES, named from site-packages on, into a work folder to change them there.

    Never already patched ones: those of the image that it was derived from, with the patches that come first in the
    series. The folder has a git baseline, so that `git diff` shows the work. `patchkit save` makes the patch of it.

    \b
    patchkit edit --image vllm-xpu:nightly vllm/models/flint/ops/norm.py
    patchkit edit --image vllm-xpu:nightly --patch flint-norm-portable
    patchkit edit --version 0.33.0 vllm/envs.py
    """
    work, notes = api.edit(files, image=image, version=version, patch=patch, folder=folder, options=options, index=url)
    places = [{"path": path, "work": str(work.folder / path)} for path in sorted(work.base)]
    if as_json:
        told = {"image": {"release": work.task.release}, "files": places, "notes": list(notes)}
        render.print_json(render.document("edit", **told, work=str(work.folder)))
        return
    for note in notes:
        click.echo(render.clean(f"note: {note}"), err=True)
    for place in places:
        click.echo(render.clean(place["work"]))
    name = f"--name {patch}" if patch else "--name NAME --description 'WHY'"
    click.echo(render.clean(f"next: change them, then: patchkit save {name}"), err=True)
