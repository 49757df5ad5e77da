"""The way of the data: catalog and image, match, facts, plan, delivery, proof, receipt.

    import patchkit

    plan = patchkit.api.status("vllm-xpu:nightly")
    done = patchkit.api.apply("vllm-xpu:nightly", delivery=patchkit.api.Delivery(mode="image"))

Everything that the command line does goes through these functions. They raise ``patchkit.errors`` and never print.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from patchkit.catalog.load import load_catalog
from patchkit.catalog.match import match
from patchkit.catalog.model import Assert, Catalog
from patchkit.deliver import bind, output
from patchkit.deliver import image as image_delivery
from patchkit.deliver.container import LiveContainer, mount_findings, put_plan
from patchkit.deliver.guard import Guard, GuardedFile, make_guard
from patchkit.deliver.receipt import DeliveryKind, Receipt, files_of, receipt_of, to_bytes
from patchkit.deliver.receipt import load as load_receipt
from patchkit.errors import BadInput, PatchkitError, Refused, Unreachable
from patchkit.findings import Finding
from patchkit.images import TRANSPORTS, derive_index, open_all, open_image, parse_reference
from patchkit.images.containers import Container
from patchkit.images.daemon import DaemonImage
from patchkit.images.engine import Engine, engine
from patchkit.images.model import Change, Derivation, Identity, Image, Mount, Reference, Subject
from patchkit.images.platforms import host_platform
from patchkit.plan import Plan, Row, load_series, make_plan
from patchkit.proof.model import Proof
from patchkit.proof.processes import process_findings
from patchkit.proof.prove import prove
from patchkit.site.facts import site_facts
from patchkit.site.launch import launch_of, require_known
from patchkit.site.model import Copy, Launch, Site
from patchkit.stack.overlay import OverlayMount, PinnedImage, Start, overlay

Mode = Literal["image", "bind"]
Step = Callable[[str], None]


def _silent(step: str) -> None:
    """Steps are told to nobody."""


@dataclass(frozen=True, slots=True)
class Options:
    """What to look at and how.

    ``catalog`` is a folder (None: ``PATCHKIT_CATALOG``, else the built-in one), ``manifest`` a name that decides
    whatever the image is called, ``only`` patch ids to narrow the series to, ``copy`` the root of another copy of the
    package than the one that serves, ``launch`` a command line that stands for the image's own start, ``platform``
    ``os/arch`` for an image of several, ``run`` whether programs of the image may be executed, ``everything`` whether
    the whole image is walked for copies.
    """

    catalog: Path | None = None
    manifest: str | None = None
    only: tuple[str, ...] = ()
    copy: str = ""
    launch: str | None = None
    platform: str | None = None
    run: bool = True
    everything: bool = False


@dataclass(frozen=True, slots=True)
class Delivery:
    """How to deliver. ``tag`` names the derived image, ``output`` is the folder for overlay, receipt and mounted files,
    ``services`` the compose services of the overlay (empty: the manifest's). ``guard`` puts the boot guard in front of
    the server. ``devices`` and ``gpus`` pass hardware through to the proof."""

    mode: Mode = "image"
    tag: str | None = None
    output: Path = Path(".patchkit")
    services: tuple[str, ...] = ()
    force: bool = False
    in_place: bool = False
    guard: bool = False
    devices: tuple[str, ...] = ()
    gpus: str | None = None


@dataclass(frozen=True, slots=True)
class Done:
    """One platform of a finished delivery. ``road`` tells how its image was written, and why so."""

    plan: Plan
    receipt: Receipt
    proof: Proof
    road: str = ""


@dataclass(frozen=True, slots=True)
class Applied:
    """A finished delivery. ``delivered`` is how to call the image that runs the patched files, ``existed`` whether it
    was there already. ``platforms`` holds one item for each patched platform, this machine's own first; ``findings``
    tell of platforms and attestations that were left out."""

    delivered: Reference
    existed: bool
    platforms: tuple[Done, ...]
    receipt_path: Path
    overlay_path: Path | None
    findings: tuple[Finding, ...] = ()


@contextmanager
def opened(reference: str, options: Options = Options()) -> Iterator[Image]:
    """The image that the person named, opened for reading."""
    with open_image(parse_reference(reference), platform=options.platform) as image:
        yield image


def look(image: Subject, options: Options = Options(), catalog: Catalog | None = None) -> Plan:
    """The plan for this image as it is: match, facts, plan. Nothing is written. ``catalog`` is the one that the options
    name, where the caller has loaded it already.

    Raises:
        patchkit.errors.Refused: ``no-manifest``, ``package-absent``, ``copy-unknown``, ``launch-unknown``.
        patchkit.errors.BadInput: the catalog or a name is wrong.
        patchkit.errors.Unreachable: the image cannot be read.
    """
    catalog = catalog or load_catalog(options.catalog)
    found = match(catalog, image.identity.digests, image.reference, options.manifest)
    series = load_series(catalog, found.manifest, options.only)
    launch = launch_for(image, options)
    site = facts(image, launch, found.manifest.package, series.paths, found.manifest.decoys, options)
    return make_plan(
        image.reference, image.identity, found, series, site, _copy(site, found.manifest.package, options.copy)
    )


def launch_for(image: Subject, options: Options = Options()) -> Launch:
    """The launch that serves: the image's own, or the one that the person gave."""
    return require_known(launch_of(json.loads(image.config), image.fs, options.launch))


def facts(
    image: Subject, launch: Launch, package: str, files: Sequence[str], decoys: Sequence[str], options: Options
) -> Site:
    """The facts about a package in this image; see ``patchkit.site.facts.site_facts``."""
    return site_facts(
        image,
        launch,
        package,
        files,
        decoys=decoys,
        everything=options.everything,
        run=options.run,
        copy=options.copy,
    )


def status(reference: str, options: Options = Options()) -> Plan:
    """What the patches would do to this image, or have done to it."""
    catalog = load_catalog(options.catalog)
    with opened(reference, options) as image:
        return look(image, options, catalog)


def container_status(name: str, options: Options = Options()) -> Plan:
    """What the patches would do to the files of this running container, or have done to them."""
    catalog = load_catalog(options.catalog)
    with _live(name) as live:
        return look(live, options, catalog)


def apply(
    reference: str, options: Options = Options(), delivery: Delivery = Delivery(), *, step: Step = _silent
) -> Applied:
    """Patch an image, prove it, and write overlay and receipt.

    An image of several platforms is patched on each that holds the package; mounts are for one.

    Raises:
        patchkit.errors.Refused: ``does-not-apply`` with a line for each file patch that cannot be delivered; and what
            the deliveries raise. Nothing was written then.
    """
    catalog = load_catalog(options.catalog)
    step(f"reading {reference}")
    if delivery.mode == "bind":
        with opened(reference, options) as image:
            origin = image.origin()
            refuse_remote(origin)
            plan = look(origin, options, catalog)
            refuse_unless_deliverable(plan)
            with output.locked(delivery.output):
                return _apply_by_mounts(origin, plan, options, delivery, step)
    with ExitStack() as stack:
        images = open_all(parse_reference(reference), platform=options.platform)
        for image in images:
            stack.enter_context(image)
        looked, findings = _look_at_all(images, options, catalog)
        with output.locked(delivery.output):
            return _apply_by_images(looked, findings, options, delivery, step)


@dataclass(frozen=True, slots=True)
class _Looked:
    """One platform: the image as named, its origin, and the plan for the origin (None: the package is not there)."""

    image: Image
    origin: Image
    plan: Plan | None


def _look_at_all(images: Sequence[Image], options: Options, catalog: Catalog) -> tuple[list[_Looked], list[Finding]]:
    """A plan for each platform that holds what is to be patched; every plan must be deliverable."""
    looked: list[_Looked] = []
    findings: list[Finding] = []
    first: Refused | None = None
    for image in images:
        origin = image.origin()
        try:
            plan = look(origin, options, catalog)
            if len(images) > 1 and all(row.state in ("target-missing", "not-applicable") for row in plan.rows):
                refuse_unless_deliverable(plan)
        except Refused as error:
            if len(images) == 1 or error.code not in ("package-absent", "does-not-apply"):
                raise
            first = first or error
            looked.append(_Looked(image, origin, None))
            findings.append(Finding("platform-left", "note", f"left as it is: {error.what}", image.identity.platform))
            continue
        refuse_unless_deliverable(plan)
        looked.append(_Looked(image, origin, plan))
    if first is not None and all(one.plan is None for one in looked):
        raise first
    return looked, findings


def refuse_unless_deliverable(plan: Plan) -> None:
    """Raise ``does-not-apply`` where a row or a finding stops the delivery."""
    stops = [_line(row) for row in plan.refused]
    stops += [f"{finding.where}: {finding.what}" for finding in plan.findings if finding.severity == "error"]
    if not plan.rows:
        stops.append(f"manifest {plan.match.manifest.name} has no patches")
    if stops:
        raise Refused(
            "does-not-apply",
            f"{len(stops)} of {max(len(plan.rows), len(stops))} cannot be delivered; nothing was written",
            where=str(plan.reference),
            remedy=_remedy(plan),
            details=stops,
        )


def _remedy(plan: Plan) -> str:
    good = list(dict.fromkeys(row.patch for row in plan.rows))
    bad = {row.patch for row in plan.refused}
    rest = [patch for patch in good if patch not in bad]
    look_closer = f"see each hunk: patchkit status --image {plan.reference}"
    return f"{look_closer}; leave it out: --only {' --only '.join(rest)}" if rest and bad else look_closer


def _line(row: Row) -> str:
    return f"{row.patch}: {row.path}: {row.told_state}: {row.detail}"


def _copy(site: Site, package: str, wanted: str) -> Copy:
    if wanted:
        return next(copy for copy in site.copies if wanted.rstrip("/") in (copy.root, copy.base))
    if site.winner is None:
        raise Refused(
            "package-absent",
            f"{site.launch.source or 'the launch'} imports no copy of {package}",
            where=site.launch.interpreter,
            remedy="name another start with --launch, or a copy with --copy PATH",
            details=[f"there is one at {copy.root}, which it does not import" for copy in site.copies],
        )
    return site.winner


def _apply_by_images(
    looked: Sequence[_Looked], findings: list[Finding], options: Options, delivery: Delivery, step: Step
) -> Applied:
    image = looked[0].image
    if not delivery.guard and not any(one.plan and one.plan.changed for one in looked):
        # All of it is in the image already: a derived image would add nothing, and its proof is this one's.
        done = [
            _done("none", one.plan, _prove(one.image, one.plan, options, delivery, ()), one.image, options)
            for one in looked
            if one.plan
        ]
        return _finish(image.reference, True, done, findings, delivery)
    target = _target(image, delivery.tag)
    step(f"writing {target}")
    derived = derive_index(
        [one.image for one in looked],
        [_derivation(one.plan, one.origin, options, delivery) if one.plan else None for one in looked],
        target,
        force=delivery.force,
        in_place=delivery.in_place,
    )
    for digest in derived.dropped:
        findings.append(Finding("attestation-dropped", "note", "it was true of the unpatched image only", where=digest))
    done = []
    for one, result in zip(looked, derived.images, strict=True):
        if one.plan is None or result is None:
            continue
        step(f"proving {result.reference} ({result.identity.platform})")
        with open_image(result.reference, platform=result.identity.platform) as patched:
            if patched.identity.config != result.identity.config:
                raise Refused(
                    "tag-moved",
                    "somebody else wrote this name while the proof was under way",
                    where=str(result.reference),
                    remedy="run again, or give another name with --tag",
                )
            proof = _prove(patched, one.plan, options, delivery, ())
            done.append(_done("image", one.plan, proof, patched, options, road=result.road))
    existed = all(result is None or result.existed for result in derived.images)
    return _finish(derived.reference, existed, done, findings, delivery)


def _derivation(plan: Plan, origin: Image, options: Options, delivery: Delivery) -> Derivation:
    derivation = image_delivery.derivation_of(plan, origin.fs)
    if not delivery.guard:
        return derivation
    guard = _guard(plan, origin, options, "the image's label dev.patchkit.origin.name names what to patch again")
    program = Change(guard.path, guard.program, 0o755)
    changes = tuple(sorted((*derivation.changes, program), key=lambda change: change.path))
    return replace(derivation, changes=changes, entrypoint=guard.entrypoint)


def _guard(plan: Plan, origin: Image, options: Options, remedy: str) -> Guard:
    files = [
        GuardedFile(
            path=file.image_path,
            relative=file.path,
            module=file.module,
            post=file.post.removeprefix("sha256:"),
            shipped=fact.shipped if (fact := plan.site.files.get(file.path)) else "",
        )
        for file in plan.files
    ]
    return make_guard(
        json.loads(origin.config),
        origin.fs,
        files,
        record=plan.copy.record,
        remedy=remedy,
        launch=options.launch,
    )


def _apply_by_mounts(origin: Image, plan: Plan, options: Options, delivery: Delivery, step: Step) -> Applied:
    step(f"writing patched files to {delivery.output}")
    mounts = bind.write_mounts(plan, delivery.output)
    start = None
    if delivery.guard:
        guard = _guard(plan, origin, options, f"patchkit apply --image {plan.reference} --mode bind --guard")
        program = output.store_file(delivery.output, posixpath.basename(guard.path), guard.program)
        mounts = (*mounts, Mount(str(program), guard.path))
        start = Start(guard.entrypoint, guard.command)
    step("proving the mounts")
    proof = _prove(origin, plan, options, delivery, mounts)
    done = _done("bind" if mounts else "none", plan, proof, origin, options, mounts=mounts)
    return _finish(origin.reference, False, [done], [], delivery, start)


def _done(
    kind: DeliveryKind,
    plan: Plan,
    proof: Proof,
    delivered: Image,
    options: Options,
    *,
    road: str = "",
    mounts: tuple[Mount, ...] = (),
) -> Done:
    receipt = receipt_of(
        plan,
        kind,
        proof,
        delivered=str(delivered.reference),
        identity=delivered.identity,
        mounts=mounts,
        launch_given=options.launch or "",
    )
    return Done(plan, receipt, proof, road)


def refuse_remote(image: Image) -> None:
    """Raise ``remote-engine`` where mounts would show another machine's files."""
    engine = getattr(image, "engine", None)
    if engine is not None and engine.is_remote:
        raise Refused(
            "remote-engine",
            "the engine runs on another machine: a mount would show its files, not these",
            where=engine.host,
            remedy="deliver a derived image: --mode image",
        )


def _target(image: Image, tag: str | None) -> Reference:
    if tag is None:
        return image.default_target()
    transport, colon, _ = tag.partition(":")
    if colon and transport in TRANSPORTS:
        target = parse_reference(tag)
        if target.transport != image.reference.transport:
            raise BadInput(
                "other-transport",
                f"the derived image is written where its origin lies, not to {target.transport}:",
                where=tag,
                remedy="give a tag alone, or copy the image first (skopeo copy)",
            )
        return target
    return image.named(tag)


def _prove(image: Image, plan: Plan, options: Options, delivery: Delivery, mounts: Sequence[Mount]) -> Proof:
    return prove(
        image,
        plan.site.launch,
        plan.match.manifest.package,
        [file.expectation() for file in files_of(plan, owned=not mounts)],
        _asserts(plan),
        mounts=mounts,
        run=options.run,
        devices=delivery.devices,
        gpus=delivery.gpus,
    )


def _asserts(plan: Plan) -> tuple[Assert, ...]:
    return tuple(check for patch in plan.patches for check in patch.entry.asserts)


def _finish(
    delivered: Reference,
    existed: bool,
    done: Sequence[Done],
    findings: Sequence[Finding],
    delivery: Delivery,
    start: Start | None = None,
) -> Applied:
    """Write receipt and overlay: the last step, so that what lies there is always of a finished delivery."""
    host = host_platform()
    ordered = sorted(done, key=lambda one: one.plan.identity.platform != host)
    first = ordered[0]
    receipt_path = delivery.output.absolute() / output.RECEIPT_NAME
    overlay_path = delivery.output.absolute() / output.OVERLAY_NAME
    service = first.plan.match.manifest.service
    services = delivery.services or ((service,) if service else ())
    text = overlay_text(first.receipt, services, receipt_path, start) if services else None
    for one in ordered[1:]:
        name = f"receipt.{one.plan.identity.platform.replace('/', '-')}.json"
        output.write_file(receipt_path.with_name(name), to_bytes(one.receipt))
    output.write_file(receipt_path, to_bytes(first.receipt))
    if text is not None:
        output.write_file(overlay_path, text.encode())
    written = overlay_path if text is not None else None
    return Applied(delivered, existed, tuple(ordered), receipt_path, written, tuple(findings))


def overlay_text(receipt: Receipt, services: Sequence[str], receipt_path: Path, start: Start | None = None) -> str:
    """The compose overlay of a delivery: the image pinned by digest, the mounts, and where its receipt lies. ``start``
    is the guarded start of a delivery by mounts."""
    return overlay(
        services,
        image=pinned(receipt),
        mounts=[OverlayMount(mount.source, mount.target) for mount in receipt.mounts],
        labels={
            image_delivery.LABEL_RECEIPT: str(receipt_path),
            image_delivery.LABEL_FINGERPRINT: receipt.fingerprint,
        },
        start=start,
        header=f"{receipt.delivered}, patched by manifest {receipt.manifest}; written by patchkit, do not edit.",
    )


def pinned(receipt: Receipt) -> PinnedImage:
    """The delivered image by digest: as a registry knows it, else by image ID and never pulled."""
    identity = receipt.delivered_identity
    if identity.repo_digests:
        return PinnedImage(identity.repo_digests[0], local=False)
    transport, _, name = receipt.delivered.partition(":")
    if transport == "docker" and (identity.index or identity.manifest):
        return PinnedImage(f"{_repository(name)}@{identity.index or identity.manifest}", local=False)
    return PinnedImage(identity.config, local=True)


def _repository(name: str) -> str:
    """``//host/repo:tag`` -> ``host/repo``."""
    name = name.removeprefix("//").partition("@")[0]
    head, slash, last = name.rpartition("/")
    return f"{head}{slash}{last.partition(':')[0]}"


@dataclass(frozen=True, slots=True)
class Verified:
    """What a proof was made of: the image (or container), what it must hold, and how it came out."""

    reference: Reference
    receipt: Receipt
    proof: Proof
    findings: tuple[Finding, ...] = ()


def verify(
    reference: str | None,
    options: Options = Options(),
    *,
    receipt_path: Path | None = None,
    output_folder: Path = Path(".patchkit"),
    devices: Sequence[str] = (),
    gpus: str | None = None,
) -> Verified:
    """Prove, level by level, what a receipt says: the one in the image, or a receipt file.

    Args:
        reference: the image; None takes the one that the receipt file names.
        receipt_path: a receipt file. Without it the receipt is the image's own, or for mounts the one in
            ``output_folder`` when it is of this image.

    Raises:
        patchkit.errors.Refused: ``no-receipt``, nothing tells what should run in this image.
    """
    receipt = load_receipt(receipt_path) if receipt_path is not None else None
    if reference is None:
        if receipt is None:
            raise BadInput("no-image", "verify needs an image or a receipt", remedy="give --image or --receipt")
        reference = receipt.delivered
    with opened(reference, options) as image:
        if receipt is None:
            receipt = image_delivery.receipt_in(image) or _mount_receipt(image, output_folder)
        return _verify_image(image, options, receipt, devices, gpus)


def _verify_image(
    image: Image,
    options: Options,
    receipt: Receipt | None = None,
    devices: Sequence[str] = (),
    gpus: str | None = None,
) -> Verified:
    """Prove an image by a receipt, its own where none is given."""
    if receipt is None:
        receipt = image_delivery.receipt_in(image)
        if receipt is None:
            raise Refused(
                "no-receipt",
                "the image carries no receipt, so nothing tells what should run in it",
                where=str(image.reference),
                remedy=f"deliver first: patchkit apply --image {image.reference}",
            )
    if not _same_image(receipt.delivered_identity, image.identity):
        raise Refused(
            "other-image",
            f"the receipt is of {receipt.delivered_identity.config}, this image is {image.identity.config}",
            where=str(image.reference),
            remedy=f"deliver again: patchkit apply --image {receipt.origin}",
        )
    given = replace(options, launch=options.launch or receipt.launch_given or None)
    missing = [mount for mount in receipt.mounts if not Path(mount.source).is_file()]
    if missing:
        raise Refused(
            "mount-source-missing",
            "a patched file of the receipt is gone: an engine would mount an empty folder in its place",
            where=missing[0].source,
            remedy=f"write it again: patchkit apply --image {receipt.origin} --mode bind",
        )
    asserts, findings = _receipt_asserts(receipt, given)
    proof = prove(
        image,
        launch_for(image, given),
        receipt.package,
        [file.expectation() for file in receipt.files],
        asserts,
        mounts=receipt.mounts,
        run=options.run,
        devices=devices,
        gpus=gpus,
    )
    return Verified(image.reference, receipt, proof, tuple(findings))


def apply_to_container(
    name: str,
    options: Options = Options(),
    delivery: Delivery = Delivery(),
    *,
    restart: bool = False,
    step: Step = _silent,
) -> Applied:
    """Patch the files of a running container, prove it, and write the receipt.

    Modules that its processes imported already stay as they were: ``process-older`` findings say so, and only a
    ``restart`` helps. Recreating the container drops the patch.

    Raises:
        patchkit.errors.Refused: ``does-not-apply``, ``on-a-mount``, ``cannot-write``, ``read-back``.
        patchkit.errors.Unreachable: ``no-such-container``, ``not-running``.
    """
    catalog = load_catalog(options.catalog)
    step(f"reading container {name}")
    with _live(name) as live:
        _refuse_stopped(live)
        plan = look(live, options, catalog)
        refuse_unless_deliverable(plan)
        with output.locked(delivery.output):
            if plan.changed:
                step(f"writing {len(plan.changed)} files")
                put_plan(live.container, plan)
            if restart:
                step("restarting")
                live.container.restart()
            step("proving")
            files = files_of(plan, owned=True)
            expectations = [file.expectation() for file in files]
            proof = prove(live, plan.site.launch, plan.match.manifest.package, expectations, _asserts(plan))
            findings = process_findings(live, plan.site.launch, expectations, name)
            receipt = receipt_of(
                plan,
                "container",
                proof,
                delivered=f"container:{live.container.id}",
                identity=live.identity,
                launch_given=options.launch or "",
            )
            receipt_path = delivery.output.absolute() / output.RECEIPT_NAME
            output.write_file(receipt_path, to_bytes(receipt))
            done = Done(plan, receipt, proof, "written by the container's own interpreter")
            return Applied(live.reference, not plan.changed, (done,), receipt_path, None, findings)


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
    with _live(name, host) as live:
        _refuse_stopped(live)
        receipt = load_receipt(receipt_path) if receipt_path else _container_receipt(live, output_folder)
        given = replace(options, launch=options.launch or receipt.launch_given or None)
        launch = launch_for(live, given)
        asserts, findings = _receipt_asserts(receipt, given)
        expectations = [file.expectation() for file in receipt.files]
        proof = prove(live, launch, receipt.package, expectations, asserts, run=options.run)
        findings += mount_findings(live.container, receipt)
        if options.run:
            findings += process_findings(live, launch, expectations, name)
        return Verified(live.reference, receipt, proof, tuple(findings))


@dataclass(frozen=True, slots=True)
class HostAnswer:
    """What one engine answered: a proof, or why there is none."""

    host: str
    done: Verified | None
    error: PatchkitError | None = None


def verify_hosts(
    hosts: Sequence[str], *, image: str | None = None, container: str | None = None, options: Options = Options()
) -> tuple[HostAnswer, ...]:
    """The same proof on many engines at once, in the order of ``hosts``: of a container, or of an image's own receipt.
    A host is an address as ``DOCKER_HOST`` spells it, or the name of a docker context."""

    def one(host: str) -> HostAnswer:
        try:
            if container is not None:
                return HostAnswer(host, verify_container(container, options, host=host))
            if image is None:
                raise BadInput("no-image", "verify needs an image or a container", remedy="give --image or --container")
            with DaemonImage(connect(host), parse_reference(image)) as found:
                return HostAnswer(host, _verify_image(found, options))
        except PatchkitError as error:
            return HostAnswer(host, None, error)

    with ThreadPoolExecutor(max(1, min(len(hosts), 16))) as pool:
        return tuple(pool.map(one, hosts))


def differences(answers: Sequence[HostAnswer]) -> list[Finding]:
    """An error where the engines do not all run the same patched code."""
    prints = {answer.host: answer.done.receipt.fingerprint for answer in answers if answer.done}
    if len(set(prints.values())) < 2:
        return []
    evidence = ", ".join(f"{host}: {fingerprint[:16]}" for host, fingerprint in prints.items())
    remedy = "patch them from one catalog: patchkit apply on each"
    return [Finding("nodes-differ", "error", "not all hosts run the same patched code", "", evidence, remedy)]


def connect(host: str | None) -> Engine:
    """The engine at an address (``ssh://...``, ``tcp://...``, ``unix://...``) or of a docker context's name."""
    return engine(context=host) if host and "://" not in host else engine(host)


@contextmanager
def _live(name: str, host: str | None = None) -> Iterator[LiveContainer]:
    connected = connect(host)
    with Container(connected, name) as container, DaemonImage(connected, container.image) as image:
        yield LiveContainer(container, image.identity)


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
    if not own and not (receipt.kind == "bind" and _same_image(receipt.delivered_identity, live.identity)):
        raise Refused(
            "no-receipt",
            f"nothing tells what should run in it; the receipt in {folder} is of {receipt.delivered}",
            where=live.container.name,
            remedy="start it from the patched image or with the overlay, or name its receipt with --receipt",
        )
    return receipt


def _mount_receipt(image: Image, folder: Path) -> Receipt:
    """The receipt of a delivery by mounts of this image, kept in the output folder."""
    receipt = load_receipt(folder / output.RECEIPT_NAME)
    if not _same_image(receipt.delivered_identity, image.identity):
        raise Refused(
            "no-receipt",
            f"the image carries no receipt, and the one in {folder} is of another image: {receipt.delivered}",
            where=str(image.reference),
            remedy=f"deliver first: patchkit apply --image {image.reference}",
        )
    return receipt


def _same_image(one: Identity, other: Identity) -> bool:
    """By layers, since stores differ in what else they call an image by."""
    return one.diff_ids == other.diff_ids and one.platform == other.platform


def _receipt_asserts(receipt: Receipt, options: Options) -> tuple[tuple[Assert, ...], list[Finding]]:
    """The asserts of the patches that the receipt names, from the catalog, for diffs that are still the same."""
    try:
        catalog = load_catalog(options.catalog)
    except BadInput as error:
        return (), [Finding("asserts-unknown", "warning", f"the catalog cannot be read: {error.what}")]
    known = {
        (entry.id, hashlib.sha256(catalog.patch_bytes(entry)).hexdigest()): entry
        for manifest in catalog.manifests
        if manifest.name == receipt.manifest
        for entry in manifest.patches
    }
    asserts: list[Assert] = []
    findings = []
    for patch in receipt.patches:
        entry = known.get((patch.id, patch.sha256))
        if entry is None:
            findings.append(
                Finding(
                    "asserts-unknown",
                    "note",
                    "the catalog does not hold this patch as it was delivered, so its asserts are not run",
                    where=patch.id,
                    remedy="name the catalog that it came from with --catalog",
                )
            )
        else:
            asserts.extend(entry.asserts)
    return tuple(asserts), findings
