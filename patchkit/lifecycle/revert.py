"""Back to the origin: a derived image's tag, an overlay's files, a running container's own files; each with proof."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from patchkit.deliver import output
from patchkit.deliver.image import LABEL_RECEIPT
from patchkit.deliver.receipt import Receipt
from patchkit.errors import Refused
from patchkit.findings import counted
from patchkit.images import paths
from patchkit.images.containers import Container
from patchkit.images.engine import Engine
from patchkit.images.model import Change, Filesystem, Image
from patchkit.plan import digest_of


@dataclass(frozen=True, slots=True)
class Restored:
    """One file that is as it was: its path inside, and its hash (``sha256:<hex>``, ``absent`` for no file)."""

    path: str
    digest: str


def proven(fs: Filesystem, receipt: Receipt, where: str) -> list[Restored]:
    """Every file of the receipt with its pre-image's hash, as ``fs`` has it.

    Raises:
        patchkit.errors.Refused: ``not-the-origin``, with each file that is another.
    """
    found = [Restored(file.image_path, digest_of(paths.read(fs, file.image_path))) for file in receipt.files]
    wrong = [
        f"{one.path}: {one.digest}, was {file.pre}"
        for one, file in zip(found, receipt.files, strict=True)
        if one.digest != file.pre
    ]
    if wrong:
        raise Refused(
            "not-the-origin",
            f"{counted(len(wrong), 'file is', 'files are')} not as before the patches",
            where=where,
            remedy="pull the image again",
            details=wrong,
        )
    return found


def image(engine: Engine, derived: Image, origin_id: str, origin_name: str) -> str:
    """Let the derived image's name go: back to the origin where the origin had it, else away. The name of the origin is
    returned. The origin must have been proven before.

    Raises:
        patchkit.errors.Refused: ``image-in-use`` by containers, which are named.
    """
    name = derived.reference.name
    using = sorted(f"{_called(each)} ({each.get('State')})" for each in engine.containers(ancestor=name))
    if using:
        raise Refused(
            "image-in-use",
            f"{counted(len(using), 'container is', 'containers are')} made from the patched image",
            where=name,
            remedy=f"make them anew from {origin_name}, then run this again",
            details=using,
        )
    if name == origin_name:
        engine.tag(origin_id, name)
    else:
        engine.remove_image(name)
    return origin_name


def overlay(engine: Engine | None, folder: Path) -> list[Path]:
    """Remove what a delivery wrote to its output folder: overlay, receipt, mounted files. Returns what was removed.

    Raises:
        patchkit.errors.Refused: ``overlay-in-use``: a container was made with it. Its mounts' sources must stay: an
            engine makes an empty folder of a source that is gone.
    """
    receipt = folder.absolute() / output.RECEIPT_NAME
    label = f"{LABEL_RECEIPT}={receipt}"
    using = sorted(map(_called, engine.containers(label))) if engine else []
    if using:
        raise Refused(
            "overlay-in-use",
            f"{counted(len(using), 'container was', 'containers were')} made with this overlay",
            where=str(folder),
            remedy="make them anew without it: docker compose -f YOURS up --detach",
            details=using,
        )
    with output.locked(folder):
        removed = [path for name in (output.OVERLAY_NAME, output.RECEIPT_NAME) if (path := folder / name).exists()]
        removed += [*output.platform_receipts(folder), *output.stored_files(folder)]
        for path in removed:
            path.unlink()
            for empty in (path.parent, path.parent.parent) if path.parent != folder else ():
                with suppress(OSError):
                    empty.rmdir()
    return removed


def _called(listed: Mapping[str, Any]) -> str:
    """A container's name in the engine's list; its ID where it has none, as while it is being removed."""
    return str((listed.get("Names") or [listed["Id"]])[0]).lstrip("/")


def container(running: Container, origin: Image, interpreter: str, wanted: Sequence[str]) -> list[Restored]:
    """Give the running container its image's own bytes back at the paths ``wanted``, by its ``interpreter``; files that
    the image does not have are removed. Read back and compared. Returns the files that were another.

    Raises:
        patchkit.errors.Refused: ``on-a-mount`` and what else ``Container.put`` raises.
    """
    changes: list[Change] = []
    for path in wanted:
        place = paths.realpath(origin.fs, path)
        entry, was = origin.fs.lstat(place), paths.read(origin.fs, place)
        if digest_of(paths.read(running.fs, place)) == digest_of(was):
            continue
        if was is None or entry is None:
            changes.append(Change(place, None))
        else:
            changes.append(Change(place, was, entry.mode, entry.uid, entry.gid, entry.mtime))
    if changes:
        running.put(changes, interpreter)
    return [Restored(each.path, digest_of(each.data)) for each in changes]
