"""A manifest that refuses settings: what each command says where the environment of what serves has one."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from patchkit.api import Delivery, Options, serving, stacks
from patchkit.errors import Refused
from patchkit.stack.recipes.load import load_recipe
from patchkit.stack.recipes.render import choose
from tests.e2e.conftest import tiny_with

SCALE = "/opt/venv/lib/python3.11/site-packages/tinyserve/ops/scale.py"
WHY = "K and V would lie apart."
SAID = f"TINY_LAYOUT=True: {WHY}"
SECRET = {"HF_TOKEN": "hf_never_told"}
REFUSED = f"""
refused_env:
  - {{name: TINY_LAYOUT, values: ["1", "true"], why: {WHY}}}
  - {{name: TINY_GPU, values: [], why: It passes for another.}}
"""
#: A start script whose setting only running tells.
SCRIPT = ["/bin/busybox", "sh", "-c", "export TINY_LAYOUT=$(cat /layout); exec tinyserve serve"]


@pytest.fixture
def picky(tmp_path_factory):
    """The small catalog with settings that it refuses."""
    return tiny_with(tmp_path_factory.mktemp("catalog"), REFUSED)


@pytest.fixture
def image(fixture_image, scratch):
    return scratch.tagged(fixture_image("pure"), "tinyserve:1")


@pytest.fixture
def patched(image, patchkit, picky):
    """The name of a derived image of that catalog, with the boot guard."""
    patchkit("apply", "--image", image, *picky, "--guard", status=0)
    return f"{image}-patchkit"


@pytest.fixture
def layout(tmp_path_factory):
    """What mounts a file with ``TINY_LAYOUT``'s value, which a start script reads."""
    file = tmp_path_factory.mktemp("layout") / "layout"

    def holding(value):
        file.write_text(value)
        return {"entrypoint": SCRIPT, "volumes": {str(file): {"bind": "/layout", "mode": "ro"}}}

    return holding


def refusals(done):
    return [each for each in done.json["findings"] if each["id"] == "environment-refused"]


def docker_run(image, *options):
    command = ["docker", "run", "--rm", "--network=none", *options, image]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.mark.engine
@pytest.mark.parametrize("setting", ["TINY_LAYOUT=True", "TINY_GPU="])
def test_the_guard_of_a_derived_image_does_not_start_with_docker_run_e(patched, setting):
    stopped = docker_run(patched, "-e", setting, "-e", "HF_TOKEN=hf_never_told")
    assert (stopped.returncode, stopped.stdout) == (78, "")
    assert f"  {setting}: " in stopped.stderr
    assert f"next: take {setting.partition('=')[0]} out of where it is set (docker run: -e" in stopped.stderr
    assert "hf_never_told" not in stopped.stderr


@pytest.mark.engine
def test_the_guard_of_a_derived_image_starts_with_another_value(patched):
    served = docker_run(patched, "-e", "TINY_LAYOUT=0", "-e", "TINY_OTHER=1")
    assert (served.returncode, '"answer": 31' in served.stdout) == (0, True), served.stderr


@pytest.mark.engine
def test_the_guard_of_mounts_does_not_start_with_what_an_env_file_sets_later(image, patchkit, picky, compose, tmp_path):
    (tmp_path / "settings.env").write_text("TINY_LAYOUT=0\n")
    (tmp_path / "compose.yaml").write_text(
        json.dumps({"services": {"tiny": {"image": image, "env_file": ["settings.env"], "environment": SECRET}}})
    )
    patchkit(
        "compose", "--image", image, *picky, "--mode", "bind", "--guard", "-f", "compose.yaml", "-o", "o.yaml", status=0
    )
    (tmp_path / "settings.env").write_text("TINY_LAYOUT=True\n")
    files = ["-f", "compose.yaml", "-f", "o.yaml"]
    try:
        compose(tmp_path, *files, "up", "-d")
        name = compose(tmp_path, *files, "ps", "-aq").strip()
        status = subprocess.run(["docker", "wait", name], capture_output=True, text=True)
        assert status.stdout.strip() == "78"
        logs = compose(tmp_path, *files, "logs")
        assert SAID in logs
        assert SECRET["HF_TOKEN"] not in logs
    finally:
        compose(tmp_path, *files, "down", "-t", "0")


