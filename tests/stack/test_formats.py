"""A delivery as a command line and as a kustomize component, read by docker, kubectl and kubernetes-validate."""

from __future__ import annotations

import itertools
import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from patchkit.errors import Refused
from patchkit.stack import compose_model
from patchkit.stack.kustomize import MAX_CONFIG_MAP, image_component, mount_component
from patchkit.stack.overlay import OverlayMount, PinnedImage, Start
from patchkit.stack.runline import run_line

IMAGE = PinnedImage("sha256:" + "ab" * 32, local=True)
PUSHED = PinnedImage("registry.example:5000/vllm@sha256:" + "cd" * 32, local=False)
MOUNTS = [
    OverlayMount("/host/a/norm.py", "/opt/venv/lib/python3.12/site-packages/vllm/norm.py"),
    OverlayMount("/host/b/norm.py", "/opt/venv/lib/python3.12/site-packages/vllm/other/norm.py"),
]
DATA = {"/host/a/norm.py": b"a = 1\n", "/host/b/norm.py": "b = 'é'\n".encode()}


def words_of(line: str) -> list[str]:
    """The line's words as bash has them."""
    done = subprocess.run(
        ["bash", "-c", f"printf '%s\\0' {line}"], capture_output=True, text=True, check=True, env={"HOME": "/wrong"}
    )
    return done.stdout.split("\0")[:-1]


EVERYTHING = """
name: night
services:
  flint:
    image: vllm-xpu:nightly
    entrypoint: [/usr/bin/env, vllm]
    command: [serve, a b, "--x=$$HOME", it's]
    environment: {HF_TOKEN: , ODD: "a\\nb"}
    ports: ["127.0.0.1:8000:8000", "9000/udp"]
    volumes: ["models:/models:ro", "/host/x,y:/data", {type: tmpfs, target: /t}]
    devices: ["/dev/null:/dev/other:r"]
    group_add: ["44"]
    ipc: host
    shm_size: 16gb
    ulimits: {memlock: -1, nofile: {soft: 10, hard: 20}}
    cap_add: [SYS_PTRACE]
    security_opt: ["seccomp=unconfined"]
    stop_grace_period: 1m30s
    restart: unless-stopped
    init: true
    user: "1000:1000"
    working_dir: /w
    hostname: box
    extra_hosts: ["a:1.2.3.4"]
    healthcheck: {test: [CMD, python3, -c, "import x; x('y')"], interval: 10s, retries: 3, start_period: 30m}
    deploy: {resources: {reservations: {devices: [{driver: nvidia, count: 2, capabilities: [gpu]}]}}}
    logging: {driver: json-file}
volumes: {models: }
"""


def test_a_service_is_carried_over_word_by_word(tmp_path: Path) -> None:
    file = tmp_path / "compose.yaml"
    file.write_text(EVERYTHING)
    model = compose_model.read([file])
    line, left = run_line("docker", IMAGE, mounts=MOUNTS[:1], service=model.services[0], model=model)
    words = words_of(line)
    assert words[:3] == ["docker", "run", "-d"]
    assert words[-6:] == [IMAGE.name, "vllm", "serve", "a b", "--x=$HOME", "it's"]
    pairs = set(itertools.pairwise(words))
    for pair in (
        ("--entrypoint", "/usr/bin/env"),
        ("-e", "HF_TOKEN"),
        ("-e", "ODD=a\nb"),
        ("-p", "127.0.0.1:8000:8000"),
        ("-p", "9000/udp"),
        ("--mount", "type=volume,source=night_models,target=/models,readonly"),
        ("--mount", 'type=bind,"source=/host/x,y",target=/data'),
        ("--mount", "type=tmpfs,target=/t"),
        ("--mount", f"type=bind,source={MOUNTS[0].source},target={MOUNTS[0].target},readonly"),
        ("--device", "/dev/null:/dev/other:r"),
        ("--group-add", "44"),
        ("--ulimit", "memlock=-1:-1"),
        ("--ulimit", "nofile=10:20"),
        ("--stop-timeout", "90"),
        ("--gpus", "2"),
        ("--user", "1000:1000"),
        ("--restart", "unless-stopped"),
        ("--health-start-period", "30m0s"),
    ):
        assert pair in pairs, pair
    health = words[words.index("--health-cmd") + 1]
    assert shlex.split(health) == ["python3", "-c", "import x; x('y')"]
    assert {"--init", "--pull=never"} <= set(words)
    assert left == ("logging",)


@pytest.mark.engine
def test_docker_takes_every_option_of_the_line(tmp_path: Path, engine: object) -> None:
    folder, patched = tmp_path / "x,y", tmp_path / 'no"rm.py'
    folder.mkdir()
    patched.write_text("")
    file = tmp_path / "compose.yaml"
    file.write_text(EVERYTHING.replace("/host/x,y", str(folder)))
    model = compose_model.read([file])
    mounts = [OverlayMount(str(patched), "/opt/norm.py")]
    line, _ = run_line("docker", IMAGE, mounts=mounts, labels={"a": "b"}, service=model.services[0], model=model)
    words = words_of(line)
    words[1:3] = ["create"]
    done = subprocess.run(words, capture_output=True, text=True)
    # The image is not there, and that is what docker finds wrong, after it has read all options and mounts.
    assert f"No such image: {IMAGE.name}" in done.stderr


