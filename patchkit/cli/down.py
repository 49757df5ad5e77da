"""``patchkit down``: stop what ``patchkit up`` brought up."""

from __future__ import annotations

from pathlib import Path

import click

from patchkit.api.serving import down
from patchkit.cli import options
from patchkit.cli.render import clean
from patchkit.deliver.output import OVERLAY_NAME
from patchkit.errors import BadInput


@click.command("down")
@click.argument("name")
@click.option(
    "-f",
    "--file",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The compose file. Default: ./compose.NAME.yaml",
)
@options.output
def command(name: str, file: Path | None, output: Path) -> int:
    """Stop and remove the containers of ``patchkit up NAME``; volumes and images stay.

    \b
    patchkit down flint
    """
    stack = file or Path(f"compose.{name}.yaml")
    if not stack.is_file():
        raise BadInput("no-stack", "there is no such compose file", where=str(stack), remedy="name it: -f FILE")
    overlay = output / OVERLAY_NAME
    files = [stack, overlay] if overlay.is_file() else [stack]
    click.echo(clean(down(files)), nl=False)
    return 0
