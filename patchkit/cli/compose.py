"""``patchkit compose``: the overlay of an image's patches, fitted to the compose files below it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import click

from patchkit import api
from patchkit.api.stacks import component
from patchkit.api.stacks import compose as compose_delivery
from patchkit.cli import options, show
from patchkit.cli.render import clean, document, print_json
from patchkit.cli.verify import tell_verdict
from patchkit.deliver.output import write_file
from patchkit.errors import BadInput
from patchkit.findings import Finding, worst


@click.command("compose")
@options.image
@options.mode
@click.option(
    "-f",
    "--file",
    "files",
    multiple=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="A compose file that the overlay goes on top of (repeatable).",
)
@click.option("--service", "services", multiple=True, metavar="NAME", help="Only this service (repeatable).")
@click.option(
    "--format",
    "form",
    type=click.Choice(["compose", "run", "podman", "kustomize"]),
    default="compose",
    show_default=True,
    help="An overlay, a docker or podman command line, or a kustomize component (with -o FOLDER).",
)
@click.option("--tag", metavar="NAME", help="Name of the derived image.")
@options.shared_caches
@click.option("--guard", is_flag=True, help="Put the boot guard in front of the server.")
@click.option("-o", "target", type=click.Path(path_type=Path), help="Write to a file (a folder for kustomize).")
@options.output
@options.looking
@options.json_output
def command(
    image: str,
    mode: Literal["image", "bind"],
    files: tuple[Path, ...],
    services: tuple[str, ...],
    form: str,
    tag: str | None,
    shared_caches: bool,
    guard: bool,
    target: Path | None,
    output: Path,
    options: api.Options,
    as_json: bool,
) -> int:
    """Deliver an image's patches and print the compose overlay alone.

    With -f the compose files are looked at first: which services run the image, whether something is mounted over a
    patched file, whether a service imports another copy.

    \b
    patchkit compose --image vllm-xpu:nightly -f compose.yaml -o compose.patchkit.yaml
    patchkit compose --image vllm-xpu:nightly --mode bind --format run
    patchkit compose --image docker://registry.example/vllm:1-patchkit --format kustomize -o patchkit-component
    """
    if form == "kustomize" and target is None:
        raise BadInput("no-folder", "a component is several files", remedy="-o FOLDER")
    delivery = api.Delivery(
        mode=mode, tag=tag, output=output, services=services, guard=guard, own_caches=not shared_caches
    )
    composed = compose_delivery(
        image,
        options,
        delivery,
        files=files,
        engine_name="podman" if form == "podman" else "docker",
        step=lambda step: click.echo(f"{step} ...", err=True),
    )
    findings = (*composed.applied.findings, *composed.findings)
    _tell(findings)
    written: tuple[Path, ...] = ()
    text = ""
    if form == "kustomize":
        assert target is not None
        made = component(composed, target)
        _tell(made.findings)
        written, findings = made.files, (*findings, *made.findings)
    else:
        text = composed.overlay if form == "compose" else composed.run + "\n"
        if target is not None:
            write_file(target, text.encode())
            written = (target,)
    proven = max(tell_verdict(one.proof.levels, ()) for one in composed.applied.platforms)
    if as_json:
        part = {"services": list(composed.services), "text": text, "written": [str(path) for path in written]}
        print_json(document("compose", overlay=part, findings=show.finding_parts(findings)))
    elif written:
        click.echo("\n".join(str(path) for path in written))
    else:
        click.echo(text, nl=False)
    overlay = target or composed.applied.overlay_path
    if form == "compose" and overlay and not proven and worst(findings) != "error":
        below = " ".join(f"-f {shlex.quote(str(each))}" for each in files or ["compose.yaml"])
        click.echo(clean(f"next: docker compose {below} -f {shlex.quote(str(overlay))} up -d"), err=True)
    return 1 if worst(findings) == "error" else proven


def _tell(findings: Sequence[Finding]) -> None:
    for finding in findings:
        click.echo(clean(f"{finding.severity}: {finding.where}: {finding.what} [{finding.id}]"), err=True)
