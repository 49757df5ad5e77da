"""Build fixture images by hand: ``python -m tests.images list``, ``python -m tests.images build xpu --as image``."""

from __future__ import annotations

from pathlib import Path

import click

from tests import images


@click.group()
def main() -> None:
    """Build the fixture images of the tests."""


@main.command("list")
def list_variants() -> None:
    """Name every image and what is special about it."""
    for name, make in images.VARIANTS.items():
        click.echo(f"{name:20}{(make.__doc__ or '').splitlines()[0]}")


@main.command()
@click.argument("name", type=click.Choice(list(images.VARIANTS)))
@click.option(
    "--as", "form", type=click.Choice(["image", "rootfs", "layout", "oci-archive", "docker-archive"]), default="image"
)
@click.option("--tag", default="", help="The image's name in the engine or in the archive.")
@click.option("--output", type=click.Path(path_type=Path), help="The archive to write.")
def build(name: str, form: str, tag: str, output: Path | None) -> None:
    """Build one image and print where it is."""
    if form == "image":
        click.echo(images.load(name, tag))
    elif form == "rootfs":
        click.echo(images.rootfs(name))
    elif form == "layout":
        click.echo(images.layout(name))
    else:
        target = output or images.BUILD / f"{name}.{form}.tar"
        if form == "oci-archive":
            images.oci_archive(name, target)
        else:
            images.docker_archive(images.build(name), target, tag or f"patchkit-fixture/{name}:latest")
        click.echo(target)


@main.command()
def clean() -> None:
    """Remove all fixture images, from the engine too."""
    images.clean()


main()
