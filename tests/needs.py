"""What a test needs that a machine may lack: left out loudly where it is missing, and failed under ``CI=true``.

A pytest plugin that the conftest of the whole suite registers, and that of the kernels' evidence, whose environments
have little in common: nothing here needs more than pytest and what patchkit itself needs.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from typing import Any

import pytest


def register(config: pytest.Config) -> None:
    """Make pytest use what is here; once, whichever conftest is loaded first."""
    if not config.pluginmanager.has_plugin(__name__):
        config.pluginmanager.register(sys.modules[__name__], __name__)


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


class Scratch:
    """Names in the engine for one test, under a prefix that nobody else uses. Everything under it is removed when the
    test is over: containers by their name's or image's prefix, then images."""

    def __init__(self, client: Any, prefix: str = "") -> None:
        self.client = client
        self.prefix = prefix or f"patchkit-test-{uuid.uuid4().hex[:10]}"
        self._containers = self.prefix.replace("/", "-")

    def name(self, name: str = "image:latest") -> str:
        """What nobody else uses: a reference for a name with a colon, else a container's name."""
        return f"{self.prefix}/{name}" if ":" in name else f"{self._containers}-{name}"

    def tagged(self, reference: str, name: str = "vllm-xpu:nightly") -> str:
        """An own tag for an image, so that commands may put their results beside it."""
        repository, _, tag = self.name(name).rpartition(":")
        self.client.images.get(reference).tag(repository, tag)
        return f"{repository}:{tag}"

    def clean(self) -> None:
        """Remove what is left. A container that runs one of the images by its digest would keep it in the engine
        without a name; it counts as ours where the image has no other names."""
        import docker.errors

        listed = [image for image in self.client.api.images() if image.get("RepoTags")]
        ours = {image["Id"] for image in listed if all(tag.startswith(self.prefix) for tag in image["RepoTags"])}
        for container in self.client.containers.list(all=True, ignore_removed=True):
            with contextlib.suppress(docker.errors.NotFound):
                named = container.attrs["Config"]["Image"].startswith(self.prefix)
                if named or container.name.startswith(self._containers) or container.attrs["Image"] in ours:
                    container.remove(force=True, v=True)
        # The short list: the long one asks for each image again, which another test may have removed meanwhile.
        for image in self.client.api.images():
            for tag in image.get("RepoTags") or ():
                if tag.startswith(self.prefix):
                    with contextlib.suppress(docker.errors.ImageNotFound):
                        self.client.images.remove(tag, force=True)
