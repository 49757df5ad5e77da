"""Delivering: a plan becomes a derived image or mounts, is proven, and gets its receipt and overlay."""

from __future__ import annotations

import json
import os
import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from patchkit.api.look import Options, look, opened, refuse_unless_deliverable
from patchkit.api.overlays import OverlayParts, overlay_parts, overlay_text, selinux_label
from patchkit.catalog.load import load_catalog
from patchkit.catalog.model import Assert, Catalog
from patchkit.deliver import bind, output
from patchkit.deliver import image as image_delivery
from patchkit.deliver.guard import Guard, GuardedFile, make_guard
from patchkit.deliver.receipt import DeliveryKind, Receipt, files_of, receipt_of, to_bytes
from patchkit.errors import BadInput, Refused
from patchkit.findings import Finding
from patchkit.images import TRANSPORTS, derive_index, open_all, open_image, parse_reference
from patchkit.images.model import Change, Derivation, Derived, Image, Mount, Reference
from patchkit.images.platforms import host_platform
from patchkit.lifecycle import lock
from patchkit.plan import Plan
from patchkit.proof.gpus import gpu_findings
from patchkit.proof.model import Proof
from patchkit.proof.prove import prove
from patchkit.stack.overlay import Start

Mode = Literal["image", "bind"]
Step = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Delivery:
    """How to deliver.

    ``tag`` names the derived image, ``output`` is the folder for overlay, receipt and mounted files, ``services`` the
    compose services of the overlay (empty: the manifest's). ``guard`` puts the boot guard in front of the server,
    ``own_caches`` gives the patched code cache folders of its own in the overlay, ``locked`` refuses what the catalog's
    lock does not hold. ``devices`` and ``gpus`` pass hardware to the proof.
    """

    mode: Mode = "image"
    tag: str | None = None
    output: Path = Path(".patchkit")
    services: tuple[str, ...] = ()
    force: bool = False
    in_place: bool = False
    guard: bool = False
    locked: bool = False
    own_caches: bool = True
    devices: tuple[str, ...] = ()
    gpus: str | None = None


@dataclass(frozen=True, slots=True)
class Below:
    """What the compose files below the overlay say: the ``settings`` of its services' environment, whether one of them
    has a ``command`` of its own, whether one ``builds`` its image."""

    settings: Mapping[str, str] = field(default_factory=dict)
    command: bool = False
    builds: bool = False


@dataclass(frozen=True, slots=True)
class Done:
    """One platform of a finished delivery. ``road`` tells how its image was written, and why so."""

    plan: Plan
    receipt: Receipt
    proof: Proof
    road: str = ""


@dataclass(frozen=True, slots=True)
class Applied:
    """A finished delivery.

    ``delivered`` is how to call the image that runs the patched files, ``existed`` whether it was there already.
    ``platforms`` holds one item for each patched platform, this machine's own first; ``findings`` tell of platforms and
    attestations that were left out. ``services`` are the compose services of the overlay, ``parts`` is what it gives
    them (None for a running container).
    """

    delivered: Reference
    existed: bool
    platforms: tuple[Done, ...]
    receipt_path: Path
    overlay_path: Path | None
    findings: tuple[Finding, ...] = ()
    parts: OverlayParts | None = None
    services: tuple[str, ...] = ()


def silent(step: str) -> None:
    """Steps are told to nobody."""


def apply(
    reference: str,
    options: Options = Options(),
    delivery: Delivery = Delivery(),
    *,
    below: Below = Below(),
    step: Step = silent,
) -> Applied:
    """Patch an image, prove it, and write overlay and receipt.

    An image of several platforms is patched on each that holds the package; mounts are for one.

    Raises:
        patchkit.errors.Refused: ``does-not-apply`` with a line for each file patch that cannot be delivered; and what
            the deliveries raise. Nothing was written then. ``tag-moved``, somebody else wrote the derived image's name
            before this run was done: there is neither receipt nor overlay of this one.
    """
    catalog = load_catalog(options.catalog)
    step(f"reading {reference}")
    if delivery.mode == "bind":
        with opened(reference, options) as image:
            origin = image.origin()
            refuse_remote(origin)
            plan = look(origin, options, catalog)
            refuse_unless_deliverable(plan, options)
            hold_to_lock(plan, catalog, delivery)
            with output.locked(delivery.output):
                return _apply_by_mounts(origin, plan, options, delivery, below, step)
    with ExitStack() as stack:
        images = open_all(parse_reference(reference), platform=options.platform, access=options.access)
        for image in images:
            stack.enter_context(image)
        looked, findings = _look_at_all(images, options, catalog)
        for one in looked:
            if one.plan:
                hold_to_lock(one.plan, catalog, delivery)
        with output.locked(delivery.output):
            return _apply_by_images(looked, findings, options, delivery, below, step)


def hold_to_lock(plan: Plan, catalog: Catalog, delivery: Delivery) -> None:
    """Raise ``not-locked`` or ``lock-differs`` where the delivery must be one that the lock holds and is not."""
    if lock.wanted(catalog.root, delivery.locked, os.environ):
        lock.require(lock.load(catalog.root), plan)


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
                refuse_unless_deliverable(plan, options)
        except Refused as error:
            if len(images) == 1 or error.code not in ("package-absent", "does-not-apply"):
                raise
            first = first or error
            looked.append(_Looked(image, origin, None))
            findings.append(Finding("platform-left", "note", f"left as it is: {error.what}", image.identity.platform))
            continue
        refuse_unless_deliverable(plan, options)
        looked.append(_Looked(image, origin, plan))
    if first is not None and all(one.plan is None for one in looked):
        raise first
    return looked, findings


