"""``patchkit survey``: every patch against every release on the package index."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import click

from patchkit import api
from patchkit.cli import options, render
from patchkit.lifecycle import matrix
from patchkit.lifecycle.survey import LEGEND, Survey


@click.command()
@click.argument("package")
@click.option("--versions", metavar="RANGE", help="Releases to look at (PEP 440).  [default: the newest 10 final ones]")
@click.option("--all", "everything", is_flag=True, help="All releases, pre-releases too.")
@click.option("--latest", is_flag=True, help="The newest final release alone.")
@options.index
@options.catalog
@click.option("--manifest", metavar="NAME", help="The patches of this manifest alone.")
@options.only
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
    looking = api.Options(catalog=catalog, manifest=manifest, only=only)
    count = 1 if latest else None if versions or everything else 10
    with _progress() as started:
        found = api.survey(
            package,
            versions,
            everything=everything,
            newest=count,
            options=looking,
            files=files,
            index=url,
            started=started,
        )
    if found is None:
        click.echo(render.clean(f"the catalog has no patches for {package} yet"), err=True)
        return 0
    if as_json:
        render.print_json(render.document("survey", image={"package": found.package}, files=matrix.parts(found)))
    elif form == "table":
        _print_table(found)
    else:
        click.echo(matrix.markdown(found) if form == "markdown" else matrix.html(found), nl=False)
    return 1 if strict and any(not cell.good for row in found.cells for cell in row) else 0


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
def _progress() -> Iterator[Callable[[int], Callable[[], None]]]:
    """A bar on a terminal, plain lines where there is none. It yields what is told the number of releases and gives
    what is called once a release."""
    lock = threading.Lock()
    with ExitStack() as stack:

        def started(total: int) -> Callable[[], None]:
            bar = stack.enter_context(click.progressbar(length=total, label="releases", file=sys.stderr))
            shown = sys.stderr.isatty()
            count = 0

            def done() -> None:
                nonlocal count
                with lock:
                    count += 1
                    if shown:
                        bar.update(1)
                    elif count % 10 == 0 or count == total:
                        click.echo(f"{count} of {total} releases", err=True)

            return done

        yield started
