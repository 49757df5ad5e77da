"""What the doctor finds on a real engine. Each test makes one thing wrong and one thing only."""

from __future__ import annotations

import json
import shutil

import pytest

from tests.e2e.conftest import TINY
from tests.images import packages

pytestmark = pytest.mark.engine

SITE = "/opt/venv/lib/python3.11/site-packages"
SCALE = f"{SITE}/tinyserve/ops/scale.py"
WRONG = ("error", "warning")


@pytest.fixture
def doctor(patchkit, tiny):
    """Run the doctor and give its findings by id, those of the whole machine left out."""

    def look(*arguments, status=None):
        done = patchkit("doctor", "--catalog", tiny[1], *arguments, "--json", status=status)
        found = {}
        for finding in done.json["findings"]:
            if finding["severity"] in WRONG:
                found.setdefault(finding["id"], []).append(finding)
        return found

    return look


@pytest.fixture
def bound(fixture_image, scratch, patchkit, tiny, tmp_path):
    """An image delivered by mounts: its name, and what a container of it needs."""
    image = scratch.tagged(fixture_image("pure"), "tinyserve:1")
    patchkit("apply", "--image", image, *tiny, "--mode", "bind", status=0)
    output = tmp_path / ".patchkit"
    receipt = json.loads((output / "receipt.json").read_text())
    volumes = {mount["source"]: {"bind": mount["target"], "mode": "ro"} for mount in receipt["mounts"]}
    return image, {"volumes": volumes, "labels": {"dev.patchkit.receipt": str(output / "receipt.json")}}


def test_a_container_from_the_patched_image_is_healthy(fixture_image, scratch, patchkit, tiny, running, doctor):
    image = scratch.tagged(fixture_image("pure"), "tinyserve:1")
    patchkit("apply", "--image", image, *tiny, status=0)
    container = running(f"{image}-patchkit")
    assert doctor("--container", container.name, status=0) == {}


def test_a_container_of_the_unpatched_image_is_found(fixture_image, scratch, patchkit, tiny, running, doctor):
    image = scratch.tagged(fixture_image("pure"), "tinyserve:1")
    patchkit("apply", "--image", image, *tiny, status=0)
    container = running(image)
    found = doctor("--container", container.name, status=1)
    assert set(found) == {"container-unpatched"}
    assert f"{image}-patchkit" in found["container-unpatched"][0]["remedy"]


def test_a_container_that_was_started_without_the_mounts_is_found(bound, running, doctor):
    image, _ = bound
    container = running(image)
    found = doctor("--container", container.name, status=1)
    assert {"container-unpatched", "mount-wrong", "container-not-proven"} <= set(found)


def test_a_container_with_its_mounts_is_healthy(bound, running, doctor):
    image, options = bound
    assert doctor("--container", running(image, **options).name, status=0) == {}


def test_a_container_that_runs_an_older_patched_image_than_its_tag_is_found(
    fixture_image, scratch, patchkit, tiny, running, doctor, tmp_path
):
    image = scratch.tagged(fixture_image("pure"), "tinyserve:1")
    patchkit("apply", "--image", image, *tiny, status=0)
    container = running(f"{image}-patchkit")
    catalog = tmp_path / "catalog"
    shutil.copytree(TINY, catalog)
    text = (catalog / "patches/scale-by-ten.patch").read_text()
    (catalog / "patches/scale-by-ten.patch").write_text(text.replace("factor=10", "factor=11"))
    manifest = catalog / "manifests/tinyserve.yaml"
    manifest.write_text(manifest.read_text().replace("== 31", "== 34"))
    again = ["--catalog", str(catalog), "--manifest", "tinyserve"]
    patchkit("apply", "--image", image, *again, "--output", tmp_path / "second", status=0)
    found = doctor("--container", container.name, "--output", tmp_path / "none", status=1)
    assert "recreate" in found["container-older"][0]["remedy"]


