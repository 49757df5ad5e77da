"""Running containers: patched in place, verified as they are, processes and mounts included."""

from __future__ import annotations

import json
import time

import pytest

from tests.images import packages

pytestmark = pytest.mark.engine

SITE = "/opt/venv/lib/python3.11/site-packages"
SCALE = f"{SITE}/tinyserve/ops/scale.py"


def answers(container):
    return [json.loads(line)["answer"] for line in container.logs().splitlines() if b'"answer"' in line]


def finding_ids(done):
    return {finding["id"] for finding in done.json["findings"] if finding["severity"] == "error"}


def test_patching_a_running_container_without_a_restart_says_that_its_processes_are_older(
    fixture_image, scratch, patchkit, tiny, running
):
    container = running(scratch.tagged(fixture_image("pure"), "tinyserve:1"))
    done = patchkit("apply", "--container", container.name, *tiny, "--json", status=1)
    assert finding_ids(done) == {"process-older"}
    assert set(done.levels.values()) == {"passed"}
    assert answers(container) == [7, 7]
    again = patchkit("verify", "--container", container.name, *tiny, "--json", status=1)
    older = [finding for finding in again.json["findings"] if finding["id"] == "process-older"]
    assert len(older) >= 2, "the server and its worker"
    assert f"docker restart {container.name}" in older[0]["remedy"]


def test_with_a_restart_the_patched_code_runs_and_verify_says_so(fixture_image, scratch, patchkit, tiny, running):
    container = running(scratch.tagged(fixture_image("pure"), "tinyserve:1"))
    patchkit("apply", "--container", container.name, "--restart", *tiny, status=0)
    for _ in range(100):
        if len(answers(container)) == 4:
            break
        time.sleep(0.1)
    assert answers(container) == [7, 7, 31, 31]
    patchkit("verify", "--container", container.name, *tiny, "--require", "asserts", status=0)


def test_a_container_from_the_patched_image_is_proven_with_its_workers(fixture_image, scratch, patchkit, tiny, running):
    image = scratch.tagged(fixture_image("pure"), "tinyserve:1")
    patchkit("apply", "--image", image, *tiny, status=0)
    container = running(f"{image}-patchkit")
    done = patchkit("verify", "--container", container.name, *tiny, "--require", "asserts", "--json", status=0)
    assert done.json["findings"] == []


def test_a_container_from_the_unpatched_image_fails_with_the_receipt_of_the_patched_one(
    fixture_image, scratch, patchkit, tiny, running, tmp_path
):
    image = scratch.tagged(fixture_image("pure"), "tinyserve:1")
    patchkit("apply", "--image", image, *tiny, status=0)
    container = running(image)
    assert "no-receipt" in patchkit("verify", "--container", container.name, *tiny, status=1).err
    receipt = tmp_path / ".patchkit/receipt.json"
    done = patchkit("verify", "--container", container.name, "--receipt", receipt, *tiny, "--json", status=1)
    assert done.levels["bytes"] == "failed"


def mounted(output, mode="ro"):
    """The mounts of the overlay as the docker SDK takes them, and its labels."""
    receipt = json.loads((output / "receipt.json").read_text())
    volumes = {mount["source"]: {"bind": mount["target"], "mode": mode} for mount in receipt["mounts"]}
    return {"volumes": volumes, "labels": {"dev.patchkit.receipt": str(output / "receipt.json")}}


def test_mounted_files_are_proven_in_the_container(fixture_image, scratch, patchkit, tiny, running, tmp_path):
    image = scratch.tagged(fixture_image("pure"), "tinyserve:1")
    patchkit("apply", "--image", image, *tiny, "--mode", "bind", status=0)
    container = running(image, **mounted(tmp_path / ".patchkit"))
    assert answers(container) == [31, 31]
    patchkit("verify", "--container", container.name, *tiny, "--require", "asserts", status=0)


@pytest.fixture
def image_upon(engine, scratch, tmp_path_factory):
    """Build an image with these lines of a Dockerfile upon another one."""

    def build(base, name, lines):
        folder = tmp_path_factory.mktemp("build")
        (folder / "Dockerfile").write_text(f"FROM {base}\n{lines}\n")
        engine.images.build(path=str(folder), tag=scratch.name(name), rm=True)
        return scratch.name(name)

    return build


