"""``patchkit lint``: look for what keeps a server from being started as it was written."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

import click

from patchkit.catalog.load import load_catalog
from patchkit.cli import render
from patchkit.deliver.output import write_file
from patchkit.errors import BadInput
from patchkit.findings import Finding, worst
from patchkit.stack.lint import run
from patchkit.stack.lint.composefile import starts_in_compose
from patchkit.stack.lint.image import not_asked, options_of
from patchkit.stack.lint.model import Issue, Source, Start
from patchkit.stack.lint.scripts import start_of_arguments, starts_in_script
from patchkit.stack.recipes.load import general_rules, load_recipes


@click.command()
@click.argument("files", nargs=-1, type=click.UNPROCESSED)
@click.option("--compose", "-f", "compose", multiple=True, type=click.Path(path_type=Path), help="A compose file.")
@click.option("--image", help="Ask this image's vLLM which options it knows.")
@click.option("--launch", metavar="COMMAND", help="The image's serving command, where it does not tell it plainly.")
@click.option("--accelerator", type=click.Choice(["xpu", "rocm", "cuda"]), help="Where it is to run, if nothing tells.")
@click.option("--catalog", type=click.Path(path_type=Path), help="Where recipes, rules and known decoys come from.")
@click.option("--no-run", is_flag=True, help="Run nothing of the image: read the options in its source.")
@click.option("--fix", is_flag=True, help="Mend what has one right answer, in the file.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(
    files: tuple[str, ...],
    compose: tuple[Path, ...],
    image: str | None,
    launch: str | None,
    accelerator: str | None,
    catalog: Path | None,
    no_run: bool,
    fix: bool,
    as_json: bool,
) -> int:
    """Look at how a model server is started: compose FILES, shell scripts, or an argument list after ``--``.

    \b
    Examples:
      patchkit lint compose.yaml
      patchkit lint start.sh --fix
      patchkit lint --image vllm-xpu:nightly -- vllm serve RecursiveSI/flint -tp 4
    """
    recipes = tuple(load_recipes(catalog).values())
    decoys = {decoy for manifest in load_catalog(catalog).manifests for decoy in manifest.decoys}
    known, notes = options_of(image, launch=launch, run=not no_run) if image else (None, [])
    knowledge = run.Knowledge(recipes, general_rules(catalog), accelerator or "", known, tuple(sorted(decoys)))

    issues: list[Issue] = []
    mended: list[Finding] = []
    looked_at = 0
    for source, starts in _sources(files, compose):
        looked_at += len(starts)
        if not image:
            notes += [_not_asked(source, start) for start in starts[:1]]
        found = [issue for start in starts for issue in run.issues_of(start, knowledge)]
        if fix and source is not None:
            text = run.mend(source.text, found)
            if text != source.text:
                write_file(Path(source.path), text.encode())
                mended += run.findings([issue for issue in found if issue.edits])
                again = Source(source.path, text)
                found = [issue for start in _starts(again) for issue in run.issues_of(start, knowledge)]
        issues.extend(found)
    found_all = [*notes, *run.findings(issues)]
    if not looked_at:
        raise BadInput("no-start", "no start of a model server was found", remedy="name the file that starts it")
    if as_json:
        parts = {"findings": [each.as_json() for each in found_all], "mended": [each.as_json() for each in mended]}
        render.print_json(render.document("lint", **parts))
    else:
        for finding in mended:
            click.echo(render.clean(f"{finding.where}: mended in the file: {finding.what} [{finding.id}]"))
        show(found_all)
        mendable = [issue for issue in issues if issue.edits and issue.finding.where]
        if mendable and not fix:
            names = shlex.join(dict.fromkeys(_file_of(issue.finding) for issue in mendable))
            click.echo(render.clean(f"{_count(mendable)} can be mended: patchkit lint --fix {names}"))
        elif fix and not mended:
            click.echo("nothing was changed: no file holds a fault that has one right answer")
        if {finding.id for finding in found_all} <= {"options-not-checked"}:
            click.echo(f"{looked_at} start{'' if looked_at == 1 else 's'} looked at, nothing found")
    return 1 if worst(found_all) == "error" else 0


def _not_asked(source: Source | None, start: Start) -> Finding:
    return not_asked(source.path if source else "arguments", start.image.text if start.image else "")


def _file_of(finding: Finding) -> str:
    return finding.where.rsplit(":", 2)[0]


def _count(issues: Sequence[Issue]) -> str:
    count = len({issue.finding for issue in issues})
    return "one of them" if count == 1 else f"{count} of them"


def show(findings: Iterable[Finding]) -> None:
    """Findings for people: place, what, evidence, remedy."""
    for finding in findings:
        place = f"{finding.where}: " if finding.where else ""
        click.echo(render.clean(f"{place}{finding.severity}: {finding.what} [{finding.id}]"))
        if finding.evidence:
            click.echo(render.clean(f"  {finding.evidence}"))
        if finding.remedy:
            click.echo(render.clean(f"  next: {finding.remedy}"))


def _sources(files: tuple[str, ...], compose: tuple[Path, ...]) -> Iterable[tuple[Source | None, list[Start]]]:
    paths = [*compose]
    arguments: list[str] = []
    for index, name in enumerate(files):
        if Path(name).suffix in (".yaml", ".yml", ".sh", ".bash") or Path(name).is_file():
            paths.append(Path(name))
        else:
            arguments = list(files[index:])
            break
    for path in paths:
        source = _read(path)
        yield source, _starts(source)
    if arguments:
        start = start_of_arguments("arguments", arguments, os.environ)
        yield None, [start] if start else []
    if not paths and not arguments:
        raise BadInput(
            "nothing-to-lint", "name a file, or an argument list after --", remedy="patchkit lint compose.yaml"
        )


def _read(path: Path) -> Source:
    try:
        return Source(str(path), path.read_bytes().decode())
    except UnicodeDecodeError:
        raise BadInput("not-text", "the file is not UTF-8 text", where=str(path), remedy="name a text file") from None
    except OSError as error:
        said = f"cannot be read: {error.strerror}"
        raise BadInput("no-file", said, where=str(path), remedy="name a file that is there") from None


def _starts(source: Source) -> list[Start]:
    is_yaml = source.path.endswith((".yaml", ".yml"))
    return starts_in_compose(source) if is_yaml else starts_in_script(source)
