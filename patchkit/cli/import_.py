"""``patchkit import``: other people's changes as patches of the catalog."""

from __future__ import annotations

import click

from patchkit import api
from patchkit.cli import options, render


@click.command()
@click.argument("change", required=False)
@click.option("--container", metavar="NAME", help="What somebody changed by hand in this container instead.")
@click.option("--image", metavar="REF", help="The image that the change is for.")
@click.option("--version", "version", metavar="V", help="The release that it is for instead; latest is the newest.")
@options.index
@click.option("--name", default="", metavar="ID", help="The patch's id.  [default: from the file's name or subject]")
@click.option("--description", "-m", default="", metavar="TEXT", help="Why it is there, where the change does not say.")
@click.option("-p", "strip", type=int, metavar="N", help="Leading parts to strip from its names.  [default: found]")
@click.option("--drop-missing", is_flag=True, help="Leave out hunks for files that no installation has.")
@click.option("--force", is_flag=True, help="Take full files although they were made from another release.")
@options.looking
@options.json_output
def command(
    change: str | None,
    container: str | None,
    image: str | None,
    version: str | None,
    url: str | None,
    name: str,
    description: str,
    strip: int | None,
    drop_missing: bool,
    force: bool,
    options: api.Options,
    as_json: bool,
) -> None:
    """Make patches of CHANGE: a diff, a mail or mbox, a URL, `-`, a quilt series, or a folder of full files.

    The diff is applied to the image or release in memory and written anew, as small as it can be, against that one's
    own files; where it comes from stands in its header.

    \b
    patchkit import fix.patch --image vllm-xpu:nightly
    patchkit import https://github.com/vllm-project/vllm/pull/12345 --version latest --drop-missing
    patchkit import patches/series --version 0.33.0
    patchkit import overlays/ --version 0.27.1 --name my-overlays -m 'What they mend'
    patchkit import --container vllm-1 --name hand-made -m 'What it mends'
    """
    if bool(change) == bool(container):
        raise click.UsageError("give either CHANGE or --container")
    wanted = api.Wanted(name, description, strip, drop_missing, force)
    if container:
        if image or version:
            raise click.UsageError("--container is compared with its own image")
        found, saved = api.import_container(container, wanted, options)
    else:
        found, saved = api.import_change(change or "", wanted, image=image, version=version, options=options, index=url)
    if as_json:
        rows = [
            {"patch": each.entry.id, "path": str(each.path), "pre": dict(each.entry.pre), "changed": each.changed}
            for each in saved
        ]
        render.print_json(render.document("import", image={"release": found.release.label}, files=rows))
        return
    for each in saved:
        word = "written" if each.changed else "unchanged"
        click.echo(render.clean(f"{each.path}: {word}, listed in manifest {found.manifest.name} as {each.entry.id}"))
    target = f"apply --image {found.image}" if found.image else f"survey {found.manifest.package}"
    click.echo(render.clean(f"next: patchkit {target} --catalog {found.catalog.root}"), err=True)
