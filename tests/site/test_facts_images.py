"""Every fixture image: what reading tells is what its interpreter does, on the engine, and without it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from patchkit.images import open_image, parse_reference
from patchkit.site.copies import find_copies
from patchkit.site.facts import from_json, site_facts, to_json
from patchkit.site.launch import launch_of
from patchkit.site.model import Site
from tests import images
from tests.site.host import HostFiles

SMALL = [name for name in images.names("plain", "odd") if name not in ("demo", "shell_unclear")]
UNCLEAR = ["shell_unclear"]


def package_of(name: str) -> str:
    text = json.dumps(dict(images.VARIANTS[name]().config))
    return "vllm" if '"vllm"' in text else "tinyserve"


def files_of(package: str) -> list[str]:
    inner = "models/flint/ops/norm.py" if package == "vllm" else "ops/scale.py"
    return [f"{package}/__init__.py", f"{package}/{inner}", f"{package}/not-there.py"]


def facts(reference: str, package: str, *, run: bool = True) -> Site:
    with open_image(parse_reference(reference)) as image:
        launch = launch_of(json.loads(image.config), image.fs)
        assert launch.form != "unknown", launch.source
        return site_facts(image, launch, package, files_of(package), run=run)


@pytest.mark.engine
@pytest.mark.parametrize("name", SMALL)
def test_reading_and_asking_agree_on_every_image(fixture_image: Callable[[str], str], name: str) -> None:
    site = facts(fixture_image(name), package_of(name))
    assert site.disagreements == ()
    assert site.how == "both"
    assert site.python[:2] == (3, 11)
    assert from_json(json.loads(json.dumps(to_json(site)))) == site
    serving = [copy for copy in site.copies if copy.serves]
    assert len(serving) == (0 if name == "absent" else 2 if name == "namespace_split" else 1)


@pytest.mark.engine
@pytest.mark.parametrize("name", ["xpu", "editable", "namespace_split", "symlinkvenv", "pythonpath", "zipped"])
def test_a_layout_tells_the_same_as_the_engine(
    fixture_image: Callable[[str], str], fixture_layout: Callable[[str], Path], name: str
) -> None:
    read = facts(f"oci:{fixture_layout(name)}:latest", package_of(name), run=False)
    asked = facts(fixture_image(name), package_of(name))
    assert read.how == "static"
    for part in ("launch", "search_path", "copies", "winner", "dist_info", "version", "files", "pycs"):
        assert getattr(read, part) == getattr(asked, part), part


@pytest.mark.parametrize(
    ("name", "root", "others"),
    [
        ("conda", "/opt/conda/envs/serve/lib/python3.11/site-packages/tinyserve", 1),
        ("pipx", "/opt/pipx/venvs/tinyserve/lib/python3.11/site-packages/tinyserve", 1),
        ("debian", "/usr/lib/python3/dist-packages/tinyserve", 0),
        ("debian_and_pip", "/usr/local/lib/python3.11/dist-packages/tinyserve", 1),
        ("uv_hardlinks", "/opt/venv/lib/python3.11/site-packages/tinyserve", 3),
        ("nested_venv", "/opt/venv/tools/inner/lib/python3.11/site-packages/tinyserve", 1),
        ("system_site", "/usr/local/lib/python3.11/dist-packages/tinyserve", 0),
        ("user_site", "/home/app/.local/lib/python3.11/site-packages/tinyserve", 1),
        ("pythonpath", "/opt/overrides/tinyserve", 2),
        ("isolated", "/opt/venv/lib/python3.11/site-packages/tinyserve", 2),
        ("safe_path", "/opt/venv/lib/python3.11/site-packages/tinyserve", 1),
        ("module_launch", "/workspace/tinyserve/tinyserve", 1),
        ("namespace_shadow", "/workspace/tinyserve", 1),
        ("zipped", "/opt/bundle.zip/tinyserve/__init__.py", 2),
        ("editable", "/workspace/vllm/vllm", 0),
        ("symlinkvenv", "/opt/venvs/2026.11/lib/python3.11/site-packages/vllm", 1),
        ("absent", "", 0),
    ],
)
def test_the_copy_that_serves_is_named(
    fixture_rootfs: Callable[[str], Path], name: str, root: str, others: int
) -> None:
    fs = HostFiles(fixture_rootfs(name))
    launch = launch_of(dict(images.VARIANTS[name]().config), fs)
    copies = find_copies(fs, launch, package_of(name))
    serving = [copy.root for copy in copies if copy.serves]
    assert serving == ([root] if root else [])
    assert len(copies) - len(serving) == others, [copy.root for copy in copies]


@pytest.mark.parametrize("name", UNCLEAR)
def test_an_unclear_start_asks_for_the_launch(fixture_rootfs: Callable[[str], Path], name: str) -> None:
    launch = launch_of(dict(images.VARIANTS[name]().config), HostFiles(fixture_rootfs(name)))
    assert launch.form == "unknown"
    assert "under a condition" in launch.source
