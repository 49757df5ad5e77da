"""Builds the fixture images: real roots with a real Python, from Debian's packages and the package index, in any form.

Every form is made from the same layers and the same config, so identities agree wherever an image lies. Builds are
cached below ``.build/fixtures`` by the hash of what they are made from; whoever asks first builds, the others wait.

    python -m tests.images build xpu
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.images import hostile, large, odd, store, variants
from tests.images.store import BUILD, REPOSITORY
from tests.images.variants import VARIANTS, names

__all__ = [
    "BUILD",
    "VARIANTS",
    "Fixture",
    "build",
    "hostile",
    "large",
    "layout",
    "load",
    "names",
    "odd",
    "rootfs",
    "variants",
]

_CREATED = "2026-11-01T00:00:00Z"
_CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
_LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar+gzip"
_MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
_INDEX_TYPE = "application/vnd.oci.image.index.v1+json"


@dataclass(frozen=True, slots=True)
class Fixture:
    """A built image: its folder, raw config, and layers as plain tars, bottom first."""

    name: str
    folder: Path
    config: bytes
    layers: tuple[Path, ...]

    @property
    def image_id(self) -> str:
        """The digest of the config, which is the image ID on an engine's classic store."""
        return f"sha256:{hashlib.sha256(self.config).hexdigest()}"


def build(name: str) -> Fixture:
    """The fixture image ``name``, built unless it is there.

    Raises:
        KeyError: no variant has this name.
        FileNotFoundError: this is no Debian-like machine.
        patchkit.errors.PatchkitError: the package index does not answer.
    """
    make = VARIANTS[name]
    folder = BUILD / f"{name}-{_key(name)}"
    with store.locked(name):
        if not (folder / "config.json").exists():
            for outdated in BUILD.glob(f"{name}-{'?' * 12}"):
                subprocess.run(["rm", "-rf", outdated], check=True)
            folder.mkdir(parents=True)
            with _index_cache():
                variant = make()
            above = variant.layers if variant.root is None else (variant.root, *variant.layers)
            layers = [store.base()] if variant.root is None else []
            for number, layer in enumerate(above, start=1):
                layers.append(folder / f"{number}.tar")
                layer.write(layers[-1])
            (folder / "layers.json").write_text(json.dumps([str(path) for path in layers]))
            config = {
                "architecture": "amd64",
                "os": "linux",
                "created": _CREATED,
                "config": variant.config,
                "rootfs": {"type": "layers", "diff_ids": [_digest(path) for path in layers]},
                "history": [{"created": _CREATED, "created_by": f"fixture {path.stem}"} for path in layers],
                **variant.top,
            }
            _write(folder / "config.json", json.dumps(config, separators=(",", ":")).encode())
    layers = [Path(path) for path in json.loads((folder / "layers.json").read_text())]
    return Fixture(name, folder, (folder / "config.json").read_bytes(), tuple(layers))


def rootfs(name: str) -> Path:
    """The image as an unpacked root, to read only; as root its files keep their owners."""
    fixture = build(name)
    target = fixture.folder / "rootfs"
    with store.locked(name):
        if not target.exists():
            part = fixture.folder / "rootfs.part"
            subprocess.run(["rm", "-rf", part], check=True)
            part.mkdir()
            owner = "--same-owner" if os.geteuid() == 0 else "--no-same-owner"
            for layer in fixture.layers:
                subprocess.run(["tar", "-x", "-p", "--numeric-owner", owner, "-C", part, "-f", layer], check=True)
                for mark in list(part.rglob(".wh.*")):
                    subprocess.run(["rm", "-rf", mark, mark.with_name(mark.name.removeprefix(".wh."))], check=True)
            part.rename(target)
    return target


def layout(name: str) -> Path:
    """The image as an OCI layout with the reference ``latest``, to read only."""
    fixture = build(name)
    target = fixture.folder / "layout"
    with store.locked(name):
        if not target.exists():
            part = fixture.folder / "layout.part"
            shutil.rmtree(part, ignore_errors=True)
            write_layout(part, fixture.config, fixture.layers)
            part.rename(target)
    return target


