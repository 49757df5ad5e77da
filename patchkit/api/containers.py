"""Running containers: the same way of the data, with the container's own files in the image's place."""

from __future__ import annotations

import json
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
from patchkit.errors import Refused
from patchkit.findings import Finding, counted
from patchkit.images import edit
from patchkit.images.containers import Container
from patchkit.images.daemon import DaemonImage
from patchkit.images.engine import Engine, engine
from patchkit.plan import Plan
from patchkit.proof.gpus import gpu_findings
from patchkit.proof.processes import judge, look_for, process_findings
from patchkit.proof.prove import prove
from patchkit.proof.started import started_findings
from patchkit.proof.verdict import refuse_errors
from patchkit.site.probe import Question, ask


def container_status(name: str, options: Options = Options()) -> Plan:
    """What the patches would do to the files of this running container, or have done to them; findings tell whether it
    is given a GPU or a setting that they are not for."""
    catalog = load_catalog(options.catalog)
    with running(name) as live:
        plan = look(live, options, catalog, called=live.called)
        return replace(plan, findings=(*plan.findings, *_as_served(live, plan, name, options.run)))


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
        plan = look(live, options, catalog, called=live.called)
        refuse_unless_deliverable(plan, options)
        hold_to_lock(plan, catalog, delivery)
        refuse_errors(_as_served(live, plan, name, True))
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


def _as_served(live: LiveContainer, plan: Plan, name: str, run: bool) -> list[Finding]:
    """``environment-refused`` where a process has a setting that is refused, ``gpu-refused`` where the container was
    given a GPU that the series is not for. Both can only be asked with ``run``, of a container that runs."""
    manifest, launch = plan.match.manifest, plan.site.launch
    asked = run and live.can_run
    found: list[Finding] = []
    if manifest.refused_env and asked:
        told = process_findings(live, launch, (), name, manifest.refused_env)
        found += [finding for finding in told if finding.id == "environment-refused"]
    if manifest.gpus is not None:
        found += gpu_findings(manifest.gpus, ask(live, launch, Question()).gpus if asked else None, name)
    return found


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
        receipt, strange = (load_receipt(receipt_path), []) if receipt_path else _container_receipt(live, output_folder)
        given = replace(options, launch=options.launch or receipt.launch_given or None)
        launch = launch_for(live, given)
        promises = promises_of(receipt, given)
        expectations = [file.expectation() for file in receipt.files]
        proof = prove(live, launch, receipt.package, expectations, promises.asserts, run=options.run)
        findings = [*strange, *promises.findings, *mount_findings(live.container, receipt)]
        findings += gpu_findings(promises.gpus, proof.gpus, name)
        findings += setting_findings(promises.refused_env, launch.env, name)
        if options.run:
            inside = look_for(live, launch, expectations, promises.refused_env)
            findings += judge(inside, launch, name, promises.refused_env)
            findings += started_findings(live.fs, inside, launch, expectations, name) if inside else ()
        return Verified(live.reference, receipt, proof, tuple(findings))


@contextmanager
def running(name: str, host: str | None = None) -> Iterator[LiveContainer]:
    connected = connect(host)
    with Container(connected, name) as container, DaemonImage(connected, container.image) as image:
        labels = edit.labels(json.loads(image.config))
        yield LiveContainer(container, image.identity, labels, image.called(container.image_name))


def connect(host: str | None) -> Engine:
    """The engine at an address (``ssh://...``, ``tcp://...``, ``unix://...``) or of a docker context's name."""
    return engine(context=host) if host and "://" not in host else engine(host)


def _refuse_stopped(live: LiveContainer) -> None:
    if not live.can_run:
        raise live.container.stopped()


def _container_receipt(live: LiveContainer, folder: Path) -> tuple[Receipt, list[Finding]]:
    """The receipt of what should run in it, with an error where it is of another image than the container's."""
    name, label = live.container.name, live.container.labels.get(image_delivery.LABEL_RECEIPT, "")
    # An image's label, which its containers inherit, names a place inside of it: a file of this machine is named by an
    # overlay's alone. Whoever made the container chose it, so it has to look like a receipt, and to be of this image.
    place = Path(label) if label and label != live.image_labels.get(image_delivery.LABEL_RECEIPT) else None
    if place and place.is_absolute() and place.name == output.RECEIPT_NAME and place.is_file():
        receipt = load_receipt(place)
        if _is_of(receipt, live):
            return receipt, []
        if not live.container.engine.is_remote:  # else the file that is meant lies on that machine
            other = Finding(
                "other-image",
                "error",
                f"the receipt that its label names is of {receipt.delivered}, not of the image that it runs",
                where=name,
                evidence=str(place),
                remedy="make it anew with the overlay beside that receipt: docker compose up -d; or name another "
                f"receipt: patchkit verify --container {name} --receipt FILE",
            )
            return receipt, [other]
    inside = image_delivery.receipt_in(live, live.image_labels)
    if inside is not None:
        return inside, []
    try:
        kept = load_receipt(folder / output.RECEIPT_NAME)
    except Refused:
        kept = None
    if kept is None or not _is_of(kept, live):
        there = f"the receipt in {folder} is of {kept.delivered}" if kept else f"there is no receipt in {folder}"
        raise Refused(
            "no-receipt",
            f"nothing tells what should run in it; {there}",
            where=name,
            remedy="start it from the patched image or with the overlay, or name its receipt with --receipt",
            details=[f"its label names {place}, where no receipt lies on this machine"] if place else [],
        )
    return kept, []


def _is_of(receipt: Receipt, live: LiveContainer) -> bool:
    """Whether the receipt is of this container's own files, or of the image that it was made from."""
    if receipt.kind == "container":
        return receipt.delivered == f"container:{live.container.id}"
    return same_image(receipt.delivered_identity, live.identity)
