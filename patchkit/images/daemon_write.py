"""Derived images in an engine: one new layer, by the quickest road that it knows, read back before it counts."""

from __future__ import annotations

import calendar
import io
import json
import re
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from patchkit.errors import BadInput, Refused, Unreachable
from patchkit.images import edit, parse_reference, rawjson, readback
from patchkit.images.engine import Engine, EngineError, Json, as_digest, image_id, owner, split_tag
from patchkit.images.layer import Layer, build_layer, sha256
from patchkit.images.model import DEFAULT_PATH, Derivation, Derived, Reference
from patchkit.images.oci import LAYOUT_MARK

if TYPE_CHECKING:
    from patchkit.images.daemon import DaemonImage

#: What a Dockerfile build writes into the config of an image that sets no PATH.
_DEFAULT_PATH = f"PATH={DEFAULT_PATH}"


def derive(
    image: DaemonImage, derivation: Derivation, target: Reference, *, force: bool = False, in_place: bool = False
) -> Derived:
    """``Image.derive`` for an engine."""
    if target.transport != image.reference.transport:
        raise BadInput(
            "other-transport",
            "an image in an engine is derived in that engine",
            where=str(target),
            remedy=f"give a name without {target.transport}:, then copy the result with skopeo",
        )
    name = with_tag(target.name)
    if "@" in name or is_id(image.id, target.name):
        raise BadInput(
            "bad-reference", "the new image needs a tag, not a digest", where=str(target), remedy="give --tag NAME:TAG"
        )
    check_names(image, name, force=force, in_place=in_place)
    with _base(image) as base:
        if not base.knows_owners:
            raise Unreachable(
                "owners-unknown",
                "podman does not tell who owns a file in the image, and its store cannot be read by this user",
                where=str(image.reference),
                remedy="podman unshare patchkit ... (or as root, for root's podman)",
            )
        layer = build_layer(base.fs, derivation.changes)

        def check() -> None:
            check_names(image, name, force=force, in_place=in_place)

        try:
            return _written(base, derivation, layer, name, check)
        except EngineError as error:
            if error.http != 404:
                raise
            # An equal image was found, and somebody removed it before it had its tag: then it is made anew.
            return _written(base, derivation, layer, name, check)


def _written(base: DaemonImage, derivation: Derivation, layer: Layer, name: str, check: Callable[[], None]) -> Derived:
    """Make the image, compare it with what was meant, and only then give it its name."""
    made = _made(base, derivation, layer)
    made.image.is_new = True
    try:
        read_back(base, made.image, layer, made.config)
        check()
        base.engine.tag(made.image.id, name)
        if image_id_of(base.engine, name) != made.image.id:
            raise Refused("tag-moved", "somebody else moved the tag at the same time", where=name)
        identity = made.image.identity
    except BaseException:
        made.image.close()
        if not made.existed:
            base.engine.remove_untagged(made.image.id)
        raise
    made.image.close()
    return Derived(
        reference=Reference(base.reference.transport, name),
        identity=identity,
        road=made.road,
        existed=made.existed,
    )


def origin(image: DaemonImage) -> DaemonImage:
    """``Image.origin`` for an engine: the very image where it is still there, else it is put together again from what
    the derived one remembers; its layers are all there. It is called as it was when it was patched."""
    config = rawjson.parse(image.config, str(image.reference))
    if not edit.is_derived(config):
        return image
    labels = edit.labels(config)
    digest, name = labels.get(edit.ORIGIN_DIGEST, ""), labels.get(edit.ORIGIN_NAME, "")
    called = origin_name(image, labels)
    for candidate in (digest, f"{name.partition('@')[0]}@{digest}"):
        found = image.engine.inspect_image(candidate) if edit.is_digest(candidate.rpartition("@")[2]) else None
        if found is not None and tuple(found["RootFS"]["Layers"]) == image.identity.diff_ids[:-1]:
            return _open(image, candidate, called)
    documents = image.documents
    if documents is None:
        raise Unreachable(
            "origin-gone",
            "the image that this one was patched from is gone, and the engine's store cannot be read to restore it",
            where=str(image.reference),
            remedy=f"docker pull {name}",
        )
    restored = edit.origin_config(documents.config)
    manifest = edit.origin_manifest(documents.manifest, restored) if documents.manifest is not None else None
    restored_id = _id(image.engine, restored, manifest)
    if image.engine.inspect_image(restored_id) is not None:
        return _open(image, restored_id, called)
    _load(image.engine, restored, manifest, None)
    result = _open(image, restored_id, called)
    result.is_for_a_moment = True
    return result


