"""From a receipt to the compose overlay of its delivery."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from patchkit.deliver.image import LABEL_FINGERPRINT, LABEL_RECEIPT
from patchkit.deliver.receipt import Receipt
from patchkit.images.model import Image
from patchkit.stack.overlay import OverlayMount, PinnedImage, Start, overlay

#: Where compiled kernels are kept, and the folder below the home where that is without the variable. A cache that was
#: filled by unpatched code must not be served to patched code: its keys do not always hold what a patch changes.
_CACHES = {"VLLM_CACHE_ROOT": ".cache/vllm", "TRITON_CACHE_DIR": ".triton/cache"}


@dataclass(frozen=True, slots=True)
class OverlayParts:
    """What a delivery asks of whoever starts it: image, mounts, labels, environment, and for a guard the start."""

    image: PinnedImage
    mounts: tuple[OverlayMount, ...]
    labels: Mapping[str, str]
    header: str
    environment: Mapping[str, str] = field(default_factory=dict)
    start: Start | None = None


def overlay_parts(
    receipt: Receipt,
    receipt_path: Path,
    *,
    environment: Mapping[str, str] | None = None,
    selinux: str = "",
    start: Start | None = None,
) -> OverlayParts:
    """The parts of one delivery.

    Args:
        receipt: of the delivery.
        receipt_path: where its file lies.
        environment: what the server is started with; given, the patched code gets cache folders of its own below those
            that it names (none where nothing was patched).
        selinux: the label of the mounts, from ``selinux_label``.
        start: the guarded start of a delivery by mounts.
    """
    caches = {} if environment is None or receipt.kind == "none" else _caches(environment, receipt.fingerprint)
    return OverlayParts(
        image=pinned(receipt),
        mounts=tuple(OverlayMount(mount.source, mount.target, selinux) for mount in receipt.mounts),
        labels={LABEL_RECEIPT: str(receipt_path), LABEL_FINGERPRINT: receipt.fingerprint},
        header=f"{receipt.delivered}, patched by manifest {receipt.manifest}; written by patchkit, do not edit.",
        environment=caches,
        start=start,
    )


def overlay_text(services: Sequence[str], parts: OverlayParts) -> str:
    """The compose overlay: the same parts for each of the services."""
    return overlay(
        services,
        image=parts.image,
        mounts=parts.mounts,
        labels=parts.labels,
        environment=parts.environment,
        start=parts.start,
        header=parts.header,
    )


def selinux_label(image: Image) -> str:
    """``z`` where the engine of the image enforces labels: without it a container may not read the mounted files, and
    with it a machine without SELinux would refuse nothing, but NFS and rootless engines may fail to relabel."""
    engine = getattr(image, "engine", None)
    security = engine.info.get("SecurityOptions") or [] if engine is not None else []
    return "z" if any("selinux" in str(each) for each in security) else ""


def pinned(receipt: Receipt) -> PinnedImage:
    """The delivered image by digest: as a registry knows it, else by image ID and never pulled. The containerd store
    calls an image by its index or manifest, the classic one by its config (moby#48401)."""
    identity = receipt.delivered_identity
    if identity.repo_digests:
        return PinnedImage(identity.repo_digests[0], local=False)
    transport, _, name = receipt.delivered.partition(":")
    if transport == "docker" and (identity.index or identity.manifest):
        return PinnedImage(f"{repository_of(name)}@{identity.index or identity.manifest}", local=False)
    by_id = (identity.index or identity.manifest) if transport == "docker-daemon" else None
    return PinnedImage(by_id or identity.config, local=True)


def _caches(environment: Mapping[str, str], fingerprint: str) -> dict[str, str]:
    """Cache folders below those that are in use now, so that a mounted volume still holds them."""
    home = environment.get("HOME", "/root").rstrip("/")
    return {
        name: f"{environment.get(name) or f'{home}/{default}'}/patchkit-{fingerprint[:12]}"
        for name, default in _CACHES.items()
    }


def repository_of(name: str) -> str:
    """A registry's or engine's name for an image without tag and digest: ``//host/repo:tag`` -> ``host/repo``."""
    name = name.removeprefix("//").partition("@")[0]
    head, slash, last = name.rpartition("/")
    return f"{head}{slash}{last.partition(':')[0]}"
