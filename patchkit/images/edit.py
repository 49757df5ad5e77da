"""Pure edits of an image's raw config, manifest and index; everything that they do not mean to change stays.

The derived config remembers what it changed (label ``dev.patchkit.undo``), so that ``origin_config`` and
``origin_manifest`` take the edit back to the byte.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from patchkit.errors import Refused, Unreachable
from patchkit.images.layer import Layer, sha256
from patchkit.images.model import Derivation
from patchkit.images.rawjson import Object, dump, parse

LABEL = "dev.patchkit."
ORIGIN_KIND = LABEL + "origin.kind"
ORIGIN_NAME = LABEL + "origin.name"
ORIGIN_DIGEST = LABEL + "origin.digest"
FINGERPRINT = LABEL + "fingerprint"
RECEIPT = LABEL + "receipt"
#: ChainID (image-spec config.md, "Layer ChainID") of the layers under ours: while it fits, our layer is the topmost.
ORIGIN_CHAIN = LABEL + "origin.chain"
UNDO = LABEL + "undo"
_BASE = "org.opencontainers.image.base."

#: Engines fail at about 125 to 127 layers (moby#20298); a few are left for whoever builds on top.
MAX_LAYERS = 120

OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
OCI_INDEX = "application/vnd.oci.image.index.v1+json"
OCI_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_INDEX = "application/vnd.docker.distribution.manifest.list.v2+json"
DOCKER_CONFIG = "application/vnd.docker.container.image.v1+json"
DOCKER_LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"
INDEXES = (OCI_INDEX, DOCKER_INDEX)
MANIFESTS = (OCI_MANIFEST, DOCKER_MANIFEST)


def chain_id(diff_ids: Sequence[str]) -> str:
    """The ChainID of a stack of layers, bottom first; of no layers the empty string."""
    chain = ""
    for diff_id in diff_ids:
        chain = sha256(f"{chain} {diff_id}".encode()) if chain else diff_id
    return chain


def diff_ids(config: Object, where: str = "config") -> tuple[str, ...]:
    """The config's layers, bottom first.

    Raises:
        patchkit.errors.Unreachable: ``bad-config``: the list is missing or holds something else than digests.
    """
    rootfs = config.get("rootfs")
    found = rootfs.get("diff_ids") if isinstance(rootfs, dict) else None
    if not isinstance(found, list) or not all(isinstance(one, str) and is_digest(one) for one in found):
        raise Unreachable("bad-config", "the image's config has no proper list rootfs.diff_ids", where=where)
    return tuple(found)


def descriptors(holder: Object, key: str, where: str) -> list[Object]:
    """The descriptors in ``holder[key]`` (``layers`` of a manifest, ``manifests`` of an index), their shape checked.

    Raises:
        patchkit.errors.Unreachable: ``bad-manifest``.
    """
    found = holder.get(key)
    if not isinstance(found, list):
        raise Unreachable("bad-manifest", f"no list {key!r} in the manifest", where=where)
    return [_descriptor(one, key, where) for one in found]


def config_descriptor(manifest: Object, where: str) -> Object:
    """The descriptor of a manifest's config.

    Raises:
        patchkit.errors.Unreachable: ``bad-manifest``.
    """
    return _descriptor(manifest.get("config"), "config", where)


def _descriptor(value: object, key: str, where: str) -> Object:
    if (
        not isinstance(value, dict)
        or not isinstance(value.get("digest"), str)
        or not is_digest(value["digest"])
        or not isinstance(value.get("size"), int)
        or value["size"] < 0
        or not isinstance(value.get("annotations") or {}, dict)
    ):
        raise Unreachable("bad-manifest", f"an entry of {key!r} is no proper descriptor (sha256, size)", where=where)
    return value


def is_digest(text: str) -> bool:
    """Whether ``text`` is a sha256 digest as images spell it."""
    head, _, digits = text.partition(":")
    return head == "sha256" and len(digits) == 64 and not set(digits) - set("0123456789abcdef")


def platform(config: Object) -> str:
    """The config's ``os/architecture[/variant]``."""
    parts = [config.get("os") or "linux", config.get("architecture") or "unknown", config.get("variant")]
    return "/".join(str(part) for part in parts if part)


def labels(config: Object) -> Mapping[str, str]:
    """The config's labels; those that are no text are left out."""
    inner = config.get("config")
    found = inner.get("Labels") if isinstance(inner, dict) else None
    return {key: value for key, value in found.items() if isinstance(value, str)} if isinstance(found, dict) else {}