def test_without_a_compose_file_the_line_is_the_image_and_its_mounts() -> None:
    line, left = run_line("podman", PUSHED, mounts=MOUNTS, environment={"A": "b c"}, start=Start(("/g", "x"), ("y",)))
    assert words_of(line) == [
        *("podman", "run", "--rm", "-e", "A=b c"),
        *("--mount", f"type=bind,source={MOUNTS[0].source},target={MOUNTS[0].target},readonly"),
        *("--mount", f"type=bind,source={MOUNTS[1].source},target={MOUNTS[1].target},readonly"),
        *("--entrypoint", "/g", PUSHED.name, "x", "y"),
    ]
    assert left == ()


DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: flint}
spec:
  replicas: 1
  selector: {matchLabels: {app: flint}}
  template:
    metadata: {labels: {app: flint}}
    spec:
      containers:
        - name: proxy
          image: nginx:1
        - name: vllm
          image: vllm/vllm-openai:nightly
          volumeMounts: [{name: models, mountPath: /models}]
      volumes: [{name: models, emptyDir: {}}]
"""


def built(tmp_path: Path, files: dict[str, bytes]) -> list[dict[str, object]]:
    """What the real kubectl makes of the component, after kubernetes-validate found nothing wrong with it."""
    for name, data in files.items():
        path = tmp_path / "component" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    (tmp_path / "deployment.yaml").write_text(DEPLOYMENT)
    (tmp_path / "kustomization.yaml").write_text("resources: [deployment.yaml]\ncomponents: [component]\n")
    kubectl = Path(sys.executable).parent / "kubectl"
    made = subprocess.run([kubectl, "kustomize", tmp_path], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    rendered = tmp_path / "rendered.yaml"
    rendered.write_text(made.stdout)
    check = Path(sys.executable).parent / "kubernetes-validate"
    checked = subprocess.run([check, "--strict", rendered], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    return list(yaml.safe_load_all(made.stdout))


def test_an_image_component_pins_the_derived_image_by_digest(tmp_path: Path) -> None:
    files = image_component("vllm/vllm-openai", PUSHED, "f" * 64, "by patchkit")
    (deployment,) = built(tmp_path, files)
    template = deployment["spec"]["template"]  # type: ignore[index]
    images = {each["name"]: each["image"] for each in template["spec"]["containers"]}
    assert images == {"proxy": "nginx:1", "vllm": PUSHED.name}
    assert template["metadata"]["annotations"] == {"dev.patchkit.fingerprint": "f" * 64}


def test_a_mount_component_mounts_every_file_into_the_container_beside_what_is_there(tmp_path: Path) -> None:
    deployment, config = sorted(
        built(tmp_path, mount_component(MOUNTS, DATA, "f" * 64, "vllm", "by patchkit")),
        key=lambda each: str(each["kind"]),
        reverse=True,
    )
    spec = deployment["spec"]["template"]["spec"]  # type: ignore[index]
    container = next(each for each in spec["containers"] if each["name"] == "vllm")
    assert container["image"] == "vllm/vllm-openai:nightly"
    mounted = {each["mountPath"]: each for each in container["volumeMounts"]}
    assert set(mounted) == {"/models", *(mount.target for mount in MOUNTS)}
    for mount in MOUNTS:
        key = mounted[mount.target]["subPath"]
        assert mounted[mount.target]["readOnly"] is True
        assert config["data"][key].encode() == DATA[mount.source]  # type: ignore[index]
    name = config["metadata"]["name"]  # type: ignore[index]
    assert name.startswith("patchkit-files-")
    assert {"name": "patchkit-files", "configMap": {"name": name}} in spec["volumes"]
    assert len(spec["containers"]) == 2


def test_other_bytes_give_another_name_and_so_a_rollout(tmp_path: Path) -> None:
    names = []
    for number, data in enumerate((b"a = 1\n", b"a = 2\n")):
        folder = tmp_path / str(number)
        folder.mkdir()
        files = mount_component(MOUNTS[:1], {MOUNTS[0].source: data}, "f", "vllm", "")
        names += [each["metadata"]["name"] for each in built(folder, files) if each["kind"] == "ConfigMap"]  # type: ignore[index]
    assert names[0] != names[1]


def test_a_local_image_is_refused_with_push_first() -> None:
    with pytest.raises(Refused) as caught:
        image_component("vllm", IMAGE, "f", "")
    assert caught.value.code == "local-image"
    assert "push" in str(caught.value.remedy)


def test_files_that_no_configmap_holds_are_refused() -> None:
    with pytest.raises(Refused) as caught:
        mount_component(MOUNTS[:1], {MOUNTS[0].source: b"x" * (MAX_CONFIG_MAP + 1)}, "f", "vllm", "")
    assert caught.value.code == "too-large-for-configmap"


def test_a_misspelt_key_would_be_noticed(tmp_path: Path) -> None:
    files = mount_component(MOUNTS[:1], DATA, "f", "vllm", "")
    files["mounts.yaml"] = files["mounts.yaml"].replace(b"subPath", b"subpath")
    with pytest.raises(AssertionError):
        built(tmp_path, files)


def test_the_files_are_the_same_each_time() -> None:
    assert json.dumps([*map(str, mount_component(MOUNTS, DATA, "f", "vllm", "h").items())]) == json.dumps(
        [*map(str, mount_component(MOUNTS, DATA, "f", "vllm", "h").items())]
    )
