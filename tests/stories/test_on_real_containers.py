"""Stories that no other test tells, each from beginning to end: an image as people have it, one command, a server."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from tests.e2e.conftest import TINY

pytestmark = pytest.mark.engine

SITE = "/opt/venv/lib/python3.11/site-packages"
SCALE = f"{SITE}/tinyserve/ops/scale.py"


def served(engine, image, **options):
    """What the image's own server computes with its copy of the package."""
    output = engine.containers.run(image, remove=True, **options).decode()
    return [line["answer"] for line in map(json.loads, output.splitlines()) if "answer" in line]


def text_in(image, path):
    command = ["docker", "run", "--rm", "--user", "0", "--entrypoint", "/bin/busybox", image, "cat", path]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("variant", ["safe_path", "nested_venv", "conda", "pipx", "system_site"])
def test_the_copy_that_this_launch_imports_is_the_one_that_is_patched(
    engine, fixture_image, scratch, patchkit, tiny, variant
):
    image = scratch.tagged(fixture_image(variant), "tinyserve:1")
    assert served(engine, image) == [7]
    done = patchkit("apply", "--image", image, *tiny, "--json", status=0)
    assert done.levels["imports"] == "passed"
    assert served(engine, f"{image}-patchkit") == [31]


def test_a_folder_that_shadows_the_package_is_no_place_to_patch(fixture_image, scratch, patchkit, tiny, tmp_path):
    image = scratch.tagged(fixture_image("namespace_shadow"), "tinyserve:1")
    done = patchkit("apply", "--image", image, *tiny, status=1)
    assert "next:" in done.err
    assert not (tmp_path / ".patchkit").exists()


def test_an_interpreter_that_the_user_may_not_reach_is_found_before_anybody_starts_it(
    fixture_image, scratch, patchkit, tiny
):
    image = scratch.tagged(fixture_image("hidden_interpreter"), "tinyserve:1")
    found = patchkit("doctor", "--catalog", TINY, "--image", image, "--json", status=1).json["findings"]
    closed = next(finding for finding in found if finding["id"] == "interpreter-closed")
    assert "user 1000 may not pass /root (mode 0700" in closed["what"]
    patchkit("apply", "--image", image, *tiny, status=1)


def test_a_patched_image_outlives_its_origin(engine, fixture_image, scratch, patchkit, tiny, tmp_path):
    (tmp_path / "Dockerfile").write_text(f"FROM {fixture_image('pure')}\nLABEL nightly={scratch.prefix}\n")
    image = scratch.name("tinyserve:nightly")
    engine.images.build(path=str(tmp_path), tag=image, rm=True)
    patchkit("apply", "--image", image, *tiny, status=0)
    engine.images.remove(image)
    derived = f"{image}-patchkit"
    found = patchkit("doctor", "--catalog", TINY, "--image", derived, "--json").json["findings"]
    gone = {finding["id"] for finding in found if finding["where"] == derived and finding["id"] != "package-linked"}
    assert gone == {"origin-gone"}
    assert patchkit("status", "--image", derived, *tiny, "--json", status=0).json["files"][0]["state"] == "applied"
    assert served(engine, derived) == [31]


def test_a_patch_that_imports_what_is_not_there_fails_at_its_proof(fixture_image, scratch, patchkit, tmp_path):
    catalog = tmp_path / "catalog"
    shutil.copytree(TINY, catalog)
    patch = catalog / "patches/scale-by-ten.patch"
    text = patch.read_text().replace("@@ -1,7 +1,7 @@", "@@ -1,7 +1,9 @@")
    patch.write_text(text.replace(' """Scaling."""\n', ' """Scaling."""\n+\n+from tinyserve.ops.moved import away\n'))
    image = scratch.tagged(fixture_image("pure"), "tinyserve:1")
    arguments = ["--catalog", catalog, "--manifest", "tinyserve", "--output", tmp_path / "out"]
    done = patchkit("apply", "--image", image, *arguments, "--json", status=1)
    assert done.levels["compiles"] == "passed"
    assert done.levels["imports"] == "failed"
    assert "tinyserve.ops.moved" in done.out


def test_a_restart_changes_nothing(engine, fixture_image, scratch, patchkit, tiny):
    image = scratch.tagged(fixture_image("pure"), "tinyserve:1")
    patchkit("apply", "--image", image, *tiny, status=0)
    container = engine.containers.create(f"{image}-patchkit", name=scratch.name("server"))
    for _ in range(3):
        container.start()
        assert container.wait()["StatusCode"] == 0
    answers = [line["answer"] for line in map(json.loads, container.logs().splitlines()) if "answer" in line]
    assert answers == [31, 31, 31]
    assert not [change for change in container.diff() or () if "tinyserve/ops/scale.py" in change["Path"]]


@pytest.mark.parametrize("variant", ["stale_pyc", "unchecked_pyc", "fresh_pyc"])
@pytest.mark.parametrize("mode", ["image", "bind"])
def test_compiled_files_of_any_kind_do_not_run_instead_of_the_patch(
    engine, fixture_image, scratch, patchkit, tiny, tmp_path, variant, mode
):
    image = scratch.tagged(fixture_image(variant), "tinyserve:1")
    patchkit("apply", "--image", image, *tiny, "--mode", mode, status=0)
    receipt = json.loads((tmp_path / ".patchkit/receipt.json").read_text())
    volumes = {each["source"]: {"bind": each["target"], "mode": "ro"} for each in receipt["mounts"]}
    assert served(engine, image if mode == "bind" else f"{image}-patchkit", volumes=volumes) == [31]


def test_the_other_names_of_a_hard_linked_file_keep_their_bytes(engine, fixture_image, scratch, patchkit, tiny):
    image = scratch.tagged(fixture_image("uv_hardlinks"), "tinyserve:1")
    patchkit("apply", "--image", image, *tiny, status=0)
    derived = f"{image}-patchkit"
    assert "factor=10" in text_in(derived, SCALE)
    assert "factor=2" in text_in(derived, SCALE.replace("/opt/venv", "/opt/other"))
    assert "factor=2" in text_in(derived, "/root/.cache/uv/archive-v0/Jk2nQ8/tinyserve/ops/scale.py")
    assert served(engine, derived) == [31]


def test_a_read_only_root_is_proven_like_any_other(fixture_image, scratch, patchkit, tiny, running):
    image = scratch.tagged(fixture_image("pure"), "tinyserve:1")
    patchkit("apply", "--image", image, *tiny, "--guard", status=0)
    container = running(f"{image}-patchkit", read_only=True)
    patchkit("verify", "--container", container.name, *tiny, status=0)
