"""``patchkit show``: one patch, why it is there, and where it is in use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from patchkit import api
from patchkit.catalog import header
from patchkit.catalog.faults import near
from patchkit.catalog.load import load_catalog
from patchkit.catalog.model import Catalog, Manifest
from patchkit.cli import options, render
from patchkit.deliver import image as image_delivery
from patchkit.errors import BadInput, PatchkitError, Unreachable
from patchkit.lifecycle import lock, retired


@click.command("show")
@click.argument("patch")
@options.catalog
@click.option("--manifest", metavar="NAME", help="The manifest that lists it.")
@click.option("--no-engine", is_flag=True, help="Do not look for patched images on this engine.")
@click.option("--diff", "with_diff", is_flag=True, help="The diffs, too.")
@options.json_output
def command(
    patch: str, catalog: Path | None, manifest: str | None, no_engine: bool, with_diff: bool, as_json: bool
) -> None:
    """Show a patch: what it does and why, its variants, upstream's state, and the images here that carry it.

    \b
    patchkit show flint-norm-portable
    patchkit show flint-norm-portable --diff
    """
    whole = load_catalog(catalog)
    chosen = _manifest(whole, patch, manifest)
    entries = [entry for entry in chosen.patches if entry.id == patch]
    prose = header.parse(whole.patch_bytes(entries[0]))
    case = next(each for each in retired.cases(chosen, lock.load(whole.root).values()) if each.patch == patch)
    images, note = ([], "not looked at") if no_engine else _images(chosen.name, patch)
    answer: dict[str, Any] = {
        "patch": patch,
        "manifest": chosen.name,
        "header": dict(prose.fields),
        "upstream": entries[0].upstream or prose.get("Bug"),
        "variants": [
            {
                "file": entry.file,
                "versions": entry.versions or chosen.versions,
                "platforms": list(entry.platforms or chosen.platforms),
                "pre": dict(entry.pre),
                "post": dict(entry.post),
                "drop_condition": entry.drop_when is not None,
                "asserts": len(entry.asserts),
            }
            for entry in entries
        ],
        "needed_by": list(case.needed_by),
        "done_in": list(case.done_in),
        "images": images,
        "engine": note,
    }
    if as_json:
        render.print_json(render.document("show", **answer))
        return
    _tell(answer)
    if with_diff:
        for entry in entries:
            click.echo(render.clean(f"\n{entry.file}:"))
            click.echo(render.clean(header.split(whole.patch_bytes(entry))[1].decode("utf-8", "replace")))


def _manifest(catalog: Catalog, patch: str, name: str | None) -> Manifest:
    found = [
        each
        for each in catalog.manifests
        if name in (None, each.name) and any(entry.id == patch for entry in each.patches)
    ]
    if len(found) == 1:
        return found[0]
    if found:
        names = " and ".join(each.name for each in found)
        raise BadInput("which-manifest", f"{names} list a patch {patch}", remedy="name one: --manifest NAME")
    known = {entry.id for each in catalog.manifests for entry in each.patches}
    said = f"no manifest lists {patch}{near(patch, known)}"
    raise BadInput("unknown-patch", said, where=str(catalog.root), remedy="see what there is: patchkit list")


def _images(manifest: str, patch: str) -> tuple[list[str], str]:
    """The images on this engine that carry the patch, and what is to be said about the search."""
    from patchkit.images.engine import engine

    try:
        found = engine().images(image_delivery.LABEL_FINGERPRINT)
    except Unreachable as error:
        return [], f"no engine: {error.what}"
    carrying = []
    for each in found:
        for name in each.get("RepoTags") or []:
            try:
                with api.opened(f"docker-daemon:{name}") as image:
                    receipt = image_delivery.receipt_in(image)
            except PatchkitError:
                continue  # doctor tells what is wrong with such an image
            if receipt and receipt.manifest == manifest and patch in [one.id for one in receipt.patches]:
                carrying.append(str(name))
    return sorted(carrying), "looked at"


def _tell(answer: dict[str, Any]) -> None:
    for name, value in answer["header"].items():
        click.echo(render.clean(f"{name}: {value.replace(chr(10), chr(10) + '  ')}"))
    click.echo()
    rows = [
        (each["versions"] or "any", each["file"], ", ".join(each["pre"]) or "not pinned") for each in answer["variants"]
    ]
    click.echo(render.table(rows, ("RELEASES", "DIFF", "FILES")))
    click.echo()
    click.echo(render.clean(f"manifest: {answer['manifest']}"))
    click.echo(render.clean(f"upstream: {answer['upstream'] or 'not told'}"))
    click.echo(render.clean(f"needed by: {', '.join(answer['needed_by']) or 'no image in patchkit.lock'}"))
    click.echo(render.clean(f"already in: {', '.join(answer['done_in']) or 'no image in patchkit.lock'}"))
    here = ", ".join(answer["images"]) or f"no image here ({answer['engine']})"
    click.echo(render.clean(f"applied in: {here}"))
