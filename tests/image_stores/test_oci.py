from __future__ import annotations

import json
import multiprocessing
import signal
import subprocess
from pathlib import Path

import pytest

from patchkit.errors import BadInput, Refused, Unreachable
from patchkit.images import derive_index, open_all, open_image, parse_reference
from patchkit.images.layer import sha256

from .killed import derive_killed, moments
from .trees import NORM, SITE, base_layers, config_for, derivation, write_layout


def at(root: Path, ref: str = "v1"):
    return parse_reference(f"oci:{root}:{ref}")


def snapshot(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def derive(root: Path, to: str = "v1-patchkit", source: str = "v1", **keywords):
    with open_image(at(root, source)) as image:
        return image.derive(derivation(), at(root, to), **keywords)


def test_a_layout_gives_identity_config_and_files(tmp_path):
    root = write_layout(tmp_path / "layout")
    with open_image(at(root)) as image:
        assert image.config == config_for(base_layers())
        assert image.identity.config == sha256(image.config)
        assert image.identity.diff_ids == tuple(sha256(layer) for layer in base_layers())
        assert image.identity.platform == "linux/amd64"
        assert image.identity.index is None
        assert image.fs.read(NORM) == b"x = 1\n"
        assert image.fs.lstat("/opt/gone") is None
        assert image.fs.listdir(f"/{SITE}/pkg") == ["__init__.py", "__pycache__", "norm.py"]
        assert not image.can_run


def test_a_derived_image_has_the_patched_file_and_all_else_as_before(tmp_path):
    root = write_layout(tmp_path / "layout")
    done = derive(root)
    assert done.reference == at(root, "v1-patchkit")
    assert not done.existed
    with open_image(done.reference) as image, open_image(at(root)) as before:
        assert image.identity == done.identity
        assert image.fs.read(NORM) == b"x = 2\n"
        entry, old = image.fs.lstat(NORM), before.fs.lstat(NORM)
        assert (entry.mode, entry.uid, entry.gid) == (0o640, 2000, 2000)
        assert entry.mtime == old.mtime + 1
        assert image.fs.lstat(f"/{SITE}/pkg") == before.fs.lstat(f"/{SITE}/pkg")
        assert image.fs.lstat(f"/{SITE}/pkg/__pycache__/norm.cpython-311.pyc") is None
        new, value = json.loads(image.config), json.loads(before.config)
        assert new["config"]["Healthcheck"] == value["config"]["Healthcheck"]
        assert len(new["history"]) == len(value["history"]) + 1


def test_the_same_input_gives_the_same_bytes(tmp_path):
    one, two = write_layout(tmp_path / "one"), write_layout(tmp_path / "two")
    assert derive(one).identity == derive(two).identity
    left, right = snapshot(one), snapshot(two)
    assert left == right


def test_a_second_derivation_finds_the_first_and_writes_nothing(tmp_path):
    root = write_layout(tmp_path / "layout")
    first = derive(root)
    before = snapshot(root)
    second = derive(root)
    assert second.existed
    assert second.identity == first.identity
    assert snapshot(root) == before


def test_patching_a_patched_image_starts_from_its_origin_and_stays_one_layer(tmp_path):
    root = write_layout(tmp_path / "layout")
    first = derive(root)
    with open_image(first.reference) as image, open_image(at(root)) as base:
        origin = image.origin()
        assert origin.identity == base.identity
        assert origin.config == base.config
        assert origin.fs.read(NORM) == b"x = 1\n"
        assert image.default_target() == first.reference
        again = image.derive(derivation(b"x = 3\n"), at(root, "other"))
        assert len(again.identity.diff_ids) == len(base.identity.diff_ids) + 1
        straight = base.derive(derivation(b"x = 3\n"), at(root, "straight"))
    assert straight.identity == again.identity


def test_names_are_made_as_promised(tmp_path):
    root = write_layout(tmp_path / "layout")
    with open_image(at(root)) as image:
        assert image.default_target() == at(root, "v1-patchkit")
        assert image.named("mine") == at(root, "mine")
        assert image.named(f"oci:{tmp_path}/x:mine") == parse_reference(f"oci:{tmp_path}/x:mine")
    with open_image(parse_reference(f"oci:{root}")) as image:
        assert image.default_target() == at(root, f"patchkit-{image.identity.config[7:19]}")


def test_the_source_tag_is_not_overwritten_unless_asked(tmp_path):
    root = write_layout(tmp_path / "layout")
    before = snapshot(root)
    with pytest.raises(Refused) as refused:
        derive(root, to="v1")
    assert refused.value.code == "target-is-source"
    assert snapshot(root) == before
    derive(root, to="v1", in_place=True)
    with open_image(at(root)) as image:
        assert image.fs.read(NORM) == b"x = 2\n"


def test_somebody_elses_tag_is_not_taken_without_force(tmp_path):
    root = write_layout(tmp_path / "layout")
    other = write_layout(tmp_path / "other", "theirs", [base_layers()[0]])
    subprocess.run(["skopeo", "copy", "-q", f"oci:{other}:theirs", f"oci:{root}:theirs"], check=True)
    before = snapshot(root)
    with pytest.raises(Refused) as refused:
        derive(root, to="theirs")
    assert refused.value.code == "target-tag-taken"
    assert snapshot(root) == before
    derive(root, to="theirs", force=True)
    with open_image(at(root, "theirs")) as image:
        assert image.fs.read(NORM) == b"x = 2\n"


def test_our_own_older_image_gives_its_tag_to_the_new_one(tmp_path):
    root = write_layout(tmp_path / "layout")
    derive(root)
    with open_image(at(root)) as image:
        image.derive(derivation(b"x = 9\n"), at(root, "v1-patchkit"))
    with open_image(at(root, "v1-patchkit")) as image:
        assert image.fs.read(NORM) == b"x = 9\n"


def test_a_source_tag_that_moved_meanwhile_is_not_overwritten(tmp_path):
    root = write_layout(tmp_path / "layout")
    derive(root)
    with open_image(at(root)) as image:
        index = json.loads((root / "index.json").read_text())
        index["manifests"][0].update({key: index["manifests"][1][key] for key in ("digest", "size")})
        (root / "index.json").write_text(json.dumps(index))
        before = snapshot(root)
        with pytest.raises(Refused) as refused:
            image.derive(derivation(b"x = 5\n"), at(root), in_place=True)
    assert refused.value.code == "tag-moved"
    assert snapshot(root) == before


def test_another_layout_gets_everything_the_image_needs(tmp_path):
    root = write_layout(tmp_path / "layout")
    with open_image(at(root)) as image:
        done = image.derive(derivation(), at(tmp_path / "new", "v2"))
    with open_image(done.reference) as image:
        assert image.fs.read(NORM) == b"x = 2\n"
        assert image.fs.read("/etc/passwd").startswith(b"root")
    subprocess.run(
        ["skopeo", "copy", "-q", f"oci:{tmp_path}/new:v2", f"docker-archive:{tmp_path}/out.tar:x:y"], check=True
    )


def test_skopeo_reads_the_derived_image_by_its_tag(tmp_path):
    root = write_layout(tmp_path / "layout")
    done = derive(root)
    raw = subprocess.run(["skopeo", "inspect", "--raw", str(done.reference)], check=True, capture_output=True).stdout
    assert sha256(raw) == done.identity.manifest
    annotations = json.loads(raw)["annotations"]
    assert annotations["dev.patchkit.fingerprint"].startswith("sha256:")


@pytest.mark.parametrize("docker", [False, True])
def test_an_index_is_patched_on_every_platform_at_once(tmp_path, docker):
    root = write_layout(tmp_path / "layout", architectures=("amd64", "arm64", "s390x"), attest=True, docker=docker)
    images = open_all(at(root))
    assert [image.identity.platform for image in images] == ["linux/amd64", "linux/arm64", "linux/s390x"]
    old = json.loads((root / "blobs/sha256" / images[0].identity.index[7:]).read_text())
    done = derive_index(images, [derivation(), derivation(), None], at(root, "new"))
    assert [one and one.identity.platform for one in done.images] == ["linux/amd64", "linux/arm64", None]
    assert done.images[0].identity.diff_ids[-1] == done.images[1].identity.diff_ids[-1]
    assert list(done.dropped) == [old["manifests"][n]["digest"] for n in (1, 3)]
    new = json.loads((root / "blobs/sha256" / done.index[7:]).read_text())
    assert new["mediaType"] == old["mediaType"]
    assert new["annotations"] == old["annotations"]
    assert new["manifests"][2:] == old["manifests"][4:]
    assert [one["platform"] for one in new["manifests"][:2]] == [
        {"architecture": a, "os": "linux"} for a in ("amd64", "arm64")
    ]
    again = open_all(at(root, "new"))
    assert [image.fs.read(NORM) for image in again] == [b"x = 2\n", b"x = 2\n", b"x = 1\n"]
    assert [image.origin().identity.manifest for image in again] == [image.identity.manifest for image in images]


def test_one_platform_of_an_index_is_patched_and_the_others_stay(tmp_path):
    root = write_layout(tmp_path / "layout", architectures=("amd64", "arm64"))
    with open_image(at(root), platform="linux/arm64") as image:
        image.derive(derivation(), at(root, "new"))
    assert [image.fs.read(NORM) for image in open_all(at(root, "new"))] == [b"x = 1\n", b"x = 2\n"]


def test_a_platform_that_is_not_there_is_told_with_those_that_are(tmp_path):
    root = write_layout(tmp_path / "layout", architectures=("amd64", "arm64"))
    with pytest.raises(Unreachable) as error:
        open_image(at(root), platform="linux/riscv64")
    assert "linux/amd64, linux/arm64" in error.value.what


def test_an_index_copied_to_another_layout_keeps_all_its_platforms(tmp_path):
    root = write_layout(tmp_path / "layout", architectures=("amd64", "arm64"), attest=True)
    images = open_all(at(root))
    derive_index(images, [derivation(), None], at(tmp_path / "new", "v1"))
    assert [image.fs.read(NORM) for image in open_all(at(tmp_path / "new"))] == [b"x = 2\n", b"x = 1\n"]


@pytest.mark.parametrize("which", ["manifest", "config"])
def test_a_blob_that_does_not_match_its_digest_is_told_and_nothing_written(tmp_path, which):
    root = write_layout(tmp_path / "layout")
    with open_image(at(root)) as image:
        digest = getattr(image.identity, which)
    path = root / "blobs/sha256" / digest[7:]
    path.write_bytes(path.read_bytes().replace(b"linux", b"linus") + b" ")
    before = snapshot(root)
    with pytest.raises(Unreachable) as error:
        derive(root)
    assert error.value.code == "digest-mismatch"
    assert snapshot(root) == before


def test_a_damaged_layer_is_told_and_nothing_written(tmp_path):
    root = write_layout(tmp_path / "layout")
    entry = json.loads((root / "index.json").read_text())["manifests"][0]
    manifest = json.loads((root / "blobs/sha256" / entry["digest"][7:]).read_text())
    path = root / "blobs/sha256" / manifest["layers"][1]["digest"][7:]
    data = bytearray(path.read_bytes())
    data[4] ^= 1  # the time in gzip's header: unpacks the same
    path.write_bytes(data)
    before = snapshot(root)
    with pytest.raises(Unreachable) as error:
        derive(root)
    assert error.value.code == "bad-layer"
    assert snapshot(root) == before


def test_a_file_that_changed_since_the_layer_was_indexed_is_not_believed(tmp_path):
    root = write_layout(
        tmp_path / "layout", compress=lambda data: data, layer_type="application/vnd.oci.image.layer.v1.tar"
    )
    with open_image(at(root)) as image:
        assert image.fs.lstat(NORM)
    layer = next(p for p in (root / "blobs/sha256").iterdir() if b"x = 1\n" in p.read_bytes())
    layer.write_bytes(layer.read_bytes().replace(b"x = 1\n", b"x = 7\n"))
    with open_image(at(root)) as image, pytest.raises(Unreachable) as error:
        image.fs.read(NORM)
    assert error.value.code == "bad-layer"


@pytest.mark.parametrize(("ref", "error"), [("", BadInput), ("nowhere", Unreachable)])
def test_a_name_that_is_missing_or_unknown_is_told(tmp_path, ref, error):
    root = write_layout(tmp_path / "layout")
    derive(root)
    with pytest.raises(error):
        open_image(parse_reference(f"oci:{root}" + (f":{ref}" if ref else "")))


@pytest.mark.parametrize("where", ["missing", "."])
def test_a_folder_that_is_no_layout_is_told(tmp_path, where):
    with pytest.raises(Unreachable) as error:
        open_image(parse_reference(f"oci:{tmp_path / where}:x"))
    assert error.value.code == "no-such-image"


def test_another_transport_is_refused_as_target(tmp_path):
    root = write_layout(tmp_path / "layout")
    with open_image(at(root)) as image, pytest.raises(BadInput):
        image.derive(derivation(), parse_reference("docker://localhost/x:y"))


def test_too_many_layers_are_refused(tmp_path):
    root = write_layout(tmp_path / "layout", layers=[base_layers()[0]] * 119 + [base_layers()[1]])
    with pytest.raises(Refused) as refused:
        derive(root)
    assert refused.value.code == "too-many-layers"


def one_of_many(root: str, number: int) -> None:
    with open_image(parse_reference(f"oci:{root}:v1")) as image:
        image.derive(derivation(b"x = %d\n" % number), parse_reference(f"oci:{root}:tag{number}"))


def test_runs_at_the_same_time_lose_no_tag(tmp_path):
    root = write_layout(tmp_path / "layout")
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=one_of_many, args=(str(root), number)) for number in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * 8
    for number in range(8):
        with open_image(at(root, f"tag{number}")) as image:
            assert image.fs.read(NORM) == b"x = %d\n" % number


