"""The main job on a real engine with the real vLLM: one command, a derived image, proven."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import tarfile

import pytest

pytestmark = pytest.mark.engine

SITE = "/opt/venv/lib/python3.11/site-packages"
FLINT = ("vllm/models/flint/ops/norm.py", "vllm/models/flint/ops/moe.py", "vllm/models/flint/model.py")


def sha256_in(engine, image, path):
    """The hash of a file as a fresh container of the image has it, read through the archive API."""
    container = engine.containers.create(image, entrypoint=["/none"])
    try:
        stream, _ = container.get_archive(path)
        with tarfile.open(fileobj=io.BytesIO(b"".join(stream))) as archive:
            return hashlib.sha256(archive.extractfile(archive.next()).read()).hexdigest()
    finally:
        container.remove()


def served(engine, image, **options):
    """What the package's server says of itself when a container of the image starts it as the image says."""
    output = engine.containers.run(image, remove=True, **options).decode()
    return [json.loads(line) for line in output.splitlines()]


def test_apply_gives_a_proven_image_in_which_the_serving_launch_finds_the_patched_bytes(
    engine, fixture_image, scratch, patchkit
):
    image = scratch.tagged(fixture_image("xpu"), "vllm-xpu:nightly")
    done = patchkit("apply", "--image", image, "--json", status=0)
    answer = done.json
    assert [(file["path"], file["state"]) for file in answer["files"]] == [(path, "applies") for path in FLINT]
    assert {name: done.levels[name] for name in ("bytes", "resolves", "compiles", "bytecode")} == dict.fromkeys(
        ("bytes", "resolves", "compiles", "bytecode"), "passed"
    )
    # vLLM without torch: its imports are blocked by something that the patches do not touch
    assert (done.levels["imports"], done.levels["asserts"]) == ("blocked", "blocked")
    assert {level["cause"] for level in answer["levels"][4:]} == {"torch"}
    derived = f"{image}-patchkit"
    for file in answer["files"]:
        assert "sha256:" + sha256_in(engine, derived, f"{SITE}/{file['path']}") == file["post"]
        assert file["pre"] != file["post"]
    assert patchkit("resolve", "--image", derived, "vllm", status=0)
    patchkit("verify", "--image", derived, status=0)


def test_the_decoy_is_reported_and_untouched(engine, fixture_image, scratch, patchkit):
    image = scratch.tagged(fixture_image("xpu"), "vllm-xpu:nightly")
    before = [sha256_in(engine, image, f"/workspace/vllm/{path}") for path in FLINT]
    answer = patchkit("apply", "--image", image, "--json", status=0).json
    assert [(copy["root"], copy["serves"], copy["decoy"]) for copy in answer["copies"]] == [
        (f"{SITE}/vllm", True, False),
        ("/workspace/vllm/vllm", False, True),
    ]
    assert "-m" in answer["copies"][1]["wins_for"]
    assert [sha256_in(engine, f"{image}-patchkit", f"/workspace/vllm/{path}") for path in FLINT] == before


def test_a_second_run_gives_the_same_image_and_the_same_files(engine, fixture_image, scratch, patchkit, tmp_path):
    image = scratch.tagged(fixture_image("xpu"), "vllm-xpu:nightly")
    patchkit("apply", "--image", image, status=0)
    first = engine.images.get(f"{image}-patchkit").id
    written = {path.name: path.read_bytes() for path in (tmp_path / ".patchkit").iterdir()}
    again = patchkit("apply", "--image", image, "--json", status=0).json
    assert engine.images.get(f"{image}-patchkit").id == first
    assert again["delivery"]["existed"]
    assert {path.name: path.read_bytes() for path in (tmp_path / ".patchkit").iterdir()} == written