def test_a_label_of_the_image_names_no_receipt_of_this_machine(
    fixture_image, scratch, patchkit, tiny, running, tmp_path, image_upon
):
    image = scratch.tagged(fixture_image("pure"), "tinyserve:1")
    patchkit("apply", "--image", image, *tiny, "--mode", "bind", status=0)
    # Whoever builds an image may label it with the path of any receipt here, and every container of it inherits that.
    mount = mounted(tmp_path / ".patchkit")
    stranger = image_upon(image, "stranger:1", f"LABEL dev.patchkit.receipt={mount['labels']['dev.patchkit.receipt']}")
    name = running(stranger, volumes=mount["volumes"]).name
    done = patchkit("verify", "--container", name, *tiny, "--output", tmp_path / "none", status=1)
    assert "[no-receipt]" in done.err
    assert "or name its receipt with --receipt" in done.err


@pytest.mark.parametrize("place", ["/etc/passwd", "receipt.json", "/none/receipt.json"])
def test_a_label_that_names_no_receipt_here_is_told_and_what_it_names_is_not_read(
    fixture_image, scratch, patchkit, tiny, running, place
):
    image = scratch.tagged(fixture_image("pure"), "tinyserve:1")
    name = running(image, labels={"dev.patchkit.receipt": place}).name
    done = patchkit("verify", "--container", name, *tiny, status=1)
    assert "no-receipt" in done.err
    assert f"its label names {place}, where no receipt lies on this machine" in done.err


def test_an_overlays_receipt_that_is_of_another_image_by_now_is_refused(
    fixture_image, scratch, patchkit, tiny, running, tmp_path, image_upon
):
    one = scratch.tagged(fixture_image("pure"), "tinyserve:1")
    two = image_upon(one, "tinyserve:2", "COPY Dockerfile /")
    patchkit("apply", "--image", one, *tiny, status=0)
    labels = {"dev.patchkit.receipt": str(tmp_path / ".patchkit/receipt.json")}
    name = running(f"{one}-patchkit", labels=labels).name
    patchkit("verify", "--container", name, *tiny, status=0)
    patchkit("apply", "--image", two, *tiny, status=0)
    done = patchkit("verify", "--container", name, *tiny, "--json", status=1)
    assert finding_ids(done) == {"other-image"}
    (other,) = (finding for finding in done.json["findings"] if finding["id"] == "other-image")
    assert f"patchkit verify --container {name} --receipt FILE" in other["remedy"]


def test_patching_a_container_leaves_no_overlay_of_the_delivery_before_in_the_folder(
    fixture_image, scratch, patchkit, tiny, running, tmp_path
):
    image = scratch.tagged(fixture_image("pure"), "tinyserve:1")
    patchkit("apply", "--image", image, *tiny, "--mode", "bind", status=0)
    assert (tmp_path / ".patchkit/compose.patchkit.yaml").exists()
    patchkit("apply", "--container", running(image).name, *tiny, status=1)
    assert not (tmp_path / ".patchkit/compose.patchkit.yaml").exists()
    assert json.loads((tmp_path / ".patchkit/receipt.json").read_text())["kind"] == "container"


def test_an_overlays_receipt_that_is_gone_leaves_the_one_in_the_image(
    fixture_image, scratch, patchkit, tiny, running, tmp_path
):
    image = scratch.tagged(fixture_image("pure"), "tinyserve:1")
    patchkit("apply", "--image", image, *tiny, status=0)
    receipt = tmp_path / ".patchkit/receipt.json"
    name = running(f"{image}-patchkit", labels={"dev.patchkit.receipt": str(receipt)}).name
    receipt.unlink()
    patchkit("verify", "--container", name, *tiny, status=0)


@pytest.mark.parametrize("mode", ["ro", "rw"])
def test_a_mounted_file_that_was_replaced_on_the_host_is_found_by_its_inode(
    fixture_image, scratch, patchkit, tiny, running, tmp_path, mode
):
    image = scratch.tagged(fixture_image("pure"), "tinyserve:1")
    patchkit("apply", "--image", image, *tiny, "--mode", "bind", status=0)
    container = running(image, **mounted(tmp_path / ".patchkit", mode))
    source = next((tmp_path / ".patchkit/files").rglob("scale.py"))
    copy = source.with_name("new")
    copy.write_bytes(source.read_bytes())
    copy.replace(source)
    done = patchkit("verify", "--container", container.name, *tiny, "--json", status=1)
    assert "mount-wrong" in finding_ids(done)
    wrong = next(finding for finding in done.json["findings"] if finding["id"] == "mount-wrong")
    assert "recreate" in wrong["remedy"]
    assert ("mount-writable" in {finding["id"] for finding in done.json["findings"]}) == (mode == "rw")


def test_an_environment_that_overrides_the_launchs_path_is_found(fixture_image, scratch, patchkit, tiny, running):
    image = scratch.tagged(fixture_image("pure"), "tinyserve:1")
    patchkit("apply", "--image", image, *tiny, status=0)
    container = running(f"{image}-patchkit", environment={"PYTHONPATH": "/workspace/tinyserve"})
    done = patchkit("verify", "--container", container.name, *tiny, "--json", status=1)
    assert done.levels["resolves"] == "failed"


