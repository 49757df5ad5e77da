"""``patchkit recipe``: how a model is served on a machine."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click

from patchkit.cli import render
from patchkit.stack.recipes.load import load_recipe, load_recipes
from patchkit.stack.recipes.model import Recipe
from patchkit.stack.recipes.render import Rendered, as_json, as_markdown, choose
from patchkit.stack.recipes.render import render as render_choice


@click.command()
@click.argument("name", required=False)
@click.option("--hardware", help="The machine; without it the recipe's default.")
@click.option("--variant", help="The checkpoint.")
@click.option("--strategy", help="How the model is spread.")
@click.option("--nodes", type=click.IntRange(min=1), help="Machines, for strategies that span several.")
@click.option("--features", help="Comma-separated; all without it, none for an empty value.")
@click.option("--image", default="", help="Another image than the platform's.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "install", "serve", "run", "compose", "client", "json", "markdown"]),
    default="text",
    help="Only one part, or the whole as JSON or Markdown.",
)
@click.option("--lenient", is_flag=True, help="Replace what is unknown by the default, and say so.")
@click.option("--list", "list_all", is_flag=True, help="List the recipes and their values.")
@click.option("--catalog", type=click.Path(path_type=Path), help="Where recipes come from.")
@click.option("--json", "json_form", is_flag=True, help="The same as --format json.")
def command(
    name: str | None,
    hardware: str | None,
    variant: str | None,
    strategy: str | None,
    nodes: int | None,
    features: str | None,
    image: str,
    form: str,
    lenient: bool,
    list_all: bool,
    catalog: Path | None,
    json_form: bool,
) -> int:
    """Show how to install, serve and check a model on known hardware.

    \b
    Examples:
      patchkit recipe flint --hardware b70x4
      patchkit recipe flint --hardware gb200 --variant nvfp4 --format serve
      patchkit recipe flint --hardware b70x4 --format compose > compose.yaml
    """
    if json_form:
        form = "json"
    if list_all or name is None:
        _list(load_recipes(catalog).values(), form)
        return 0
    choice = choose(
        load_recipe(name, catalog),
        hardware=hardware,
        variant=variant,
        strategy=strategy,
        nodes=nodes,
        features=None if features is None else [each.strip() for each in features.split(",")],
        image=image,
        lenient=lenient,
    )
    for note in choice.notes:
        click.echo(render.clean(f"note: {note}"), err=True)
    _show(render_choice(choice), form)
    return 0


def _list(recipes: Iterable[Recipe], form: str) -> None:
    told = [
        {
            "name": recipe.name,
            "title": recipe.title,
            "parameters": recipe.model.parameters,
            "hardware": list(recipe.hardware),
            "variant": list(recipe.variants),
            "strategy": list(recipe.strategies),
            "features": list(recipe.features),
        }
        for recipe in recipes
    ]
    if form == "json":
        render.print_json(render.document("recipe", recipes=told))
        return
    for each in told:
        click.echo(f"{each['name']}: {each['title']}, {each['parameters']}")
        for what in ("hardware", "variant", "strategy", "features"):
            click.echo(f"  --{what}  {', '.join(each[what])}")


def _show(rendered: Rendered, form: str) -> None:
    parts = {
        "install": "\n".join(rendered.install) + "\n",
        "serve": rendered.serve + "\n",
        "run": rendered.run + "\n",
        "compose": rendered.compose,
        "client": rendered.client + "\n",
    }
    if form == "json":
        render.print_json(render.document("recipe", recipe=as_json(rendered)))
    elif form == "markdown":
        click.echo(as_markdown(rendered), nl=False)
    else:
        click.echo(parts[form] if form in parts else _plain(as_markdown(rendered)), nl=False)


def _plain(markdown: str) -> str:
    """The page without the marks that only a renderer needs."""
    return "\n".join(line for line in markdown.splitlines() if not line.startswith("```")) + "\n"
