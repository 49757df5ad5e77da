"""The receipt: the plan of one delivery as JSON, with its proof. It lies outside of the image, beside the overlay."""

from __future__ import annotations

import dataclasses
import json
import os
import posixpath
import stat
import types
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from patchkit.catalog.model import Gpus, RefusedEnv
from patchkit.errors import BadInput, Refused
from patchkit.findings import hidden
from patchkit.images import paths
from patchkit.images.model import Identity, Mount
from patchkit.plan import ABSENT, Plan, PlannedFile, fingerprint_of
from patchkit.proof.model import Expectation, Proof
from patchkit.site.environment import decides_imports
from patchkit.site.model import Launch

DeliveryKind = Literal["image", "bind", "container", "none"]

_SCHEMA = "patchkit.receipt"

#: No receipt comes near it. A label of a container may name any ``receipt.json`` of this machine.
_MAX_SIZE = 16 * 1024 * 1024


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
    ``gpus`` and ``refused_env`` are the manifest's words about where the series must not be used: they hold where its
    catalog is gone.
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
    gpus: Gpus | None = None
    refused_env: tuple[RefusedEnv, ...] = ()
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
        launch_given=hidden(launch_given),
        patches=tuple(ReceiptPatch(patch.entry.id, patch.sha256) for patch in plan.patches),
        files=files_of(plan, owned=kind != "bind"),
        fingerprint=plan.fingerprint,
        gpus=plan.match.manifest.gpus,
        refused_env=plan.match.manifest.refused_env,
        mounts=mounts,
        levels=tuple(_without_measurements(level) for level in level_json(proof)),
    )


def files_of(plan: Plan, *, owned: bool) -> tuple[ReceiptFile, ...]:
    """The plan's files as the proof must find them. ``owned`` is False for mounts, whose owner is the host's, and of
    whose mode only that they can be executed is the delivery's."""
    return tuple(
        ReceiptFile(
            path=file.path,
            image_path=file.image_path,
            pre=file.pre,
            post=file.post,
            mode=_mode(file, owned),
            uid=file.before.uid if owned and file.before else None,
            gid=file.before.gid if owned and file.before else None,
            module=file.module,
            lines=tuple(sorted(file.lines)),
        )
        for file in plan.files
    )


def _mode(file: PlannedFile, owned: bool) -> int | None:
    if file.data is None:
        return None
    if owned:
        return file.mode
    return 0o755 if file.mode & 0o111 else None


def level_json(proof: Proof) -> list[dict[str, Any]]:
    """The levels as ``--json`` and the receipt hold them."""
    return [dataclasses.asdict(level) for level in proof.levels]


def _without_measurements(level: dict[str, Any]) -> dict[str, Any]:
    """The level without what asserts measured: two runs give the same receipt; the evidence has a file of its own."""
    return {**level, "files": [{**file, "output": "", "versions": []} for file in level["files"]]}


def to_bytes(receipt: Receipt) -> bytes:
    """The receipt file's content."""
    content = {"schema": _SCHEMA, "version": 1, **_as_json(receipt)}
    return (json.dumps(content, indent=2, sort_keys=True) + "\n").encode()


def evidence(receipt: Receipt, proof: Proof) -> bytes:
    """What the asserts showed on the hardware that was there, as a file that a person can share: which patched code on
    which image, each assert's state and what it printed, and the versions it ran on. No environment, no paths of the
    host."""
    asserts = next(level for level in proof.levels if level.name == "asserts")
    content = {
        "schema": "patchkit.evidence",
        "version": 1,
        "image": receipt.delivered_identity.config,
        "platform": receipt.delivered_identity.platform,
        "package": receipt.package,
        "package_version": receipt.package_version,
        "fingerprint": receipt.fingerprint,
        "patches": [dataclasses.asdict(patch) for patch in receipt.patches],
        "state": asserts.state,
        "asserts": [
            {
                "name": file.name,
                "state": file.state,
                "cause": file.cause,
                "detail": file.detail,
                "output": file.output,
                "versions": dict(file.versions),
            }
            for file in asserts.files
        ],
    }
    return (json.dumps(content, indent=2, sort_keys=True) + "\n").encode()