@pytest.mark.engine
@pytest.mark.parametrize(
    "service",
    [
        {"environment": {"TINY_LAYOUT": "True"}},
        {"environment": ["TINY_LAYOUT=True"]},
        {"environment": ["TINY_LAYOUT"]},
        {"environment": {"TINY_LAYOUT": "${LAYOUT:-True}"}},
        {"env_file": ["settings.env"]},
        {"entrypoint": ["/bin/busybox", "sh", "-c", "export TINY_LAYOUT=True; exec tinyserve serve"]},
        {"entrypoint": ["/usr/bin/env", "TINY_LAYOUT=True", "/opt/venv/bin/tinyserve", "serve"]},
        {"environment": {"TINY_LAYOUT": "True"}, "entrypoint": ["/bin/busybox", "sh", "-c", ". /none; $$RUN"]},
    ],
)
@pytest.mark.parametrize("mode", ["image", "bind"])
def test_a_service_that_sets_one_is_refused_before_anything_is_written(image, patchkit, picky, tmp_path, service, mode):
    (tmp_path / "settings.env").write_text("TINY_LAYOUT=True\n")
    (tmp_path / "compose.yaml").write_text(json.dumps({"services": {"tiny": {"image": image, **service}}}))
    options = ["--image", image, *picky, "--mode", mode, "-f", "compose.yaml"]
    done = patchkit("compose", *options, env={"TINY_LAYOUT": "True"}, status=1)
    assert "[environment-refused]" in done.err
    assert f"service tiny: {SAID}" in done.err
    assert "take TINY_LAYOUT out of where it is set" in done.err
    assert not (tmp_path / ".patchkit").exists()
    assert subprocess.run(["docker", "image", "inspect", f"{image}-patchkit"], capture_output=True).returncode != 0


@pytest.mark.engine
def test_a_service_that_sets_another_value_or_is_not_patched_is_no_matter(image, patchkit, picky, tmp_path):
    services = {
        "tiny": {"image": image, "environment": {"TINY_LAYOUT": "0"}},
        "other": {"image": "nginx:1", "environment": {"TINY_LAYOUT": "1"}},
    }
    (tmp_path / "compose.yaml").write_text(json.dumps({"services": services}))
    patchkit("compose", "--image", image, *picky, "-f", "compose.yaml", "-o", "overlay.yaml", status=0)


@pytest.mark.engine
def test_up_stops_at_a_stack_that_sets_one_before_anything_is_made(image, picky, tmp_path):
    file = tmp_path / "compose.yaml"
    file.write_text(json.dumps({"services": {"flint": {"image": image, "environment": {"TINY_LAYOUT": "True"}}}}))
    options, delivery = Options(catalog=Path(picky[1]), manifest="tinyserve"), Delivery(output=tmp_path / "out")
    with pytest.raises(Refused) as caught:
        serving.up(choose(load_recipe("flint"), hardware="b70x4", image=image), options, delivery, serving.Going(file))
    assert (caught.value.code, caught.value.where, caught.value.what) == ("environment-refused", "service flint", SAID)
    assert not delivery.output.exists()


@pytest.mark.engine
def test_an_image_that_sets_one_and_a_launch_that_does_are_refused_with_what_to_do(
    image, patchkit, picky, scratch, tmp_path
):
    derived = scratch.name("set")
    subprocess.run(
        ["docker", "build", "-q", "-t", derived, "-"], input=f"FROM {image}\nENV TINY_GPU=9\n".encode(), check=True
    )
    try:
        done = patchkit("apply", "--image", derived, *picky, status=1)
        assert "TINY_GPU=9: It passes for another." in done.err
        assert "take TINY_GPU out of where it is set" in done.err
    finally:
        subprocess.run(["docker", "image", "rm", "-f", derived], capture_output=True)
    launch = ["--launch", "/usr/bin/env TINY_LAYOUT=True /opt/venv/bin/tinyserve serve"]
    assert SAID in patchkit("apply", "--image", image, *picky, *launch, status=1).err
    assert not (tmp_path / ".patchkit").exists()


