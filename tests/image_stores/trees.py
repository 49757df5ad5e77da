"""Small images in memory and on disk for the tests of the stores."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from pathlib import Path

from patchkit.images.layer import sha256
from patchkit.images.model import Change, Derivation, Entry

SITE = "opt/venv/lib/python3.11/site-packages"
PARENTS = ("opt/", "opt/venv/", "opt/venv/lib/", "opt/venv/lib/python3.11/", f"{SITE}/", f"{SITE}/pkg/")
NORM = f"/{SITE}/pkg/norm.py"
CREATED = "2024-05-01T10:00:00.5Z"


class Tree:
    """A file system in a dict: path -> (Entry, bytes)."""

    def __init__(self, *entries: tuple[Entry, bytes]) -> None:
        self.entries = {entry.path: (entry, data) for entry, data in entries}

    def lstat(self, path: str) -> Entry | None:
        found = self.entries.get(path)
        return found[0] if found else None

    def read(self, path: str, limit: int = 1 << 26) -> bytes:
        if path not in self.entries or self.entries[path][0].kind != "file":
            raise FileNotFoundError(path)
        return self.entries[path][1]

    def listdir(self, path: str) -> list[str]:
        head = path.rstrip("/") + "/"
        return sorted({one[len(head) :].split("/")[0] for one in self.entries if one.startswith(head)} - {""})


def folder(path: str, mode: int = 0o755, uid: int = 0, gid: int = 0, mtime: int = 1000) -> tuple[Entry, bytes]:
    return Entry(path, "dir", mode, uid, gid, mtime=mtime), b""


def file(path: str, data: bytes = b"old\n", mode: int = 0o644, mtime: int = 2000) -> tuple[Entry, bytes]:
    return Entry(path, "file", mode, 0, 0, size=len(data), mtime=mtime), data


def add(
    archive: tarfile.TarFile,
    name: str,
    data: bytes | None = None,
    *,
    mode: int = 0o644,
    uid: int = 0,
    gid: int = 0,
    mtime: int = 1000,
    kind: bytes | None = None,
    link: str = "",
    pax: dict[str, str] | None = None,
) -> None:
    """Add one member; a name with a slash at the end is a folder."""
    info = tarfile.TarInfo(name)
    info.type = kind or (tarfile.DIRTYPE if name.endswith("/") else tarfile.SYMTYPE if link else tarfile.REGTYPE)
    info.mode, info.uid, info.gid, info.mtime, info.linkname = mode, uid, gid, mtime, link
    info.size = len(data or b"")
    info.pax_headers = pax or {}
    archive.addfile(info, io.BytesIO(data or b""))


def layer_tar(*members: tuple[str, dict[str, object]], form: int = tarfile.PAX_FORMAT) -> bytes:
    """A layer's tar of members ``(name, keywords of add)``."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as archive:
        for name, keywords in members:
            add(archive, name, **keywords)  # type: ignore[arg-type]
    return out.getvalue()


def base_layers() -> list[bytes]:
    """Two layers: a distribution with ``lib64 -> lib`` in a venv, and a package on top of it."""
    bottom = layer_tar(
        ("etc/", {}),
        ("etc/passwd", {"data": b"root:x:0:0::/root:/bin/sh\n"}),
        *((name, {}) for name in PARENTS[:4]),
        ("opt/venv/lib64", {"link": "lib"}),
        ("opt/gone", {"data": b"x"}),
    )
    top = layer_tar(
        *((name, {"mode": 0o750, "uid": 2000, "gid": 2000, "mtime": 1700000000}) for name in PARENTS),
        (f"{SITE}/pkg/__init__.py", {"data": b""}),
        (f"{SITE}/pkg/norm.py", {"data": b"x = 1\n", "mode": 0o640, "uid": 2000, "gid": 2000, "mtime": 1700000001}),
        (f"{SITE}/pkg/__pycache__/", {"mtime": 1700000002}),
        (f"{SITE}/pkg/__pycache__/norm.cpython-311.pyc", {"data": b"stale"}),
        ("opt/.wh.gone", {}),
    )
    return [bottom, top]


