"""``patchkit edit``: pristine files into a work folder."""

from __future__ import annotations

from pathlib import Path

import click

from patchkit import api
from patchkit.cli import options, render, source
from patchkit.errors import BadInput
from patchkit.lifecycle import edit, work


@click.command()
@click.argument("files", nargs=-1)
@click.option("--image", metavar="REF", help="The image whose files are wanted.")
@click.option("--version", "version", metavar="V", help="A release on the package index instead; latest is the newest.")
@click.option("--index", "url", metavar="URL", help="Another package index than pip's.")
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
    if bool(image) == bool(version):
        raise click.UsageError("give either --image or --version")
    if not files and not patch:
        raise BadInput("nothing-to-edit", "no file is named", remedy="name files, or a patch with --patch ID")
    if image:
        found = source.from_image(image, files, options)
    else:
        found = source.from_index(version or "", files[0].partition("/")[0] if files else "", options, url)
    edit.check_paths(files, found.release)
    base = edit.ground(found.release, found.series, patch, files, found.platform)
    task = work.Task(
        manifest=found.manifest.name,
        catalog=str(found.catalog.root.absolute()),
        package=found.manifest.package,
        release=found.release.label,
        version=found.release.version,
        python=found.python,
        image=found.image,
    )
    place = folder or work.home() / found.manifest.name / (patch or work.NEW)
    opened = edit.open_work(place, task, base, found.series)
    if as_json:
        files_part = [{"path": path, "work": str(opened.folder / path)} for path in sorted(opened.base)]
        render.print_json(
            render.document("edit", image={"release": task.release}, files=files_part, work=str(opened.folder))
        )
        return
    for note in base.notes:
        click.echo(render.clean(f"note: {note}"), err=True)
    for path in sorted(opened.base):
        click.echo(render.clean(str(opened.folder / path)))
    name = f"--name {patch}" if patch else "--name NAME --description 'WHY'"
    click.echo(render.clean(f"next: change them, then: patchkit save {name}"), err=True)
