"""Images with more names than one: pulled from a registry, and indexes of several platforms on the containerd store."""

from __future__ import annotations

import io
import json
import shutil
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from patchkit.errors import Unreachable
from patchkit.images import daemon_files, daemon_store, open_image, parse_reference
from patchkit.images.engine import engine
from patchkit.images.layer import sha256
from patchkit.images.model import Change, Reference
from tests import images
from tests.engine_transport.conftest import SITE, Place, cache_of, derivation
from tests.image_stores import servers

_NEW = Change(f"{SITE}/tinyserve/patched.py", b"VALUE = 1\n")


def _pulled(place: Place, registry: str) -> str:
    """An image of this test's own that was pushed to the registry and pulled back."""
    name, _ = place.load_own("pure")
    remote = f"{registry}/{place.prefix}"
    place.engine.tag(name, f"{remote}:1")
    auth = {"X-Registry-Auth": "e30="}
    for action, path in (("push", f"/images/{remote}/push"), ("pull", "/images/create")):
        params = {"tag": "1"} if action == "push" else {"fromImage": remote, "tag": "1"}
        for _ in place.engine.stream("POST", path, params=params, headers=auth):
            pass
    return f"{remote}:1"


def test_a_pulled_image_is_known_by_its_repo_digest_too(docker_place: Place, tmp_path: Path) -> None:
    with (
        servers.registry(tmp_path / "registry") as registry,
        docker_place.open(_pulled(docker_place, registry)) as image,
    ):
        (repo_digest,) = image.identity.repo_digests
        assert repo_digest.startswith(f"{registry}/{docker_place.prefix}@sha256:")
        assert image.identity.digests == (image.identity.config, repo_digest.rpartition("@")[2])
        with docker_place.open(repo_digest) as by_digest:
            assert by_digest.identity == image.identity
            assert by_digest.default_target().name.startswith("patchkit-")
        with open_image(parse_reference(f"docker://{registry}/{docker_place.prefix}:1")) as remote:
            assert remote.identity.config == image.identity.config
            assert remote.identity.diff_ids == image.identity.diff_ids


def test_where_the_store_is_closed_the_registry_gives_the_raw_config(
    docker_place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache_of(tmp_path / "cache", monkeypatch)
    monkeypatch.setattr(daemon_store._Reader, "read", lambda *_, **__: None)
    with servers.registry(tmp_path / "registry") as registry:
        name = _pulled(docker_place, registry)
        with docker_place.open(name) as image:
            assert sha256(image.config) == image.id
            assert image.documents is not None
            assert image.documents.road == "registry"
            derived = image.derive(derivation(docker_place, _NEW), Reference("docker-daemon", docker_place.name("new")))
            assert derived.road == "partial archive, config from the registry"
    with docker_place.open(name) as later:
        assert later.documents is None, "a registry that is gone is no error"


@pytest.fixture
def several(hosts: Callable[[str], str | None], tmp_path: Path) -> Iterator[tuple[Place, str, str]]:
    """The containerd store with an index of two platforms and an attestation: place, name, the index's digest."""
    place = Place("containerd", engine(hosts("containerd")), f"patchkit-test-{tmp_path.name[-20:]}".lower())
    layout = tmp_path / "layout"
    shutil.copytree(images.layout("pure"), layout)
    blobs = layout / "blobs/sha256"

    def blob(data: bytes, media_type: str, **more: object) -> dict[str, object]:
        (blobs / sha256(data).removeprefix("sha256:")).write_bytes(data)
        return {"mediaType": media_type, "digest": sha256(data), "size": len(data), **more}

    top = json.loads((layout / "index.json").read_text())["manifests"][0]
    manifest = json.loads((blobs / top["digest"].removeprefix("sha256:")).read_text())
    config = json.loads((blobs / manifest["config"]["digest"].removeprefix("sha256:")).read_text())
    other_config = blob(json.dumps({**config, "architecture": "arm64"}).encode(), manifest["config"]["mediaType"])
    other = blob(
        json.dumps({**manifest, "config": other_config}).encode(),
        top["mediaType"],
        platform={"os": "linux", "architecture": "arm64"},
    )
    marks = {"vnd.docker.reference.type": "attestation-manifest", "vnd.docker.reference.digest": top["digest"]}
    attested = blob(
        json.dumps({**manifest, "config": other_config, "layers": []}).encode(),
        top["mediaType"],
        platform={"os": "unknown", "architecture": "unknown"},
        annotations=marks,
    )
    mine = {key: top[key] for key in ("mediaType", "digest", "size", "platform")}
    index = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": [other, mine, attested],
        }
    ).encode()
    name = place.name("nightly")
    described = blob(
        index,
        "application/vnd.oci.image.index.v1+json",
        annotations={"io.containerd.image.name": f"docker.io/library/{name}"},
    )
    (layout / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [described]}))
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.add(layout, ".")
    for _ in place.engine.stream("POST", "/images/load", data=buffer.getvalue()):
        pass
    yield place, name, sha256(index)
    place.clean()


def test_an_index_is_told_with_the_manifest_and_config_of_the_platform_that_runs_here(
    several: tuple[Place, str, str],
) -> None:
    place, name, index = several
    with place.open(name) as image:
        assert image.identity.index == index == image.id
        assert image.identity.config == images.build("pure").image_id
        assert image.identity.platform == "linux/amd64"
        assert image.documents is not None
        assert image.identity.manifest == sha256(image.documents.manifest or b"")
        assert image.identity.manifest in image.identity.digests


def test_the_image_of_one_platform_is_derived_from_an_index_and_the_index_stays(
    several: tuple[Place, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    place, name, index = several
    monkeypatch.setattr(daemon_files, "LIST_BUDGET", 1 << 30)
    with place.open(name) as image:
        derived = image.derive(
            derivation(place, _NEW, origin=image.identity.config), Reference("docker-daemon", place.name("new"))
        )
        assert derived.identity.index is None
        assert derived.identity.diff_ids[:-1] == image.identity.diff_ids
    found = place.engine.inspect_image(name)
    assert found is not None
    assert found["Id"] == index
    with place.open(derived.reference.name) as patched, patched.origin() as origin:
        assert origin.identity.config == images.build("pure").image_id


def test_a_platform_that_the_engine_does_not_hold_is_unreachable(
    docker_place: Place,
) -> None:
    name = docker_place.load("pure")
    with open_image(parse_reference(name), platform="linux/amd64") as image:
        assert image.identity.platform == "linux/amd64"
    with pytest.raises(Unreachable) as caught:
        open_image(parse_reference(name), platform="linux/arm64")
    assert caught.value.remedy == f"docker pull --platform linux/arm64 {name}"