def is_derived(config: Object) -> bool:
    """Whether the topmost layer is patchkit's. Labels alone do not say so: who builds on a patched image inherits
    them."""
    layers = diff_ids(config)
    chain = labels(config).get(ORIGIN_CHAIN)
    return chain is not None and len(layers) > 0 and chain == chain_id(layers[:-1])


def derive_config(config: bytes, derivation: Derivation, diff_id: str) -> bytes:
    """The origin's config with the layer ``diff_id`` on top.

    Exactly one history entry is added, dated as the origin itself (no clock). A config without history stays without:
    one that does not match the layers is refused by podman (kiwi#918).

    Raises:
        patchkit.errors.Refused: ``too-many-layers``.
        patchkit.errors.Unreachable: ``bad-json`` or ``bad-config``.
    """
    value = parse(config, "config")
    layers = diff_ids(value)
    if len(layers) >= MAX_LAYERS:
        raise Refused(
            "too-many-layers",
            f"the image has {len(layers)} layers; engines fail near 125",
            remedy="squash or rebuild the base image, then patch that",
        )
    value["rootfs"]["diff_ids"] = [*layers, diff_id]
    history = value.get("history")
    if history:
        entry = {"created": value.get("created") or "1970-01-01T00:00:00Z", "created_by": derivation.created_by}
        value["history"] = [*history, {**entry, "comment": "patchkit"}]
    inner = value.get("config")
    undo: Object = {}
    if not isinstance(inner, dict):
        undo["config"] = _was(value, "config")
        inner = value["config"] = {}
    if derivation.entrypoint is not None:
        undo["entrypoint"] = {"set": list(derivation.entrypoint), **_was(inner, "Entrypoint")}
        inner["Entrypoint"] = list(derivation.entrypoint)
    _label(inner, "Labels", {**derivation.labels, ORIGIN_CHAIN: chain_id(layers)}, undo)
    return dump(value, like=config)


def origin_config(config: bytes) -> bytes:
    """The config as it was before ``derive_config``; one whose topmost layer is not patchkit's comes back as it is."""
    value = parse(config, "config")
    if not is_derived(value):
        return config
    value["rootfs"]["diff_ids"] = value["rootfs"]["diff_ids"][:-1]
    history = value.get("history")
    if isinstance(history, list):
        ours = [n for n, entry in enumerate(history) if isinstance(entry, dict) and not entry.get("empty_layer")]
        value["history"] = history[: ours[-1]] + history[ours[-1] + 1 :] if ours else history
    inner = value["config"]
    undo = _unlabel(inner, "Labels")
    entrypoint = undo.get("entrypoint")
    if isinstance(entrypoint, dict) and inner.get("Entrypoint") == entrypoint.get("set"):
        _restore(inner, "Entrypoint", entrypoint)
    if isinstance(undo.get("config"), dict) and not inner:
        _restore(value, "config", undo["config"])
    return dump(value, like=config)


def family_is_oci(manifest: Object) -> bool:
    """Whether a manifest or index speaks OCI's media types; the other family is Docker's schema 2."""
    kind = manifest.get("mediaType")
    config = manifest.get("config")
    if not isinstance(kind, str) and isinstance(config, dict):
        kind = config.get("mediaType")
    return not (isinstance(kind, str) and kind.startswith("application/vnd.docker."))


def derive_manifest(manifest: bytes, config: bytes, layer: Layer, derivation: Derivation) -> bytes:
    """The origin's manifest with the new config and ``layer`` on top. Media types stay in the manifest's family, since
    mixed ones are refused (container-libs#977, ko#641); labels become annotations where the family has them."""
    value = parse(manifest, "manifest")
    oci = family_is_oci(value)
    media_type = OCI_LAYER if oci else DOCKER_LAYER
    value["config"] = {**value["config"], "digest": sha256(config), "size": len(config)}
    value["config"].pop("data", None)  # embedded content (image-spec descriptor.md) would be the old config's
    value["layers"] = [*value["layers"], {"mediaType": media_type, "size": len(layer.blob), "digest": layer.digest}]
    if oci:
        _label(value, "annotations", derivation.labels, {})
    return dump(value, like=manifest)