def test_applying_to_the_patched_image_starts_from_its_origin_and_adds_no_second_layer(
    engine, fixture_image, scratch, patchkit, tiny
):
    image = scratch.tagged(fixture_image("pure"), "tinyserve:1")
    patchkit("apply", "--image", image, *tiny, status=0)
    once = engine.images.get(f"{image}-patchkit")
    patchkit("apply", "--image", f"{image}-patchkit", *tiny, status=0)
    assert not _exists(engine, f"{image}-patchkit-patchkit")
    twice = engine.images.get(f"{image}-patchkit")
    assert twice.attrs["RootFS"]["Layers"] == once.attrs["RootFS"]["Layers"]
    assert len(once.attrs["RootFS"]["Layers"]) == len(engine.images.get(image).attrs["RootFS"]["Layers"]) + 1


def test_a_patched_image_is_looked_at_and_patched_again_by_its_name_alone(engine, fixture_image, scratch, patchkit):
    image = scratch.tagged(fixture_image("xpu"), "vllm-xpu:nightly")
    patchkit("apply", "--image", image, status=0)
    once = engine.images.get(f"{image}-patchkit").id
    looked = patchkit("status", "--image", f"{image}-patchkit", "--json", status=0).json
    assert {file["state"] for file in looked["files"]} == {"applied"}
    # The patches themselves fulfil their drop conditions here; upstream has not fixed anything.
    assert "no-longer-needed" not in {finding["id"] for finding in looked["findings"]}
    again = patchkit("apply", "--image", f"{image}-patchkit", "--json", status=0).json
    assert again["delivery"]["existed"]
    assert again["image"]["reference"] == f"docker-daemon:{image}"
    assert engine.images.get(f"{image}-patchkit").id == once, "its labels still name the origin"


def test_on_a_package_without_missing_parts_every_level_passes_and_the_server_answers_patched(
    engine, fixture_image, scratch, patchkit, tiny
):
    image = scratch.tagged(fixture_image("pure"), "tinyserve:1")
    done = patchkit(
        "apply", "--image", image, *tiny, "--require", "imports", "--require", "asserts", "--json", status=0
    )
    assert set(done.levels.values()) == {"passed"}
    assert [line["answer"] for line in served(engine, image) if "answer" in line] == [7]
    answers = [line for line in served(engine, f"{image}-patchkit") if "answer" in line]
    assert [line["answer"] for line in answers] == [31]
    assert answers[0]["file"] == f"{SITE}/tinyserve/models/one.py"
    patchkit("verify", "--image", f"{image}-patchkit", *tiny, "--require", "asserts", status=0)


def test_the_derived_image_differs_from_its_origin_only_in_what_was_meant(
    engine, fixture_image, scratch, patchkit, tiny
):
    image = scratch.tagged(fixture_image("richconfig"), "tinyserve:1")
    patchkit("apply", "--image", image, *tiny, "--no-run", status=0)
    before, after = engine.images.get(image).attrs, engine.images.get(f"{image}-patchkit").attrs
    labels = {k: v for k, v in after["Config"].pop("Labels").items() if not k.startswith("dev.patchkit.")}
    base = {key for key in labels if key.startswith("org.opencontainers.image.base.")}
    assert {k: v for k, v in labels.items() if k not in base} == {
        k: v for k, v in (before["Config"].pop("Labels") or {}).items() if k not in base
    }
    assert before["Config"] == after["Config"]


@pytest.mark.parametrize("user", ["root", "1000:1000"])
def test_mounts_of_the_overlay_reach_a_container_that_compose_starts_from_it(
    engine, fixture_image, scratch, patchkit, tiny, tmp_path, compose, user
):
    image = scratch.tagged(fixture_image("pure"), "tinyserve:1")
    done = patchkit("apply", "--image", image, *tiny, "--mode", "bind", "--require", "asserts", status=0)
    assert "to mount" in done.out
    base = tmp_path / "compose.yaml"
    base.write_text(
        f"services:\n  tiny:\n    image: {image}\n    user: '{user}'\n    container_name: {scratch.name('c')}\n"
    )
    lines = compose(tmp_path, "-f", base, "-f", tmp_path / ".patchkit/compose.patchkit.yaml", "up", "--no-log-prefix")
    answers = [json.loads(line) for line in lines.splitlines() if line.startswith('{"who"')]
    assert [line["answer"] for line in answers] == [31]
    patchkit("verify", "--image", image, *tiny, "--require", "asserts", status=0)