def config_for(layers: list[bytes], arch: str = "amd64") -> bytes:
    """A config as Docker writes it, with keys that Go's structs do not know."""
    value = {
        "architecture": arch,
        "config": {
            "Env": ["PATH=/opt/venv/bin:/usr/bin", "A=<&>"],
            "Entrypoint": ["serve"],
            "Cmd": ["--port", "80"],
            "User": "2000",
            "WorkingDir": "/workspace",
            "ExposedPorts": {"8000/tcp": {}},
            "Volumes": {"/data": {}},
            "Healthcheck": {"Test": ["CMD", "true"], "StartInterval": 5000000000, "X-Unknown": 1},
            "Labels": {"maintainer": "somebody", "org.opencontainers.image.version": "1"},
        },
        "created": CREATED,
        "history": [
            *({"created": CREATED, "created_by": f"layer {n}"} for n in range(len(layers))),
            {"created": CREATED, "created_by": "ENV", "empty_layer": True},
        ],
        "os": "linux",
        "rootfs": {"type": "layers", "diff_ids": [sha256(layer) for layer in layers]},
        "x-unknown": {"kept": True},
    }
    text = json.dumps(value, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026").encode()


def write_layout(
    root: Path,
    ref: str = "v1",
    layers: list[bytes] | None = None,
    *,
    architectures: tuple[str, ...] = ("amd64",),
    attest: bool = False,
    docker: bool = False,
    compress=gzip.compress,
    layer_type: str = "",
) -> Path:
    """An OCI layout at ``root`` with one image, or an index of several and their attestations."""
    layers = base_layers() if layers is None else layers
    blobs = root / "blobs" / "sha256"
    blobs.mkdir(parents=True)

    def put(data: bytes, media_type: str, **more: object) -> dict[str, object]:
        (blobs / sha256(data)[7:]).write_bytes(data)
        return {"mediaType": media_type, "digest": sha256(data), "size": len(data), **more}

    oci = "application/vnd.oci.image."
    dock = "application/vnd.docker."
    types = {
        "manifest": dock + "distribution.manifest.v2+json" if docker else oci + "manifest.v1+json",
        "index": dock + "distribution.manifest.list.v2+json" if docker else oci + "index.v1+json",
        "config": dock + "container.image.v1+json" if docker else oci + "config.v1+json",
        "layer": layer_type or (dock + "image.rootfs.diff.tar.gzip" if docker else oci + "layer.v1.tar+gzip"),
    }
    children = []
    for arch in architectures:
        manifest = {
            "schemaVersion": 2,
            "mediaType": types["manifest"],
            "config": put(config_for(layers, arch), types["config"]),
            "layers": [put(compress(layer), types["layer"]) for layer in layers],
            "x-kept": "yes",
        }
        raw = json.dumps(manifest, indent=3).encode()
        children.append(put(raw, types["manifest"], platform={"architecture": arch, "os": "linux"}))
        if attest:
            statement = put(json.dumps({"mediaType": types["manifest"], "for": arch}).encode(), types["manifest"])
            statement["annotations"] = {
                "vnd.docker.reference.digest": children[-1]["digest"],
                "vnd.docker.reference.type": "attestation-manifest",
            }
            statement["platform"] = {"architecture": "unknown", "os": "unknown"}
            children.append(statement)
    entry = children[0]
    if len(architectures) > 1:
        index = {"schemaVersion": 2, "mediaType": types["index"], "manifests": children, "annotations": {"a": "b"}}
        entry = put(json.dumps(index).encode(), types["index"])
    entry = {**entry, "annotations": {"org.opencontainers.image.ref.name": ref}}
    (root / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
    (root / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [entry]}))
    return root


def derivation(data: bytes = b"x = 2\n", **more: object) -> Derivation:
    """A patch of the package's one file, its stale bytecode removed."""
    return Derivation(
        changes=(
            Change(NORM, data, 0o640, 2000, 2000),
            Change(f"/{SITE}/pkg/__pycache__/norm.cpython-311.pyc", None),
        ),
        labels={"dev.patchkit.fingerprint": "sha256:" + "0" * 64, "org.opencontainers.image.base.name": "x"},
        created_by="patchkit apply demo@1",
        **more,  # type: ignore[arg-type]
    )