def test_a_tag_that_moved_since_apply_is_found(engine, fixture_image, scratch, patchkit, tiny, doctor):
    image = scratch.tagged(fixture_image("pure"), "tinyserve:1")
    patchkit("apply", "--image", image, *tiny, status=0)
    assert "tag-moved" not in doctor("--image", f"{image}-patchkit")
    repository, _, tag = image.rpartition(":")
    engine.images.get(fixture_image("richconfig")).tag(repository, tag)
    found = doctor("--image", f"{image}-patchkit")
    assert f"patchkit apply --image {image}" in found["tag-moved"][0]["remedy"]


def test_a_mount_whose_source_is_gone_is_found(bound, running, doctor, tmp_path):
    image, options = bound
    container = running(image, **options)
    shutil.rmtree(tmp_path / ".patchkit/files")
    assert "mount-source-missing" in doctor("--container", container.name, status=1)


def test_a_mount_over_a_newer_image_is_found_by_its_record(
    engine, bound, running, doctor, scratch, tmp_path_factory, fixture_image
):
    image, options = bound
    # A newer image: upstream changed the very file that the mount covers, and its RECORD says so.
    folder = tmp_path_factory.mktemp("newer")
    newer = packages.tinyserve().with_sources({"tinyserve/ops/scale.py": b"def scale(value):\n    return value\n"})
    record = dict(newer.installed("../../../bin/tinyserve"))[f"{newer.dist_info_name}/RECORD"]
    (folder / "RECORD").write_bytes(record)
    (folder / "Dockerfile").write_text(f"FROM {image}\nCOPY RECORD {SITE}/{newer.dist_info_name}/RECORD\n")
    engine.images.build(path=str(folder), tag=image, rm=True)
    container = running(image, **options)
    found = doctor("--container", container.name, status=1)
    assert set(found) == {"container-not-proven", "mount-hides-other"}
    assert found["mount-hides-other"][0]["where"].endswith(SCALE)


def test_a_second_mount_over_the_patched_file_is_found(bound, running, doctor, tmp_path):
    image, options = bound
    mine = tmp_path / "mine.py"
    mine.write_text("def scale(value):\n    return 0\n\n\ndef shift(value):\n    return value\n")
    options["volumes"] = {str(mine): {"bind": SCALE, "mode": "ro"}}
    found = doctor("--container", running(image, **options).name, status=1)
    assert {"mount-wrong", "container-not-proven"} <= set(found)


def test_a_writable_mount_is_found(bound, running, doctor):
    image, options = bound
    options["volumes"] = {source: {**how, "mode": "rw"} for source, how in options["volumes"].items()}
    assert "mount-writable" in doctor("--container", running(image, **options).name)


def test_processes_that_are_older_than_the_patch_are_found(fixture_image, scratch, patchkit, tiny, running, doctor):
    image = scratch.tagged(fixture_image("pure"), "tinyserve:1")
    patchkit("apply", "--image", image, *tiny, status=0)
    container = running(f"{image}-patchkit")
    container.exec_run(["/bin/busybox", "touch", SCALE])
    assert "process-older" in doctor("--container", container.name, status=1)


def test_an_overridden_environment_is_found(fixture_image, scratch, patchkit, tiny, running, doctor):
    image = scratch.tagged(fixture_image("pure"), "tinyserve:1")
    patchkit("apply", "--image", image, *tiny, status=0)
    container = running(f"{image}-patchkit", environment={"PYTHONPATH": "/workspace/tinyserve"})
    found = doctor("--container", container.name, status=1)
    assert "resolves" in found["container-not-proven"][0]["what"]
    assert "PYTHONPATH is /workspace/tinyserve" in found["environment-overridden"][0]["what"]


def test_another_home_is_found_where_a_users_own_packages_would_be_looked_for(
    fixture_image, scratch, patchkit, tiny, running, doctor
):
    image = scratch.tagged(fixture_image("pure"), "tinyserve:1")
    patchkit("apply", "--image", image, *tiny, status=0)
    found = doctor("--container", running(f"{image}-patchkit", environment={"HOME": "/workspace"}).name, status=0)
    assert [report["what"] for report in found["environment-overridden"]] == ["HOME is /workspace, the image has none"]