def write_layout(target: Path, config: bytes, layers: tuple[Path, ...], ref: str = "latest") -> None:
    """Write an OCI layout by hand: https://github.com/opencontainers/image-spec/blob/main/image-layout.md"""
    blobs = target / "blobs/sha256"
    blobs.mkdir(parents=True)

    def blob(media_type: str, data: bytes) -> dict[str, Any]:
        digest = hashlib.sha256(data).hexdigest()
        (blobs / digest).write_bytes(data)
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data)}

    manifest = {
        "schemaVersion": 2,
        "mediaType": _MANIFEST_TYPE,
        "config": blob(_CONFIG_TYPE, config),
        "layers": [_gzip_blob(blobs, layer) for layer in layers],
    }
    top = blob(_MANIFEST_TYPE, json.dumps(manifest, separators=(",", ":")).encode())
    top["annotations"] = {"org.opencontainers.image.ref.name": ref}
    top["platform"] = {"architecture": "amd64", "os": "linux"}
    index = {"schemaVersion": 2, "mediaType": _INDEX_TYPE, "manifests": [top]}
    (target / "index.json").write_text(json.dumps(index))
    (target / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')


def oci_archive(name: str, target: Path) -> None:
    """Write the image's OCI layout as one tar."""
    with tarfile.open(target, "w") as archive:
        for path in sorted(layout(name).rglob("*")):
            archive.add(path, str(path.relative_to(layout(name))), recursive=False)


def docker_archive(fixture: Fixture, target: Path, tag: str) -> None:
    """Write the image as ``docker save`` does: config, plain layers, ``manifest.json`` last."""
    config = f"{fixture.image_id.removeprefix('sha256:')}.json"
    layers = [f"{number}/layer.tar" for number in range(len(fixture.layers))]
    manifest = [{"Config": config, "RepoTags": [tag], "Layers": layers}]
    with tarfile.open(target, "w") as archive:
        _member(archive, config, fixture.config)
        for member, layer in zip(layers, fixture.layers, strict=True):
            archive.add(layer, member)
        _member(archive, "manifest.json", json.dumps(manifest).encode())


def load(name: str, tag: str = "") -> str:
    """Load the image into the Docker engine and give its reference, ``patchkit-fixture/<name>:latest`` or ``tag``."""
    import docker
    import docker.errors

    reference = tag or f"patchkit-fixture/{name}:latest"
    fixture = build(name)
    client = docker.from_env()
    mark = (
        fixture.folder / "loaded"
    )  # the engine's name for it, which on the containerd store is not the config's digest
    with contextlib.closing(client), store.locked(name):
        known = mark.read_text() if mark.exists() else fixture.image_id
        with contextlib.suppress(docker.errors.NotFound):
            if client.images.get(reference).id == known:
                return reference
        with contextlib.suppress(docker.errors.NotFound):
            client.images.get(known).tag(reference)
            return reference
        archive = fixture.folder / "docker.tar"
        docker_archive(fixture, archive, reference)
        try:
            with archive.open("rb") as stream:
                client.images.load(stream)
        finally:
            archive.unlink()
        _write(mark, client.images.get(reference).id.encode())
    return reference


def clean() -> None:
    """Remove the fixture images from the engine, where there is one, and everything that was built."""
    import docker
    import docker.errors

    with contextlib.suppress(docker.errors.DockerException), contextlib.closing(docker.from_env()) as client:
        for image in client.api.images():
            for tag in image["RepoTags"] or ():
                if tag.startswith("patchkit-fixture/"):
                    client.images.remove(tag)
    subprocess.run(["rm", "-rf", BUILD], check=True)


def _key(name: str) -> str:
    """The hash of everything that the fixture is made from and that may change here."""
    here = Path(__file__).parent
    inputs = {here / f"{module}.py" for module in ("__init__", "debian", "packages", "store", "tree", "variants")}
    inputs.add(Path(VARIANTS[name].__code__.co_filename))
    if name == "fixed":
        inputs.update((REPOSITORY / "patches/xpu").glob("*.patch"))
    digest = hashlib.sha256()
    for path in sorted(inputs):
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:12]


def _gzip_blob(blobs: Path, layer: Path) -> dict[str, Any]:
    part = blobs / "part"
    with layer.open("rb") as source, part.open("wb") as raw, gzip.GzipFile("", "wb", 1, raw, mtime=0) as target:
        shutil.copyfileobj(source, target, 1 << 20)
    digest = _digest(part)
    part.rename(blobs / digest.removeprefix("sha256:"))
    size = (blobs / digest.removeprefix("sha256:")).stat().st_size
    return {"mediaType": _LAYER_TYPE, "digest": digest, "size": size}


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return f"sha256:{hashlib.file_digest(stream, 'sha256').hexdigest()}"


def _member(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    archive.addfile(info, io.BytesIO(data))


def _write(path: Path, data: bytes) -> None:
    part = path.with_name(path.name + ".part")
    part.write_bytes(data)
    part.rename(path)


@contextlib.contextmanager
def _index_cache() -> Iterator[None]:
    """Keep what is read from the package index below .build, also where the tests have moved the cache elsewhere."""
    before = os.environ.get("PATCHKIT_CACHE")
    os.environ["PATCHKIT_CACHE"] = str(BUILD / "cache")
    try:
        yield
    finally:
        if before is None:
            del os.environ["PATCHKIT_CACHE"]
        else:
            os.environ["PATCHKIT_CACHE"] = before
