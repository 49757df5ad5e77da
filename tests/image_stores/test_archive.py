from __future__ import annotations

import hashlib
import io
import json
import signal
import subprocess
import tarfile
from pathlib import Path

import pytest

from patchkit.errors import BadInput, Refused, Unreachable
from patchkit.images import derive_index, open_all, open_image, parse_reference
from patchkit.images.layer import sha256

from .killed import derive_killed, moments
from .trees import NORM, add, base_layers, config_for, derivation, write_layout

KINDS = ["oci-archive", "docker-archive", "docker-archive-as-skopeo-writes-it"]
TAG = "example/app:v1"


def docker_save(path: Path, layers=None, tags=(TAG,), config=None, *, first: bool = False) -> None:
    """An archive as ``docker save`` of the classic store writes it; ``first`` puts manifest.json at its beginning."""
    layers = base_layers() if layers is None else layers
    config = config or config_for(layers)
    names = [f"{sha256(layer)[7:19]}/layer.tar" for layer in layers]
    line = {"Config": f"{sha256(config)[7:]}.json", "RepoTags": list(tags), "Layers": names}
    manifest = ("manifest.json", json.dumps([line]).encode())
    with tarfile.open(path, "w") as archive:
        if first:
            add(archive, *manifest)
        for name, layer in zip(names, layers, strict=True):
            add(archive, name.split("/")[0] + "/")
            add(archive, name, layer)
        add(archive, line["Config"], config)
        if not first:
            add(archive, *manifest)
        add(archive, "repositories", b"{}")


def make(tmp_path: Path, kind: str) -> str:
    """An archive of the small image; returns ``transport:path:ref``."""
    path = tmp_path / "image.tar"
    if kind == "docker-archive":
        docker_save(path)
        return f"docker-archive:{path}:{TAG}"
    if not (tmp_path / "layout").exists():
        write_layout(tmp_path / "layout")
    target = f"oci-archive:{path}:v1" if kind == "oci-archive" else f"docker-archive:{path}:{TAG}"
    subprocess.run(["skopeo", "copy", "-q", f"oci:{tmp_path}/layout:v1", target], check=True)
    return target


def read(reference: str) -> bytes:
    with open_image(parse_reference(reference)) as image:
        return image.fs.read(NORM)


@pytest.mark.parametrize("kind", KINDS)
def test_an_archive_gives_identity_config_and_files(tmp_path, kind):
    with open_image(parse_reference(make(tmp_path, kind))) as image:
        assert image.fs.read(NORM) == b"x = 1\n"
        assert image.identity.diff_ids == tuple(sha256(layer) for layer in base_layers())
        assert image.identity.config == sha256(image.config)
        assert (image.identity.manifest is None) == kind.startswith("docker")


@pytest.mark.parametrize("kind", KINDS)
def test_a_derived_archive_lies_beside_the_old_one_which_stays(tmp_path, kind):
    source = make(tmp_path, kind)
    before = (tmp_path / "image.tar").read_bytes()
    with open_image(parse_reference(source)) as image:
        target = image.default_target()
        done = image.derive(derivation(), target)
    assert str(target) == source.replace("image.tar", "image-patchkit.tar") + "-patchkit"
    assert (tmp_path / "image.tar").read_bytes() == before
    assert read(str(target)) == b"x = 2\n"
    with open_image(target) as image:
        assert image.identity == done.identity
        assert image.origin().fs.read(NORM) == b"x = 1\n"
        assert image.default_target() == target
        again = image.derive(derivation(), target)
    assert again.existed


