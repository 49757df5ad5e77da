"""``patchkit revert``: back to the origin, with proof that it is."""

from __future__ import annotations

from pathlib import Path

import click

from patchkit import api
from patchkit.cli import options, render


@click.command()
@click.option("--image", metavar="REF", help="A patched image of an engine: its name goes back to the origin, or away.")
@click.option("--container", metavar="NAME", help="A running container whose own files were patched.")
@click.option(
    "--compose",
    "overlay",
    type=click.Path(path_type=Path, exists=True),
    help="An overlay (or its folder): it, its receipt and its mounted files are removed.",
)
@click.option("--restart", is_flag=True, help="Restart the container, so that no patched module stays in memory.")
@options.looking
@options.json_output
def command(
    image: str | None,
    container: str | None,
    overlay: Path | None,
    restart: bool,
    options: api.Options,
    as_json: bool,
) -> int:
    """Undo a delivery, and show that every file is as it was before.

    \b
    patchkit revert --image vllm-xpu:nightly-patchkit
    patchkit revert --compose .patchkit/compose.patchkit.yaml
    patchkit revert --container vllm-1 --restart
    """
    if sum(each is not None for each in (image, container, overlay)) != 1:
        raise click.UsageError("give one of --image, --container and --compose")
    if image is not None:
        done = api.revert_image(image)
    elif overlay is not None:
        done = api.revert_overlay(overlay)
    else:
        done = api.revert_container(container or "", options, restart=restart)
    if as_json:
        files = [{"path": each.path, "now": each.digest} for each in done.files]
        render.print_json(render.document("revert", files=files, said=list(done.said)))
    else:
        if done.files:
            click.echo(render.table([(each.path, each.digest) for each in done.files], ("FILE", "AS IT WAS")))
        for line in done.said:
            click.echo(render.clean(line))
    return 0 if done.finished else 1
