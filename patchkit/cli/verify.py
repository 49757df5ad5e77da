"""``patchkit verify``: prove, level by level, what a receipt says."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from patchkit import api
from patchkit.cli import options, show
from patchkit.cli.options import refuse_beside
from patchkit.cli.render import clean, document, print_json, table
from patchkit.deliver.output import EVIDENCE_NAME, make_folder, write_file
from patchkit.deliver.receipt import evidence, level_json
from patchkit.findings import counted, worst
from patchkit.proof.model import NEEDED, Level
from patchkit.proof.verdict import verdict


@click.command("verify")
@click.option("--image", metavar="REF", help="The derived image, or the one that the mounts are for.")
@click.option("--container", metavar="NAME", help="A running container: its files, mounts and processes.")
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="URL",
    help="An engine as DOCKER_HOST or a context spells it (repeatable).",
)
@click.option("--receipt", type=click.Path(path_type=Path, dir_okay=False), help="A receipt file.")
@options.output
@options.looking
@options.require
@options.devices
@options.gpus
@options.json_output
def command(
    image: str | None,
    container: str | None,
    hosts: tuple[str, ...],
    receipt: Path | None,
    output: Path,
    options: api.Options,
    require: tuple[str, ...],
    devices: tuple[str, ...],
    gpus: str | None,
    as_json: bool,
) -> int:
    """Prove what a receipt says: bytes, resolves, compiles, bytecode, imports, asserts.

    The first four must pass; imports and asserts may be blocked by something that the patches do not touch (a missing
    module, a driver), unless --require names them. With --host the same is done on each engine, and all must run the
    same patched code. With --gpus or --device the patches' numeric asserts run on the hardware that is there, and what
    they measured is written to evidence.json in the output folder, to be kept or shared.

    \b
    patchkit verify --image vllm-xpu:nightly-patchkit
    patchkit verify --receipt .patchkit/receipt.json --require imports
    patchkit verify --image vllm-xpu:nightly-patchkit --device /dev/dri
    patchkit verify --container vllm
    patchkit verify --container vllm --host ssh://a --host ssh://b
    """
    if image is not None and container is not None:
        raise click.UsageError("give either --image or --container")
    if hosts:
        refuse_beside("--host", "receipt", "devices", "gpus")
        return _on_hosts(hosts, image, container, options, require, as_json)
    if container is not None:
        refuse_beside("--container", "devices", "gpus")
        done = api.verify_container(container, options, receipt_path=receipt, output_folder=output)
    else:
        done = api.verify(image, options, receipt_path=receipt, output_folder=output, devices=devices, gpus=gpus)
    parts = _parts(done)
    if devices or gpus:
        make_folder(output)
        write_file(output / EVIDENCE_NAME, evidence(done.receipt, done.proof))
    if as_json:
        print_json(document("verify", **parts))
    else:
        click.echo(
            clean(
                f"{done.reference}: {counted(len(done.receipt.files), 'file')}, fingerprint {done.receipt.fingerprint}"
            )
        )
        show.print_levels(parts["levels"])
        show.print_findings(parts["findings"])
        if devices or gpus:
            click.echo(f"evidence    {(output / EVIDENCE_NAME).absolute()}")
    return _status(done, tell_verdict(done.proof.levels, require))


def tell_verdict(levels: Sequence[Level], require: Sequence[str]) -> int:
    """The exit status of a proof; where it is not 0, which levels made it so is told on standard error."""
    status = verdict(levels, require)
    if status:
        must = {*NEEDED, *require}
        short = [each for each in levels if each.state == "failed" or (each.name in must and each.state != "passed")]
        told = ", ".join(f"{each.name} {each.state}{f' ({each.cause})' if each.cause else ''}" for each in short)
        click.echo(clean(f"error: not proven: {told} [not-proven]"), err=True)
        asked = [each.name for each in short if each.name in require and each.state != "failed"]
        if len(asked) == len(short):
            helps = f"take away what stands in its way, told above; or ask for less: no --require {' '.join(asked)}"
        else:
            helps = "look for the cause: patchkit doctor"
        click.echo(f"next: {helps}", err=True)
    return status


def _status(done: api.Verified, proven: int) -> int:
    return 1 if worst(done.findings) == "error" else proven


def _parts(done: api.Verified) -> dict[str, Any]:
    identity = show.image_part(done.reference, done.receipt.delivered_identity)
    return {
        "image": {**identity, "fingerprint": done.receipt.fingerprint},
        "files": [
            {"path": file.path, "image_path": file.image_path, "pre": file.pre, "post": file.post}
            for file in done.receipt.files
        ],
        "levels": level_json(done.proof),
        "findings": show.finding_parts(done.findings),
    }


def _on_hosts(
    hosts: Sequence[str],
    image: str | None,
    container: str | None,
    options: api.Options,
    require: Sequence[str],
    as_json: bool,
) -> int:
    answers = api.verify_hosts(hosts, image=image, container=container, options=options)
    findings = api.differences(answers)
    nodes: list[dict[str, Any]] = []
    for answer in answers:
        if answer.done is None:
            assert answer.error is not None
            nodes.append({"host": answer.host, "status": answer.error.status, "error": str(answer.error)})
        else:
            proven = verdict(answer.done.proof.levels, require)
            nodes.append({"host": answer.host, "status": _status(answer.done, proven), **_parts(answer.done)})
    if as_json:
        print_json(document("verify", nodes=nodes, findings=show.finding_parts(findings)))
    else:
        rows = [(node["host"], _node_word(node), _node_detail(node)) for node in nodes]
        click.echo(table(rows, ("HOST", "STATE", "FINGERPRINT")))
        show.print_findings(show.finding_parts(findings))
    worst_of_all = 1 if worst(findings) == "error" else 0
    return max([worst_of_all, *(int(node["status"]) for node in nodes)])


def _node_word(node: dict[str, Any]) -> str:
    return {0: "proven", 1: "not proven", 2: "bad input", 3: "out of reach"}[int(node["status"])]


def _node_detail(node: dict[str, Any]) -> str:
    if "error" in node:
        return str(node["error"])
    failed = [f"{level['name']} {level['state']}" for level in node["levels"] if level["state"] != "passed"]
    errors = [finding["what"] for finding in node["findings"] if finding["severity"] == "error"]
    return "; ".join([str(node["image"]["fingerprint"])[:16], *failed, *errors])