@pytest.mark.parametrize("kind", KINDS)
def test_in_place_only_the_end_of_the_file_changes(tmp_path, kind):
    source = make(tmp_path, kind)
    path = tmp_path / "image.tar"
    before, inode = path.read_bytes(), path.stat().st_ino
    with open_image(parse_reference(source)) as image:
        with pytest.raises(Refused) as refused:
            image.derive(derivation(), image.reference)
        assert refused.value.code == "target-is-source"
        assert path.read_bytes() == before
        image.derive(derivation(), image.reference, in_place=True)
    assert read(source) == b"x = 2\n"
    assert path.stat().st_ino == inode
    same = next(n for n, (a, b) in enumerate(zip(before, path.read_bytes(), strict=False)) if a != b)
    with tarfile.open(fileobj=io.BytesIO(before)) as archive:
        lists = [info.offset for info in archive if info.name in ("index.json", "manifest.json", "repositories")]
    assert same >= min(lists)
    assert not [path.name for path in tmp_path.iterdir() if "patchkit-" in path.name]


@pytest.mark.parametrize("kind", KINDS)
def test_other_tools_read_the_patched_archive_as_the_one_image_it_is(tmp_path, kind):
    source = make(tmp_path, kind)
    with open_image(parse_reference(source)) as image:
        done = image.derive(derivation(), image.reference, in_place=True)
    subprocess.run(["skopeo", "copy", "-q", source, f"oci:{tmp_path}/out:x"], check=True)
    with open_image(parse_reference(f"oci:{tmp_path}/out:x")) as image:
        assert image.fs.read(NORM) == b"x = 2\n"
        assert image.identity.diff_ids == done.identity.diff_ids
    with tarfile.open(tmp_path / "image.tar") as archive:
        names = archive.getnames()
    assert len(names) == len(set(names))


