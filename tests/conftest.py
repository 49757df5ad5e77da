"""What tests may ask for: a Docker engine, fixture images in any form, names that are cleaned up, a cache of their own.

Where the engine is missing, tests that need it are left out and the end of the run says so loudly; under ``CI=true``
they fail instead.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests import images

# No test asserts a time, so none may fail for being slow.
settings.register_profile("default", deadline=None)
settings.register_profile("fuzz", deadline=None, max_examples=5000)
settings.load_profile("default")


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test reads or fills the cache of the person who runs it."""
    patch = pytest.MonkeyPatch()
    patch.setenv("PATCHKIT_CACHE", str(tmp_path_factory.mktemp("cache")))
    patch.delenv("PATCHKIT_CATALOG", raising=False)
    # Set on some machines; without compiled files every command that a test starts would compile all of patchkit anew.
    patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    yield
    patch.undo()


@pytest.fixture(scope="session")
def engine() -> Iterator[Any]:
    """A client of a Docker engine that answers."""
    import docker
    import docker.errors
    import requests

    client = None
    with contextlib.suppress(docker.errors.DockerException, requests.RequestException, OSError):
        client = docker.from_env(timeout=600)
        client.ping()
    if client is None:
        leave_out("no Docker engine answers", "make test SETUP=1 installs and starts one (root, Debian-like machine)")
    yield client
    client.close()


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


class Scratch:
    """Names in the engine for one test. Everything under the prefix is removed when the test is over: containers by
    their name's or image's prefix, then images."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.prefix = f"patchkit-test-{uuid.uuid4().hex[:10]}"

    def name(self, name: str = "image:latest") -> str:
        """What nobody else uses: a reference for a name with a colon, else a container's name."""
        return f"{self.prefix}/{name}" if ":" in name else f"{self.prefix}-{name}"

    def tagged(self, reference: str, name: str = "vllm-xpu:nightly") -> str:
        """An own tag for an image, so that commands may put their results beside it."""
        repository, _, tag = self.name(name).rpartition(":")
        self.client.images.get(reference).tag(repository, tag)
        return f"{repository}:{tag}"

    def clean(self) -> None:
        """Remove what is left."""
        import docker.errors

        for container in self.client.containers.list(all=True, ignore_removed=True):
            with contextlib.suppress(docker.errors.NotFound):
                image = container.attrs["Config"]["Image"]
                if container.name.startswith(self.prefix) or image.startswith(self.prefix):
                    container.remove(force=True, v=True)
        # The short list: the long one asks for each image again, which another test may have removed meanwhile.
        for image in self.client.api.images():
            for tag in image.get("RepoTags") or ():
                if tag.startswith(self.prefix):
                    with contextlib.suppress(docker.errors.ImageNotFound):
                        self.client.images.remove(tag, force=True)


@pytest.fixture
def scratch(engine: Any) -> Iterator[Scratch]:
    """Names in the engine that are cleaned up."""
    names = Scratch(engine)
    yield names
    names.clean()


@pytest.fixture
def bubblewrap() -> None:
    """The test runs something in an unpacked root."""
    if shutil.which("bwrap") is None:
        leave_out("bubblewrap is missing", "install bubblewrap (make test SETUP=1 does)")
    trial = subprocess.run(["bwrap", "--ro-bind", "/", "/", "--unshare-all", "true"], capture_output=True, text=True)
    if trial.returncode:
        leave_out("bubblewrap may not run here", trial.stderr.strip())


def leave_out(what: str, how: str) -> None:
    """End this test as left out, or as failed where nothing may be left out. Never returns."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{what}; under CI nothing is left out: {how}", pytrace=False)
    pytest.skip(f"{what}: {how}")


def _built(make: Callable[[str], Any], name: str) -> Any:
    """Build, or leave the test out where this machine cannot."""
    if shutil.which("apt-get") is None:
        leave_out(
            "fixture images need Debian's packages", "run the tests on a Debian-like machine, or in a container of one"
        )
    return make(name)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say loudly what was left out, and how to have it run."""
    reasons: dict[str, int] = {}
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reason = reason.removeprefix("Skipped: ")
        reasons[reason] = reasons.get(reason, 0) + 1
    if reasons:
        terminalreporter.section("LEFT OUT: this run proves less than it could", sep="!", red=True, bold=True)
        for reason, count in sorted(reasons.items()):
            terminalreporter.line(f"{count} tests: {reason}")