def test_a_compile_cache_from_before_is_found_unless_its_name_tells_the_fingerprint(
    fixture_image, scratch, patchkit, tiny, running, doctor, tmp_path
):
    image = scratch.tagged(fixture_image("pure"), "tinyserve:1")
    patchkit("apply", "--image", image, *tiny, status=0)
    cache = tmp_path / "cache"
    (cache / "vllm").mkdir(parents=True)
    (cache / "vllm/kernel.so").write_bytes(b"old")
    volumes = {str(cache): {"bind": "/cache", "mode": "rw"}}
    container = running(f"{image}-patchkit", volumes=volumes, environment={"VLLM_CACHE_ROOT": "/cache/vllm"})
    assert doctor("--container", container.name)["compile-cache-older"][0]["where"].endswith("/cache/vllm")


def test_a_known_bad_line_of_the_log_is_found(fixture_image, scratch, patchkit, tiny, running, doctor):
    image = scratch.tagged(fixture_image("pure"), "tinyserve:1")
    patchkit("apply", "--image", image, *tiny, status=0)
    said = "ModuleNotFoundError: No module named 'flashinfer'"
    container = running(f"{image}-patchkit", command=[said])
    found = doctor("--container", container.name)
    assert "patchkit verify --container" in found["log-known-bad"][0]["remedy"]


def test_a_log_that_its_driver_does_not_keep_is_told(engine, fixture_image, scratch, patchkit, tiny, doctor):
    image = scratch.tagged(fixture_image("pure"), "tinyserve:1")
    patchkit("apply", "--image", image, *tiny, status=0)
    options = {"environment": {"TINYSERVE_SECONDS": "600"}, "stop_signal": "SIGKILL", "log_config": {"Type": "none"}}
    container = engine.containers.run(f"{image}-patchkit", name=scratch.name("server"), detach=True, **options)
    (unseen,) = doctor("--container", container.name, status=0)["unseen"]
    assert unseen["what"].startswith("checks log-known-bad, second-patcher could not look: ")
    assert (unseen["severity"], unseen["where"]) == ("warning", container.name)


def test_a_container_that_is_named_and_was_stopped_is_told(fixture_image, scratch, patchkit, tiny, running, doctor):
    image = scratch.tagged(fixture_image("pure"), "tinyserve:1")
    patchkit("apply", "--image", image, *tiny, status=0)
    container = running(f"{image}-patchkit")
    container.stop(timeout=0)
    (told,) = doctor("--container", container.name, status=1)["container-not-proven"]
    assert told["what"] == "the container does not run: it ended with status 137"
    assert told["remedy"] == f"see why: docker logs --tail 50 {container.name}; then docker start {container.name}"


def test_an_image_whose_start_cannot_be_read_is_told_also_where_the_catalog_is_damaged(
    engine, fixture_image, scratch, doctor, tmp_path
):
    (tmp_path / "Dockerfile").write_text(f'FROM {fixture_image("pure")}\nENTRYPOINT ["/bin/sh", "-c", "$SERVE"]\n')
    image = scratch.name("tinyserve:1")
    engine.images.build(path=str(tmp_path), tag=image, rm=True)
    damaged = tmp_path / "damaged"
    (damaged / "manifests").mkdir(parents=True)
    (damaged / "manifests/tinyserve.yaml").write_text("name: [")
    found = doctor("--image", image, "--catalog", damaged, status=1)
    assert "does not tell which Python serves" in found["patch-refused"][0]["what"]
    assert "unseen" not in found, "told once"


def test_the_image_of_the_host_that_is_named_is_looked_at(engine, fixture_image, scratch, patchkit, tiny, tmp_path):
    # An image of its own: containers of the fixture that other tests run would be looked at too.
    (tmp_path / "Dockerfile").write_text(f"FROM {fixture_image('pure')}\nLABEL of={scratch.prefix}\n")
    image = scratch.name("tinyserve:1")
    engine.images.build(path=str(tmp_path), tag=image, rm=True)
    elsewhere = {"DOCKER_HOST": f"unix://{tmp_path}/none.sock"}
    host = ["--host", "unix:///var/run/docker.sock", "--catalog", tiny[1]]
    done = patchkit("doctor", "--image", image, *host, "--json", env=elsewhere, status=0)
    assert {"other-copy", "engine"} <= {finding["id"] for finding in done.json["findings"]}


