"""From a receipt to the compose overlay of its delivery."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from patchkit.deliver import image as image_delivery
from patchkit.deliver.receipt import Receipt
from patchkit.stack.overlay import OverlayMount, PinnedImage, Start, overlay


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
    """The delivered image by digest: as a registry knows it, else by image ID and never pulled. The containerd store
    calls an image by its index or manifest, the classic one by its config (moby#48401)."""
    identity = receipt.delivered_identity
    if identity.repo_digests:
        return PinnedImage(identity.repo_digests[0], local=False)
    transport, _, name = receipt.delivered.partition(":")
    if transport == "docker" and (identity.index or identity.manifest):
        return PinnedImage(f"{_repository(name)}@{identity.index or identity.manifest}", local=False)
    by_id = (identity.index or identity.manifest) if transport == "docker-daemon" else None
    return PinnedImage(by_id or identity.config, local=True)


def _repository(name: str) -> str:
    """``//host/repo:tag`` -> ``host/repo``."""
    name = name.removeprefix("//").partition("@")[0]
    head, slash, last = name.rpartition("/")
    return f"{head}{slash}{last.partition(':')[0]}"
