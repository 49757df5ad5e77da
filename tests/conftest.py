"""What tests may ask for: a Docker engine, fixture images in any form, names that are cleaned up, a cache of their own.

Where the engine is missing, tests that need it are left out and the end of the run says so loudly; under ``CI=true``
they fail instead.
"""

from __future__ import annotations

import shutil
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests import images, needs
from tests.needs import Scratch, leave_out

# No test asserts a time, so none may fail for being slow.
settings.register_profile("default", deadline=None)
settings.register_profile("fuzz", deadline=None, max_examples=5000)
settings.load_profile("default")


def pytest_configure(config: pytest.Config) -> None:
    """Make the engine and bubblewrap known, and have told what was left out."""
    needs.register(config)


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test reads or fills the cache of the person who runs it, nor the folder with that person's work."""
    patch = pytest.MonkeyPatch()
    patch.setenv("PATCHKIT_CACHE", str(tmp_path_factory.mktemp("cache")))
    patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
    patch.delenv("PATCHKIT_CATALOG", raising=False)
    # Set on some machines; without compiled files every command that a test starts would compile all of patchkit anew.
    patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    yield
    patch.undo()


@pytest.fixture(scope="session")
def fixture_image(engine: Any) -> Callable[[str], str]:
    """Give the engine's reference of a fixture image by its variant's name. Shared: tag it anew before changing it."""
    return lambda name: _built(images.load, name)


@pytest.fixture(scope="session")
def fixture_rootfs() -> Callable[[str], Path]:
    """Give a fixture image as an unpacked root by its variant's name. Shared: read only."""
    return lambda name: _built(images.rootfs, name)


@pytest.fixture
def fixture_rootfs_copy(fixture_rootfs: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Path]:
    """Give a copy of an unpacked root that the test may write to; owners, times and links are kept."""

    def copy(name: str) -> Path:
        target = tmp_path / f"rootfs-{name}-{uuid.uuid4().hex[:6]}"
        subprocess.run(["cp", "-a", fixture_rootfs(name), target], check=True)
        return target

    return copy


@pytest.fixture
def fixture_layout(tmp_path: Path) -> Callable[[str], Path]:
    """Give a fixture image as an OCI layout with the reference ``latest``: a copy that the test may write to."""

    def copy(name: str) -> Path:
        target = tmp_path / f"layout-{name}-{uuid.uuid4().hex[:6]}"
        shutil.copytree(_built(images.layout, name), target)
        return target

    return copy


@pytest.fixture
def fixture_archive(tmp_path: Path) -> Callable[[str, str], Path]:
    """Give a fixture image as a new archive, ``("xpu", "oci-archive")`` or ``("xpu", "docker-archive")``."""

    def write(name: str, form: str) -> Path:
        target = tmp_path / f"{name}-{uuid.uuid4().hex[:6]}.tar"
        if form == "oci-archive":
            _built(lambda variant: images.oci_archive(variant, target), name)
        else:
            images.docker_archive(_built(images.build, name), target, f"patchkit-fixture/{name}:latest")
        return target

    return write


@pytest.fixture
def scratch(engine: Any) -> Iterator[Scratch]:
    """Names in the engine that are cleaned up."""
    names = Scratch(engine)
    yield names
    names.clean()


def _built(make: Callable[[str], Any], name: str) -> Any:
    """Build, or leave the test out where this machine cannot."""
    if shutil.which("apt-get") is None:
        leave_out(
            "fixture images need Debian's packages", "run the tests on a Debian-like machine, or in a container of one"
        )
    return make(name)
