"""One place a kind of engine: the one that is there, Docker 28 with either store, podman."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from patchkit.images.daemon import DaemonImage
from patchkit.images.engine import TEMPORARY_LABEL, Engine, EngineError, engine, owner
from patchkit.images.model import Change, Derivation, Reference
from tests import images
from tests.conftest import leave_out
from tests.engine_transport import engines

SITE = images.variants.SITE
PYTHON = f"{images.variants.VENV}/bin/python3"


@dataclass
class Place:
    """An engine with fixture images, and names in it that are removed after the test."""

    kind: str
    engine: Engine
    prefix: str

    def name(self, tag: str = "1") -> str:
        """A name that nobody else uses."""
        return f"{self.prefix}:{tag}"

    def load(self, variant: str, tag: str = "nightly") -> str:
        """The fixture image under a name of this test's own. Others use the same image: never remove it."""
        fixture = images.build(variant)
        shared = f"patchkit-fixture/{variant}:engine-{fixture.folder.name[-12:]}"
        if self.engine.inspect_image(shared) is None:
            self._load(fixture, shared)
        self.engine.tag(shared, self.name(tag))
        return self.name(tag)

    def load_own(self, variant: str) -> tuple[str, bytes]:
        """An image with the fixture's files and a config like no other's, to be removed at will; its raw config."""
        fixture = images.build(variant)
        config = json.dumps({**json.loads(fixture.config), "x-test": self.prefix}, separators=(",", ":")).encode()
        self._load(dataclasses.replace(fixture, config=config), self.name("nightly"))
        return self.name("nightly"), config

    def _load(self, fixture: images.Fixture, tag: str) -> None:
        archive = images.BUILD / f"{fixture.name}-{uuid.uuid4().hex}.tar"
        try:
            images.docker_archive(fixture, archive, tag)
            with archive.open("rb") as data:
                for _ in self.engine.stream("POST", "/images/load", params={"quiet": "1"}, data=data):
                    pass
        finally:
            archive.unlink(missing_ok=True)

    def open(self, name: str) -> DaemonImage:
        """The image of that name in this engine."""
        return DaemonImage(self.engine, Reference("docker-daemon", name))

    def temporary(self) -> list[str]:
        """The containers that this process has made and not removed."""
        return [str(item["Id"]) for item in self.engine.containers(f"{TEMPORARY_LABEL}={owner()}")]

    def clean(self) -> None:
        """Remove this test's containers and tags."""
        for item in self.engine.containers():
            if any(name.lstrip("/").startswith(self.prefix) for name in item.get("Names") or []):
                self.engine.remove(item["Id"])
        for item in self.engine.images():
            for tag in item.get("RepoTags") or []:
                if f"{self.prefix}:" in tag:
                    with contextlib.suppress(EngineError):
                        self.engine.remove_image(tag)


@pytest.fixture(scope="session", autouse=True)
def podman_changes_names_one_at_a_time() -> Iterator[None]:
    """Podman before 4.8 writes an image's whole list of names at once, from what it read before: of two tests that name
    one image at the same time, one loses its name (podman#17515)."""

    def alone(change: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(change)
        def changed(holder: Any, *given: Any) -> None:
            with engines.locked(engines.BUILD / "names") if holder.kind == "podman" else contextlib.nullcontext():
                change(holder, *given)

        return changed

    with pytest.MonkeyPatch.context() as patch:
        for holder, name in ((Engine, "tag"), (Engine, "remove_image"), (Place, "_load")):
            patch.setattr(holder, name, alone(getattr(holder, name)))
        yield


@pytest.fixture(scope="session")
def hosts(request: pytest.FixtureRequest) -> Iterator[Callable[[str], str | None]]:
    """The host of an engine by its kind, started when first asked for; None is the default one."""
    with contextlib.ExitStack() as stack:
        started: dict[str, str | None] = {"docker": None}

        def host(kind: str) -> str | None:
            if kind == "docker":
                request.getfixturevalue("engine")  # leaves the test out where none answers
            if kind not in started:
                try:
                    started[kind] = stack.enter_context(engines.running(kind))
                except engines.CannotStart as fault:
                    leave_out(str(fault), "run the tests as root on a Debian-like machine: make test SETUP=1")
            return started[kind]

        yield host


@pytest.fixture(params=["docker", "containerd", "podman"])
def place(request: pytest.FixtureRequest, hosts: Callable[[str], str | None]) -> Iterator[Place]:
    """Each kind of engine in turn."""
    yield from _place(request.param, request, hosts)


@pytest.fixture(params=["docker", "containerd", "classic28", "podman"])
def every_place(request: pytest.FixtureRequest, hosts: Callable[[str], str | None]) -> Iterator[Place]:
    """Each kind of engine in turn, today's classic store too."""
    yield from _place(request.param, request, hosts)


@pytest.fixture
def docker_place(request: pytest.FixtureRequest, hosts: Callable[[str], str | None]) -> Iterator[Place]:
    """The engine that is there."""
    yield from _place("docker", request, hosts)


def _place(kind: str, request: pytest.FixtureRequest, hosts: Callable[[str], str | None]) -> Iterator[Place]:
    host = hosts(kind)
    if host is None:
        request.getfixturevalue("engine")  # leaves the test out where there is none
    place = Place(kind, engine(host), f"patchkit-test-{uuid.uuid4().hex[:10]}")
    yield place
    place.clean()


def derivation(
    place: Place, *changes: Change, origin: str = "", entrypoint: tuple[str, ...] | None = None
) -> Derivation:
    """A derivation with the labels that a delivery sets; the test's own name in them makes the image its own."""
    labels = {
        "dev.patchkit.origin.kind": "docker-daemon",
        "dev.patchkit.origin.name": place.name("nightly"),
        "dev.patchkit.origin.digest": origin or "sha256:" + "0" * 64,
        "dev.patchkit.fingerprint": "f" * 64,
    }
    return Derivation(tuple(changes), labels, "patchkit apply test@1", entrypoint)


def cache_of(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let patchkit's cache be empty and this test's own."""
    monkeypatch.setenv("PATCHKIT_CACHE", str(path))
