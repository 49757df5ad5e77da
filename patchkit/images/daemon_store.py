"""The raw documents of an image (config, manifest, index) out of an engine's own store.

No engine gives them away by its API short of saving the whole image, which takes half a minute for 3 GB. They are small
files in the engine's data folder: read there where this user may, else shown to a container that is never started
(whoever may talk to the engine may mount them). Every document is checked against the digest that names it.
"""

from __future__ import annotations

import base64
import contextlib
import io
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from patchkit import cache
from patchkit.errors import PatchkitError
from patchkit.images import edit, rawjson
from patchkit.images.daemon_files import never_started
from patchkit.images.engine import Engine, EngineError, Json, image_id
from patchkit.images.layer import sha256
from patchkit.images.signals import held

_SHOWN = "/.patchkit-store"


@dataclass(frozen=True, slots=True)
class Documents:
    """What names one image: its raw config, and where the store keeps them its manifest and index. ``road`` tells how
    they were had."""

    config: bytes
    manifest: bytes | None
    index: bytes | None
    road: str


def documents(engine: Engine, inspected: Json) -> Documents | None:
    """The image's documents, or None where this engine does not let them be read by any road."""
    reader = _Reader(engine, str(inspected["Id"]))
    if engine.store == "containerd":
        return _containerd(engine, inspected, reader)
    own_id = image_id(inspected)
    digits = own_id.removeprefix("sha256:")
    root, driver = engine.info.get("DockerRootDir", ""), engine.info.get("Driver", "")
    if engine.store == "classic":
        config = reader.read([f"{root}/image/{driver}/imagedb/content/sha256"], digits, own_id)
        if config is not None:
            return Documents(config, None, None, reader.road)
        return _from_registry(inspected, own_id)
    # containers/storage keeps an image's documents beside each other; a name that is no plain file name is base64
    folder = [f"{root}/{driver}-images/{digits}"]
    config = reader.read(folder, "=" + base64.b64encode(own_id.encode()).decode(), own_id)
    if config is None:
        return None
    manifest = reader.read(folder, "manifest", None, cached_as=f"manifest-of-{digits}")
    if manifest is not None:
        named = edit.config_descriptor(rawjson.parse(manifest, "manifest"), "manifest")["digest"]
        manifest = manifest if named == own_id else None
    return Documents(config, manifest, None, reader.road)


def _from_registry(inspected: Json, image_id: str) -> Documents | None:
    """From a registry that the image was pulled from, by its digest there; None where none answers with this config."""
    from patchkit.images import open_image, parse_reference

    for name in inspected.get("RepoDigests") or []:
        platform = "/".join(filter(None, (inspected.get(key) for key in ("Os", "Architecture", "Variant"))))
        with (
            contextlib.suppress(PatchkitError),
            open_image(parse_reference(f"docker://{name}"), platform=platform) as image,
        ):
            if _is(image.config, image_id):
                return Documents(image.config, None, None, "registry")
    return None


def _containerd(engine: Engine, inspected: Json, reader: _Reader) -> Documents | None:
    """Walk from the image's target (an index or a manifest) to the config of the platform that the engine chose."""
    root = engine.info.get("DockerRootDir", "")
    content = "io.containerd.content.v1.content/blobs/sha256"
    folders = [f"{root}/containerd/daemon/{content}", f"/var/lib/containerd/{content}"]

    def blob(digest: str) -> bytes | None:
        return reader.read(folders, digest.removeprefix("sha256:"), digest)

    top = blob(str((inspected.get("Descriptor") or {}).get("digest") or inspected["Id"]))
    if top is None:
        return None
    index = None
    manifest = top
    value = rawjson.parse(top, "manifest")
    if "manifests" in value:
        index = top
        chosen = _chosen(edit.descriptors(value, "manifests", "index"), inspected)
        found = blob(chosen) if chosen else None
        if found is None:
            return None
        manifest = found
    config = blob(edit.config_descriptor(rawjson.parse(manifest, "manifest"), "manifest")["digest"])
    return Documents(config, manifest, index, reader.road) if config is not None else None


def _chosen(descriptors: Sequence[Json], inspected: Json) -> str | None:
    """The manifest of the platform that the engine's account of the image speaks of."""
    wanted = (inspected.get("Os"), inspected.get("Architecture"), inspected.get("Variant") or "")
    for descriptor in descriptors:
        platform = descriptor.get("platform") or {}
        found = (platform.get("os"), platform.get("architecture"), platform.get("variant") or "")
        if not edit.is_attestation(descriptor) and found == wanted:
            return str(descriptor["digest"])
    runnable = [str(one["digest"]) for one in descriptors if not edit.is_attestation(one)]
    return runnable[0] if len(runnable) == 1 else None


class _Reader:
    def __init__(self, engine: Engine, image_id: str) -> None:
        self._engine = engine
        self._image_id = image_id
        self.road = ""

    def read(self, folders: Sequence[str], name: str, digest: str | None, cached_as: str = "") -> bytes | None:
        """The file ``name`` in the first of the store's ``folders`` that has it; its bytes must have ``digest``. What
        has no digest for a name is cached by another, and for the caller to check."""
        cached = cache.folder("documents") / (cached_as or str(digest).removeprefix("sha256:"))
        found = cache.read(cached)
        if found is not None and _is(found, digest):
            self.road = self.road or "cache"
            return found
        for folder in folders:
            found = self._local(folder, name)
            if found is not None and _is(found, digest):
                self.road = "image store"
                return found
        for folder in folders:
            found = self._mounted(folder, name)
            if found is not None and _is(found, digest):
                self.road = "image store, mounted"
                cache.write(cached, found)
                return found
        return None

    def _local(self, folder: str, name: str) -> bytes | None:
        if self._engine.is_remote:
            return None
        try:
            return (Path(folder) / name).read_bytes()
        except OSError:
            return None

    def _mounted(self, folder: str, name: str) -> bytes | None:
        """Through the archive API of a container with the folder mounted. The folder and not the file: podman cannot
        read a file that is a mount."""
        with contextlib.ExitStack() as stack:
            try:
                with held():
                    container = self._engine.create(never_started(self._image_id, [(folder, _SHOWN)]))
                    stack.callback(self._engine.remove, container)
                path = {"path": f"{_SHOWN}/{name}"}
                answer = self._engine.call("GET", f"/containers/{container}/archive", params=path)
                with tarfile.open(fileobj=io.BytesIO(answer.content)) as archive:
                    member = archive.next()
                    file = archive.extractfile(member) if member is not None and member.isreg() else None
                    return file.read(rawjson.MAX_JSON + 1) if file is not None else None
            except (EngineError, tarfile.TarError):
                return None  # no such folder on the engine's machine, or mounts are forbidden


def _is(data: bytes, digest: str | None) -> bool:
    return digest is None or sha256(data) == digest
