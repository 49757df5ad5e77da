"""AMD's GPUs as the kernel tells them, on made-up trees."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from patchkit.site.gpus import amd_gpus, gpu_remedy, refused_gpus
from patchkit.site.program import program_text
from tests.site.kfd import machine, sysfs

MI300X, NAVI21 = "90402", "100300"


@pytest.mark.parametrize(
    ("version", "name"),
    [
        ("90010", "gfx90a"),
        ("90012", "gfx90c"),
        ("90402", "gfx942"),
        ("90500", "gfx950"),
        ("100300", "gfx1030"),
        ("100306", "gfx1036"),
        ("110001", "gfx1101"),
        ("110501", "gfx1151"),
        ("120001", "gfx1201"),
    ],
)
def test_the_drivers_number_is_the_architectures_name(tmp_path: Path, version: str, name: str) -> None:
    assert amd_gpus(machine(tmp_path, {128: version})) == [("/dev/dri/renderD128", name)]


@pytest.mark.parametrize("version", ["", "7", "9942", "90020", "91600", "gfx942", "-90402"])
def test_a_number_that_tells_no_architecture_is_one_that_no_pattern_matches(tmp_path: Path, version: str) -> None:
    (found,) = amd_gpus(machine(tmp_path, {128: version}))
    assert found[0] == "/dev/dri/renderD128"
    assert found[1].startswith("an unknown architecture")
    assert refused_gpus([found], ["gfx*", "gfx[0-9]*"], "why") != []


def test_gpus_are_told_in_the_kernels_order_and_a_cpu_is_none(tmp_path: Path) -> None:
    minors = {128 + number: MI300X for number in range(12)}
    assert [device for device, _ in amd_gpus(machine(tmp_path, minors))] == [f"/dev/dri/renderD{n}" for n in minors]


def test_a_gpu_of_the_host_that_was_not_passed_through_does_not_count(tmp_path: Path) -> None:
    root = machine(tmp_path, {128: NAVI21, 129: MI300X})
    (tmp_path / "dev/dri/renderD128").unlink()
    assert amd_gpus(root) == [("/dev/dri/renderD129", "gfx942")]


def test_a_node_that_may_not_be_read_is_not_this_containers(tmp_path: Path) -> None:
    root = machine(tmp_path, {128: NAVI21, 129: MI300X})
    closed = tmp_path / "sys/class/kfd/kfd/topology/nodes/1/properties"
    closed.unlink()
    closed.mkdir()  # root may read every file; this fails as EPERM does
    assert amd_gpus(root) == [("/dev/dri/renderD129", "gfx942")]


def test_without_amds_driver_there_is_nothing_to_tell(tmp_path: Path) -> None:
    assert amd_gpus(str(tmp_path)) == []
    sysfs(tmp_path, {128: NAVI21})
    (tmp_path / "dev/dri").mkdir(parents=True)
    (tmp_path / "dev/dri/renderD128").touch()
    assert amd_gpus(str(tmp_path)) == [], "no compute device was passed through"


def test_a_compute_device_without_the_topology_is_no_gpu_that_a_program_could_open(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kfd").touch()
    assert amd_gpus(str(tmp_path)) == []


def test_each_kind_that_is_refused_is_told_once_with_its_devices_and_the_reason() -> None:
    gpus = [("/dev/dri/renderD128", "gfx1036"), ("/dev/dri/renderD129", "gfx942"), ("/dev/dri/renderD130", "gfx1036")]
    assert refused_gpus(gpus, ["gfx942", "gfx11*"], "it would pass for another.") == [
        "it is given gfx1036 (/dev/dri/renderD128, /dev/dri/renderD130); "
        "the patches are for gfx942, gfx11*: it would pass for another."
    ]
    assert refused_gpus(gpus, ["gfx10[0-9]*", "gfx942"], "why") == []


def test_the_remedy_names_the_devices_that_will_do() -> None:
    gpus = [("/dev/dri/renderD128", "gfx1036"), ("/dev/dri/renderD129", "gfx942")]
    assert gpu_remedy(gpus, ["gfx942"]).endswith("/dev/kfd, /dev/dri/renderD129")
    assert "another machine" in gpu_remedy(gpus[:1], ["gfx942"])


@pytest.mark.parametrize(
    ("package", "name"), [("patchkit.site", "_probe_script"), ("patchkit.deliver", "_guard_program")]
)
def test_a_program_that_travels_stands_alone_and_is_python_3_8(package: str, name: str) -> None:
    tree = ast.parse(program_text(package, name), feature_version=(3, 8))
    imported = [each.module for each in ast.walk(tree) if isinstance(each, ast.ImportFrom)]
    imported += [alias.name for each in ast.walk(tree) if isinstance(each, ast.Import) for alias in each.names]
    functions = {each.name for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)}
    assert "amd_gpus" in functions
    assert ("refused_settings" in functions) == (name == "_guard_program")
    assert [module for module in imported if module is None or module.startswith("patchkit")] == []