def _apply_by_images(
    looked: Sequence[_Looked],
    findings: list[Finding],
    options: Options,
    delivery: Delivery,
    below: Below,
    step: Step,
) -> Applied:
    image = looked[0].image
    if not delivery.guard and not any(one.plan and one.plan.changed for one in looked):
        # All of it is in the image already: a derived image would add nothing, and its proof is this one's.
        done = [
            _done("none", one.plan, _prove(one.image, one.plan, options, delivery, ()), one.image, options)
            for one in looked
            if one.plan
        ]
        return _finish(image.reference, True, done, findings, delivery, below)
    target = _target(image, delivery)
    step(f"writing {target}")
    derived = derive_index(
        [one.image for one in looked],
        [_derivation(one.plan, one.origin, options, delivery) if one.plan else None for one in looked],
        target,
        force=delivery.force,
        in_place=delivery.in_place,
    )
    findings += [each for one in looked if one.plan for each in image_delivery.volume_findings(one.plan, one.origin)]
    for digest in derived.dropped:
        findings.append(Finding("attestation-dropped", "note", "it was true of the unpatched image only", where=digest))
    done = []
    for one, result in zip(looked, derived.images, strict=True):
        if one.plan is None or result is None:
            continue
        step(f"proving {result.reference} ({result.identity.platform})")
        with _named(result, options) as patched:
            proof = _prove(patched, one.plan, options, delivery, ())
            done.append(_done("image", one.plan, proof, patched, options, road=result.road))
    for result in derived.images:
        if result is not None:  # a run from another output folder may have written the name during the proof
            with _named(result, options):
                pass
    existed = all(result is None or result.existed for result in derived.images)
    return _finish(derived.reference, existed, done, findings, delivery, below)


@contextmanager
def _named(result: Derived, options: Options) -> Iterator[Image]:
    """The image that was just written, opened by its name.

    Raises:
        patchkit.errors.Refused: ``tag-moved``, the name stands for another one by now.
    """
    with open_image(result.reference, platform=result.identity.platform, access=options.access) as patched:
        if patched.identity.config != result.identity.config:
            raise Refused(
                "tag-moved",
                "somebody else wrote this name while the proof was under way",
                where=str(result.reference),
                remedy="run again, or give another name with --tag",
            )
        yield patched


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
        gpus=plan.match.manifest.gpus,
        refused_env=plan.match.manifest.refused_env,
    )


def _apply_by_mounts(
    origin: Image, plan: Plan, options: Options, delivery: Delivery, below: Below, step: Step
) -> Applied:
    step(f"writing patched files to {delivery.output}")
    mounts = bind.write_mounts(plan, delivery.output)
    start = None
    if delivery.guard:
        guard = _guard(plan, origin, options, f"patchkit apply --image {plan.reference} --mode bind --guard")
        program = output.store_file(delivery.output, posixpath.basename(guard.path), guard.program)
        mounts = (*mounts, Mount(str(program), guard.path))
        # A command that the service has is left where it is, and so is one that it alone can have: where the image has
        # none, an empty one here would wipe the service's away.
        start = Start(guard.entrypoint, None if below.command else guard.command or None)
    step("proving the mounts")
    proof = _prove(origin, plan, options, delivery, mounts)
    done = _done("bind" if mounts else "none", plan, proof, origin, options, mounts=mounts)
    return _finish(origin.reference, False, [done], [], delivery, below, start=start, selinux=selinux_label(origin))


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


def _target(image: Image, delivery: Delivery) -> Reference:
    tag = delivery.tag
    if tag is None:
        return image.reference if delivery.in_place else image.default_target()
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
        asserts_of(plan),
        mounts=mounts,
        run=options.run,
        devices=delivery.devices,
        gpus=delivery.gpus,
    )


def asserts_of(plan: Plan) -> tuple[Assert, ...]:
    return tuple(check for patch in plan.patches for check in patch.entry.asserts)


def _finish(
    delivered: Reference,
    existed: bool,
    done: Sequence[Done],
    findings: Sequence[Finding],
    delivery: Delivery,
    below: Below,
    *,
    start: Start | None = None,
    selinux: str = "",
) -> Applied:
    """Write receipts and overlay: the last step, so that what lies there is always of a finished delivery."""
    host = host_platform()
    ordered = sorted(done, key=lambda one: one.plan.identity.platform != host)
    first = ordered[0]
    folder = delivery.output.absolute()
    service = first.plan.match.manifest.service
    services = delivery.services or ((service,) if service else ())
    environment = {**first.plan.site.launch.env, **below.settings} if delivery.own_caches else None
    receipt_path = folder / output.RECEIPT_NAME
    parts = overlay_parts(first.receipt, receipt_path, environment=environment, selinux=selinux, start=start)
    parts = replace(parts, image=replace(parts.image, instead_of_build=below.builds))
    overlay = overlay_text(services, parts).encode() if services else None
    others = {one.plan.identity.platform: to_bytes(one.receipt) for one in ordered[1:]}
    output.write_delivery(folder, to_bytes(first.receipt), others, overlay)
    told = [*findings]
    if delivery.devices or delivery.gpus:
        for one in ordered:
            told += gpu_findings(one.plan.match.manifest.gpus, one.proof.gpus, one.receipt.delivered)
    return Applied(
        delivered,
        existed,
        tuple(ordered),
        receipt_path,
        folder / output.OVERLAY_NAME if services else None,
        tuple(told),
        parts,
        tuple(services),
    )