def load(path: Path) -> Receipt:
    """Read a receipt file.

    Raises:
        patchkit.errors.Refused: ``no-receipt``, there is none at ``path``.
        patchkit.errors.BadInput: ``bad-receipt``, it is none that patchkit wrote.
    """
    try:
        data = _bytes_of(path)
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
    except (ValueError, KeyError, RecursionError) as error:
        raise BadInput(
            "bad-receipt",
            f"this is no receipt that patchkit wrote ({told(error)})",
            where=str(path),
            remedy="deliver again: patchkit apply --image IMAGE",
        ) from None


def _without_secrets(launch: Launch) -> Launch:
    kept = {name: value for name, value in launch.env.items() if decides_imports(name)}
    return dataclasses.replace(launch, env=kept)


def _as_json(value: Any) -> dict[str, Any]:
    return dataclasses.asdict(value)


def _bytes_of(path: Path) -> bytes:
    """The file's bytes, without waiting for any: a pipe or a device is no receipt, and would hold us up."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(None, "it is no regular file")
        data = file.read(_MAX_SIZE + 1) or b""  # None: one of the kernel's files that would have us wait
    if len(data) > _MAX_SIZE:
        raise OSError(None, f"it is larger than {_MAX_SIZE} bytes")
    return data


def told(error: Exception) -> str:
    """What is wrong with the JSON of a receipt."""
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)


def _from_json(data: Any) -> Receipt:
    content = dict(_typed(Mapping[str, Any], data, "the receipt"))
    schema, version = content.pop("schema"), _typed(int, content.pop("version"), "version")
    if schema != _SCHEMA or version != 1:
        raise ValueError(f"schema {schema!r} version {version!r}")
    receipt: Receipt = built(Receipt, content)
    check_files(receipt.files, receipt.fingerprint)
    for mount in receipt.mounts:
        if not paths.is_plain(mount.target):
            raise ValueError(f"{mount.target!r} is no plain path inside of an image")
    return receipt


def check_files(files: tuple[ReceiptFile, ...], fingerprint: str) -> None:
    """Raise ValueError unless the files are what the fingerprint names, and lie where a package's files can lie: a
    proof of other files, or of none, would prove nothing."""
    for file in files:
        inside = posixpath.normpath(file.path) == file.path and not file.path.startswith(("/", "../"))
        if not inside or file.path in (".", ".."):
            raise ValueError(f"{file.path!r} is no path inside of a package")
        if not paths.is_plain(file.image_path):
            raise ValueError(f"{file.image_path!r} is no plain path inside of an image")
    if not files:
        raise ValueError("it names no file")
    if len({file.path for file in files}) != len(files):
        raise ValueError("it names a file twice")
    if fingerprint_of({file.path: file.post for file in files}) != fingerprint:
        raise ValueError("its files do not add up to its fingerprint")


def built(kind: Any, value: Any, where: str = "") -> Any:
    """The dataclass ``kind`` from the JSON value that ``dataclasses.asdict`` makes of it.

    Raises:
        ValueError: a field is missing, is none of this class, or holds a value of another type.
    """
    hints = get_type_hints(kind)
    content = _typed(Mapping[str, Any], value, where or "it")
    for name in sorted(content.keys() ^ hints.keys()):
        raise ValueError(f"{where}{'.' if where else ''}{name} is {'unknown' if name in content else 'missing'}")
    return kind(
        **{name: _typed(hint, content[name], f"{where}{'.' if where else ''}{name}") for name, hint in hints.items()}
    )


def _typed(kind: Any, value: Any, where: str) -> Any:
    """The JSON value as the annotation ``kind`` wants it; ValueError where it is of another type."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if dataclasses.is_dataclass(kind):
        return built(kind, value, where)
    if origin in (Union, types.UnionType):  # only ``X | None`` is used
        return None if value is None else _typed(inner[0], value, where)
    if origin is tuple and isinstance(value, list):
        return tuple(_typed(inner[0], item, f"{where}[{index}]") for index, item in enumerate(value))
    if origin is Mapping and isinstance(value, dict):
        return {_typed(str, name, where): _typed(inner[1], item, f"{where}.{name}") for name, item in value.items()}
    if origin is Literal and isinstance(value, str) and value in inner:
        return value
    if kind is str and isinstance(value, str):
        # Names that are no UTF-8 are held as surrogates; other surrogates, and a NUL, are in no name of any file.
        if "\0" in value:
            raise ValueError(f"{where} holds a NUL")
        value.encode("utf-8", "surrogateescape")
        return value
    if kind is int and type(value) is int:
        return value
    raise ValueError(f"{where} is {json.dumps(value)[:80]}")