def test_a_component_says_that_the_deployments_below_it_are_not_read(patchkit, picky, tiny, fixture_layout):
    words = ["compose", "--image", f"oci:{fixture_layout('pure')}:latest", "--no-run", "--mode", "bind"]
    words += ["--format", "kustomize", "-o", "component"]
    done = patchkit(*words, *picky, "--json", status=0)
    (finding,) = done.json["findings"]
    assert (finding["id"], finding["severity"], finding["where"]) == ("deployment-unread", "warning", "component")
    assert finding["what"].endswith("TINY_LAYOUT, TINY_GPU")
    assert "--guard" in finding["remedy"]
    assert "[deployment-unread]" in done.err
    assert patchkit(*words, *tiny, "--json", status=0).json["findings"] == []
    assert "[guard-not-started]" in patchkit(*words, *picky, "--guard", status=1).err


def test_a_component_of_a_guarded_image_says_what_goes_past_the_guard(picky, fixture_layout, tmp_path):
    options = Options(catalog=Path(picky[1]), manifest=picky[3], run=False)
    delivery = Delivery(output=tmp_path / "out", guard=True)
    composed = stacks.compose(f"oci:{fixture_layout('pure')}:latest", options, delivery)
    (done,) = composed.applied.platforms
    pushed = replace(done.receipt.delivered_identity, repo_digests=(f"r.example/tiny@sha256:{'0' * 64}",))
    done = replace(done, receipt=replace(done.receipt, delivered_identity=pushed))
    made = stacks.component(replace(composed, applied=replace(composed.applied, platforms=(done,))), tmp_path)
    (finding,) = made.findings
    assert (finding.id, finding.severity) == ("deployment-unread", "note")
    assert finding.what.endswith("the guard looks, unless they have a command of their own")


@pytest.mark.engine
def test_a_running_container_that_was_started_with_one_is_left_as_it_is(image, patchkit, picky, running, tmp_path):
    container = running(image, environment={"TINY_LAYOUT": "True", **SECRET})
    done = patchkit("apply", "--container", container.name, *picky, status=1)
    assert SAID in done.err
    assert "take TINY_LAYOUT out of where it is set" in done.err
    assert SECRET["HF_TOKEN"] not in done.err
    assert SCALE not in {change["Path"] for change in container.diff() or []}
    assert not (tmp_path / ".patchkit").exists()


@pytest.mark.engine
def test_a_running_container_whose_start_script_set_one_is_left_as_it_is(
    image, patchkit, picky, running, layout, tmp_path
):
    container = running(image, **layout("True"))
    done = patchkit("apply", "--container", container.name, *picky, status=1)
    assert "[environment-refused]" in done.err
    assert (SAID in done.err, f"{container.name} pid 1" in done.err) == (True, True)
    dry = patchkit("apply", "--container", container.name, *picky, "--dry-run", status=1)
    assert f"{container.name} pid 1: {SAID}" in dry.err
    status = patchkit("status", "--container", container.name, *picky, "--json", status=1)
    assert {each["what"] for each in refusals(status)} == {SAID}
    assert SCALE not in {change["Path"] for change in container.diff() or []}
    assert not (tmp_path / ".patchkit").exists()


@pytest.mark.engine
def test_a_running_container_with_another_value_is_patched(image, patchkit, picky, running, layout):
    container = running(image, **layout("0"))
    done = patchkit("apply", "--container", container.name, *picky, "--json", status=1)
    assert {each["id"] for each in done.json["findings"] if each["severity"] == "error"} == {"process-older"}


@pytest.mark.engine
def test_verify_and_doctor_find_what_a_container_was_started_with(image, patchkit, picky, running):
    patchkit("apply", "--image", image, *picky, status=0)
    name = running(f"{image}-patchkit", environment={"TINY_LAYOUT": "True", "TINY_GPU": "", **SECRET}).name
    for command in (["verify"], ["verify", "--no-run"], ["doctor"]):
        catalog = picky if command[0] == "verify" else picky[:2]
        done = patchkit(*command, "--container", name, *catalog, "--json", status=1)
        assert [(each["what"], each["where"], each["severity"]) for each in refusals(done)] == [
            (SAID, name, "error"),
            ("TINY_GPU=: It passes for another.", name, "error"),
        ]
        assert refusals(done)[0]["remedy"].startswith("take TINY_LAYOUT out of where it is set")
        assert SECRET["HF_TOKEN"] not in done.out