def test_somebodys_layers_on_a_patched_image_are_kept_when_it_is_patched_again(
    engine, fixture_image, scratch, patchkit, tiny, tmp_path
):
    image = scratch.tagged(fixture_image("pure"), "tinyserve:1")
    patchkit("apply", "--image", image, *tiny, status=0)
    (tmp_path / "Dockerfile").write_text(f"FROM {image}-patchkit\nCOPY mine /mine\n")
    (tmp_path / "mine").write_text("keep me")
    built = scratch.name("mytinyserve:1")
    engine.images.build(path=str(tmp_path), tag=built, rm=True)
    patchkit("apply", "--image", built, *tiny, "--tag", f"{built}-again", status=0)
    done = patchkit("status", "--image", built, *tiny, "--json", status=0)
    assert [file["state"] for file in done.json["files"]] == ["applied"]
    name = f"{built}-again" if _exists(engine, f"{built}-again") else built
    assert sha256_in(engine, name, "/mine") == hashlib.sha256(b"keep me").hexdigest()
    assert [line["answer"] for line in served(engine, name) if "answer" in line] == [31]


def _exists(engine, name):
    return any(name in (image.get("RepoTags") or ()) for image in engine.api.images())


def test_a_target_tag_that_holds_somebody_elses_image_is_refused_and_left_alone(
    engine, fixture_image, scratch, patchkit
):
    image = scratch.tagged(fixture_image("xpu"), "vllm-xpu:nightly")
    other = scratch.tagged(fixture_image("pure"), "vllm-xpu:nightly-patchkit")
    held = engine.images.get(other).id
    done = patchkit("apply", "--image", image, status=1)
    assert "target-tag-taken" in done.err
    assert "--force" in done.err
    assert engine.images.get(other).id == held
    patchkit("apply", "--image", image, "--force", status=0)
    assert engine.images.get(other).id != held


def test_the_source_tag_is_never_overwritten_without_being_asked(engine, fixture_image, scratch, patchkit):
    image = scratch.tagged(fixture_image("xpu"), "vllm-xpu:nightly")
    before = engine.images.get(image).id
    done = patchkit("apply", "--image", image, "--tag", image, status=1)
    assert "target-is-source" in done.err
    assert engine.images.get(image).id == before


def test_in_place_alone_patches_the_name_itself_as_often_as_it_is_asked(engine, fixture_image, scratch, patchkit):
    image = scratch.tagged(fixture_image("xpu"), "vllm-xpu:nightly")
    before = engine.images.get(image).id
    patchkit("apply", "--image", image, "--in-place", status=0)
    patched = engine.images.get(image).id
    assert patched != before
    assert not _exists(engine, f"{image}-patchkit")
    patchkit("apply", "--image", image, "--in-place", status=0)
    assert engine.images.get(image).id == patched
    patchkit("revert", "--image", image, status=0)
    assert engine.images.get(image).id == before
    nameless = patchkit("apply", "--image", before, "--manifest", "vllm-xpu", "--in-place", status=2)
    assert "needs a tag" in nameless.err


def test_mounts_are_refused_for_an_engine_on_another_machine(
    patchkit, engine_by_tcp, elsewhere, fixture_image, scratch, tmp_path
):
    image = scratch.tagged(fixture_image("xpu"), "vllm-xpu:nightly")
    done = patchkit(
        "apply", "--image", image, "--mode", "bind", env={"DOCKER_HOST": engine_by_tcp}, prefix=elsewhere, status=1
    )
    assert "remote-engine" in done.err
    assert "--mode image" in done.err
    assert not (tmp_path / ".patchkit").exists()


