"""``patchkit doctor``: look for everything that can make a patch a silent no-op."""

from __future__ import annotations

from pathlib import Path

import click

from patchkit.cli import show
from patchkit.cli.render import document, print_json, table
from patchkit.doctor.model import CHECKS
from patchkit.doctor.run import examine
from patchkit.doctor.world import Question, World
from patchkit.errors import BadInput
from patchkit.findings import worst


@click.command("doctor")
@click.option("--image", metavar="NAME", help="Look at this image only.")
@click.option("--container", metavar="NAME", help="Look at this container only.")
@click.option(
    "--compose", multiple=True, type=click.Path(path_type=Path, dir_okay=False), help="A compose file (repeatable)."
)
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="URL",
    help="An engine's address or context (repeatable).",
)
@click.option(
    "--catalog", type=click.Path(path_type=Path, file_okay=False), help="Folder with manifests/ and patches/."
)
@click.option(
    "--output", type=click.Path(path_type=Path, file_okay=False), default=Path(".patchkit"), show_default=True
)
@click.option("--explain", metavar="ID", help="Tell what a check looks for and why; 'all' lists them.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(
    image: str | None,
    container: str | None,
    compose: tuple[Path, ...],
    hosts: tuple[str, ...],
    catalog: Path | None,
    output: Path,
    explain: str | None,
    as_json: bool,
) -> int:
    """Look for everything that can make a patch a silent no-op. Exit status 0 only when there is no error.

    \b
    patchkit doctor
    patchkit doctor --container vllm --json
    patchkit doctor --explain tag-moved
    """
    if explain:
        import patchkit.doctor.checks  # noqa: F401 - registers the checks

        _explain(explain)
        return 0
    findings = examine(World(Question(image, container, compose, hosts, catalog, output)))
    parts = show.finding_parts(findings)
    if as_json:
        print_json(document("doctor", findings=parts))
    else:
        show.print_findings(parts)
        errors = sum(finding.severity == "error" for finding in findings)
        click.echo(f"\n{len(CHECKS)} checks, {errors} errors")
    return 1 if worst(findings) == "error" else 0


def _explain(name: str) -> None:
    if name == "all":
        click.echo(
            table([(each.id, each.severity, each.title) for each in CHECKS.values()], ("ID", "SEVERITY", "FINDS"))
        )
        return
    if name not in CHECKS:
        raise BadInput("unknown-check", f"there is no check {name}", remedy="list them: patchkit doctor --explain all")
    found = CHECKS[name]
    click.echo(f"{found.id} ({found.severity}): {found.title}\n\n{found.why}")
