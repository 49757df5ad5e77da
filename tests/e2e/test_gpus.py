"""A manifest for some GPUs only: what each command says on others. The GPUs are made of files; the rest is real."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.e2e.conftest import tiny_with
from tests.site import kfd

SCALE = "/opt/venv/lib/python3.11/site-packages/tinyserve/ops/scale.py"
WHY = "gfx103x passes for an NVIDIA SM100."
NAVI, INSTINCT = {128: "100300"}, {128: "90402"}


@pytest.fixture
def picky(tmp_path_factory):
    """The small catalog for some AMD GPUs only."""
    return tiny_with(tmp_path_factory.mktemp("catalog"), f"gpus:\n  only: [gfx90a, gfx94?]\n  why: {WHY}\n")


@pytest.fixture
def given(tmp_path_factory):
    """What the docker SDK needs to start a container that is given these GPUs."""

    def options(gpus):
        folder = kfd.sysfs(tmp_path_factory.mktemp("gpus"), gpus)
        devices = ["kfd", *(f"dri/renderD{minor}" for minor in gpus)]
        return {
            "volumes": {str(folder): {"bind": "/sys", "mode": "ro"}},
            "devices": [f"/dev/null:/dev/{device}" for device in devices],
        }

    return options


@pytest.fixture
def patched(fixture_image, scratch, patchkit, picky):
    """The name of a derived image of that catalog, with the boot guard."""
    image = scratch.tagged(fixture_image("pure"), "tinyserve:1")
    patchkit("apply", "--image", image, *picky, "--guard", status=0)
    return f"{image}-patchkit"


def refusals(done):
    return [each for each in done.json["findings"] if each["severity"] == "error"]


@pytest.mark.engine
def test_a_running_container_with_another_gpu_is_left_as_it_is(
    fixture_image, scratch, patchkit, picky, running, given, tmp_path
):
    container = running(scratch.tagged(fixture_image("pure"), "tinyserve:1"), **given(NAVI))
    done = patchkit("apply", "--container", container.name, *picky, status=1)
    assert f"it is given gfx1030 (/dev/dri/renderD128); the patches are for gfx90a, gfx94?: {WHY}" in done.err
    assert "[gpu-refused]" in done.err
    assert SCALE not in {change["Path"] for change in container.diff() or []}
    assert not (tmp_path / ".patchkit").exists()


@pytest.mark.engine
def test_a_running_container_with_a_gpu_of_the_list_is_patched(fixture_image, scratch, patchkit, picky, running, given):
    container = running(scratch.tagged(fixture_image("pure"), "tinyserve:1"), **given(INSTINCT))
    done = patchkit("apply", "--container", container.name, *picky, "--json", status=1)
    assert {each["id"] for each in refusals(done)} == {"process-older"}
    assert set(done.levels.values()) == {"passed"}


@pytest.mark.engine
def test_verify_finds_the_gpu_that_a_container_is_given(fixture_image, scratch, patchkit, picky, running, given):
    image = scratch.tagged(fixture_image("pure"), "tinyserve:1")
    patchkit("apply", "--image", image, *picky, status=0)
    name = running(f"{image}-patchkit", **given({**NAVI, 129: "90402"})).name
    (finding,) = refusals(patchkit("verify", "--container", name, *picky, "--json", status=1))
    assert (finding["id"], finding["where"]) == ("gpu-refused", name)
    assert finding["what"].endswith(WHY)
    assert finding["remedy"].endswith("/dev/kfd, /dev/dri/renderD129")
    unseen = patchkit("verify", "--container", name, *picky, "--no-run", "--json").json["findings"]
    assert "gpus-unseen" in {each["id"] for each in unseen}


@pytest.mark.engine
@pytest.mark.parametrize("gpus", [INSTINCT, {}])
def test_verify_passes_on_a_gpu_of_the_list_and_without_any(
    fixture_image, scratch, patchkit, picky, running, given, gpus
):
    image = scratch.tagged(fixture_image("pure"), "tinyserve:1")
    patchkit("apply", "--image", image, *picky, status=0)
    name = running(f"{image}-patchkit", **(given(gpus) if gpus else {})).name
    done = patchkit("verify", "--container", name, *picky, "--require", "asserts", "--json", status=0)
    assert done.json["findings"] == []


@pytest.mark.engine
@pytest.mark.parametrize(("gpus", "found"), [(NAVI, ["gpu-refused"]), (INSTINCT, [])])
def test_the_doctor_finds_the_gpu_that_a_container_is_given(
    fixture_image, scratch, patchkit, picky, running, given, gpus, found
):
    image = scratch.tagged(fixture_image("pure"), "tinyserve:1")
    patchkit("apply", "--image", image, *picky, status=0)
    name = running(f"{image}-patchkit", **given(gpus)).name
    done = patchkit("doctor", "--container", name, "--catalog", picky[1], "--json", status=len(found))
    assert [(each["id"], each["where"]) for each in refusals(done)] == [(each, name) for each in found]


@pytest.mark.engine
@pytest.mark.parametrize("mode", ["image", "bind"])
def test_without_the_catalog_the_receipt_tells_which_gpus_the_patches_are_for(
    fixture_image, scratch, patchkit, picky, running, given, tmp_path, mode
):
    image = scratch.tagged(fixture_image("pure"), "tinyserve:1")
    patchkit("apply", "--image", image, *picky, "--mode", mode, status=0)
    # A delivery by mounts is known by the receipt in the output folder, a derived image by the one inside of it.
    receipt = json.loads((tmp_path / ".patchkit/receipt.json").read_text())
    options = given(NAVI)
    options["volumes"] |= {each["source"]: {"bind": each["target"], "mode": "ro"} for each in receipt["mounts"]}
    name = running(image if mode == "bind" else f"{image}-patchkit", **options).name
    other = tmp_path / "other"
    patchkit("init", other, "--package", "other", "--image", "other:*", status=0)
    done = patchkit("verify", "--container", name, "--catalog", other, "--json", status=1)
    (finding,) = refusals(done)
    assert finding["id"] == "gpu-refused"
    assert finding["what"].endswith(f"the patches are for gfx90a, gfx94?: {WHY}")
    (note,) = (each for each in done.json["findings"] if each["id"] == "asserts-unknown")
    assert note["what"].endswith("GPUs and settings are those of the receipt")


@pytest.mark.engine
def test_what_the_catalog_has_learned_of_the_same_patches_counts_more_than_the_receipt(
    fixture_image, scratch, patchkit, picky, running, given
):
    image = scratch.tagged(fixture_image("pure"), "tinyserve:1")
    patchkit("apply", "--image", image, *picky, status=0)
    name = running(f"{image}-patchkit", **given(NAVI)).name
    manifest = Path(picky[1], "manifests/tinyserve.yaml")
    manifest.write_text(manifest.read_text().replace("gfx94?", "gfx103?"))
    assert patchkit("verify", "--container", name, *picky, "--json", status=0).json["findings"] == []


@pytest.mark.engine
@pytest.mark.parametrize(("gpus", "found"), [(NAVI, ["gpu-refused"]), (INSTINCT, [])])
def test_status_and_a_dry_run_look_at_the_gpu_that_a_container_is_given(
    fixture_image, scratch, patchkit, picky, running, given, tmp_path, gpus, found
):
    name = running(scratch.tagged(fixture_image("pure"), "tinyserve:1"), **given(gpus)).name
    status = patchkit("status", "--container", name, *picky, "--json", status=len(found))
    assert [each["id"] for each in refusals(status)] == found
    dry = patchkit("apply", "--container", name, *picky, "--dry-run", status=len(found))
    assert (WHY in dry.err) == bool(found)
    unasked = patchkit("status", "--container", name, *picky, "--no-run", "--json", status=0)
    assert [each["id"] for each in unasked.json["findings"] if each["id"].startswith("gpu")] == ["gpus-unseen"]
    assert not (tmp_path / ".patchkit").exists()


@pytest.mark.engine
def test_the_guard_of_a_derived_image_does_not_start_on_another_gpu(patched, tmp_path):
    def start(gpus):
        command = ["docker", "run", "--rm", "--network=none", *kfd.options(tmp_path, gpus), patched]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    stopped = start(NAVI)
    assert (stopped.returncode, stopped.stdout) == (78, "")
    assert f"it is given gfx1030 (/dev/dri/renderD128); the patches are for gfx90a, gfx94?: {WHY}" in stopped.stderr
    served = start(INSTINCT)
    assert (served.returncode, '"answer": 31' in served.stdout) == (0, True), served.stderr


@pytest.mark.engine
def test_the_guard_of_mounts_does_not_start_on_another_gpu_under_compose(
    fixture_image, scratch, patchkit, picky, compose, tmp_path, tmp_path_factory
):
    image = scratch.tagged(fixture_image("pure"), "tinyserve:1")
    patchkit("apply", "--image", image, *picky, "--mode", "bind", "--guard", status=0)
    folder = kfd.sysfs(tmp_path_factory.mktemp("gpus"), NAVI)
    service = {
        "image": image,
        "volumes": [f"{folder}:/sys:ro"],
        "devices": ["/dev/null:/dev/kfd", "/dev/null:/dev/dri/renderD128"],
    }
    (tmp_path / "compose.yaml").write_text(json.dumps({"services": {"tiny": service}}))
    files = ["-f", "compose.yaml", "-f", ".patchkit/compose.patchkit.yaml"]
    try:
        compose(tmp_path, *files, "up", "-d")
        status = subprocess.run(
            ["docker", "wait", compose(tmp_path, *files, "ps", "-aq").strip()], capture_output=True, text=True
        )
        assert status.stdout.strip() == "78"
        assert "its GPU is not one that the patches are for" in compose(tmp_path, *files, "logs")
    finally:
        compose(tmp_path, *files, "down", "-t", "0")


@pytest.mark.parametrize(("version", "status"), [("100300", 1), ("90402", 0), ("12", 1)])
def test_the_gpu_that_is_passed_to_a_proof_is_looked_at(
    fixture_rootfs_copy, patchkit, picky, bubblewrap, version, status
):
    # bubblewrap mounts no sysfs of its own, so that an unpacked root can bring one along.
    root = fixture_rootfs_copy("pure")
    kfd.sysfs(root, {128: version})
    options = [*picky, "--launch", "/opt/venv/bin/tinyserve serve", "--json"]
    devices = ["--device", "/dev/null:/dev/kfd", "--device", "/dev/null:/dev/dri/renderD128"]
    done = patchkit("apply", "--image", f"rootfs:{root}", *options, *devices, status=status)
    assert [each["id"] for each in refusals(done)] == ["gpu-refused"] * status
    assert set(done.levels.values()) == {"passed"}
    image = done.json["delivery"]["reference"]
    again = patchkit("verify", "--image", image, *options, *devices, status=status)
    assert [each["id"] for each in refusals(again)] == ["gpu-refused"] * status
    assert refusals(patchkit("verify", "--image", image, *options, status=0)) == []
