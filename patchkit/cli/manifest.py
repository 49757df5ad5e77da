"""``patchkit manifest``: check manifests, teach them image digests, print their schema."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click

from patchkit import api
from patchkit.catalog import check as checks
from patchkit.catalog import schema as schemas
from patchkit.catalog.edit import learned
from patchkit.catalog.load import load_catalog, load_manifest, load_text
from patchkit.catalog.model import Catalog
from patchkit.cli import options, render, show
from patchkit.errors import Refused
from patchkit.findings import Finding, counted, worst
from patchkit.lifecycle.files import changing, write_all
from patchkit.plan import NOT_LISTED


@click.group()
def command() -> None:
    """Check manifests, and teach them new image digests."""


@command.command()
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@click.option("--catalog", type=click.Path(path_type=Path), help="The catalog to check whole when no FILE is given.")
@click.option("--rehearse", is_flag=True, help="Hold what they say against the releases on the package index, too.")
@options.index
@options.json_output
def check(files: tuple[Path, ...], catalog: Path | None, rehearse: bool, url: str | None, as_json: bool) -> int:
    """Name every fault in manifests and their patches, with file, line and column.

    With --rehearse each patch is applied to the release that has its pre-images: the result must be its post-image, and
    its drop condition must not hold there already.

    \b
    Examples:
      patchkit manifest check
      patchkit manifest check --rehearse
      patchkit manifest check --catalog ~/my-patches
      patchkit manifest check manifests/vllm-xpu.yaml
    """
    if files:
        manifests = tuple(load_manifest(file) for file in files)
        found: list[Finding] = []
    else:
        whole: Catalog = load_catalog(catalog)
        manifests, found = whole.manifests, checks.findings(whole)
    if rehearse:
        from patchkit.lifecycle import releases
        from patchkit.lifecycle.rehearse import rehearse as rehearsed

        indexes = releases.indexes(url)
        for each in manifests:
            found += rehearsed(Catalog(each.path.resolve().parent.parent, manifests), each, indexes)
    status = 1 if worst(found) == "error" else 0
    if as_json:
        rows = [{"manifest": each.name, "path": str(each.path), "patches": len(each.patches)} for each in manifests]
        render.print_json(
            render.document("manifest-check", files=rows, findings=[finding.as_json() for finding in found])
        )
        return status
    for each in manifests:
        patches = len({entry.id for entry in each.patches})
        click.echo(render.clean(f"{each.path}: good, {patches} patch{'' if patches == 1 else 'es'}"))
    show.print_findings(show.finding_parts(found))
    return status


@command.command()
@options.image
@click.option(
    "--seen", default="", metavar="DATE", help="The day on which it was looked at, YYYY-MM-DD.  [default: today]"
)
@options.looking
@options.json_output
def learn(image: str, seen: str, options: api.Options, as_json: bool) -> int:
    """Write an image's digests into its manifest, comments and order kept.

    Only where every pre-image is a listed one: a digest in a manifest says that somebody has looked.

    \b
    Examples:
      patchkit manifest learn --image vllm-xpu:nightly
    """
    with api.opened(image, options) as opened:
        plan = api.look(opened.origin(), options)
    manifest = plan.match.manifest
    unlisted = [row for row in plan.rows if not row.deliverable or NOT_LISTED in row.notes]
    if unlisted or not plan.rows:
        raise Refused(
            "pre-image-not-listed",
            f"{counted(len(unlisted), 'file is', 'files are')} not as the manifest lists it: the image was not learned",
            where=str(plan.reference),
            remedy=f"carry the patches over first: patchkit rebase --image {image}",
            details=[f"{row.patch}: {row.path}: {row.told_state}: {row.pre}" for row in unlisted],
        )
    day = seen or datetime.now(tz=UTC).date().isoformat()  # a person's day of looking; no output depends on it again
    root = manifest.path.resolve().parent.parent
    with changing(root):
        text = manifest.path.read_bytes().decode("utf-8-sig")
        after = learned(text, dict.fromkeys(plan.identity.digests, plan.site.version), day)
        load_text(manifest.path, after.encode(), root)
        if after != text:
            write_all({manifest.path: after.encode()})
    new = sorted(set(plan.identity.digests) - set(manifest.digests))
    if as_json:
        rows = [{"digest": digest, "version": plan.site.version} for digest in new]
        render.print_json(
            render.document("manifest-learn", image={"reference": image}, files=rows, manifest=str(manifest.path))
        )
        return 0
    for digest in new:
        click.echo(render.clean(f"{manifest.path}: {digest} is {manifest.package} {plan.site.version}"))
    if not new:
        click.echo(render.clean(f"{manifest.path}: lists this image already"))
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
