"""``patchkit rebase``: the series carried over to another image or release."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import click

from patchkit import api
from patchkit.catalog import header
from patchkit.catalog.load import load_catalog
from patchkit.catalog.model import PatchEntry
from patchkit.cli import options, render, show, source
from patchkit.deliver.receipt import level_json
from patchkit.lifecycle import releases, work
from patchkit.lifecycle.rebase import MEANING, Rebased, rebase
from patchkit.lifecycle.releases import Release
from patchkit.lifecycle.save import Draft, check_result, save


@click.command()
@click.option("--image", metavar="REF", help="The image to carry the patches over to.")
@click.option("--onto", metavar="V", help="The release to carry them over to instead; latest is the newest.")
@click.option("--patch", "patches", multiple=True, metavar="ID", help="Carry over only this one (repeatable).")
@click.option(
    "--from", "old_version", metavar="V", help="The release that they were made on.  [default: found by hash]"
)
@click.option("--from-image", "old_image", metavar="REF", help="The image that they were made on.")
@click.option("--index", "url", metavar="URL", help="Another package index than pip's.")
@click.option("--dry-run", is_flag=True, help="Only tell what would become of each patch.")
@options.looking
@options.json_output
def command(
    image: str | None,
    onto: str | None,
    patches: tuple[str, ...],
    old_version: str | None,
    old_image: str | None,
    url: str | None,
    dry_run: bool,
    options: api.Options,
    as_json: bool,
) -> int:
    """Carry the series over by a three-way merge: old pristine file, patched file, new pristine file.

    What merges cleanly and compiles is written as a variant for the new version; the old variant keeps its range.
    Conflicts go to a work folder with labelled markers, for `patchkit save`. Exit status 1 where one needs a person.

    \b
    patchkit rebase --image vllm-xpu:nightly
    patchkit rebase --onto latest --patch flint-norm-portable --dry-run
    """
    if bool(image) == bool(onto):
        raise click.UsageError("give either --image or --onto")
    found = source.from_image(image, (), options) if image else source.from_index(onto or "", "", options, url)
    old = _finder(found, old_version, old_image, url, options)
    outcomes = rebase(found.series, found.release, old, found.platform, frozenset(patches))
    rows = [_settled(each, found, dry_run) for each in outcomes]
    proof: list[dict[str, Any]] = []
    good = all(each.outcome in ("unchanged", "clean", "partial", "upstream") for each in outcomes)
    if image and good and not dry_run and options.run and any(each.changes for each in outcomes):
        proof = _proof(image, options)
    if as_json:
        render.print_json(render.document("rebase", image={"release": found.release.label}, files=rows, levels=proof))
    else:
        _tell(rows, proof, found)
    proven = all(level["state"] != "failed" for level in proof)
    return 0 if good and proven else 1


def _finder(found: source.Source, version: str | None, image: str | None, url: str | None, options: api.Options) -> Any:
    """What tells where a variant was made: the release or image that the person named, else the index."""
    if image:
        release: Release | None = source.from_image(image, (), options).release
        return lambda entry: release
    indexes = releases.indexes(url)
    package = releases.distribution(found.manifest)
    if version:
        release = releases.release(indexes, package, version)
        return lambda entry: release

    def by_hash(entry: PatchEntry) -> Release | None:
        told = header.parse(found.catalog.patch_bytes(entry)).get("Applies-To").split()
        near = [*told[-1:], *(digest.version for digest in found.manifest.digests.values())]
        return releases.made_on(indexes, found.series, entry, near)

    return by_hash


def _settled(each: Rebased, found: source.Source, dry_run: bool) -> dict[str, Any]:
    """Write what is clean, lay out what is not; what was done as a row for people and programs."""
    row = {"patch": each.id, "state": each.outcome, "detail": each.detail, "path": "", "work": ""}
    if dry_run or each.entry is None or not each.changes or each.outcome == "unchanged":
        return row
    if each.outcome == "conflict":
        row["work"] = str(_work(each, each.entry, found))
        return row
    check_result(each.changes, found.python)
    catalog = load_catalog(found.catalog.root)
    manifest = source.choose_manifest(catalog, found.manifest.name)
    prose = header.parse(catalog.patch_bytes(each.entry)).with_field(
        "Applies-To", f"{manifest.package} {found.release.version}"
    )
    draft = Draft(each.id, each.changes, prose, found.release.version, found.python, each.entry.file)
    row["path"] = str(save(catalog, manifest, draft).path)
    return row


def _work(each: Rebased, entry: PatchEntry, found: source.Source) -> Path:
    """The work folder with the merged files, markers and all."""
    assert each.changes is not None
    task = work.Task(
        manifest=found.manifest.name,
        catalog=str(found.catalog.root.absolute()),
        package=found.manifest.package,
        release=found.release.label,
        version=found.release.version,
        python=found.python,
        patch=each.id,
        entry_file=entry.file,
        image=found.image,
    )
    base = {path: before for path, (before, _) in each.changes.items()}
    now = {path: after for path, (_, after) in each.changes.items()}
    return work.create(work.home() / found.manifest.name / each.id, task, base, now).folder


def _proof(image: str, options: api.Options) -> list[dict[str, Any]]:
    """The proof of the rebased series on the image, compile and asserts included; its mounts are gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="patchkit-") as folder:
        applied = api.apply(image, options, api.Delivery(mode="bind", output=Path(folder)))
        return level_json(applied.platforms[0].proof)


def _tell(rows: list[dict[str, Any]], proof: list[dict[str, Any]], found: source.Source) -> None:
    click.echo(
        render.table([(row["patch"], row["state"], row["detail"]) for row in rows], ("PATCH", "STATE", "DETAIL"))
    )
    for row in rows:
        if row["path"]:
            click.echo(render.clean(f"{row['path']}: written"))
    if proof:
        show.print_levels(proof)
    for row in rows:
        if row["work"]:
            click.echo(
                render.clean(f"next: settle the conflicts in {row['work']}, then: patchkit save --name {row['patch']}")
            )
        elif row["state"] == "upstream":
            click.echo(render.clean(f"next: patchkit retire {row['patch']}"))
        elif row["state"] not in ("unchanged", "clean", "partial"):
            click.echo(render.clean(f"{row['patch']}: {MEANING[row['state']]}"))
    if all(row["state"] in ("unchanged", "clean", "partial") for row in rows):
        click.echo(render.clean(f"next: patchkit apply --image {found.image or 'IMAGE'}"), err=True)
