"""The fixture images are what they say: each starts, or fails to, as the true layout would."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import images

_VENV = "/opt/venv/lib/python3.11/site-packages"
# Where the serving process imports the model from; 7 is the shipped answer, 15 that of the shadowing copy.
SERVES = {
    "pure": (_VENV, 7),
    "richconfig": (_VENV, 7),
    "conda": ("/opt/conda/envs/serve/lib/python3.11/site-packages", 7),
    "pipx": ("/opt/pipx/venvs/tinyserve/lib/python3.11/site-packages", 7),
    "debian": ("/usr/lib/python3/dist-packages", 7),
    "debian_and_pip": ("/usr/local/lib/python3.11/dist-packages", 7),
    "nested_venv": ("/opt/venv/tools/inner/lib/python3.11/site-packages", 7),
    "system_site": ("/usr/local/lib/python3.11/dist-packages", 7),
    "user_site": ("/home/app/.local/lib/python3.11/site-packages", 7),
    "pythonpath": ("/opt/overrides", 15),
    "module_launch": ("/workspace/tinyserve", 15),
    "namespace_split": ("/opt/plugins", 7),
    "zipped": ("/opt/bundle.zip", 15),
    "stale_pyc": (_VENV, 15),
}
FAILS = {
    "namespace_shadow": b"cannot be directly executed",
    "so_beside": b"ImportError",
    "hidden_interpreter": b"permission denied",
}
VLLM = [
    "xpu", "fullrecord", "fixed", "oldvllm", "nightly", "distpackages", "editable", "editable_pth", "nonroot",
    "symlinkvenv", "wrapper",
]  # fmt: skip


def start(engine: Any, reference: str) -> tuple[int, bytes, bytes]:
    import docker.errors

    container = engine.containers.create(reference, network_mode="none")
    try:
        try:
            container.start()
        except docker.errors.APIError as error:
            return 126, b"", str(error).encode()
        status = container.wait()["StatusCode"]
        return status, container.logs(stdout=True, stderr=False), container.logs(stdout=False, stderr=True)
    finally:
        container.remove(force=True, v=True)


@pytest.mark.parametrize("name", [name for name in images.names("odd") if name not in FAILS] + ["pure", "richconfig"])
def test_the_server_says_which_copy_it_runs(name: str, engine: Any, fixture_image: Callable[[str], str]) -> None:
    status, output, errors = start(engine, fixture_image(name))
    assert status == 0, errors.decode()
    reports = [json.loads(line) for line in output.splitlines()]
    root, answer = SERVES.get(name, (_VENV, 7))
    for report in reports[1:]:
        assert (report["file"], report["answer"]) == (f"{root}/tinyserve/models/one.py", answer)


@pytest.mark.parametrize("name", list(FAILS))
def test_a_layout_that_breaks_the_server_breaks_it_here_too(
    name: str, engine: Any, fixture_image: Callable[[str], str]
) -> None:
    status, _, errors = start(engine, fixture_image(name))
    assert status != 0
    assert FAILS[name] in errors


@pytest.mark.parametrize("name", VLLM)
def test_the_real_vllm_starts_until_it_misses_torch(
    name: str, engine: Any, fixture_image: Callable[[str], str]
) -> None:
    status, _, errors = start(engine, fixture_image(name))
    assert status == 1
    assert b"No module named 'torch'" in errors


def test_an_images_name_in_the_engine_is_the_digest_of_the_config_that_the_layout_holds(
    engine: Any, fixture_image: Callable[[str], str], fixture_layout: Callable[[str], Path]
) -> None:
    layout = fixture_layout("richconfig")
    descriptor = json.loads((layout / "index.json").read_text())["manifests"][0]
    manifest = json.loads((layout / "blobs/sha256" / descriptor["digest"].removeprefix("sha256:")).read_text())
    config = json.loads(images.build("richconfig").config)
    assert manifest["config"]["digest"] == images.build("richconfig").image_id
    assert engine.images.get(fixture_image("richconfig")).attrs["RootFS"]["Layers"] == config["rootfs"]["diff_ids"]


def test_an_unpacked_root_holds_what_the_layers_hold(fixture_rootfs: Callable[[str], Path]) -> None:
    root = fixture_rootfs("xpu")
    assert (root / f"{_VENV[1:]}/vllm/models/flint/model.py").is_file()
    assert (root / "opt/venv/bin/python3").is_symlink()
    assert (root / "workspace/vllm/vllm/__init__.py").is_file()
