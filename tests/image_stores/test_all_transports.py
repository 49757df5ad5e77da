"""The same image in every place, patched with the same patch: the same layer, the same files, the same code runs."""

from __future__ import annotations

import json
import subprocess
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from patchkit.images import edit, open_image, parse_reference
from patchkit.images.layer import build_layer
from patchkit.images.model import Change, Derivation, Image, Run
from patchkit.images.paths import realpath
from tests import images

from .servers import registry

TRANSPORTS = ["oci", "oci-archive", "docker-archive", "docker", "docker-daemon", "rootfs"]
PACKAGE = "/opt/venv/lib64/python3.11/site-packages/tinyserve/__init__.py"
PYTHON = "/opt/venv/bin/python3"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with registry(tmp_path_factory.mktemp("registry")) as host:
        subprocess.run(
            [
                *("skopeo", "copy", "-q", "--dest-tls-verify=false", "--preserve-digests"),
                *(f"oci:{images.layout('pure')}:latest", f"docker://{host}/pure:latest"),
            ],
            check=True,
        )
        yield host


@pytest.fixture
def place(tmp_path, server, request) -> Callable[[str], tuple[str, str]]:
    """Source and target of a transport; what it makes in an engine is removed again."""

    def make(transport: str) -> tuple[str, str]:
        if transport == "docker":
            return f"docker://{server}/pure:latest", f"docker://{server}/pure:{uuid.uuid4().hex}"
        if transport == "docker-daemon":
            client = request.getfixturevalue("engine")
            name = request.getfixturevalue("fixture_image")("pure")
            target = f"patchkit-stores/{uuid.uuid4().hex}:test"
            request.addfinalizer(lambda: client.images.remove(target, force=True))
            return f"docker-daemon:{name}", f"docker-daemon:{target}"
        if transport == "rootfs":
            root = tmp_path / "pure"
            subprocess.run(["cp", "-a", images.rootfs("pure"), root], check=True)
            (tmp_path / "pure.config.json").write_bytes(images.build("pure").config)
            return f"rootfs:{root}", f"rootfs:{tmp_path}/patched"
        layout = tmp_path / transport
        images.write_layout(layout, images.build("pure").config, images.build("pure").layers)
        if transport == "oci":
            return f"oci:{layout}:latest", f"oci:{layout}:patched"
        target = f"{transport}:{tmp_path}/{transport}-pure.tar" + (
            ":pure:latest" if transport == "docker-archive" else ":latest"
        )
        subprocess.run(["skopeo", "copy", "-q", f"oci:{layout}:latest", target], check=True)
        return target, target.replace("pure.tar", "patched.tar")

    return make


def patch(image: Image) -> Derivation:
    """One more line in the package, whatever the transport: made from what the image itself holds."""
    path = realpath(image.fs, PACKAGE)
    entry = image.fs.lstat(path)
    assert entry is not None
    data = image.fs.read(path) + b"\nPATCHED = 'yes'\n"
    change = Change(path, data, entry.mode, entry.uid, entry.gid, entry.mtime, entry.xattrs)
    labels = {edit.FINGERPRINT: "f" * 64, edit.ORIGIN_KIND: image.reference.transport}
    return Derivation((change,), labels, "patchkit apply tiny ffffffffffff")


def derive(source: str, target: str):
    with open_image(parse_reference(source)) as image:
        return image.identity, image.config, image.derive(patch(image), parse_reference(target))


def test_every_transport_gets_the_same_layer(place):
    done = {transport: derive(*place(transport))[2] for transport in TRANSPORTS}
    assert len({one.identity.diff_ids[-1] for one in done.values()}) == 1
    layered = [one for transport, one in done.items() if transport != "rootfs"]
    assert len({one.identity.diff_ids for one in layered}) == 1


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_all_that_was_not_meant_to_change_is_as_before(place, transport):
    source, target = place(transport)
    _, config, done = derive(source, target)
    with open_image(parse_reference(target)) as image, open_image(parse_reference(source)) as before:
        assert list(edit.differences(config, image.config)) == []
        new, old = json.loads(image.config), json.loads(config)
        for key in ("Env", "Entrypoint", "Cmd", "User", "WorkingDir", "Healthcheck", "ExposedPorts", "Volumes"):
            assert (new.get("config") or {}).get(key) == (old.get("config") or {}).get(key)
        path = realpath(image.fs, PACKAGE)
        entry, was = image.fs.lstat(path), before.fs.lstat(path)
        assert entry is not None
        assert was is not None
        assert replace(entry, size=0) == replace(was, size=0, mtime=was.mtime + 1)
        folder = path.rpartition("/")[0]
        assert image.fs.lstat(folder) == before.fs.lstat(folder)
        assert image.fs.lstat("/opt/venv/lib64").kind == "symlink"  # type: ignore[union-attr]
    assert not done.existed


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_second_run_finds_the_first_and_a_third_starts_from_the_origin(place, transport):
    source, target = place(transport)
    identity, _, _ = derive(source, target)
    assert derive(source, target)[2].existed
    with open_image(parse_reference(target)) as image:
        origin = image.origin()
        assert origin.identity.diff_ids == identity.diff_ids
        assert patch(origin).changes == patch_of(source).changes
        assert len(build_layer(origin.fs, patch(origin).changes).blob) < 30_000
        assert len(image.identity.diff_ids) == len(identity.diff_ids) + 1


def patch_of(source: str) -> Derivation:
    with open_image(parse_reference(source)) as image:
        return patch(image)


@pytest.mark.parametrize("transport", ["docker-daemon", "rootfs"])
def test_python_in_the_derived_image_imports_the_patched_bytes(place, transport):
    source, target = place(transport)
    derive(source, target)
    with open_image(parse_reference(target)) as image:
        assert image.can_run
        result = image.run(Run((PYTHON, "-c", "import tinyserve; print(tinyserve.PATCHED, tinyserve.__file__)")))
        assert result.stdout.startswith(b"yes /opt/venv/"), result.stderr


@pytest.mark.engine
@pytest.mark.parametrize("transport", ["oci", "oci-archive", "docker-archive", "docker"])
def test_a_container_of_the_derived_image_imports_the_patched_bytes(place, transport, engine, tmp_path):
    _, target = source_and_target = place(transport)
    derive(*source_and_target)
    name = f"patchkit-stores/{uuid.uuid4().hex}:test"
    tls = ["--src-tls-verify=false"] if transport == "docker" else []
    archive = tmp_path / "loaded.tar"
    subprocess.run(["skopeo", "copy", "-q", *tls, target, f"docker-archive:{archive}:{name}"], check=True)
    try:
        with archive.open("rb") as stream:
            engine.images.load(stream)
        said = engine.containers.run(
            name,
            ["-c", "import tinyserve; print(tinyserve.PATCHED)"],
            entrypoint=PYTHON,
            working_dir="/",  # the image's own holds a checkout that wins there
            remove=True,
            network_mode="none",
        )
        assert said == b"yes\n"
    finally:
        engine.images.remove(name, force=True)


def test_the_layer_holds_no_name_of_a_transport_or_place(place, tmp_path):
    source, target = place("oci")
    derive(source, target)
    manifest = json.loads(
        subprocess.run(["skopeo", "inspect", "--raw", target], check=True, capture_output=True).stdout
    )
    layer = Path(source[4:].partition(":")[0]) / "blobs/sha256" / manifest["layers"][-1]["digest"][7:]
    data = layer.read_bytes()
    assert str(tmp_path).encode() not in data
    assert b"oci:" not in data
