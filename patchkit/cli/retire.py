"""``patchkit retire``: patches that upstream has leave the series."""

from __future__ import annotations

from pathlib import Path

import click

from patchkit import api
from patchkit.cli import options, render


@click.command()
@click.argument("patches", nargs=-1)
@options.catalog
@click.option("--manifest", metavar="NAME", help="The manifest that lists them.")
@click.option("--version", "version", metavar="V", help="A release that proves it; latest is the newest.")
@options.index
@click.option("--reason", default="", metavar="TEXT", help="Why.  [default: what proves it]")
@click.option("--force", is_flag=True, help="Retire PATCHES although nothing proves that they are not needed.")
@click.option("--dry-run", is_flag=True, help="Only tell which would be retired.")
@options.json_output
def command(
    patches: tuple[str, ...],
    catalog: Path | None,
    manifest: str | None,
    version: str | None,
    url: str | None,
    reason: str,
    force: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Take patches out of the series, and keep them in patches/retired with the reason and the version.

    Without PATCHES: all those that no image in patchkit.lock needs, by their drop condition or because it holds every
    hunk. With --version a release on the index is the proof.

    \b
    patchkit retire
    patchkit retire flint-norm-portable --version latest
    patchkit retire old-hack --force --reason 'The feature is gone'
    """
    looking = api.Options(catalog=catalog, manifest=manifest)
    done = api.retire(patches, version=version, reason=reason, force=force, dry_run=dry_run, options=looking, index=url)
    if as_json:
        rows = [
            {
                "patch": each.patch,
                "manifest": each.manifest,
                "reason": each.reason,
                "paths": [str(path) for path in each.kept],
            }
            for each in done
        ]
        render.print_json(render.document("retire", files=rows))
        return
    if not done:
        click.echo("nothing to retire: every patch is needed by some image in patchkit.lock, or none is known there")
    for each in done:
        word = "would be retired" if dry_run else "retired"
        click.echo(render.clean(f"{each.patch}: {word}: {each.reason}"))
        for path in each.kept:
            click.echo(render.clean(f"  kept as {path}"))
