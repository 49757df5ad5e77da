"""``patchkit up``: a recipe's stack, patched, started on a real engine, proven in the container, and asked."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from patchkit.api import Delivery, Options, serving
from patchkit.errors import PatchkitError, Refused
from patchkit.site.gpus import amd_gpus
from patchkit.stack import compose_model
from patchkit.stack.recipes.load import load_recipe
from patchkit.stack.recipes.render import choose
from tests.site.kfd import machine
from tests.stack import servers

pytestmark = pytest.mark.engine

REPOSITORY = Path(__file__).parents[2]

#: A server that starts as vLLM's console script does and answers as a model that calls tools would.
_SERVER = """\
#!/opt/venv/bin/python3
import json, os, signal, sys
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
if "--die" in sys.argv:
    print("ModuleNotFoundError: No module named 'flashinfer'", flush=True)
    sys.exit(1)
print("INFO Available KV cache memory: 7.0 GiB")
print("INFO XPU KV cache size: 904,123 tokens, Maximum concurrency for 262,144 tokens per request: 3.45x", flush=True)
print("arguments", json.dumps(sys.argv[1:]), flush=True)
sys.path.insert(0, "/opt/double")
import servers
servers.serve(("0.0.0.0", 8000), os.environ.get("FAULTS", "").split())
"""


@pytest.fixture(scope="module")
def serving_image(
    engine: Any, fixture_image: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The fixture image with the real vLLM in it, whose ``vllm`` serves."""
    folder = tmp_path_factory.mktemp("image")
    (folder / "vllm").write_text(_SERVER)
    (folder / "vllm").chmod(0o755)
    shutil.copy(servers.__file__, folder / "servers.py")
    base = fixture_image("xpu")
    (folder / "Dockerfile").write_text(f"FROM {base}\nCOPY vllm /opt/venv/bin/vllm\nCOPY servers.py /opt/double/\n")
    tag = f"patchkit-up-test-{os.getpid()}:1"
    subprocess.run(["docker", "build", "-q", "-t", tag, folder], check=True, capture_output=True)
    yield tag
    for name in (f"{tag}-patchkit", tag):
        subprocess.run(["docker", "rmi", "-f", name], capture_output=True)


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    """The shipped catalog for a machine without cards and without the right to raise limits."""
    folder = tmp_path / "catalog"
    for name in ("manifests", "patches"):
        shutil.copytree(REPOSITORY / name, folder / name)
    recipe = folder / "manifests" / "recipes" / "flint.yaml"
    text = recipe.read_text()
    before, _, after = text.partition("  xpu:\n")
    for key in ("devices", "groups", "ulimits"):
        after, count = re.subn(rf"(?m)^    {key}: .*\n", "", after, count=1)
        assert count == 1
    cut = f"{before}  xpu:\n{after}"
    recipe.write_text(cut)
    return folder


@pytest.fixture
def call(tmp_path: Path, catalog: Path) -> Iterator[Callable[..., subprocess.CompletedProcess[str]]]:
    """Run ``up`` or ``down`` in a folder of the test's own, on a port of its own."""
    work = tmp_path / f"up{os.getpid()}"
    work.mkdir()
    port = servers.free_port()
    env = {**os.environ, "FLINT_LISTEN": f"127.0.0.1:{port}", "RENDER_GID": "0"}

    def run(verb: str, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, "-m", "patchkit", verb, "flint", *arguments]
        if verb == "up":
            words += ["--hardware", "b70x4", "--catalog", str(catalog)]
        return subprocess.run(words, cwd=work, env=env | more, capture_output=True, text=True, timeout=300)

    yield run
    if (work / "compose.flint.yaml").exists():
        run("down")
        subprocess.run(
            [*compose_model.compose_command(), "-f", work / "compose.flint.yaml", "down", "-v", "-t", "0"],
            env=env,
            capture_output=True,
        )


def test_a_recipe_becomes_a_served_proven_model_and_each_step_is_told(
    call: Callable[..., subprocess.CompletedProcess[str]], serving_image: str, tmp_path: Path
) -> None:
    done = call("up", "--image", serving_image, "--tools")
    assert done.returncode == 0, done.stdout + done.stderr
    steps = [line.removeprefix("$ ").split()[:2] for line in done.stdout.splitlines() if line.startswith("$ ")]
    assert steps == [
        ["patchkit", "recipe"],
        ["patchkit", "compose"],
        ["patchkit", "lint"],
        ["docker", "compose"],
        ["curl", steps[4][1]],
        ["patchkit", "verify"],
        ["patchkit", "smoke"],
    ]
    assert "KV cache: 904123 tokens, 3.45 requests of 262144 tokens at once" in done.stdout
    assert "the recipe plans 953430 tokens for 7 GiB" in done.stdout
    assert "passed  repeated-calls" in done.stdout
    assert "served and proven: http://127.0.0.1:" in done.stdout

    work = tmp_path / f"up{os.getpid()}"
    files = ["-f", work / "compose.flint.yaml", "-f", work / ".patchkit" / "compose.patchkit.yaml"]
    env = {**os.environ, "FLINT_LISTEN": "127.0.0.1:1", "RENDER_GID": "0"}
    logs = subprocess.run(
        [*compose_model.compose_command(), *files, "logs", "--no-log-prefix"], env=env, capture_output=True, text=True
    )
    given = next(line for line in logs.stdout.splitlines() if line.startswith("arguments"))
    assert json.loads(given.partition(" ")[2]) == [
        *("serve", "RecursiveSI/flint", "--served-model-name=flint", "--tensor-parallel-size=4"),
        *("--attention-backend=TRITON_ATTN", "--kv-cache-dtype=auto", "--enable-auto-tool-choice"),
        *("--tool-call-parser=glm47", "--exclude-tools-when-tool-choice-none", "--reasoning-parser=glm47"),
    ]

    again = call("up", "--image", serving_image)
    assert again.returncode == 0, again.stdout + again.stderr
    assert "patchkit recipe" not in again.stdout

    down = call("down")
    assert down.returncode == 0, down.stderr
    left = subprocess.run(
        [*compose_model.compose_command(), *files, "ps", "-aq"], env=env, capture_output=True, text=True
    )
    assert left.stdout == ""


