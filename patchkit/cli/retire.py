"""``patchkit retire``: patches that upstream has leave the series."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from patchkit.catalog.load import load_catalog
from patchkit.catalog.model import Catalog, Manifest
from patchkit.cli import options, render
from patchkit.errors import Refused
from patchkit.lifecycle import lock, releases, retired
from patchkit.lifecycle.survey import survey
from patchkit.plan import load_series


@click.command()
@click.argument("patches", nargs=-1)
@click.option(
    "--catalog", type=click.Path(path_type=Path, file_okay=False), help="Folder with manifests/ and patches/."
)
@click.option("--manifest", metavar="NAME", help="The manifest that lists them.")
@click.option("--version", "version", metavar="V", help="A release that proves it; latest is the newest.")
@click.option("--index", "url", metavar="URL", help="Another package index than pip's.")
@click.option("--reason", metavar="TEXT", help="Why.  [default: what proves it]")
@click.option("--force", is_flag=True, help="Retire PATCHES although nothing proves that they are not needed.")
@click.option("--dry-run", is_flag=True, help="Only tell which would be retired.")
@options.json_output
def command(
    patches: tuple[str, ...],
    catalog: Path | None,
    manifest: str | None,
    version: str | None,
    url: str | None,
    reason: str | None,
    force: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Take patches out of the series, and keep them in patches/retired with the reason and the version.

    Without PATCHES: all those that no image in patchkit.lock needs, by their drop condition or because it holds every
    hunk. With --version a release on the index is the proof.

    \b
    patchkit retire
    patchkit retire flint-norm-portable --version latest
    patchkit retire old-hack --force --reason 'The feature is gone'
    """
    if force and not (patches and reason):
        raise click.UsageError("--force needs PATCHES and a --reason")
    whole = load_catalog(catalog)
    rows: list[dict[str, Any]] = []
    for each in [each for each in whole.manifests if manifest in (None, each.name)]:
        proofs = _proofs(whole, each, version, url)
        ids = {entry.id for entry in each.patches}
        for patch in [patch for patch in patches if patch in ids] or ([] if patches else list(proofs)):
            rows.append(_retired(whole, each, patch, proofs.get(patch), reason, force, dry_run))
            whole = load_catalog(whole.root)
            each = next(now for now in whole.manifests if now.name == each.name)
    unknown = [patch for patch in patches if patch not in {row["patch"] for row in rows}]
    if unknown:
        raise Refused("unknown-patch", f"no manifest lists {', '.join(unknown)}", remedy="patchkit list")
    if as_json:
        render.print_json(render.document("retire", files=rows))
        return
    if not rows:
        click.echo("nothing to retire: every patch is needed by some image in patchkit.lock, or none is known there")
    for row in rows:
        word = "would be retired" if dry_run else "retired"
        click.echo(render.clean(f"{row['patch']}: {word}: {row['reason']}"))
        for path in row["paths"]:
            click.echo(render.clean(f"  kept as {path}"))


def _proofs(catalog: Catalog, manifest: Manifest, version: str | None, url: str | None) -> dict[str, tuple[str, str]]:
    """The patches that are proven not to be needed: id -> (why, the package's version that has the fix)."""
    if version is None:
        known = lock.load(catalog.root).values()
        return {
            each.patch: (f"not needed by {', '.join(each.done_in)}", each.version)
            for each in retired.cases(manifest, known)
            if each.proven
        }
    indexes = releases.indexes(url)
    name = releases.distribution(manifest)
    chosen = releases.newest(indexes, name) if version == "latest" else version
    cells = survey(indexes, name, [("", load_series(catalog, manifest))], [chosen]).row(chosen)
    return {
        cell.patch: (f"{name} {chosen}: {'drop condition holds' if cell.droppable else cell.told}", chosen)
        for cell in cells
        if cell.state == "upstream" or cell.droppable
    }


def _retired(
    catalog: Catalog,
    manifest: Manifest,
    patch: str,
    proof: tuple[str, str] | None,
    reason: str | None,
    force: bool,
    dry_run: bool,
) -> dict[str, Any]:
    if proof is None and not force:
        raise Refused(
            "still-needed",
            f"nothing proves that patch {patch} is not needed any more",
            where=str(manifest.path),
            remedy="look at a release: --version V; or retire it all the same: --force --reason WHY",
        )
    told, version = proof or ("", "")
    why = reason or told
    upstream = f"{manifest.package} {version}" if version else ""
    kept = [] if dry_run else retired.retire(catalog, manifest, patch, why, upstream)
    return {"patch": patch, "manifest": manifest.name, "reason": why, "paths": [str(path) for path in kept]}
