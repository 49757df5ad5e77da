"""Delivery into a derived image: the plan as one layer, its labels, and the receipt that lies inside."""

from __future__ import annotations

import json
import posixpath

from patchkit.images import paths
from patchkit.images.model import Change, Derivation, Filesystem
from patchkit.plan import Plan, PlannedFile
from patchkit.site.model import Site
from patchkit.site.pycache import source_of

LABEL = "dev.patchkit."
LABEL_RECEIPT = LABEL + "receipt"
LABEL_FINGERPRINT = LABEL + "fingerprint"
LABEL_ORIGIN_KIND = LABEL + "origin.kind"
LABEL_ORIGIN_NAME = LABEL + "origin.name"
LABEL_ORIGIN_DIGEST = LABEL + "origin.digest"

#: The receipt's name inside the package's dist-info folder.
LAYER_RECEIPT = "patchkit.json"


def derivation_of(plan: Plan, fs: Filesystem, *, entrypoint: tuple[str, ...] | None = None) -> Derivation:
    """What the layer of this plan holds: the same bytes whatever place the image lies in.

    ``fs`` is the origin's file system. Patched files keep mode, owner and extended attributes; new ones take their
    folder's owner. Compiled files of patched modules are removed, since Python would run one whose recorded size and
    mtime fit (or whose check is off) instead of the source.
    """
    changes = [_change(file, fs) for file in plan.changed]
    changed = {file.image_path for file in plan.changed}
    changes += [Change(pyc, None) for pyc in sorted(plan.site.pycs) if source_of(pyc) in changed]
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


def layer_receipt_path(site: Site) -> str:
    """Where the receipt lies in the image; empty for a copy without dist-info (its labels tell it all)."""
    return posixpath.join(site.dist_info, LAYER_RECEIPT) if site.dist_info else ""


def layer_receipt(plan: Plan) -> bytes:
    """The receipt inside the layer: only what is the same in every transport."""
    content = {
        "schema": "patchkit.layer",
        "version": 1,
        "package": plan.match.manifest.package,
        "patches": [{"id": patch.entry.id, "sha256": patch.sha256} for patch in plan.patches],
        "files": [{"path": file.path, "pre": file.pre, "post": file.post} for file in plan.files],
        "fingerprint": plan.fingerprint,
    }
    return (json.dumps(content, indent=2, sort_keys=True) + "\n").encode()


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
