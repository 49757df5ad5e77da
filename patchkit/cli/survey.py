"""``patchkit survey``: every patch against every release on the package index."""

from __future__ import annotations

import hashlib
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from patchkit import diff
from patchkit.catalog.load import load_catalog
from patchkit.catalog.model import Manifest, PatchEntry
from patchkit.cli import options, render
from patchkit.errors import BadInput
from patchkit.lifecycle import matrix, releases
from patchkit.lifecycle.survey import LEGEND, Survey, choose_versions
from patchkit.lifecycle.survey import survey as make_survey
from patchkit.plan import Series, load_series


@click.command()
@click.argument("package")
@click.option("--versions", metavar="RANGE", help="Releases to look at (PEP 440).  [default: the newest 10 final ones]")
@click.option("--all", "everything", is_flag=True, help="All releases, pre-releases too.")
@click.option("--latest", is_flag=True, help="The newest final release alone.")
@click.option("--index", "url", metavar="URL", help="Another package index than pip's.")
@click.option(
    "--catalog", type=click.Path(path_type=Path, file_okay=False), help="Folder with manifests/ and patches/."
)
@click.option("--manifest", metavar="NAME", help="The patches of this manifest alone.")
@click.option("--only", multiple=True, metavar="PATCH", help="Take only this patch of the series (repeatable).")
@click.option(
    "--file",
    "files",
    multiple=True,
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="A diff that is in no catalog, relative to site-packages (repeatable).",
)
@click.option("--format", "form", type=click.Choice(["table", "markdown", "html"]), default="table", show_default=True)
@click.option("--strict", is_flag=True, help="Exit status 1 where a patch would not be delivered.")
@options.json_output
def command(
    package: str,
    versions: str | None,
    everything: bool,
    latest: bool,
    url: str | None,
    catalog: Path | None,
    manifest: str | None,
    only: tuple[str, ...],
    files: tuple[Path, ...],
    form: str,
    strict: bool,
    as_json: bool,
) -> int:
    """Show what every patch would do to every release, without any image or install.

    \b
    patchkit survey vllm
    patchkit survey vllm --versions '>=0.30' --format html > survey.html
    patchkit survey vllm --file fix.patch --all
    """
    if sum((bool(versions), everything, latest)) > 1:
        raise click.UsageError("give one of --versions, --all and --latest")
    series = _from_files(package, files) if files else _from_catalog(package, catalog, manifest, only)
    if not series:
        click.echo(render.clean(f"the catalog has no patches for {package} yet"), err=True)
        return 0
    indexes = releases.indexes(url)
    name = releases.distribution(series[0][1].manifest)
    known = indexes.versions(name)
    chosen = [str(each) for each in sorted(known, reverse=True)] if everything else choose_versions(known, versions)
    if not versions and not everything:
        chosen = chosen[: 1 if latest else 10]
    if not chosen:
        raise BadInput("no-release", f"no release of {name} is in {versions}", remedy=f"pip index versions {name}")
    with _progress(len(chosen)) as done:
        found = make_survey(indexes, name, series, chosen, done)
    if as_json:
        render.print_json(render.document("survey", image={"package": name}, files=matrix.parts(found)))
    elif form == "table":
        _print_table(found)
    else:
        click.echo(matrix.markdown(found) if form == "markdown" else matrix.html(found), nl=False)
    return 1 if strict and any(not cell.good for row in found.cells for cell in row) else 0


def _from_catalog(
    package: str, catalog: Path | None, manifest: str | None, only: tuple[str, ...]
) -> list[tuple[str, Series]]:
    whole = load_catalog(catalog)
    found = [
        each
        for each in whole.manifests
        if package in (each.package, each.distribution) and manifest in (None, each.name)
    ]
    if not found:
        packages = sorted({each.package for each in whole.manifests})
        raise BadInput(
            "no-patches",
            f"no manifest is for {package}" + (f" and called {manifest}" if manifest else ""),
            where=str(whole.root),
            remedy=f"there are some for: {', '.join(packages)}; a loose diff: --file FILE",
        )
    chosen = [each for each in found if each.patches]
    return [(f"{each.name}/" if len(chosen) > 1 else "", load_series(whole, each, only)) for each in chosen]


def _from_files(package: str, files: tuple[Path, ...]) -> list[tuple[str, Series]]:
    data = {str(file): file.read_bytes() for file in files}
    entries = tuple(PatchEntry(re.sub(r"\.(patch|diff)$", "", file.name), str(file)) for file in files)
    return [
        (
            "",
            Series(
                Manifest(Path(), "loose", package, "", (), (entry,)),
                {entry.file: diff.parse(data[entry.file], entry.file)},
                {entry.file: hashlib.sha256(data[entry.file]).hexdigest()},
            ),
        )
        for entry in entries
    ]


def _print_table(found: Survey) -> None:
    click.echo(render.table(matrix.short_rows(found), matrix.header(found)))
    click.echo()
    for state in matrix.used_states(found):
        click.echo(f"{state}: {LEGEND[state]}")
    newest = found.row(found.versions[0])
    for cell in newest:
        if not cell.good:
            click.echo(render.clean(f"{cell.patch} on {cell.version}: {cell.detail}"), err=True)


@contextmanager
def _progress(total: int) -> Iterator[Any]:
    """A bar on a terminal, plain lines where there is none; what it yields is called once a release."""
    lock = threading.Lock()
    if sys.stderr.isatty():
        with click.progressbar(length=total, label="releases", file=sys.stderr) as bar:

            def step() -> None:
                with lock:
                    bar.update(1)

            yield step
        return
    count = 0

    def line() -> None:
        nonlocal count
        with lock:
            count += 1
            if count % 10 == 0 or count == total:
                click.echo(f"{count} of {total} releases", err=True)

    yield line
