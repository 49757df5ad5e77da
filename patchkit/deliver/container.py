"""Delivery into a running container: its own files are changed; what runs already keeps what it imported."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from patchkit.deliver.image import derivation_of
from patchkit.deliver.receipt import Receipt
from patchkit.findings import Finding
from patchkit.images.containers import Container
from patchkit.images.model import Change, Filesystem, Identity, Mount, Reference, Run, RunResult
from patchkit.plan import Plan


@dataclass(frozen=True, slots=True)
class LiveContainer:
    """A running container as the subject of facts: its files as they are now, its config as it was started.
    ``identity`` and ``image_labels`` are its image's, ``called`` what manifests know that by."""

    container: Container
    identity: Identity
    image_labels: Mapping[str, str] = field(default_factory=dict)
    called: tuple[Reference, ...] = ()

    @property
    def reference(self) -> Reference:
        """``container:<name>``; no transport of images, since nothing can be derived from it."""
        return Reference("container", self.container.name)

    @property
    def config(self) -> bytes:
        """The config that its main process started with."""
        return json.dumps({"config": self.container.inspected.get("Config") or {}}).encode()

    @property
    def fs(self) -> Filesystem:
        """Its files, mounts included."""
        return self.container.fs

    @property
    def can_run(self) -> bool:
        """Whether it runs."""
        return self.container.can_run

    @property
    def run(self) -> Callable[[Run], RunResult]:
        """Run a program beside the server."""
        return self.container.run


def put_plan(container: Container, plan: Plan) -> None:
    """Make the plan's changes in the container's own files: all of them or none.

    Raises:
        patchkit.errors.Refused: ``on-a-mount``, ``cannot-write``, ``read-back``.
    """
    container.put(
        [_dated(change) for change in derivation_of(plan, container.fs).changes], plan.site.launch.interpreter
    )


def _dated(change: Change) -> Change:
    """A time that differs from the original's, so that no size and time comparison takes the two for the same."""
    return change if change.data is None else replace(change, mtime=change.mtime + 1)


def mount_findings(container: Container, receipt: Receipt) -> list[Finding]:
    """What is wrong with the mounts of a delivery: missing ones, others over the same place, a source that was replaced
    after the start (a file mount keeps the old inode: https://github.com/moby/moby/issues/15793), and, as a warning,
    writable ones."""
    found: list[Finding] = []
    for wanted in receipt.mounts:
        place = f"{container.name}:{wanted.target}"
        mounted = container.mount_over(wanted.target)
        if mounted is not None and not mounted.read_only:
            remedy = "mount it read-only, as the overlay does"
            found.append(Finding("mount-writable", "warning", "the mount is writable", where=place, remedy=remedy))
        if mounted is None:
            what, remedy = "the patched file is not mounted", "recreate it with the overlay: docker compose up -d"
        elif mounted.source != wanted.source:
            what, remedy = f"it is {mounted.source} that is mounted there", "keep one of the two mounts"
        else:
            pinned = _inodes(container, wanted)
            if pinned is None or pinned[0] == pinned[1]:
                continue
            what = f"the mount holds inode {pinned[1]}, the file on the host is {pinned[0]} now"
            remedy = "recreate the container (a restart keeps the old file)"
        found.append(Finding("mount-wrong", "error", what, where=place, remedy=remedy))
    return found


def _inodes(container: Container, wanted: Mount) -> tuple[int, int] | None:
    """The inode of the file on the host and of what the container sees; None where this cannot be looked at from here
    (another machine, or no right to look into its process)."""
    pid = (container.inspected.get("State") or {}).get("Pid") or 0
    inside = Path(f"/proc/{pid}/root") / wanted.target.lstrip("/")
    try:
        return Path(wanted.source).stat().st_ino, inside.stat().st_ino
    except OSError:
        return None
