"""Delivery into a derived image: the plan as one layer, its labels, and the receipt that lies inside."""

from __future__ import annotations

import dataclasses
import json
import posixpath
import shlex
from collections.abc import Mapping
from typing import Any

from patchkit.deliver.receipt import Receipt, ReceiptFile, built, check_files, files_of, told
from patchkit.errors import Refused
from patchkit.findings import Finding
from patchkit.images import edit, paths
from patchkit.images.model import Change, Derivation, Filesystem, Identity, Subject
from patchkit.plan import Plan, PlannedFile
from patchkit.site.model import Site

LABEL_RECEIPT = edit.RECEIPT
LABEL_FINGERPRINT = edit.FINGERPRINT
LABEL_ORIGIN_KIND = edit.ORIGIN_KIND
LABEL_ORIGIN_NAME = edit.ORIGIN_NAME
LABEL_ORIGIN_DIGEST = edit.ORIGIN_DIGEST

#: The receipt's name inside the package's dist-info folder.
LAYER_RECEIPT = "patchkit.json"
_SCHEMA = "patchkit.layer"


def derivation_of(plan: Plan, fs: Filesystem, *, entrypoint: tuple[str, ...] | None = None) -> Derivation:
    """What the layer of this plan holds: the same bytes whatever place the image lies in.

    ``fs`` is the origin's file system. Patched files keep mode, owner and extended attributes; new ones take their
    folder's owner. Compiled files of patched modules are removed, since Python would run one whose recorded size and
    mtime fit (or whose check is off) instead of the source.
    """
    changes = [_change(file, fs) for file in plan.changed]
    changed = {file.image_path for file in plan.changed}
    changes += [Change(path, None) for path, pyc in sorted(plan.site.pycs.items()) if pyc.source in changed]
    receipt = layer_receipt_path(plan.site)
    if receipt:
        changes.append(Change(receipt, layer_receipt(plan), 0o644, *_owner_of(fs, posixpath.dirname(receipt))))
    labels = {
        LABEL_ORIGIN_KIND: plan.reference.transport,
        LABEL_ORIGIN_NAME: plan.reference.name,
        LABEL_ORIGIN_DIGEST: plan.identity.manifest or plan.identity.config,
        LABEL_FINGERPRINT: plan.fingerprint,
        **({LABEL_RECEIPT: receipt} if receipt else {}),
    }
    return Derivation(
        changes=tuple(sorted(changes, key=lambda change: change.path)),
        labels=labels,
        created_by=f"patchkit apply {plan.match.manifest.name} {plan.fingerprint[:12]}",
        entrypoint=entrypoint,
    )


def volume_findings(plan: Plan, origin: Subject) -> list[Finding]:
    """A warning for each ``VOLUME`` of the image that holds a patched file: engines fill one from the image when it is
    made, and Compose hands the old one on to the container that it recreates (docs.docker.com, reference/dockerfile,
    VOLUME; reference/cli/docker/compose/up, ``--renew-anon-volumes``)."""
    inner = json.loads(origin.config).get("config") or {}
    found = []
    for volume in sorted(inner.get("Volumes") or {}):
        place = paths.realpath(origin.fs, posixpath.normpath(posixpath.join("/", volume)))
        held = [file.image_path for file in plan.changed if f"{file.image_path}/".startswith(f"{place.rstrip('/')}/")]
        if held:
            found.append(
                Finding(
                    "image-volume",
                    "warning",
                    f"the image declares it a volume: a container that Compose recreates keeps its old {held[0]}",
                    where=volume,
                    remedy="docker compose up -d --renew-anon-volumes; then patchkit verify --container NAME",
                )
            )
    return found


def layer_receipt_path(site: Site) -> str:
    """Where the receipt lies in the image; empty for a copy without dist-info (its labels tell it all)."""
    return posixpath.join(site.dist_info, LAYER_RECEIPT) if site.dist_info else ""


def layer_receipt(plan: Plan) -> bytes:
    """The receipt inside the layer: only what is the same in every transport."""
    manifest = plan.match.manifest
    content = {
        "schema": _SCHEMA,
        "version": 1,
        "manifest": manifest.name,
        "package": manifest.package,
        "package_version": plan.site.version,
        "patches": [{"id": patch.entry.id, "sha256": patch.sha256} for patch in plan.patches],
        "files": [_without_place(file) for file in files_of(plan, owned=True)],
        "fingerprint": plan.fingerprint,
        "gpus": dataclasses.asdict(manifest.gpus) if manifest.gpus else None,
        "refused_env": [dataclasses.asdict(each) for each in manifest.refused_env],
    }
    return (json.dumps(content, indent=2, sort_keys=True) + "\n").encode()


