"""The wheel alone is enough: installed elsewhere, patchkit finds its catalog, its schema and its ready stacks."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("dist")
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(target), str(REPOSITORY)]
    subprocess.run(pip, check=True)
    return next(target.glob("patchkit-*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of an environment that holds the wheel and what it needs, and nothing of this checkout."""
    root = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", root], check=True)
    subprocess.run([root / "bin/python", "-m", "pip", "install", "-q", wheel], check=True)
    return root / "bin"


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PATCHKIT_", "PYTHON"))}
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True)


def test_the_wheel_holds_the_whole_catalog_and_the_stacks(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.startswith("patchkit/_catalog/")}
    here = {
        f"patchkit/_catalog/{path.relative_to(REPOSITORY)}"
        for folder in ("manifests", "patches", "compose")
        for path in (REPOSITORY / folder).rglob("*")
        if path.is_file() and not path.name.startswith(".")
    }
    assert here <= packed
    assert any(name.endswith(".patch") for name in here)


def test_the_wheel_carries_license_and_notice(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name.rpartition("/")[2] for name in archive.namelist() if ".dist-info/" in name}
    assert {"LICENSE", "NOTICE"} <= names


def test_an_installed_patchkit_finds_its_built_in_catalog(installed: Path, tmp_path: Path) -> None:
    done = run(installed / "patchkit", "manifest", "check", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "vllm-xpu" in done.stdout


def test_every_command_of_an_installed_patchkit_loads(installed: Path, tmp_path: Path) -> None:
    listed = run(installed / "python", "-c", "from patchkit.cli import COMMANDS; print(*COMMANDS)", cwd=tmp_path)
    for command in listed.stdout.split():
        done = run(installed / "patchkit", command, "--help", cwd=tmp_path)
        assert done.returncode == 0, f"{command}: {done.stderr}"


def test_work_that_an_installed_catalog_could_never_take_is_not_begun(installed: Path, tmp_path: Path) -> None:
    done = run(installed / "patchkit", "edit", "--version", "latest", "vllm/envs.py", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "installed-catalog" in done.stderr
    make_it_yours = done.stderr.partition("next: make it yours: ")[2]
    subprocess.run(
        ["sh", "-ec", f"{make_it_yours.strip()} && {installed}/patchkit manifest check"], cwd=tmp_path, check=True
    )