def test_a_container_that_was_patched_in_place_is_healthy(fixture_image, scratch, patchkit, tiny, running, doctor):
    image = scratch.tagged(fixture_image("pure"), "tinyserve:1")
    patchkit("apply", "--image", image, *tiny, "--output", "elsewhere", status=0)
    container = running(image)
    patchkit("apply", "--container", container.name, "--restart", *tiny, status=0)
    assert doctor("--container", container.name, status=0) == {}


def test_a_compose_project_that_wires_none_of_it_is_found(bound, doctor, tmp_path):
    image, _ = bound
    base = tmp_path / "compose.yaml"
    base.write_text(f"services:\n  tiny:\n    image: {image}\n")
    overlay = tmp_path / ".patchkit/compose.patchkit.yaml"
    assert "compose-unwired" in doctor("--compose", base)
    assert "compose-unwired" not in doctor("--compose", base, "--compose", overlay)


def test_a_project_that_mounts_onto_a_decoy_is_found(doctor, tmp_path):
    base = tmp_path / "compose.yaml"
    base.write_text(
        "services:\n  tiny:\n    image: x\n    volumes:\n"
        "      - ./scale.py:/workspace/tinyserve/tinyserve/ops/scale.py:ro\n"
    )
    assert "mount-on-decoy" in doctor("--compose", base, status=1)


def test_an_empty_folder_in_the_place_of_patches_or_of_a_module_is_found(
    engine, fixture_image, scratch, doctor, tmp_path
):
    image = scratch.tagged(fixture_image("pure"), "tinyserve:1")
    new = f"{SITE}/tinyserve/ops/new.py"  # over a file that is there an engine refuses to mount a folder
    volumes = [f"{tmp_path}/none:/patches:ro", f"{tmp_path}/none.py:{new}:ro", f"{tmp_path}/cache:/cache"]
    container = engine.containers.run(
        image, ["600"], entrypoint=["/bin/busybox", "sleep"], name=scratch.name("c"), detach=True, volumes=volumes
    )
    found = doctor("--container", container.name, status=1)["mount-empty"]
    assert {finding["where"] for finding in found} == {f"{container.name}:/patches", f"{container.name}:{new}"}


@pytest.mark.parametrize("by_id", [False, True])
def test_what_patches_are_for_and_nobody_delivered_is_found(engine, fixture_image, scratch, doctor, tmp_path, by_id):
    # An image of its own: others may have patched the shared one.
    (tmp_path / "Dockerfile").write_text(f"FROM {fixture_image('pure')}\nLABEL own={scratch.prefix}\n")
    image = scratch.name("tinyserve:1")
    built, _ = engine.images.build(path=str(tmp_path), tag=image, rm=True)
    called = built.id if by_id else image
    container = engine.containers.run(
        called, ["600"], entrypoint=["/bin/busybox", "sleep"], name=scratch.name("c"), detach=True
    )
    base = tmp_path / "compose.yaml"
    base.write_text(f"services:\n  tiny:\n    image: {image}\n  other:\n    image: redis:8\n")
    found = doctor("--container", container.name, "--compose", base, status=0)
    assert [finding["where"] for finding in found["container-undelivered"]] == [container.name]
    assert [finding["where"] for finding in found["compose-undelivered"]] == ["service tiny"]


def test_a_file_that_somebody_wrote_over_is_found(fixture_image, scratch, patchkit, tiny, running, doctor):
    image = scratch.tagged(fixture_image("pure"), "tinyserve:1")
    patchkit("apply", "--image", image, *tiny, status=0)
    container = running(f"{image}-patchkit")
    assert container.exec_run(["/bin/busybox", "sed", "-i", "s/=10/=2/", SCALE]).exit_code == 0
    found = doctor("--container", container.name, status=1)["container-not-proven"]
    assert any(finding["what"].startswith("bytes: ") for finding in found)