def test_a_file_on_a_mount_is_not_patched_through_the_container(
    fixture_image, scratch, patchkit, tiny, running, tmp_path
):
    mine = tmp_path / "scale.py"
    mine.write_text(next(text for path, text in packages.tinyserve().sources if path.endswith("scale.py")).decode())
    image = scratch.tagged(fixture_image("pure"), "tinyserve:1")
    container = running(image, volumes={str(mine): {"bind": SCALE, "mode": "ro"}})
    before = mine.read_bytes()
    assert "on-a-mount" in patchkit("apply", "--container", container.name, *tiny, status=1).err
    assert mine.read_bytes() == before


def test_a_container_that_does_not_run_or_is_not_there_is_told(engine, fixture_image, scratch, patchkit, tiny):
    image = scratch.tagged(fixture_image("pure"), "tinyserve:1")
    engine.containers.create(image, name=scratch.name("idle"))
    assert "not-running" in patchkit("verify", "--container", scratch.name("idle"), *tiny, status=3).err
    assert "no-such-container" in patchkit("verify", "--container", scratch.name("none"), *tiny, status=3).err


def test_the_same_image_is_proven_on_several_engines_at_once_one_line_each(
    fixture_image, scratch, patchkit, tiny, engine_by_tcp
):
    image = scratch.tagged(fixture_image("pure"), "tinyserve:1")
    patchkit("apply", "--image", image, *tiny, status=0)
    hosts = ["--host", "unix:///var/run/docker.sock", "--host", engine_by_tcp]
    done = patchkit("verify", "--image", f"{image}-patchkit", *tiny, *hosts, "--json", status=0)
    assert [node["status"] for node in done.json["nodes"]] == [0, 0]
    assert len({node["image"]["fingerprint"] for node in done.json["nodes"]}) == 1
    gone = [*hosts, "--host", "tcp://127.0.0.1:9"]
    lines = patchkit("verify", "--image", f"{image}-patchkit", *tiny, *gone, status=3).out.splitlines()
    assert [line.split()[0] for line in lines[1:4]] == [
        "unix:///var/run/docker.sock",
        engine_by_tcp,
        "tcp://127.0.0.1:9",
    ]


def test_a_container_whose_server_was_started_otherwise_than_named_is_not_proven(
    fixture_image, scratch, patchkit, tiny, running
):
    image = scratch.tagged(fixture_image("pure"), "tinyserve:1")
    patchkit("apply", "--image", image, *tiny, status=0)
    start = "${NOTHING:-/usr/bin/python3} ${NOTHING} -m tinyserve serve"
    container = running(f"{image}-patchkit", entrypoint=["/bin/sh", "-c", start])
    assert answers(container) == [7, 7]
    named = ("--launch", "tinyserve serve")
    done = patchkit("verify", "--container", container.name, *named, *tiny, "--json", status=1)
    assert set(done.levels.values()) == {"passed"}
    assert finding_ids(done) == {"process-other-copy"}


def warnings(done):
    return {finding["id"]: finding for finding in done.json["findings"] if finding["severity"] == "warning"}


def test_a_volume_of_the_image_over_the_package_is_told_with_how_to_renew_it(
    fixture_image, scratch, patchkit, tiny, image_upon
):
    place = SITE.replace("/lib/", "/lib64/")
    image = image_upon(fixture_image("pure"), "tinyserve:1", f"VOLUME {place} /var/cache")
    found = warnings(patchkit("apply", "--image", image, *tiny, "--json", status=0))
    assert [found["image-volume"]["where"], SCALE in found["image-volume"]["what"]] == [place, True]
    assert "--renew-anon-volumes" in found["image-volume"]["remedy"]


def test_what_a_start_script_runs_before_the_server_is_told_and_its_effect_found(
    fixture_image, scratch, patchkit, tiny, running, image_upon
):
    start = f"cp -r /workspace/tinyserve/tinyserve {SITE}/; exec tinyserve serve"
    image = image_upon(fixture_image("pure"), "tinyserve:1", f'ENTRYPOINT ["/bin/sh", "-c", "{start}"]')
    found = warnings(patchkit("apply", "--image", image, *tiny, "--json", status=0))
    assert "`cp -r /workspace/tinyserve/tinyserve" in found["start-changes-files"]["what"]
    container = running(f"{image}-patchkit")
    done = patchkit("verify", "--container", container.name, *tiny, "--json", status=1)
    assert done.levels["bytes"] == "failed"
