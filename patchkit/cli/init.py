"""``patchkit init``: start a catalog."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click

from patchkit.cli import render
from patchkit.lifecycle.init import create


class _Folder(click.Path):
    """A folder that is named: nothing at all would mean the current one, which nobody asked for."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("name a folder; . is this one", param, ctx)
        return super().convert(value, param, ctx)


@click.command()
@click.argument("folder", type=_Folder(path_type=Path, file_okay=False))
@click.option("--package", required=True, help="The package to patch, as Python imports it.")
@click.option("--image", required=True, metavar="PATTERN", help="The images it is for: name:tag, * fits anything.")
@click.option("--name", help="The manifest's name.  [default: the package's]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(folder: Path, package: str, image: str, name: str | None, as_json: bool) -> None:
    """Start a catalog: manifest, README, schema for editors, CI workflow.

    \b
    Examples:
      patchkit init my-patches --package vllm --image 'vllm-xpu:*'
    """
    files = create(folder, name or re.sub("[^a-z0-9._+-]+", "-", package.lower()), package, image)
    if as_json:
        render.print_json(render.document("init", files=[{"path": str(path)} for path in files]))
        return
    for path in files:
        click.echo(render.clean(str(path)))
    click.echo(render.clean(f"next: patchkit edit --catalog {folder} --image IMAGE {package}/FILE.py"), err=True)
