"""Back to the origin, with proof; nothing is taken away from under somebody who uses it."""

import pytest

pytestmark = pytest.mark.engine

SITE = "/opt/venv/lib/python3.11/site-packages"
NORM = f"{SITE}/vllm/models/flint/ops/norm.py"
OTHERS = ["-c", "while :; do sleep 1; done"]


@pytest.fixture
def image(fixture_image, scratch):
    return scratch.tagged(fixture_image("xpu"), "vllm-xpu:nightly")


def test_a_derived_images_name_goes_away_and_the_origin_is_shown_to_be_pristine(patchkit, engine, image):
    applied = patchkit("apply", "--image", image, "--json", status=0)
    origin = engine.images.get(image).id
    answer = patchkit("revert", "--image", f"{image}-patchkit", "--json", status=0).json
    assert {each["path"]: each["now"] for each in answer["files"]} == {
        file["image_path"]: file["pre"] for file in applied.json["files"]
    }
    assert engine.images.get(image).id == origin
    assert f"{image}-patchkit" not in [tag for each in engine.api.images() for tag in each["RepoTags"] or ()]
    patchkit("revert", "--image", image, status=1)


def test_a_name_that_was_patched_in_place_is_the_origins_again(patchkit, engine, image):
    origin = engine.images.get(image).id
    patchkit("apply", "--image", image, "--tag", image, "--in-place", status=0)
    assert engine.images.get(image).id != origin
    patchkit("revert", "--image", image, status=0)
    assert engine.images.get(image).id == origin
    assert patchkit("status", "--image", image, "--json", status=0).json["files"][0]["state"] == "applies"


def test_an_image_that_a_container_uses_is_kept(patchkit, engine, image, scratch):
    patchkit("apply", "--image", image, status=0)
    container = engine.containers.create(f"{image}-patchkit", name=scratch.name("user"))
    refused = patchkit("revert", "--image", f"{image}-patchkit", status=1)
    assert container.name in refused.err
    assert engine.images.get(f"{image}-patchkit")
    container.remove()
    patchkit("revert", "--image", f"{image}-patchkit", status=0)


def test_an_overlay_is_removed_unless_a_container_was_made_with_it(patchkit, engine, image, scratch, tmp_path):
    patchkit("apply", "--image", image, "--mode", "bind", status=0)
    receipt = tmp_path / ".patchkit/receipt.json"
    container = engine.containers.create(
        image, name=scratch.name("user"), labels={"dev.patchkit.receipt": str(receipt)}
    )
    refused = patchkit("revert", "--compose", ".patchkit/compose.patchkit.yaml", status=1)
    assert container.name in refused.err
    assert (tmp_path / ".patchkit/files").is_dir()
    container.remove()
    patchkit("revert", "--compose", ".patchkit/compose.patchkit.yaml", status=0)
    assert sorted(path.name for path in (tmp_path / ".patchkit").iterdir()) == [".lock"]


def test_a_containers_own_files_come_back_and_a_running_process_is_told(patchkit, engine, image, scratch):
    container = engine.containers.run(
        image, OTHERS, entrypoint=["/bin/busybox", "sh"], name=scratch.name("live"), detach=True, user="0"
    )
    assert container.exec_run(["/bin/busybox", "sh", "-c", f"echo '# mine' >> {NORM}"]).exit_code == 0
    told = patchkit("revert", "--container", container.name, "--json", status=1).json
    assert [each["path"] for each in told["files"]] == [NORM]
    assert "docker restart" in told["said"][0]
    assert b"# mine" not in container.exec_run(["/bin/busybox", "cat", NORM]).output
    again = patchkit("revert", "--container", container.name, "--json", status=0).json
    assert again["files"] == []
    container.remove(force=True)


def test_the_files_of_a_copy_that_was_named_come_back_and_not_those_that_serve(patchkit, engine, image, scratch):
    decoy = NORM.replace(SITE, "/workspace/vllm")
    container = engine.containers.run(
        image, OTHERS, entrypoint=["/bin/busybox", "sh"], name=scratch.name("live"), detach=True, user="0"
    )
    for path in (NORM, decoy):
        assert container.exec_run(["/bin/busybox", "sh", "-c", f"echo '# mine' >> {path}"]).exit_code == 0
    told = patchkit("revert", "--container", container.name, "--copy", "/workspace/vllm/vllm", "--json", status=1).json
    assert [each["path"] for each in told["files"]] == [decoy]
    assert b"# mine" in container.exec_run(["/bin/busybox", "cat", NORM]).output
    container.remove(force=True)
