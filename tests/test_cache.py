"""The cache: where it lies, and that it never shows half a file nor stops the work."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from patchkit import cache
from patchkit.images.layer import sha256
from patchkit.images.layerindex import LayerIndex
from tests.conftest import leave_out
from tests.engine_transport.users import as_user
from tests.image_stores.test_layers import MemoryBlob
from tests.image_stores.trees import layer_tar


def test_the_cache_lies_where_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATCHKIT_CACHE", "/somewhere")
    assert cache.folder("wheels") == Path("/somewhere/wheels")
    monkeypatch.delenv("PATCHKIT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.folder("wheels") == tmp_path / "patchkit/wheels"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache.folder("wheels") == tmp_path / ".cache/patchkit/wheels"


def test_a_user_whom_no_file_knows_has_the_root_folder_as_home(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "PATCHKIT_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.getuid", lambda: 54321)
    assert cache.folder("wheels") == Path("/.cache/patchkit/wheels")


def test_what_was_written_is_read_and_no_part_is_left_beside_it(tmp_path: Path) -> None:
    cache.write(tmp_path / "a/b", b"one")
    cache.write(tmp_path / "a/b", b"two")
    assert cache.read(tmp_path / "a/b") == b"two"
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["b"]


def test_what_is_not_there_is_none(tmp_path: Path) -> None:
    assert cache.read(tmp_path / "a") is None


def test_a_cache_that_cannot_be_written_keeps_nothing_and_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"in the way")
    cache.write(tmp_path / "file/below", b"data")
    assert cache.read(tmp_path / "file/below") is None


def test_a_cache_of_another_user_holds_nothing_and_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries that may not be read, then folders that may not be looked into, both as a run by root leaves them."""
    if os.getuid() != 0:
        leave_out("only root can become another user", "run the tests as root")
    layer = layer_tar(("srv/a.txt", {"data": b"one"}))

    def look() -> bytes:
        index = LayerIndex(MemoryBlob(layer), sha256(layer))
        found = index.find("/srv/a.txt")
        assert found is not None
        return index.read(found)

    with tempfile.TemporaryDirectory() as name:  # not tmp_path: nobody else may look into the folders above that
        folder = Path(name)
        monkeypatch.setenv("PATCHKIT_CACHE", name)
        assert look() == b"one"
        (entry,) = (folder / "layers").iterdir()
        (kept,) = (folder / "files").iterdir()
        folder.chmod(0o755)
        entry.chmod(0o600)
        kept.chmod(0o600)
        assert as_user(look, ()) == b"one"
        for kind in ("layers", "files"):
            (folder / kind).chmod(0o700)
        assert as_user(look, ()) == b"one"
        assert not as_user(lambda: cache.holds(entry), ())


def test_a_relative_folder_for_the_cache_counts_from_where_the_command_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATCHKIT_CACHE", "mine")
    assert cache.folder("layers") == Path.cwd() / "mine/layers"
