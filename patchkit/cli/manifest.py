"""``patchkit manifest``: check manifests, teach them image digests, print their schema."""

from __future__ import annotations

from pathlib import Path

import click

from patchkit.catalog import check as checks
from patchkit.catalog import schema as schemas
from patchkit.catalog.load import load_catalog, load_manifest
from patchkit.catalog.model import Catalog
from patchkit.cli import render
from patchkit.findings import Finding


@click.group()
def command() -> None:
    """Check manifests, and teach them new image digests."""


@command.command()
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@click.option("--catalog", type=click.Path(path_type=Path), help="The catalog to check whole when no FILE is given.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def check(files: tuple[Path, ...], catalog: Path | None, as_json: bool) -> int:
    """Name every fault in manifests and their patches, with file, line and column.

    \b
    Examples:
      patchkit manifest check
      patchkit manifest check --catalog ~/my-patches
      patchkit manifest check manifests/vllm-xpu.yaml
    """
    if files:
        manifests = tuple(load_manifest(file) for file in files)
        found: list[Finding] = []
    else:
        whole: Catalog = load_catalog(catalog)
        manifests, found = whole.manifests, checks.findings(whole)
    if as_json:
        rows = [{"manifest": each.name, "path": str(each.path), "patches": len(each.patches)} for each in manifests]
        render.print_json(
            render.document("manifest-check", files=rows, findings=[finding.as_json() for finding in found])
        )
        return 0
    for each in manifests:
        patches = len({entry.id for entry in each.patches})
        click.echo(render.clean(f"{each.path}: good, {patches} patch{'' if patches == 1 else 'es'}"))
    for finding in found:
        click.echo(render.clean(f"{finding.severity}: {finding.where}: {finding.what} [{finding.id}]"))
        click.echo(render.clean(f"next: {finding.remedy}"))
    return 0


@command.command()
@click.option("--markdown", is_flag=True, help="The reference for people instead of the JSON schema.")
def schema(markdown: bool) -> None:
    """Print the manifest's JSON schema.

    \b
    Put it beside your manifests and name it in their first line, and an editor checks while you type:
      patchkit manifest schema > manifest.schema.json
      # yaml-language-server: $schema=../manifest.schema.json
    """
    click.echo(schemas.reference() if markdown else schemas.schema_text(), nl=False)