def test_the_same_input_gives_the_same_archive(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        with open_image(parse_reference(make(tmp_path / name, "docker-archive"))) as image:
            image.derive(derivation(), parse_reference(f"docker-archive:{tmp_path}/{name}/new.tar:x:y"))
    assert (tmp_path / "a/new.tar").read_bytes() == (tmp_path / "b/new.tar").read_bytes()


def test_a_list_at_the_beginning_of_the_archive_is_replaced_too(tmp_path):
    docker_save(tmp_path / "image.tar", first=True)
    with open_image(parse_reference(f"docker-archive:{tmp_path}/image.tar")) as image:
        image.derive(derivation(), image.reference, in_place=True)
    assert read(f"docker-archive:{tmp_path}/image.tar:{TAG}") == b"x = 2\n"
    with tarfile.open(tmp_path / "image.tar") as archive:
        assert archive.getnames().count("manifest.json") == 1


def test_the_lists_of_newer_docker_saves_do_not_survive_with_the_old_image(tmp_path):
    path = tmp_path / "image.tar"
    docker_save(path)
    with tarfile.open(path, "a") as archive:
        add(archive, "index.json", b'{"schemaVersion":2,"manifests":[]}')
        add(archive, "oci-layout", b"{}")
    with open_image(parse_reference(f"docker-archive:{path}")) as image:
        image.derive(derivation(), image.reference, in_place=True)
    with tarfile.open(path) as archive:
        assert not {"index.json", "oci-layout", "repositories"} & set(archive.getnames())


def test_of_several_images_in_an_archive_one_is_named_and_the_others_stay(tmp_path):
    path = tmp_path / "image.tar"
    layers = base_layers()
    other = config_for(layers, "arm64")
    docker_save(path)
    with tarfile.open(path) as archive:
        lines = json.load(archive.extractfile("manifest.json"))
    lines.append({**lines[0], "Config": f"{sha256(other)[7:]}.json", "RepoTags": ["example/other:v1"]})
    with tarfile.open(path, "a") as archive:
        add(archive, f"{sha256(other)[7:]}.json", other)
        add(archive, "manifest.json", json.dumps(lines).encode())
    with pytest.raises(BadInput) as refused:
        open_image(parse_reference(f"docker-archive:{path}"))
    assert TAG in refused.value.what
    with open_image(parse_reference(f"docker-archive:{path}:example/other:v1")) as image:
        assert image.identity.platform == "linux/arm64"
        image.derive(derivation(), image.reference, in_place=True)
    assert read(f"docker-archive:{path}:example/other:v1") == b"x = 2\n"
    assert read(f"docker-archive:{path}:{TAG}") == b"x = 1\n"


@pytest.mark.parametrize("kind", KINDS)
def test_a_tag_added_in_place_leaves_the_source_tag_as_it_was(tmp_path, kind):
    source = make(tmp_path, kind)
    with open_image(parse_reference(source)) as image:
        image.derive(derivation(), parse_reference(source + "-new"), in_place=True)
    assert (read(source), read(source + "-new")) == (b"x = 1\n", b"x = 2\n")


@pytest.mark.parametrize("kind", KINDS)
def test_an_archive_that_somebody_else_made_is_not_replaced(tmp_path, kind):
    source = make(tmp_path, kind)
    other = tmp_path / "sub"
    other.mkdir()
    docker_save(other / "theirs.tar", [base_layers()[1]])
    target = f"docker-archive:{other}/theirs.tar:{TAG}"
    if kind == "oci-archive":
        target = f"oci-archive:{other}/theirs2.tar:v1"
        subprocess.run(["skopeo", "copy", "-q", f"docker-archive:{other}/theirs.tar", target], check=True)
    with open_image(parse_reference(source)) as image:
        with pytest.raises(Refused) as refused:
            image.derive(derivation(), parse_reference(target))
        assert refused.value.code == "target-tag-taken"
        image.derive(derivation(), parse_reference(target), force=True)
    assert read(target) == b"x = 2\n"


def test_an_index_in_an_archive_is_patched_on_every_platform(tmp_path):
    layout = write_layout(tmp_path / "layout", architectures=("amd64", "arm64"), attest=True)
    subprocess.run(["tar", "-cf", tmp_path / "image.tar", "-C", layout, "."], check=True)
    images = open_all(parse_reference(f"oci-archive:{tmp_path}/image.tar:v1"))
    done = derive_index(images, [derivation(), derivation()], images[0].default_target())
    assert len(done.dropped) == 2
    assert [image.fs.read(NORM) for image in open_all(done.reference)] == [b"x = 2\n"] * 2


@pytest.mark.parametrize("kind", ["oci-archive", "docker-archive"])
@pytest.mark.parametrize("in_place", [True, False])
def test_a_run_killed_at_any_moment_leaves_the_old_archive_or_the_new_one(tmp_path, kind, in_place):
    source = make(tmp_path, kind)
    path = tmp_path / "image.tar"
    pristine = path.read_bytes()
    target = source if in_place else source.replace("image.tar", "new.tar")
    seen = set()
    for moment in moments():
        path.write_bytes(pristine)
        (tmp_path / "new.tar").unlink(missing_ok=True)
        status = derive_killed(parse_reference(source), parse_reference(target), moment, in_place=in_place)
        content = read(target) if in_place or (tmp_path / "new.tar").exists() else None
        seen.add((status, content))
        assert content in ((b"x = 1\n", b"x = 2\n") if in_place else (None, b"x = 2\n"))
        assert read(source) == (content if in_place else b"x = 1\n")
        if content == b"x = 1\n":
            assert path.read_bytes() == pristine
        assert not list(tmp_path.glob("*-undo"))
        if status == 0:
            break
    old = b"x = 1\n" if in_place else None
    assert seen >= {(-signal.SIGKILL, old), (0, b"x = 2\n")}


def test_a_full_disk_while_the_end_is_replaced_puts_the_old_end_back(tmp_path):
    place = tmp_path / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(place)], check=True)
    try:
        source = f"docker-archive:{place}/image.tar"
        docker_save(place / "image.tar")
        before = (place / "image.tar").read_bytes()
        with open_image(parse_reference(source)) as image, pytest.raises(Unreachable) as error:
            image.derive(derivation(bytes(250_000)), image.reference, in_place=True)
        assert error.value.code == "cannot-write"
        assert (place / "image.tar").read_bytes() == before
        assert [path.name for path in place.iterdir()] == ["image.tar"]
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_an_undo_file_of_another_archive_is_not_replayed(tmp_path):
    source = make(tmp_path, "docker-archive")
    head = json.dumps({"inode": 1, "device": 1, "cut": 0}).encode()
    (tmp_path / "image.tar.patchkit-undo").write_bytes(head + b"\nrubbish")
    before = (tmp_path / "image.tar").read_bytes()
    with pytest.raises(Unreachable) as error:
        open_image(parse_reference(source))
    assert error.value.code == "stale-undo"
    assert (tmp_path / "image.tar").read_bytes() == before


