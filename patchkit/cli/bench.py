"""``patchkit bench``: measure a serving model, and compare what was measured."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from pathlib import Path

import click

from patchkit.bench import html, medians, view
from patchkit.bench.compare import compare as compare_reports
from patchkit.bench.model import Scenario
from patchkit.bench.read import read_report
from patchkit.bench.run import measure, order
from patchkit.cli import render
from patchkit.deliver.output import refuse_unwritable, write_file
from patchkit.errors import BadInput
from patchkit.findings import counted
from patchkit.stack.openai import Server


@click.group()
def command() -> None:
    """Measure a serving model, and compare with honest verdicts."""


@command.command()
@click.option(
    "--url",
    default="http://127.0.0.1:8000",
    show_default=True,
    help="The server; as seen from inside with --container.",
)
@click.option("--container", help="The serving container: its own `vllm bench serve` measures.")
@click.option("--generator", type=click.Choice(["vllm", "patchkit"]), default="vllm", show_default=True)
@click.option("--model", help="The model to ask for; without it the first one that the server lists.")
@click.option("--scenario", "scenarios", default="chat,prefill", show_default=True, help="Comma-separated.")
@click.option("--concurrency", default="1,4,8,16", show_default=True, help="Users at once, comma-separated.")
@click.option("--reps", type=click.IntRange(min=1), default=3, show_default=True, help="Repetitions.")
@click.option("--requests", type=click.IntRange(min=0), default=0, help="Requests a repetition; 4 a user without.")
@click.option("--key", envvar="PATCHKIT_API_KEY", default="", help="API key, better in PATCHKIT_API_KEY.")
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="Where the report goes.")
def run(
    url: str,
    container: str | None,
    generator: str,
    model: str | None,
    scenarios: str,
    concurrency: str,
    reps: int,
    requests: int,
    key: str,
    output: Path,
) -> int:
    """Measure a server, and keep every request's times.

    \b
    Examples:
      patchkit bench run --container flint-1 -o before.json
      patchkit bench run --url http://box:8000 --generator patchkit --reps 5 -o after.json
    """
    wanted = order(_list(scenarios), _numbers(concurrency), reps, requests)
    steps = list(wanted.steps())
    refuse_unwritable(output)
    with ExitStack() as stack:
        bar = None
        if sys.stderr.isatty():
            bar = stack.enter_context(click.progressbar(length=len(steps), label="bench", file=sys.stderr))
        done = 0

        def tell(scenario: Scenario, users: int, repetition: int) -> None:
            nonlocal done
            if bar is None:
                place = f"{done + 1}/{len(steps)}"
                click.echo(f"{place} {scenario.name}, {counted(users, 'user')}, repetition {repetition + 1}", err=True)
            elif done:
                bar.update(1)
            done += 1

        report = measure(
            output.stem,
            Server(url, key=key),
            wanted,
            container=container,
            generator=generator,
            model=model,
            tell=tell,
        )
        if bar is not None:
            bar.update(1)
    write_file(output, (json.dumps(report.as_json(), indent=1, sort_keys=True) + "\n").encode())
    failed = sum(each.failed for each in report.runs)
    click.echo(f"{output}: {counted(len(report.runs), 'run')}, {counted(failed, 'failed request')}")
    click.echo(f"next: patchkit bench compare BEFORE.json {output}")
    return 0


@command.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "markdown", "json", "html"]),
    default="table",
    show_default=True,
)
@click.option("--scenario", help="What to call the scenario of results that do not tell it.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write to a file.")
@click.option("--json", "json_form", is_flag=True, help="The same as --format json.")
def compare(files: tuple[Path, ...], form: str, scenario: str | None, output: Path | None, json_form: bool) -> int:
    """Compare two reports, BEFORE and AFTER, or judge one published table of medians (Markdown).

    \b
    Reports are those of `bench run`, of `vllm bench serve --save-result --save-detailed` and of
    `vllm bench forward --output-json`.

    \b
    Examples:
      patchkit bench compare before.json after.json
      patchkit bench compare before.json after.json --format html -o report.html
      patchkit bench compare table.md
    """
    form = "json" if json_form else form
    if len(files) == 1 and _is_json(files[0]):
        raise BadInput(
            "wrong-count",
            "one report alone has nothing to be compared with: give two reports",
            where=str(files[0]),
            remedy=f"patchkit bench compare BEFORE.json {files[0]}",
        )
    if len(files) == 1:
        table = medians.read_table(files[0])
        shown = view.of_medians(table)
        data = {"names": list(table.names), "rows": [row.as_json() for row in table.rows], "notes": list(shown.notes)}
    elif len(files) == 2:
        comparison = compare_reports(*(read_report(file, scenario=scenario) for file in files))
        shown = view.of_comparison(comparison)
        data = comparison.as_json()
    else:
        raise BadInput("wrong-count", "name two reports, or one table", remedy="patchkit bench compare A.json B.json")
    if form == "json":
        text = json.dumps(render.document("bench-compare", comparison=data), indent=2, sort_keys=True) + "\n"
    elif form == "html":
        text = html.page(shown)
    elif form == "markdown":
        text = view.markdown(shown)
    else:
        header = [*view.COLUMNS]
        header[3:5] = shown.names
        text = render.table(shown.rows, header) + "\n" + "".join(f"note: {note}\n" for note in shown.notes)
    if output is None:
        click.echo(text if form == "json" else render.clean(text), nl=False)
    else:
        write_file(output, text.encode())
    return 0


def _is_json(file: Path) -> bool:
    """Whether it is a report, and no Markdown with a table."""
    try:
        with file.open("rb") as stream:
            return stream.read(4096).lstrip()[:1] in (b"{", b"[")
    except OSError:
        return False  # told by whoever reads it


def _list(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]


def _numbers(text: str) -> list[int]:
    try:
        numbers = [int(each) for each in _list(text)]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 1:
        raise BadInput("bad-concurrency", f"{text!r} is no list of numbers", remedy="--concurrency 1,4,8,16")
    return numbers
