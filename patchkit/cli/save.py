"""``patchkit save``: the work folder becomes a patch of the catalog."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from patchkit import api
from patchkit.catalog import header
from patchkit.catalog.header import Header
from patchkit.catalog.load import load_catalog
from patchkit.cli import options, render, show, source
from patchkit.lifecycle import releases, work
from patchkit.lifecycle.save import Draft, Saved, save
from patchkit.plan import load_series


@click.command()
@click.option("--name", required=True, metavar="ID", help="The patch's id in the series.")
@click.option("--description", "-m", metavar="TEXT", help="Why it is there; the first line is the short one.")
@click.option("--author", metavar="NAME", help="Who made it.")
@click.option("--origin", metavar="TEXT", help="Where it comes from (DEP-3).  [default: vendor]")
@click.option("--upstream", default="", metavar="URL", help="The issue or pull request where upstream has it.")
@click.option("--work", "folder", type=click.Path(path_type=Path, file_okay=False), help="The work folder.")
@click.option("--index", "url", metavar="URL", help="Another package index than pip's.")
@options.json_output
def command(
    name: str,
    description: str | None,
    author: str | None,
    origin: str | None,
    upstream: str,
    folder: Path | None,
    url: str | None,
    as_json: bool,
) -> int:
    """Make a patch of the work folder: the smallest diff, its header, its hashes, its place in the series.

    \b
    patchkit save --name flint-norm-portable -m 'Norm kernels without CUDA-only operations'
    """
    opened = work.load(folder or work.find(name))
    task = opened.task
    catalog = load_catalog(Path(task.catalog))
    manifest = source.choose_manifest(catalog, task.manifest)
    old = next((each for each in manifest.patches if each.id == name and each.file == task.entry_file), None)
    prose = header.parse(catalog.patch_bytes(old)) if old else Header((("Origin", "vendor"), ("Forwarded", "no")))
    for field, value in (("Description", description), ("Author", author), ("Origin", origin)):
        if value:
            prose = prose.with_field(field, value)
    prose = prose.with_field("Applies-To", f"{task.package} {task.version}")
    if upstream:
        prose = prose.with_field("Bug", upstream)
    draft = Draft(
        id=name,
        changes=work.changes(opened),
        prose=prose,
        version=task.version,
        python=task.python,
        file=task.entry_file if name == task.patch else "",
        upstream=upstream,
    )
    saved = save(catalog, manifest, draft)
    work.settle(opened, name, saved.entry.file)
    parts = _status(task, url)
    if as_json:
        render.print_json(render.document("save", **parts, patch=name, path=str(saved.path), changed=saved.changed))
    else:
        _tell(saved, task)
        show.print_plan(parts)
        show.print_findings(parts["findings"])
    return 0 if all(row["state"] in ("applies", "offset", "applied", "upstream") for row in parts["files"]) else 1


def _status(task: work.Task, url: str | None) -> dict[str, Any]:
    """What the series does now to what the files came from."""
    if task.image:
        return show.plan_parts(api.status(task.image, api.Options(catalog=Path(task.catalog), manifest=task.manifest)))
    catalog = load_catalog(Path(task.catalog))
    manifest = source.choose_manifest(catalog, task.manifest)
    release = releases.release(releases.indexes(url), releases.distribution(manifest), task.version)
    return show.plan_parts(releases.plan_for(release, load_series(catalog, manifest)))


def _tell(saved: Saved, task: work.Task) -> None:
    word = "written" if saved.changed else "unchanged"
    click.echo(render.clean(f"{saved.path}: {word}, listed in manifest {task.manifest} as {saved.entry.id}"))
    click.echo()
    target = task.image or "IMAGE"
    click.echo(render.clean(f"next: patchkit apply --catalog {task.catalog} --image {target}"), err=True)