def test_an_engine_that_is_gone_is_told_and_nothing_is_written(patchkit, tmp_path):
    done = patchkit(
        "apply", "--image", "vllm-xpu:nightly", env={"DOCKER_HOST": f"unix://{tmp_path}/none.sock"}, status=3
    )
    assert "next:" in done.err
    assert list(tmp_path.iterdir()) == []


def test_an_image_that_is_not_there_is_told(engine, patchkit, tmp_path):
    done = patchkit("apply", "--image", "vllm-xpu:no-such-tag", status=3)
    assert "vllm-xpu:no-such-tag" in done.err
    assert not (tmp_path / ".patchkit").exists()


def test_dry_run_writes_nothing(engine, fixture_image, scratch, patchkit, tmp_path):
    image = scratch.tagged(fixture_image("xpu"), "vllm-xpu:nightly")
    patchkit("apply", "--image", image, "--dry-run", status=0)
    assert not (tmp_path / ".patchkit").exists()
    assert not _exists(engine, f"{image}-patchkit")


def test_an_image_that_holds_the_fix_needs_nothing_done(engine, fixture_image, scratch, patchkit):
    image = scratch.tagged(fixture_image("fixed"), "vllm-xpu:nightly")
    answer = patchkit("status", "--image", image, "--json", status=0).json
    assert [file["state"] for file in answer["files"]] == ["upstream"] * 3
    done = patchkit("apply", "--image", image, status=0)
    assert "nothing to do" in done.out
    assert not _exists(engine, f"{image}-patchkit")


def test_a_release_from_before_the_model_is_refused_as_not_applicable(engine, fixture_image, scratch, patchkit):
    image = scratch.tagged(fixture_image("oldvllm"), "vllm-xpu:nightly")
    answer = patchkit("status", "--image", image, "--json", status=1).json
    assert {file["state"] for file in answer["files"]} == {"not-applicable"}
    done = patchkit("apply", "--image", image, status=1)
    assert "does-not-apply" in done.err


def test_a_nightly_version_string_stops_nothing(engine, fixture_image, scratch, patchkit):
    image = scratch.tagged(fixture_image("nightly"), "vllm-xpu:nightly")
    answer = patchkit("status", "--image", image, "--json", status=0).json
    assert answer["image"]["package_version"] == "0.33.0rc1.dev812+gabc.xpu"
    assert {file["state"] for file in answer["files"]} == {"applies"}


def test_an_image_without_the_package_is_told_so(engine, fixture_image, scratch, patchkit):
    image = scratch.tagged(fixture_image("absent"), "vllm-xpu:nightly")
    assert "package-absent" in patchkit("apply", "--image", image, status=1).err


@pytest.mark.parametrize("variant", ["distpackages", "editable", "editable_pth", "nonroot", "symlinkvenv", "wrapper"])
def test_every_layout_is_patched_where_it_serves(engine, fixture_image, scratch, patchkit, variant):
    image = scratch.tagged(fixture_image(variant), "vllm-xpu:nightly")
    done = patchkit("apply", "--image", image, "--json", status=0)
    assert {name for name, state in done.levels.items() if state == "passed"} >= {
        "bytes",
        "resolves",
        "compiles",
        "bytecode",
    }
    serving = next(copy for copy in done.json["copies"] if copy["serves"])
    for file in done.json["files"]:
        path = f"{serving['root'].removesuffix('/vllm')}/{file['path']}"
        command = ["docker", "run", "--rm", "--user", "0", "--entrypoint", "/bin/busybox", f"{image}-patchkit"]
        found = subprocess.run([*command, "sha256sum", path], capture_output=True, text=True, check=True)
        assert file["post"] == f"sha256:{found.stdout.split()[0]}"
