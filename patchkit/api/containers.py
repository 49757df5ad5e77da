"""Running containers: the same way of the data, with the container's own files in the image's place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from patchkit.api.deliver import Applied, Delivery, Done, Step, asserts_of, hold_to_lock, silent
from patchkit.api.look import Options, launch_for, look, refuse_unless_deliverable
from patchkit.api.prove import Verified, promises_of, same_image
from patchkit.catalog.load import load_catalog
from patchkit.catalog.refused import setting_findings
from patchkit.deliver import image as image_delivery
from patchkit.deliver import output
from patchkit.deliver.container import LiveContainer, mount_findings, put_plan
from patchkit.deliver.receipt import Receipt, files_of, receipt_of, to_bytes
from patchkit.deliver.receipt import load as load_receipt
from patchkit.errors import BadInput, Refused, Unreachable
from patchkit.findings import Finding, counted
from patchkit.images import parse_reference
from patchkit.images.containers import Container
from patchkit.images.daemon import DaemonImage
from patchkit.images.engine import Engine, engine
from patchkit.images.model import Reference
from patchkit.plan import Plan
from patchkit.proof.gpus import gpu_findings
from patchkit.proof.processes import process_findings
from patchkit.proof.prove import prove
from patchkit.proof.verdict import refuse_errors
from patchkit.site.probe import Question, ask


def container_status(name: str, options: Options = Options()) -> Plan:
    """What the patches would do to the files of this running container, or have done to them."""
    catalog = load_catalog(options.catalog)
    with running(name) as live:
        return look(live, options, catalog, called=_image_name(live))


def apply_to_container(
    name: str,
    options: Options = Options(),
    delivery: Delivery = Delivery(),
    *,
    restart: bool = False,
    step: Step = silent,
) -> Applied:
    """Patch the files of a running container, prove it, and write the receipt.

    Modules that its processes imported already stay as they were: ``process-older`` findings say so, and only a
    ``restart`` helps. Recreating the container drops the patch.

    Raises:
        patchkit.errors.Refused: ``does-not-apply``, ``environment-refused``, ``gpu-refused``, ``on-a-mount``,
            ``cannot-write``, ``read-back``.
        patchkit.errors.Unreachable: ``no-such-container``, ``not-running``.
    """
    catalog = load_catalog(options.catalog)
    step(f"reading container {name}")
    with running(name) as live:
        _refuse_stopped(live)
        plan = look(live, options, catalog, called=_image_name(live))
        refuse_unless_deliverable(plan, options)
        hold_to_lock(plan, catalog, delivery)
        _refuse_as_served(live, plan, name)
        with output.locked(delivery.output):
            if plan.changed:
                step(f"writing {counted(len(plan.changed), 'file')}")
                put_plan(live.container, plan)
            if restart:
                step("restarting")
                live.container.restart()
            step("proving")
            files = files_of(plan, owned=True)
            expectations = [file.expectation() for file in files]
            proof = prove(live, plan.site.launch, plan.match.manifest.package, expectations, asserts_of(plan))
            refused = plan.match.manifest.refused_env
            findings = process_findings(live, plan.site.launch, expectations, name, refused)
            gone = [file.image_path for file in plan.changed if file.data is None and file.module]
            if gone and not restart:
                findings += (_still_in_memory(gone, name),)
            receipt = receipt_of(
                plan,
                "container",
                proof,
                delivered=f"container:{live.container.id}",
                identity=live.identity,
                launch_given=options.launch or "",
            )
            folder = delivery.output.absolute()
            output.write_delivery(folder, to_bytes(receipt), {}, None)
            done = Done(plan, receipt, proof, "written by the container's own interpreter")
            return Applied(live.reference, not plan.changed, (done,), folder / output.RECEIPT_NAME, None, findings)


def _refuse_as_served(live: LiveContainer, plan: Plan, name: str) -> None:
    """Raise ``environment-refused`` where a process has a setting that is refused, ``gpu-refused`` where the container
    was given a GPU that the series is not for."""
    manifest, launch = plan.match.manifest, plan.site.launch
    if manifest.refused_env:
        found = process_findings(live, launch, (), name, manifest.refused_env)
        refuse_errors([finding for finding in found if finding.id == "environment-refused"])
    if manifest.gpus is not None:
        refuse_errors(gpu_findings(manifest.gpus, ask(live, launch, Question()).gpus, name))


def _still_in_memory(gone: Sequence[str], name: str) -> Finding:
    """No time of a file tells what was imported before it was removed, so that nothing else finds it."""
    return Finding(
        "process-older",
        "error",
        f"whatever imported {gone[0]} before it was removed still has it in memory",
        where=name,
        remedy=f"restart it: docker restart {name}",
    )


def verify_container(
    name: str,
    options: Options = Options(),
    *,
    receipt_path: Path | None = None,
    output_folder: Path = Path(".patchkit"),
    host: str | None = None,
) -> Verified:
    """Prove a running container: its files as they are now, mounts included, its processes, and their environment.

    The receipt is the file given, else the one that the overlay's label names, else the one inside its image, else the
    one in ``output_folder`` when it is of this container.

    Raises:
        patchkit.errors.Refused: ``no-receipt``.
        patchkit.errors.Unreachable: ``no-such-container``, ``not-running``.
    """
    with running(name, host) as live:
        _refuse_stopped(live)
        receipt = load_receipt(receipt_path) if receipt_path else _container_receipt(live, output_folder)
        given = replace(options, launch=options.launch or receipt.launch_given or None)
        launch = launch_for(live, given)
        asserts, manifest, findings = promises_of(receipt, given)
        refused = manifest.refused_env if manifest else ()
        expectations = [file.expectation() for file in receipt.files]
        proof = prove(live, launch, receipt.package, expectations, asserts, run=options.run)
        findings += mount_findings(live.container, receipt)
        findings += gpu_findings(manifest.gpus if manifest else None, proof.gpus, name)
        findings += setting_findings(refused, launch.env, name)
        if options.run:
            findings += process_findings(live, launch, expectations, name, refused)
        return Verified(live.reference, receipt, proof, tuple(findings))


@contextmanager
def running(name: str, host: str | None = None) -> Iterator[LiveContainer]:
    connected = connect(host)
    with Container(connected, name) as container, DaemonImage(connected, container.image) as image:
        yield LiveContainer(container, image.identity)


def connect(host: str | None) -> Engine:
    """The engine at an address (``ssh://...``, ``tcp://...``, ``unix://...``) or of a docker context's name."""
    return engine(context=host) if host and "://" not in host else engine(host)


def _image_name(live: LiveContainer) -> Reference | None:
    """What its image was called when it was started: manifests are matched by images, not by containers' names."""
    try:
        return parse_reference(live.container.image_name)
    except BadInput:
        return None


def _refuse_stopped(live: LiveContainer) -> None:
    if not live.can_run:
        raise Unreachable(
            "not-running",
            "the container does not run",
            where=live.container.name,
            remedy=f"docker start {live.container.name}",
        )


def _container_receipt(live: LiveContainer, folder: Path) -> Receipt:
    place = live.container.labels.get(image_delivery.LABEL_RECEIPT, "")
    if place and Path(place).is_file():
        return load_receipt(Path(place))
    inside = image_delivery.receipt_in(live)
    if inside is not None:
        return inside
    receipt = load_receipt(folder / output.RECEIPT_NAME)
    own = receipt.delivered == f"container:{live.container.id}"
    if not own and not (receipt.kind == "bind" and same_image(receipt.delivered_identity, live.identity)):
        raise Refused(
            "no-receipt",
            f"nothing tells what should run in it; the receipt in {folder} is of {receipt.delivered}",
            where=live.container.name,
            remedy="start it from the patched image or with the overlay, or name its receipt with --receipt",
        )
    return receipt
