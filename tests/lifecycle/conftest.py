"""A catalog in a folder, and releases whose files lie in memory."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from patchkit.catalog.load import load_catalog
from patchkit.lifecycle.init import create
from patchkit.plan import digest_of, load_series


@dataclass(frozen=True)
class Tree:
    """A release as ``patchkit.lifecycle.releases.Release`` wants it."""

    version: str
    files: dict[str, bytes]

    @property
    def label(self):
        return f"pkg {self.version}"

    def hash_of(self, path):
        return digest_of(self.files.get(path))

    def read(self, path):
        return self.files.get(path)

    def paths(self):
        return frozenset(self.files)


@dataclass
class Mine:
    """The person's catalog: loaded anew at every look, as commands do."""

    root: Path

    @property
    def catalog(self):
        return load_catalog(self.root)

    @property
    def manifest(self):
        return self.catalog.manifests[0]

    @property
    def series(self):
        return load_series(self.catalog, self.manifest)

    def files(self):
        return {
            path.relative_to(self.root).as_posix(): path.read_bytes()
            for path in sorted(self.root.rglob("*"))
            if path.is_file()
        }


@pytest.fixture
def tree():
    return Tree


@pytest.fixture
def mine(tmp_path):
    create(tmp_path / "catalog", "mine", "pkg", "pkg:*")
    return Mine(tmp_path / "catalog")


@pytest.fixture(autouse=True)
def own_state(tmp_path_factory, monkeypatch):
    """Work folders of tests never lie among a person's own."""
    folder = tmp_path_factory.mktemp("state")
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    monkeypatch.delenv("PATCHKIT_CATALOG", raising=False)
    yield folder
    shutil.rmtree(folder)