def origin_name(image: DaemonImage, labels: Mapping[str, str]) -> Reference | None:
    """What the origin is called in an engine by these labels, which anybody may have written; None where they name no
    such image."""
    kind, name = labels.get(edit.ORIGIN_KIND, ""), labels.get(edit.ORIGIN_NAME, "")
    if kind not in (image.reference.transport, "docker"):
        return None
    try:
        found = parse_reference(name.removeprefix("//") if kind == "docker" else name)
    except BadInput:
        return None
    return found if found.transport == image.reference.transport else None


# -- the roads -------------------------------------------------------------------------------------------------------


class _Made:
    """An image that is there now, untagged. ``config`` is the raw config that it must have, None where a build wrote
    its own."""

    def __init__(self, image: DaemonImage, config: bytes | None, road: str, existed: bool) -> None:
        self.image = image
        self.config = config
        self.road = road
        self.existed = existed


def _made(base: DaemonImage, derivation: Derivation, layer: Layer) -> _Made:
    """The derived image: found where an equal one is there, else by partial load, else by a build."""
    documents = base.documents
    config = edit.derive_config(base.config, derivation, layer.diff_id)
    why = "the engine's image store cannot be read"
    if documents is not None and (base.engine.store == "classic" or documents.manifest is not None):
        manifest = (
            edit.derive_manifest(documents.manifest, config, layer, derivation)
            if documents.manifest is not None
            else None
        )
        wanted = _id(base.engine, config, manifest)
        if base.engine.inspect_image(wanted) is not None:
            return _Made(_open(base, wanted), config, "an equal image was there", existed=True)
        try:
            _load(base.engine, config, manifest, layer)
            form = "partial OCI layout" if manifest is not None else "partial archive"
            road = f"{form}, config from the {documents.road}"
            return _Made(_open(base, wanted), config, road, existed=False)
        except (EngineError, Unreachable) as error:
            why = f"the engine took no partial image: {error.what}"
    labels = edit.labels(rawjson.parse(config, "config"))
    equal = _equal(base, labels, layer)
    if equal is not None:
        return _Made(equal, None, "an equal image was there", existed=True)
    return _Made(_open(base, _build(base, derivation, layer, labels)), None, f"build, since {why}", existed=False)


def _id(engine: Engine, config: bytes, manifest: bytes | None) -> str:
    """The ID under which the engine has the image of these documents."""
    return sha256(manifest) if manifest is not None and engine.store == "containerd" else sha256(config)


def _load(engine: Engine, config: bytes, manifest: bytes | None, layer: Layer | None) -> None:
    """Load an image of whose layers the archive carries the new one only. The engine looks for a layer in its store
    before it opens the file (moby#18727); podman and the containerd store do so for blobs of an OCI layout."""
    data = _docker_archive(config, layer) if manifest is None else _oci_archive(config, manifest, layer)
    headers = {"Content-Type": "application/x-tar"}
    for _ in engine.stream("POST", "/images/load", params={"quiet": "1"}, data=data, headers=headers):
        pass


def _docker_archive(config: bytes, layer: Layer | None) -> bytes:
    layers = edit.diff_ids(rawjson.parse(config, "config"))
    name = sha256(config).removeprefix("sha256:") + ".json"
    paths = [f"{digest.removeprefix('sha256:')}/layer.tar" for digest in layers]
    files = {"manifest.json": _json_list([{"Config": name, "RepoTags": None, "Layers": paths}]), name: config}
    if layer is not None:
        files[paths[-1]] = layer.tar
    return _tar(files)