def receipt_in(image: Subject, labels: Mapping[str, str] | None = None) -> Receipt | None:
    """The receipt that lies in a derived image, None where the image carries no label of ours.

    Args:
        image: the image, or a container of it.
        labels: the image's labels, where ``image`` is a container, whose config holds others as well.

    Raises:
        patchkit.errors.Refused: ``receipt-unreadable``, the label names a receipt that is not there, is no receipt, or
            does not fit the label's fingerprint.
    """
    if labels is None:
        labels = edit.labels(json.loads(image.config))
    if LABEL_FINGERPRINT not in labels:
        return None
    place = labels.get(LABEL_RECEIPT, "")
    try:
        if not paths.is_plain(place):
            raise ValueError("its place is no plain path")
        data = paths.read(image.fs, place)
        if data is None:
            raise ValueError("it is not there")
        receipt = _from_layer(json.loads(data), image, labels, posixpath.dirname(posixpath.dirname(place)))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise Refused(
            "receipt-unreadable",
            f"the image is labelled as patched, and its receipt cannot be used: {told(error)}",
            where=f"{image.reference} {place}".rstrip(),
            remedy="deliver again from the origin: patchkit apply --image "
            + shlex.quote(labels.get(LABEL_ORIGIN_NAME, "IMAGE")),
        ) from None
    return receipt


def _from_layer(content: Any, image: Subject, labels: Mapping[str, str], base: str) -> Receipt:
    if content["schema"] != _SCHEMA or content["version"] != 1:
        raise ValueError(f"schema {content['schema']!r} version {content['version']!r}")
    files = [{**file, "image_path": posixpath.join(base, str(file["path"]))} for file in content["files"]]
    origin = Identity(labels.get(LABEL_ORIGIN_DIGEST, ""), image.identity.diff_ids[:-1], image.identity.platform)
    receipt: Receipt = built(
        Receipt,
        {
            "kind": "image",
            "origin": f"{labels.get(LABEL_ORIGIN_KIND, '')}:{labels.get(LABEL_ORIGIN_NAME, '')}",
            "origin_identity": _plain(origin),
            "delivered": str(image.reference),
            "delivered_identity": _plain(image.identity),
            "manifest": content["manifest"],
            "package": content["package"],
            "package_version": content["package_version"],
            "copy": posixpath.join(base, str(content["package"])),
            "launch": None,
            "launch_given": "",
            "patches": content["patches"],
            "files": files,
            "fingerprint": content["fingerprint"],
            "gpus": content["gpus"],
            "refused_env": content["refused_env"],
            "mounts": [],
            "levels": [],
        },
    )
    check_files(receipt.files, receipt.fingerprint)
    if receipt.fingerprint != labels[LABEL_FINGERPRINT]:
        raise ValueError("its files do not add up to the fingerprint of the label")
    return receipt


def _plain(identity: Identity) -> Any:
    """As JSON would hold it."""
    return json.loads(json.dumps(dataclasses.asdict(identity)))


def _without_place(file: ReceiptFile) -> dict[str, Any]:
    """The file as the layer's receipt holds it: where the package lies differs from image to image."""
    content = dataclasses.asdict(file)
    del content["image_path"]
    return content


def _change(file: PlannedFile, fs: Filesystem) -> Change:
    if file.data is None:
        return Change(file.image_path, None)
    if file.before is None:
        return Change(file.image_path, file.data, file.mode, *_owner_of(fs, posixpath.dirname(file.image_path)))
    before = file.before
    return Change(file.image_path, file.data, file.mode, before.uid, before.gid, before.mtime, before.xattrs)


def _owner_of(fs: Filesystem, folder: str) -> tuple[int, int]:
    """Owner of the nearest folder that exists: a new file belongs to whoever owns the place."""
    entry = paths.stat(fs, folder)
    while entry is None and folder != "/":
        folder = posixpath.dirname(folder)
        entry = paths.stat(fs, folder)
    return (entry.uid, entry.gid) if entry else (0, 0)