def test_bytecode_that_runs_instead_of_the_patched_source_is_found(
    fixture_image, scratch, patchkit, tiny, running, doctor
):
    image = scratch.tagged(fixture_image("pure"), "tinyserve:1")
    patchkit("apply", "--image", image, *tiny, status=0)
    container = running(f"{image}-patchkit")
    compile_other = (
        "import importlib.util, py_compile as p\n"
        "open('/tmp/other.py', 'w').write('def scale(value): return 0')\n"
        f"p.compile('/tmp/other.py', importlib.util.cache_from_source('{SCALE}'), "
        "invalidation_mode=p.PycInvalidationMode.UNCHECKED_HASH)"
    )
    assert container.exec_run(["/opt/venv/bin/python3", "-c", compile_other]).exit_code == 0
    (found,) = doctor("--container", container.name, status=1)["bytecode-stale"]
    assert found["where"] == f"{container.name}:{SCALE}"


def test_a_package_that_is_a_link_is_told(engine, fixture_image, scratch, doctor, tmp_path):
    folder, busybox = f"{SITE}/tinyserve", '"/bin/busybox"'
    (tmp_path / "Dockerfile").write_text(
        f"FROM {fixture_image('pure')}\nUSER 0\n"
        f'RUN [{busybox}, "mv", "{folder}", "/opt/shared"]\nRUN [{busybox}, "ln", "-s", "/opt/shared", "{folder}"]\n'
    )
    image = scratch.name("tinyserve:1")
    engine.images.build(path=str(tmp_path), tag=image, rm=True)
    assert [finding["where"] for finding in doctor("--image", image)["package-linked"]] == [folder]


def test_a_second_patcher_that_met_the_read_only_mount_is_found(bound, running, doctor):
    image, options = bound
    start = f"python3 -c \"open('{SCALE}', 'a')\"; exec tinyserve serve"
    container = running(image, entrypoint=["/bin/sh", "-c", start], **options)
    found = doctor("--container", container.name)["second-patcher"]
    assert "Read-only file system" in found[0]["evidence"]
    assert found[0]["where"].endswith(SCALE)


def test_one_engine_by_two_addresses_does_not_differ_from_itself(
    fixture_image, scratch, patchkit, tiny, doctor, engine_by_tcp
):
    image = scratch.tagged(fixture_image("pure"), "tinyserve:1")
    patchkit("apply", "--image", image, *tiny, status=0)
    hosts = ["--host", "unix:///var/run/docker.sock", "--host", engine_by_tcp]
    assert "nodes-differ" not in doctor("--image", f"{image}-patchkit", *hosts)


def test_asked_about_one_image_it_tells_of_that_one_and_its_containers_alone(
    fixture_image, scratch, patchkit, tiny, running, doctor, engine, tmp_path
):
    images = []
    for number in range(2):
        (tmp_path / "Dockerfile").write_text(f"FROM {fixture_image('pure')}\nLABEL own={scratch.prefix}{number}\n")
        images.append(scratch.name(f"tinyserve:{number}"))
        engine.images.build(path=str(tmp_path), tag=images[-1], rm=True)
    patchkit("apply", "--image", images[0], *tiny, status=0)
    patchkit("apply", "--image", images[1], *tiny, status=0)
    container, _ = running(images[0]), engine.containers.run(images[1], name=scratch.name("other"), detach=True)
    for asked in (images[0], f"{images[0]}-patchkit"):
        found = doctor("--image", asked, "--output", tmp_path / "none")
        assert {finding["where"] for finding in found.get("container-unpatched", ())} <= {container.name}
    assert doctor("--image", images[0], "--output", tmp_path / "none", status=1)["container-unpatched"]


def test_what_is_asked_about_must_be_there(patchkit, engine):
    assert "no-such-container" in patchkit("doctor", "--container", "no-such-container", status=3).err
    assert "no-such-image" in patchkit("doctor", "--image", "docker-daemon:no-such/image:1", status=3).err
    elsewhere = patchkit("doctor", "--image", "oci:layout:1", status=2).err
    assert "patchkit status --image oci:layout:1" in elsewhere


def test_no_engine_is_an_error_with_its_remedy(patchkit, tmp_path):
    done = patchkit("doctor", "--json", env={"DOCKER_HOST": f"unix://{tmp_path}/none.sock"}, status=1)
    finding = next(each for each in done.json["findings"] if each["id"] == "engine-unreachable")
    assert finding["remedy"]
