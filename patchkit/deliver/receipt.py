"""The receipt: the plan of one delivery as JSON, with its proof. It lies outside of the image, beside the overlay."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from patchkit.errors import BadInput, Refused
from patchkit.images.model import Identity, Mount
from patchkit.plan import Plan
from patchkit.proof.model import ABSENT, Expectation, Proof
from patchkit.site.model import Launch

DeliveryKind = Literal["image", "bind", "container", "none"]

_SCHEMA = "patchkit.receipt"
_KEPT_ENV = frozenset({"PATH", "VIRTUAL_ENV", "CONDA_PREFIX"})


@dataclass(frozen=True, slots=True)
class ReceiptPatch:
    """One patch that was delivered: its id in the manifest and the hash (hex) of its diff."""

    id: str
    sha256: str


@dataclass(frozen=True, slots=True)
class ReceiptFile:
    """One file as it must be: package-relative path, real path in the image, hashes (``sha256:<hex>`` or ``absent``),
    mode and owner (None where the delivery cannot choose them), and the lines that the patches put there."""

    path: str
    image_path: str
    pre: str
    post: str
    mode: int | None = None
    uid: int | None = None
    gid: int | None = None
    module: str = ""
    lines: tuple[int, ...] = ()

    def expectation(self) -> Expectation:
        """What the proof has to find."""
        return Expectation(
            path=self.image_path,
            relative=self.path,
            sha256=self.post.removeprefix("sha256:") if self.post != ABSENT else ABSENT,
            mode=self.mode,
            uid=self.uid,
            gid=self.gid,
            module=self.module,
            changed=frozenset(self.lines),
        )


@dataclass(frozen=True, slots=True)
class Receipt:
    """One delivery.

    ``origin`` is the reference of the image that was patched and ``origin_identity`` its names; ``delivered`` and
    ``delivered_identity`` are the derived image's (the origin's for mounts). ``copy`` is the package's folder. Of the
    launch's environment only what steers Python is kept, since the rest may hold secrets; the launch is None where only
    the image tells it. ``launch_given`` is what the person gave with ``--launch``, ``levels`` the proof as it was told.
    """

    kind: DeliveryKind
    origin: str
    origin_identity: Identity
    delivered: str
    delivered_identity: Identity
    manifest: str
    package: str
    package_version: str
    copy: str
    launch: Launch | None
    launch_given: str
    patches: tuple[ReceiptPatch, ...]
    files: tuple[ReceiptFile, ...]
    fingerprint: str
    mounts: tuple[Mount, ...] = ()
    levels: tuple[Mapping[str, Any], ...] = field(default_factory=tuple)


def receipt_of(
    plan: Plan,
    kind: DeliveryKind,
    proof: Proof,
    *,
    delivered: str,
    identity: Identity,
    mounts: tuple[Mount, ...] = (),
    launch_given: str = "",
) -> Receipt:
    """The receipt of a delivery of this plan."""
    return Receipt(
        kind=kind,
        origin=str(plan.reference),
        origin_identity=plan.identity,
        delivered=delivered,
        delivered_identity=identity,
        manifest=plan.match.manifest.name,
        package=plan.match.manifest.package,
        package_version=plan.site.version,
        copy=plan.copy.root,
        launch=_without_secrets(plan.site.launch),
        launch_given=launch_given,
        patches=tuple(ReceiptPatch(patch.entry.id, patch.sha256) for patch in plan.patches),
        files=files_of(plan, owned=kind != "bind"),
        fingerprint=plan.fingerprint,
        mounts=mounts,
        levels=tuple(level_json(proof)),
    )


def files_of(plan: Plan, *, owned: bool) -> tuple[ReceiptFile, ...]:
    """The plan's files as the proof must find them. ``owned`` is False for mounts, whose mode and owner are the
    host's."""
    return tuple(
        ReceiptFile(
            path=file.path,
            image_path=file.image_path,
            pre=file.pre,
            post=file.post,
            mode=file.mode if owned and file.before else None,
            uid=file.before.uid if owned and file.before else None,
            gid=file.before.gid if owned and file.before else None,
            module=file.module,
            lines=tuple(sorted(file.lines)),
        )
        for file in plan.files
    )


def level_json(proof: Proof) -> list[dict[str, Any]]:
    """The levels as ``--json`` and the receipt hold them."""
    return [dataclasses.asdict(level) for level in proof.levels]


def to_bytes(receipt: Receipt) -> bytes:
    """The receipt file's content."""
    content = {"schema": _SCHEMA, "version": 1, **_as_json(receipt)}
    return (json.dumps(content, indent=2, sort_keys=True) + "\n").encode()


def load(path: Path) -> Receipt:
    """Read a receipt file.

    Raises:
        patchkit.errors.Refused: ``no-receipt``, there is none at ``path``.
        patchkit.errors.BadInput: ``bad-receipt``, it is none that patchkit wrote.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise Refused(
            "no-receipt",
            "there is no receipt, so nothing tells what should run here",
            where=str(path),
            remedy="deliver first: patchkit apply --image IMAGE; or name it: --receipt FILE",
        ) from None
    except OSError as error:
        raise BadInput("bad-receipt", f"cannot be read: {error.strerror}", where=str(path)) from None
    try:
        return _from_json(json.loads(data))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadInput(
            "bad-receipt",
            f"this is no receipt that patchkit wrote ({error})",
            where=str(path),
            remedy="deliver again: patchkit apply --image IMAGE",
        ) from None


def _without_secrets(launch: Launch) -> Launch:
    kept = {name: value for name, value in launch.env.items() if name in _KEPT_ENV or name.startswith("PYTHON")}
    return dataclasses.replace(launch, env=kept)


def _as_json(value: Any) -> dict[str, Any]:
    return dataclasses.asdict(value)


def _from_json(data: Mapping[str, Any]) -> Receipt:
    if data["schema"] != _SCHEMA or data["version"] != 1:
        raise ValueError(f"schema {data['schema']!r} version {data['version']!r}")
    fields = {name: data[name] for name in (field.name for field in dataclasses.fields(Receipt))}
    fields["origin_identity"] = _identity(data["origin_identity"])
    fields["delivered_identity"] = _identity(data["delivered_identity"])
    launch = data["launch"]
    fields["launch"] = launch and Launch(**{**launch, "flags": tuple(launch["flags"])})
    fields["patches"] = tuple(ReceiptPatch(**patch) for patch in data["patches"])
    fields["files"] = tuple(ReceiptFile(**{**file, "lines": tuple(file["lines"])}) for file in data["files"])
    fields["mounts"] = tuple(Mount(**mount) for mount in data["mounts"])
    fields["levels"] = tuple(data["levels"])
    return Receipt(**fields)


def _identity(data: Mapping[str, Any]) -> Identity:
    return Identity(**{**data, "diff_ids": tuple(data["diff_ids"]), "repo_digests": tuple(data["repo_digests"])})
