"""The catalog's lock: what was looked at, and whether it is still so."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from patchkit.api.look import Options, look, opened, refuse_unless_deliverable
from patchkit.catalog.load import load_catalog
from patchkit.errors import Refused
from patchkit.findings import Finding
from patchkit.lifecycle import lock as locking
from patchkit.lifecycle.files import changing, write_all
from patchkit.lifecycle.lock import Locked
from patchkit.plan import Plan


def lock(
    images: Sequence[str] = (), options: Options = Options(), *, drop: Sequence[str] = ()
) -> tuple[Path, list[Locked]]:
    """Write the images into ``patchkit.lock``, and put it in order. Returns its path and its lines.

    Args:
        images: what to look at; an image whose patches cannot be delivered is not locked.
        drop: config digests of images to forget.

    Raises:
        patchkit.errors.Refused: ``does-not-apply``.
        patchkit.errors.BadInput: ``bad-lock``, ``lock-contradicts``.
    """
    root = load_catalog(options.catalog).root
    path = root / locking.NAME
    seen = [locking.locked(_plan(image, options)) for image in images]
    with changing(root):
        lines = {key: line for key, line in locking.load(root).items() if line.image not in drop}
        lines |= {line.key: line for line in seen}
        text = locking.dumps(lines.values()).encode()
        # An empty lock would make CI refuse every image.
        if path.read_bytes() != text if path.exists() else lines:
            write_all({path: text})
    return path, list(lines.values())


def check_lock(images: Sequence[str] = (), options: Options = Options()) -> tuple[Path, list[Locked], list[Finding]]:
    """Compare the lock with the catalog, and with images. Returns its path, its lines, and what differs."""
    catalog = load_catalog(options.catalog)
    lines = locking.load(catalog.root)
    findings = locking.check(lines, catalog)
    for image in images:
        try:
            locking.require(lines, _plan(image, options))
        except Refused as error:
            text = "; ".join([error.what, *error.details])
            findings.append(Finding(error.code, "error", text, where=image, remedy=error.remedy or ""))
    return catalog.root / locking.NAME, list(lines.values()), findings


def _plan(image: str, options: Options) -> Plan:
    """The plan of the image before any patch of ours."""
    with opened(image, options) as named, named.origin() as origin:
        plan = look(origin, options)
    refuse_unless_deliverable(plan, options)
    return plan