@pytest.mark.engine
def test_without_the_catalog_the_receipt_tells_which_settings_are_refused(image, patchkit, picky, running, tmp_path):
    patchkit("apply", "--image", image, *picky, status=0)
    name = running(f"{image}-patchkit", environment={"TINY_LAYOUT": "True"}).name
    other = tmp_path / "other"
    patchkit("init", other, "--package", "other", "--image", "other:*", status=0)
    (found,) = refusals(patchkit("verify", "--container", name, "--no-run", "--catalog", other, "--json", status=1))
    assert found["what"] == SAID


@pytest.mark.engine
def test_verify_and_doctor_find_what_a_start_script_set(image, patchkit, picky, running, layout):
    patchkit("apply", "--image", image, *picky, status=0)
    container = running(f"{image}-patchkit", **layout("True"))
    for command in ("verify", "doctor"):
        catalog = picky if command == "verify" else picky[:2]
        done = patchkit(command, "--container", container.name, *catalog, "--json", status=1)
        assert f"{container.name} pid 1" in {each["where"] for each in refusals(done)}
        assert {each["what"] for each in refusals(done)} == {SAID}


@pytest.mark.engine
def test_verify_and_doctor_find_what_is_started_with_one_beside_a_server_without(
    image, patchkit, picky, running, layout
):
    patchkit("apply", "--image", image, *picky, status=0)
    quiet = running(f"{image}-patchkit", **layout("0"))
    patchkit("verify", "--container", quiet.name, *picky, status=0)
    patchkit("doctor", "--container", quiet.name, *picky[:2], status=0)
    quiet.exec_run(
        ["/opt/venv/bin/python3", "-c", "import time; time.sleep(60)"], environment={"TINY_GPU": "1"}, detach=True
    )
    (found,) = refusals(patchkit("verify", "--container", quiet.name, *picky, "--json", status=1))
    assert found["what"].startswith("TINY_GPU=1: ")


@pytest.mark.engine
def test_verify_finds_what_somebody_set_in_an_image_made_from_the_patched_one(image, patchkit, picky, scratch):
    patchkit("apply", "--image", image, *picky, status=0)
    derived = scratch.name("later")
    text = f"FROM {image}-patchkit\nENV TINY_GPU=9\n"
    subprocess.run(["docker", "build", "-q", "-t", derived, "-"], input=text.encode(), check=True)
    try:
        (found,) = refusals(patchkit("verify", "--image", derived, *picky, "--json", status=1))
        assert found["what"] == "TINY_GPU=9: It passes for another."
    finally:
        subprocess.run(["docker", "image", "rm", "-f", derived], capture_output=True)


@pytest.mark.engine
@pytest.mark.parametrize("mode", ["image", "bind"])
def test_the_doctor_finds_it_in_a_compose_project_with_and_without_the_overlay(image, patchkit, picky, tmp_path, mode):
    file = tmp_path / "compose.yaml"
    file.write_text(json.dumps({"services": {"tiny": {"image": image}}}))
    options = ["--image", image, *picky, "--mode", mode, "-f", "compose.yaml", "-o", "overlay.yaml"]
    patchkit("compose", *options, status=0)
    file.write_text(json.dumps({"services": {"tiny": {"image": image, "environment": {"TINY_LAYOUT": "True"}}}}))
    for files in (["compose.yaml"], ["compose.yaml", "overlay.yaml"]):
        named = [word for each in files for word in ("--compose", each)]
        done = patchkit("doctor", "--image", image, *named, *picky[:2], "--json", status=1)
        # Another test may run a container of the same image with the same setting.
        services = [each for each in refusals(done) if each["where"].startswith("service ")]
        assert [(each["what"], each["where"]) for each in services] == [(SAID, "service tiny")]
