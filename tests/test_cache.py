"""The cache: where it lies, and that it never shows half a file nor stops the work."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchkit import cache


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
