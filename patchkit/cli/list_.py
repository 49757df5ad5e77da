"""``patchkit list``: what the catalog holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from patchkit.catalog import header
from patchkit.catalog.load import load_catalog
from patchkit.catalog.variants import groups
from patchkit.cli import options, render
from patchkit.lifecycle import retired


@click.command("list")
@options.catalog
@click.option("--manifest", metavar="NAME", help="Only this manifest's patches.")
@click.option("--retired", "with_retired", is_flag=True, help="Patches that were retired, too.")
@options.json_output
def command(catalog: Path | None, manifest: str | None, with_retired: bool, as_json: bool) -> None:
    """List the patches of the catalog in the order in which they apply.

    \b
    patchkit list
    patchkit list --retired
    """
    whole = load_catalog(catalog)
    rows: list[dict[str, Any]] = []
    for each in whole.manifests:
        if manifest not in (None, each.name):
            continue
        for variants in groups(each):
            prose = header.parse(whole.patch_bytes(variants[0]))
            rows.append(
                {
                    "manifest": each.name,
                    "patch": variants[0].id,
                    "versions": [entry.versions or each.versions or "any" for entry in variants],
                    "files": sorted({path for entry in variants for path in entry.pre}),
                    "description": prose.title,
                    "upstream": variants[0].upstream or prose.get("Bug"),
                    "retired": "",
                }
            )
    if with_retired:
        rows += [
            {
                "manifest": "",
                "patch": each.id,
                "versions": [],
                "files": [],
                "description": each.prose.title,
                "upstream": each.prose.get("Applied-Upstream"),
                "retired": each.reason,
            }
            for each in retired.all_of(whole.root)
        ]
    if as_json:
        render.print_json(render.document("list", files=rows))
        return
    table = [
        (row["manifest"] or "(retired)", row["patch"], ", ".join(row["versions"]) or row["retired"], row["description"])
        for row in rows
    ]
    click.echo(render.table(table, ("MANIFEST", "PATCH", "RELEASES", "WHAT IT DOES")) if table else "no patches")