def test_a_run_killed_at_any_moment_leaves_the_old_image_or_the_new_one(tmp_path):
    seen = set()
    for moment in moments():
        root = write_layout(tmp_path / f"layout{moment}")
        status = derive_killed(at(root), at(root), moment, in_place=True)
        with open_image(at(root)) as image:
            content = image.fs.read(NORM)
            assert content in (b"x = 1\n", b"x = 2\n")
            seen.add((status, content))
            image.derive(derivation(), at(root, "after"))
        if status == 0:
            break
    assert seen >= {(-signal.SIGKILL, b"x = 1\n"), (-signal.SIGKILL, b"x = 2\n"), (0, b"x = 2\n")}


def test_a_full_disk_leaves_the_layout_as_it_was(tmp_path):
    place = tmp_path / "small"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)], check=False).returncode:
        raise AssertionError("this test mounts a tmpfs and needs the right to do so")
    try:
        root = write_layout(place / "layout")
        before = snapshot(root)
        big = derivation(bytes(100_000))
        with open_image(at(root)) as image, pytest.raises(Unreachable) as error:
            image.derive(big, at(root, "new"))
        assert error.value.code == "cannot-write"
        assert "No space left" in error.value.what
        assert snapshot(root) == before
    finally:
        subprocess.run(["umount", str(place)], check=True)
