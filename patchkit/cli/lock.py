"""``patchkit lock``: note what was looked at; compare it with what is."""

from __future__ import annotations

import click

from patchkit import api
from patchkit.cli import options, render, show
from patchkit.findings import Finding


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
    findings: list[Finding] = []
    if check:
        path, lines, findings = api.check_lock(images, options)
    else:
        path, lines = api.lock(images, options, drop=drop)
    if as_json:
        rows = [
            {
                "image": line.image,
                "manifest": line.manifest,
                "version": line.version,
                "fingerprint": line.fingerprint,
                "patches": {patch.id: patch.state for patch in line.patches},
            }
            for line in lines
        ]
        render.print_json(render.document("lock", files=rows, findings=show.finding_parts(findings)))
    else:
        click.echo(render.clean(f"{path}: {len(lines)} image{'' if len(lines) == 1 else 's'}"))
        show.print_findings(show.finding_parts(findings))
    return 1 if findings else 0