def test_a_server_that_dies_is_not_waited_for_and_its_log_is_read(
    call: Callable[..., subprocess.CompletedProcess[str]], serving_image: str, tmp_path: Path
) -> None:
    first = call("up", "--image", serving_image, "--timeout", "1", "--mode", "bind")
    work = tmp_path / f"up{os.getpid()}"
    stack = work / "compose.flint.yaml"
    stack.write_text(stack.read_text().replace('- "RecursiveSI/flint"', '- "RecursiveSI/flint"\n      - "--die"'))
    done = call("up", "--image", serving_image, "--mode", "bind")
    assert done.returncode == 1, (first.stdout, done.stdout)
    assert "log-flashinfer-missing" in done.stdout
    assert "server-ended" in done.stderr
    assert "FlashInfer" in done.stderr
    assert "own-stack" in done.stdout


def test_errors_of_lint_stop_it_before_anything_is_started(
    call: Callable[..., subprocess.CompletedProcess[str]], serving_image: str, tmp_path: Path
) -> None:
    work = tmp_path / f"up{os.getpid()}"
    (work / "compose.flint.yaml").write_text(
        f"services: {{flint: {{image: '{serving_image}', ports: ['1:8000'], "
        "command: vllm serve RecursiveSI/flint --kv-cache-dtype fp8}}\n"
    )
    done = call("up", "--image", serving_image)
    assert done.returncode == 1, done.stdout
    assert "lint-found" in done.stderr
    assert "docker compose" not in done.stdout


def test_the_variable_of_the_stack_names_the_image_and_nobody_s_tag_is_taken(
    call: Callable[..., subprocess.CompletedProcess[str]], serving_image: str, engine: Any
) -> None:
    other = f"patchkit-up-test-{os.getpid()}:others"
    subprocess.run(["docker", "tag", serving_image, other], check=True)
    try:
        done = call("up", "--tag", other, FLINT_IMAGE=serving_image)
    finally:
        subprocess.run(["docker", "rmi", other], check=True, capture_output=True)
    assert f"patchkit compose --image {serving_image}" in done.stdout
    assert "target-tag-taken" in done.stderr, done.stdout + done.stderr
    both = call("up", "--image", "another:1", FLINT_IMAGE=serving_image)
    assert both.returncode == 2
    assert "unset FLINT_IMAGE" in both.stderr


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ('error gathering device information while adding custom device "/dev/dri": no such file', "/dev/dri"),
        ('could not select device driver "nvidia" with capabilities: [[gpu]]', "nvidia-container-toolkit"),
    ],
)
def test_an_accelerator_that_is_not_there_has_a_remedy_that_helps(
    said: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "compose"
    fake.write_text(f"#!/bin/sh\necho '{said}' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setattr(serving, "compose_command", lambda: [str(fake)])
    with pytest.raises(Refused) as caught:
        serving.down([Path("compose.yaml")])
    assert expected in (caught.value.remedy or "")
    assert "--hardware" in (caught.value.remedy or "")


@pytest.mark.parametrize(
    ("gpus", "devices", "code"),
    [
        ({128: "100300"}, "devices: [/dev/kfd, /dev/dri]", "gpu-refused"),
        ({128: "100306", 129: "90402"}, "devices: [/dev/kfd, /dev/dri]", "gpu-refused"),
        ({128: "100306", 129: "90402"}, "devices: [/dev/kfd, /dev/dri/renderD129]", "no-such-image"),
        ({128: "100306", 129: "90402"}, "privileged: true", "gpu-refused"),
        ({128: "100300"}, "privileged: false", "no-such-image"),
        ({}, "devices: [/dev/kfd, /dev/dri]", "no-such-image"),
    ],
)
def test_a_gpu_that_the_patches_are_not_for_stops_it_before_anything_is_made(
    gpus: dict[int, str], devices: str, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "amd_gpus", partial(amd_gpus, machine(tmp_path / "machine", gpus)))
    file = tmp_path / "compose.yaml"
    file.write_text(f"services: {{flint: {{image: 'nobody/has:this', {devices}}}}}\n")
    choice = choose(load_recipe("flint", REPOSITORY), hardware="mi300x", image="nobody/has:this")
    delivery = Delivery(output=tmp_path / ".patchkit")
    with pytest.raises(PatchkitError) as caught:
        serving.up(choice, Options(catalog=REPOSITORY), delivery, serving.Going(file))
    assert caught.value.code == code
    if code == "gpu-refused":
        assert (caught.value.where, "gfx103" in caught.value.what) == ("service flint", True)
        assert not delivery.output.exists()


def test_down_without_a_stack_is_a_wrong_call(call: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    done = call("down")
    assert done.returncode == 2
    assert "no-stack" in done.stderr