def origin_manifest(manifest: bytes, config: bytes) -> bytes:
    """The manifest as it was before ``derive_manifest``; ``config`` is the origin's config."""
    value = parse(manifest, "manifest")
    value["config"] = {**value["config"], "digest": sha256(config), "size": len(config)}
    value["layers"] = value["layers"][:-1]
    if family_is_oci(value):
        _unlabel(value, "annotations")
    return dump(value, like=manifest)


def derive_index(index: bytes, replaced: Mapping[str, bytes]) -> tuple[bytes, tuple[str, ...]]:
    """The index with some manifests replaced (old digest -> new bytes), in their places, with platform and annotations
    kept. Attestations of a replaced manifest would be false of the new one: they are left out, and their digests told.
    """
    value = parse(index, "index")
    kept: list[Object] = []
    dropped: list[str] = []
    for descriptor in value["manifests"]:
        if descriptor["digest"] in replaced:
            new = replaced[descriptor["digest"]]
            descriptor = {**descriptor, "digest": sha256(new), "size": len(new)}
            descriptor.pop("data", None)
        elif _attested(descriptor) in replaced:
            dropped.append(descriptor["digest"])
            continue
        kept.append(descriptor)
    value["manifests"] = kept
    return dump(value, like=index), tuple(dropped)


def is_attestation(descriptor: Object) -> bool:
    """Whether an index's entry is BuildKit's attestation and no image to run (buildkit attestation-storage.md)."""
    return _attested(descriptor) is not None or descriptor.get("artifactType") is not None


def _attested(descriptor: Object) -> str | None:
    annotations = descriptor.get("annotations") or {}
    if annotations.get("vnd.docker.reference.type") != "attestation-manifest":
        return None
    digest = annotations.get("vnd.docker.reference.digest")
    return digest if isinstance(digest, str) else ""


def _label(holder: Object, key: str, additions: Mapping[str, str], undo: Object) -> None:
    """Add labels to ``holder[key]``. Base annotations of the origin stay untouched where it has any (copacetic#1678);
    ``undo`` and what the labels were go into one label more."""
    before = holder.get(key)
    old: Object = dict(before) if isinstance(before, dict) else {}
    if any(name.startswith(_BASE) for name in old):
        additions = {name: text for name, text in additions.items() if not name.startswith(_BASE)}
    added = sorted(name for name in additions if not name.startswith(LABEL))
    record: Object = {"added": added, "had": {k: v for k, v in old.items() if k.startswith(LABEL) or k in added}}
    is_sorted = list(old) == sorted(old)
    if not is_sorted:
        record["order"] = list(old)
    if not old:
        record["empty"] = _was(holder, key)
    new = {name: text for name, text in old.items() if not name.startswith(LABEL)}
    new.update(sorted(additions.items()))
    new[UNDO] = json.dumps({**undo, "labels": record}, separators=(",", ":"))
    holder[key] = dict(sorted(new.items())) if is_sorted else new


def _unlabel(holder: Object, key: str) -> Object:
    """Take ``_label`` back and return the ``undo`` that was given to it; a senseless record counts as none."""
    new: Object = dict(holder.get(key) or {})
    undo = _object(_loads(new.get(UNDO)))
    record = _object(undo.get("labels"))
    added = _strings(record.get("added"))
    new = {name: text for name, text in new.items() if not name.startswith(LABEL) and name not in added}
    new.update(_object(record.get("had")))
    names = [*_strings(record.get("order")), *new] if "order" in record else sorted(new)
    holder[key] = {name: new[name] for name in names if name in new}
    if not new and "empty" in record:
        _restore(holder, key, _object(record["empty"]))
    return undo


def _loads(text: object) -> object:
    try:
        return json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return None


def _object(value: object) -> Object:
    return value if isinstance(value, dict) else {}


def _strings(value: Any) -> Sequence[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def _was(holder: Object, key: str) -> Object:
    """What ``_restore`` needs to put ``holder[key]`` back: its value, or nothing where the key was absent."""
    return {"was": holder[key]} if key in holder else {}


def _restore(holder: Object, key: str, record: Mapping[str, Any]) -> None:
    if "was" in record:
        holder[key] = record["was"]
    else:
        holder.pop(key, None)


def differences(origin: bytes, derived: bytes) -> Iterable[str]:
    """The keys in which a derived config, taken back to its origin, differs from the origin's: none, or something was
    changed that nobody meant to change."""
    old, new = parse(origin, "config"), parse(origin_config(derived), "config")
    return [key for key in sorted({*old, *new}) if old.get(key) != new.get(key)]