@pytest.mark.parametrize("text", [b"", b"{", b"[]x", b"rubbish\n" * 10])
def test_an_undo_file_that_makes_no_sense_is_told(tmp_path, text):
    source = make(tmp_path, "docker-archive")
    (tmp_path / "image.tar.patchkit-undo").write_bytes(text)
    with pytest.raises(Unreachable) as error:
        open_image(parse_reference(source))
    assert error.value.code == "stale-undo"


def test_a_damaged_config_or_layer_is_told_and_nothing_written(tmp_path):
    source = make(tmp_path, "docker-archive")
    path = tmp_path / "image.tar"
    pristine = path.read_bytes()
    for old, new in ((b'"os":"linux"', b'"os":"linus"'), (b"x = 1\n", b"x = 7\n")):
        path.write_bytes(pristine.replace(old, new))
        before = path.read_bytes()
        with pytest.raises(Unreachable) as error, open_image(parse_reference(source)) as image:
            image.derive(derivation(), image.reference, in_place=True)
        assert error.value.code in ("digest-mismatch", "bad-layer")
        assert path.read_bytes() == before


@pytest.mark.parametrize("kind", ["oci-archive", "docker-archive"])
@pytest.mark.parametrize("data", [b"", b"\x1f\x8b" + bytes(600), b"no tar at all" * 100, None])
def test_a_file_that_is_no_archive_is_told(tmp_path, kind, data):
    if data is not None:
        (tmp_path / "x.tar").write_bytes(data)
    with pytest.raises(Unreachable):
        open_image(parse_reference(f"{kind}:{tmp_path}/x.tar"))


@pytest.mark.parametrize(
    "text", [b"{}", b"[1]", b'[{"Config":1}]', b'[{"Config":"x","Layers":[]}]', b'[{"Config":"x","Layers":[1]}]', b"["]
)
def test_a_list_of_images_that_makes_no_sense_is_told(tmp_path, text):
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        add(archive, "manifest.json", text)
    with pytest.raises(Unreachable):
        open_image(parse_reference(f"docker-archive:{tmp_path}/x.tar"))


def test_layers_that_are_links_to_others_are_found(tmp_path):
    layers = [base_layers()[0], base_layers()[1], base_layers()[1]]
    config = config_for(layers)
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        add(archive, "a/layer.tar", layers[0])
        add(archive, "b/layer.tar", layers[1])
        add(archive, "c/layer.tar", link="../b/layer.tar")
        add(archive, "c.json", config)
        line = {"Config": "c.json", "RepoTags": None, "Layers": [f"{n}/layer.tar" for n in "abc"]}
        add(archive, "manifest.json", json.dumps([line]).encode())
    assert read(f"docker-archive:{tmp_path}/x.tar") == b"x = 1\n"


@pytest.mark.engine
def test_docker_loads_the_patched_archive_and_runs_into_the_patched_bytes(tmp_path):
    import docker

    source = make(tmp_path, "docker-archive")
    with open_image(parse_reference(source)) as image:
        done = image.derive(
            derivation(), parse_reference(f"docker-archive:{tmp_path}/new.tar:patchkit-stores-test:one")
        )
    client = docker.from_env()
    try:
        loaded = client.images.load((tmp_path / "new.tar").read_bytes())
        assert [image.id for image in loaded] == [done.identity.config]
        container = client.containers.create("patchkit-stores-test:one", command=["x"])
        try:
            stream, _ = container.get_archive(NORM)
            with tarfile.open(fileobj=io.BytesIO(b"".join(stream))) as archive:
                assert archive.extractfile("norm.py").read() == b"x = 2\n"
        finally:
            container.remove()
    finally:
        client.images.remove("patchkit-stores-test:one", force=True)
    assert hashlib.sha256(image.config).hexdigest() != done.identity.config[7:]
