"""Proving again: what a receipt says of an image."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from patchkit.api.look import Options, launch_for, opened
from patchkit.catalog.load import load_catalog
from patchkit.catalog.model import Assert, Catalog, Gpus, RefusedEnv
from patchkit.catalog.refused import setting_findings
from patchkit.deliver import image as image_delivery
from patchkit.deliver import output
from patchkit.deliver.receipt import Receipt
from patchkit.deliver.receipt import load as load_receipt
from patchkit.errors import BadInput, Refused
from patchkit.findings import Finding
from patchkit.images.model import Identity, Image, Reference
from patchkit.proof.gpus import gpu_findings
from patchkit.proof.model import Proof
from patchkit.proof.prove import prove


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
        return verify_image(image, options, receipt, devices, gpus)


def verify_image(
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
    if not same_image(receipt.delivered_identity, image.identity):
        raise Refused(
            "other-image",
            f"the receipt is of {receipt.delivered_identity.config}, this image is {image.identity.config}",
            where=str(image.reference),
            remedy=f"deliver again: patchkit apply --image {shlex.quote(receipt.origin)}",
        )
    given = replace(options, launch=options.launch or receipt.launch_given or None)
    missing = [mount for mount in receipt.mounts if not Path(mount.source).is_file()]
    if missing:
        raise Refused(
            "mount-source-missing",
            "a patched file of the receipt is gone: an engine would mount an empty folder in its place",
            where=missing[0].source,
            remedy=f"write it again: patchkit apply --image {shlex.quote(receipt.origin)} --mode bind",
        )
    promises = promises_of(receipt, given)
    launch = launch_for(image, given)
    proof = prove(
        image,
        launch,
        receipt.package,
        [file.expectation() for file in receipt.files],
        promises.asserts,
        mounts=receipt.mounts,
        run=options.run,
        devices=devices,
        gpus=gpus,
    )
    findings = [*promises.findings, *setting_findings(promises.refused_env, launch.env, str(image.reference))]
    if devices or gpus:
        findings += gpu_findings(promises.gpus, proof.gpus, str(image.reference))
    return Verified(image.reference, receipt, proof, tuple(findings))


def _mount_receipt(image: Image, folder: Path) -> Receipt:
    """The receipt of a delivery by mounts of this image, kept in the output folder."""
    receipt = load_receipt(folder / output.RECEIPT_NAME)
    if not same_image(receipt.delivered_identity, image.identity):
        patched = same_image(receipt.origin_identity, image.identity)
        raise Refused(
            "no-receipt",
            f"the image carries no receipt, and the one in {folder} is of another image: {receipt.delivered}",
            where=str(image.reference),
            remedy=f"that one was made from it: patchkit verify --image {shlex.quote(receipt.delivered)}"
            if patched and receipt.kind == "image"
            else f"deliver first: patchkit apply --image {image.reference}",
        )
    return receipt


def same_image(one: Identity, other: Identity) -> bool:
    """By layers, since stores differ in what else they call an image by."""
    return one.diff_ids == other.diff_ids and one.platform == other.platform


@dataclass(frozen=True, slots=True)
class Promises:
    """What is to be shown beside a receipt's files: the ``asserts`` of its patches, and where they must not be used."""

    asserts: tuple[Assert, ...]
    gpus: Gpus | None
    refused_env: tuple[RefusedEnv, ...]
    findings: tuple[Finding, ...]


def promises_of(receipt: Receipt, options: Options) -> Promises:
    """The promises of a receipt's patches; see ``promises_in``. A catalog that cannot be read is told."""
    try:
        catalog = load_catalog(options.catalog)
    except BadInput as error:
        unread = Finding("asserts-unknown", "warning", f"the catalog cannot be read: {error.what}")
        return replace(promises_in(None, receipt), findings=(unread,))
    return promises_in(catalog, receipt)


def promises_in(catalog: Catalog | None, receipt: Receipt) -> Promises:
    """The promises of a receipt's patches. Asserts are the catalog's, for diffs that are still the same. GPUs and
    settings are the catalog's too where it holds all of the patches as they were delivered, since it may have learned
    more since; elsewhere they are what the manifest said at the time."""
    if catalog is None:
        return Promises((), receipt.gpus, receipt.refused_env, ())
    manifest = next((each for each in catalog.manifests if each.name == receipt.manifest), None)
    entries = manifest.patches if manifest else ()
    known = {(entry.id, hashlib.sha256(catalog.patch_bytes(entry)).hexdigest()): entry for entry in entries}
    asserts: list[Assert] = []
    findings = []
    for patch in receipt.patches:
        entry = known.get((patch.id, patch.sha256))
        if entry is None:
            findings.append(
                Finding(
                    "asserts-unknown",
                    "note",
                    "the catalog does not hold this patch as it was delivered, so its asserts are not run; "
                    "GPUs and settings are those of the receipt",
                    where=patch.id,
                    remedy="name the catalog that it came from with --catalog",
                )
            )
        else:
            asserts.extend(entry.asserts)
    word = receipt if manifest is None or findings else manifest
    return Promises(tuple(asserts), word.gpus, word.refused_env, tuple(findings))
