"""``patchkit doctor``: look for everything that can make a patch a silent no-op."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from textwrap import fill

import click

from patchkit.cli import options, show
from patchkit.cli.render import document, print_json, table
from patchkit.doctor.asking import or_why
from patchkit.doctor.model import CHECKS
from patchkit.doctor.run import examine
from patchkit.doctor.world import Question, World
from patchkit.errors import BadInput, PatchkitError
from patchkit.findings import Finding, worst
from patchkit.images import parse_reference


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
@options.catalog
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
    named = _in_engine(image) if image is not None else None
    world = World(Question(named, container, compose, hosts, catalog, output))
    findings = examine(world)
    parts = show.finding_parts(findings)
    if as_json:
        print_json(document("doctor", findings=parts))
    else:
        show.print_findings(parts)
        for line in _summary(world, findings):
            click.echo(line)
    return 1 if worst(findings) == "error" else 0


def _in_engine(image: str) -> str:
    """The image's name as the engine knows it."""
    reference = parse_reference(image)
    if reference.transport != "docker-daemon":
        raise BadInput(
            "not-in-engine",
            "doctor looks into an engine, and this image lies elsewhere",
            where=image,
            remedy=f"what the patches do to it: patchkit status --image {shlex.quote(image)}",
        )
    return reference.name


def _summary(world: World, findings: Sequence[Finding]) -> Iterator[str]:
    """What was looked at, so that no silence is taken for health, and what was not."""
    counts = [sum(finding.severity == kind for finding in findings) for kind in ("error", "warning", "note")]
    containers, images = or_why(lambda: world.containers), or_why(lambda: world.images_asked)
    yield ""
    if isinstance(containers, PatchkitError) or isinstance(images, PatchkitError):
        yield "looked at no container and no patched image: the engine did not list them"
    else:
        of = [(len(containers), "running container"), (len(images), "patched image")]
        yield f"looked at {', '.join(_count(*each) for each in of)}, with {len(CHECKS)} checks"
    asked = world.question
    skipped = ["--image NAME for what the patches do to an image"] if not asked.image else []
    skipped += ["--compose FILE for a project"] if not asked.compose else []
    if skipped:
        yield f"not looked at; give {', '.join(skipped)}"
    yield ", ".join(_count(n, kind) for n, kind in zip(counts, ("error", "warning", "note"), strict=True))


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _explain(name: str) -> None:
    if name == "all":
        click.echo(
            table([(each.id, each.severity, each.title) for each in CHECKS.values()], ("ID", "SEVERITY", "FINDS"))
        )
        return
    if name not in CHECKS:
        raise BadInput("unknown-check", _unknown(name), where=name, remedy="list them: patchkit doctor --explain all")
    found = CHECKS[name]
    click.echo(f"{found.id} ({found.severity}): {found.title}\n\n{fill(found.why, 100)}")


def _unknown(name: str) -> str:
    """Near names by spelling, else the checks that speak of it: ``stale`` is not spelled like anything."""
    word = name.lower().replace("_", "-")
    near = get_close_matches(word, CHECKS, n=3, cutoff=0.6)
    near = near or [each.id for each in CHECKS.values() if word in f"{each.id} {each.title} {each.why}".lower()][:5]
    return f"there is no such check; did you mean {' or '.join(near)}?" if near else "there is no such check"