def _oci_archive(config: bytes, manifest: bytes, layer: Layer | None) -> bytes:
    value = rawjson.parse(manifest, "manifest")
    kind = value.get("mediaType") or edit.OCI_MANIFEST
    descriptor = {"mediaType": kind, "digest": sha256(manifest), "size": len(manifest)}
    index = {"schemaVersion": 2, "mediaType": edit.OCI_INDEX, "manifests": [descriptor]}
    blobs = [manifest, config, *([layer.blob] if layer is not None else [])]
    return _tar(
        {
            "oci-layout": LAYOUT_MARK,
            "index.json": rawjson.dump(index),
            **{f"blobs/sha256/{sha256(blob).removeprefix('sha256:')}": blob for blob in blobs},
        }
    )


def _build(base: DaemonImage, derivation: Derivation, layer: Layer, labels: Mapping[str, str]) -> str:
    """Build ``FROM`` the base and ``ADD`` our layer, by BuildKit: it keeps owners and times, and on the containerd
    store takes ``.wh.`` names for removals. It cannot start from an ID (buildkit#2204): the base is tagged for it.
    """
    engine = base.engine
    if engine.store != "containerd" and any(change.data is None for change in layer.changes):
        # Elsewhere the removal's name lands in the image as a file of that name (seen with 20.10 and podman 4.3).
        raise Unreachable(
            "no-road",
            "files are to be removed, a build on this engine cannot, and its image store cannot be read",
            where=engine.host,
            remedy="run patchkit as root on the engine's machine",
        )
    moment = f"patchkit-temporary:{re.sub('[^0-9a-z]+', '-', owner())}"
    engine.tag(base.id, moment)
    try:
        lines = [f"FROM {moment}", "ADD layer.tar /"]
        if derivation.entrypoint is not None:
            # ENTRYPOINT forgets the base's CMD unless it is said again.
            command = (base.inspected.get("Config") or {}).get("Cmd") or []
            lines += [f"ENTRYPOINT {json.dumps(list(derivation.entrypoint))}", f"CMD {json.dumps(command)}"]
        context = _tar({"Dockerfile": "\n".join(lines).encode() + b"\n", "layer.tar": layer.tar})
        params = {
            "version": "2" if engine.kind == "docker" else "1",
            "labels": json.dumps(dict(labels)),
            "buildargs": json.dumps({"SOURCE_DATE_EPOCH": str(_epoch(str(base.inspected.get("Created") or "")))}),
            "networkmode": "none",
            "platform": base.identity.platform if engine.kind == "docker" else "",
        }
        found = ""
        for item in engine.stream(
            "POST", "/build", params=params, data=context, headers={"Content-Type": "application/x-tar"}
        ):
            aux = item.get("aux")
            if isinstance(aux, dict) and "ID" in aux:
                found = str(aux["ID"])
        if not found:
            raise EngineError(0, "the build told no image ID", where=engine.host)
        return as_digest(found)
    finally:
        engine.remove_image(moment)


def _equal(base: DaemonImage, labels: Mapping[str, str], layer: Layer) -> DaemonImage | None:
    """An image built before from the same layers with the same labels and files: the receipt inside tells more than the
    labels do."""
    keys = (edit.ORIGIN_CHAIN, edit.FINGERPRINT)
    for short in base.engine.images(*(f"{key}={labels[key]}" for key in keys if key in labels)):
        found = base.engine.inspect_image(short["Id"])
        if found is None or (found.get("Config") or {}).get("Labels") != dict(labels):
            continue
        if tuple(found["RootFS"]["Layers"][:-1]) == base.identity.diff_ids:
            candidate = _open(base, str(found["Id"]))
            candidate.is_new = True
            if not readback.file_faults(candidate, layer.changes):
                return candidate
            candidate.close()
    return None


# -- the checks ------------------------------------------------------------------------------------------------------


def check_names(image: DaemonImage, target: str, *, force: bool, in_place: bool) -> None:
    """The source still is what was read, and the target's tag is free or ours.

    Raises:
        patchkit.errors.Refused: ``tag-moved``, ``target-is-source``, ``target-tag-taken``.
    """
    engine = image.engine
    if image_id_of(engine, image.reference.name) != image.id:
        raise Refused(
            "tag-moved",
            "the tag stands for another image now than when it was read",
            where=str(image.reference),
            remedy="run the command again",
        )
    if plain_name(target) == plain_name(with_tag(image.reference.name)):
        if not in_place and not edit.is_derived(json.loads(image.config)):
            raise Refused(
                "target-is-source",
                "the derived image would take the source's tag",
                where=target,
                remedy="choose another --tag, or say --in-place",
            )
        return
    holder = engine.inspect_image(target)
    if holder is None or force:
        return
    labels = (holder.get("Config") or {}).get("Labels") or {}
    layers = (holder.get("RootFS") or {}).get("Layers") or []
    if labels.get(edit.ORIGIN_CHAIN) != edit.chain_id(layers[:-1]):
        raise Refused(
            "target-tag-taken",
            "the tag holds an image that patchkit did not make",
            where=target,
            remedy="choose another --tag, or take this one on purpose: patchkit apply --force",
        )


