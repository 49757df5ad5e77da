"""``patchkit up``: from a recipe to a served, proven model."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import click

from patchkit import api
from patchkit.api.serving import Going, up
from patchkit.cli import options
from patchkit.cli.render import clean
from patchkit.cli.smoke import show as show_check
from patchkit.errors import BadInput
from patchkit.findings import Finding
from patchkit.stack.recipes.load import load_recipe
from patchkit.stack.recipes.render import choose, image_variable


@click.command("up")
@click.argument("name")
@click.option("--hardware", help="The machine; without it the recipe's default.")
@click.option("--variant", help="The checkpoint.")
@click.option("--features", help="Comma-separated; all without it, none for an empty value.")
@click.option(
    "--image", default="", metavar="REF", help="Another image than the platform's; so does FLINT_IMAGE for flint."
)
@click.option("--tag", metavar="NAME", help="Name of the derived image.")
@options.mode
@click.option(
    "-f",
    "--file",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The compose file to write, or to use where it is there. Default: ./compose.NAME.yaml",
)
@click.option(
    "--timeout", type=click.FloatRange(min=1), default=3600.0, show_default=True, help="Seconds to be healthy."
)
@click.option("--tools", is_flag=True, help="Look at every kind of tool calling in the end.")
@options.output
@options.looking
def command(
    name: str,
    hardware: str | None,
    variant: str | None,
    features: str | None,
    image: str,
    tag: str | None,
    mode: Literal["image", "bind"],
    file: Path | None,
    timeout: float,
    tools: bool,
    output: Path,
    options: api.Options,
) -> int:
    """Serve a model by its recipe: patch, lint, start, wait for health, prove, smoke.

    It prints each step as the command that you could have typed, and stops at the first that fails.

    \b
    patchkit up flint --hardware b70x4
    patchkit up flint --hardware b70x4 --image vllm-xpu:nightly --mode bind
    patchkit down flint
    """
    variable = image_variable(name)
    named = os.environ.get(variable, "")
    if image and named and image != named:
        raise BadInput(
            "two-images",
            f"--image names {image}, and {variable}, which the stack takes its image from, names {named}",
            remedy=f"leave --image out, or: unset {variable}",
        )
    choice = choose(
        load_recipe(name, options.catalog),
        hardware=hardware,
        variant=variant,
        features=None if features is None else [each.strip() for each in features.split(",")],
        image=image or named,
    )
    going = Going(
        file or Path(f"compose.{name}.yaml"),
        timeout,
        tools,
        said=lambda command: click.echo(clean(f"$ {command}")),
        step=lambda step: click.echo(clean(f"  {step} ..."), err=True),
        found=_found,
        checked=show_check,
    )
    serving = up(choice, options, api.Delivery(mode=mode, tag=tag, output=output), going)
    click.echo(f"served and proven: {serving.url}")
    return 0


def _found(finding: Finding) -> None:
    click.echo(clean(f"{finding.severity}: {finding.where}: {finding.what} [{finding.id}]"))
    if finding.remedy and finding.severity != "note":
        click.echo(clean(f"  next: {finding.remedy}"))