def read_back(base: DaemonImage, made: DaemonImage, layer: Layer, config: bytes | None) -> None:
    """Compare the image as the engine has it now with what was meant.

    Raises:
        patchkit.errors.Refused: ``read-back``, each difference a detail.
    """
    wrong = [*_config_differences(base, made, layer, config), *readback.file_faults(made, layer.changes)]
    if wrong:
        raise Refused(
            "read-back",
            "the engine has another image than the one that was written",
            where=made.id,
            remedy="patchkit doctor",
            details=wrong,
        )


def _config_differences(base: DaemonImage, made: DaemonImage, layer: Layer, config: bytes | None) -> Iterator[str]:
    layers = made.identity.diff_ids
    if layers[:-1] != base.identity.diff_ids:
        yield "its lower layers are not the source's"
    if config is not None:
        if layers[-1:] != (layer.diff_id,):
            yield f"its top layer is not {layer.diff_id}"
        # It was found by the digest of this config; where the store can be read, the bytes themselves are compared too.
        if made.documents is not None and made.documents.config != config:
            yield "its config differs from the one that was sent"
        return
    before, after = base.inspected.get("Config") or {}, made.inspected.get("Config") or {}
    # A Dockerfile's CMD sets ArgsEscaped, which means something on Windows only (image-spec config.md).
    for key in sorted({*before, *after} - {"Labels", "Entrypoint", "Image", "ArgsEscaped"}):
        old, new = before.get(key) or None, after.get(key) or None
        if key == "Env":
            new = [item for item in new or [] if item != _DEFAULT_PATH or item in (old or [])] or None
        if old != new:
            yield f"config {key}: was {json.dumps(old)}, is {json.dumps(new)}"


# -- names -----------------------------------------------------------------------------------------------------------


def is_id(image_id: str, name: str) -> bool:
    """Whether the name is the image's ID, whole or shortened as engines show it, and no name that it has."""
    digits = name.removeprefix("sha256:")
    return edit.is_digest(name) or (len(digits) >= 12 and image_id.removeprefix("sha256:").startswith(digits))


def with_tag(name: str) -> str:
    """The name with ``:latest`` where it has neither tag nor digest."""
    return name if "@" in name or edit.is_digest(name) or split_tag(name)[1] else f"{name}:latest"


def plain_name(name: str) -> str:
    """The name without what engines add to a short one (podman lists ``docker.io/library/`` or ``localhost/``)."""
    for prefix in ("docker.io/library/", "docker.io/", "localhost/"):
        if name.startswith(prefix):
            return name.removeprefix(prefix)
    return name


def image_id_of(engine: Engine, name: str) -> str | None:
    """The ID that ``name`` stands for now."""
    found = engine.inspect_image(name)
    return image_id(found) if found is not None else None


@contextmanager
def _base(image: DaemonImage) -> Iterator[DaemonImage]:
    """The image to put the layer on: the source, or its origin where the source's top layer is ours."""
    found = origin(image)
    try:
        yield found
    finally:
        if found is not image:
            found.close()


def _open(image: DaemonImage, name: str, called: Reference | None = None) -> DaemonImage:
    found = type(image)(image.engine, Reference(image.reference.transport, name), no_run=image.no_run)
    found.reference = called or found.reference
    return found


def _epoch(created: str) -> int:
    """Seconds of an RFC 3339 time; 0 where there is none."""
    try:
        return max(0, calendar.timegm(time.strptime(created[:19], "%Y-%m-%dT%H:%M:%S")))
    except ValueError:
        return 0


def _json_list(items: list[Json]) -> bytes:
    return json.dumps(items, separators=(",", ":")).encode()


def _tar(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()
