"""The output folder: modes whatever the umask, whole files or none, content-addressed names."""

from __future__ import annotations

import errno
import hashlib
import multiprocessing
import os
from pathlib import Path

import pytest

from patchkit.deliver import output
from patchkit.errors import Unreachable


@pytest.fixture
def strict_umask():
    before = os.umask(0o077)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


def test_folders_and_files_are_readable_for_every_user_whatever_the_umask(tmp_path, strict_umask):
    stored = output.store_file(tmp_path / "a" / "out", "norm.py", b"x = 1\n")
    for folder in (tmp_path / "a", tmp_path / "a" / "out", tmp_path / "a" / "out" / "files", stored.parent):
        assert mode(folder) == 0o755, folder
    assert mode(stored) == 0o644


def test_a_stored_file_lies_under_its_own_hash_and_its_path_is_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    stored = output.store_file(Path("out"), "norm.py", b"x = 1\n")
    assert stored == tmp_path / "out" / "files" / hashlib.sha256(b"x = 1\n").hexdigest() / "norm.py"
    assert stored.read_bytes() == b"x = 1\n"


def test_a_file_that_is_there_already_keeps_its_inode(tmp_path):
    first = output.store_file(tmp_path, "norm.py", b"x = 1\n").stat().st_ino
    assert output.store_file(tmp_path, "norm.py", b"x = 1\n").stat().st_ino == first


def test_a_stored_file_that_somebody_edited_is_written_again_under_a_new_inode(tmp_path):
    stored = output.store_file(tmp_path, "norm.py", b"x = 1\n")
    inode = stored.stat().st_ino
    with stored.open("wb") as file:
        file.write(b"x = 2\n")
    keep = stored.open("rb")  # a container that still has the old inode mounted
    again = output.store_file(tmp_path, "norm.py", b"x = 1\n")
    assert again.read_bytes() == b"x = 1\n"
    assert again.stat().st_ino != inode
    keep.close()


def test_the_mtime_of_a_stored_file_follows_its_content_and_not_the_clock(tmp_path):
    one = output.store_file(tmp_path / "1", "norm.py", b"x = 1\n").stat().st_mtime
    assert one == output.store_file(tmp_path / "2", "other.py", b"x = 1\n").stat().st_mtime
    assert one != output.store_file(tmp_path / "3", "norm.py", b"x = 2\n").stat().st_mtime


def test_a_full_disk_leaves_the_old_file_and_no_temporary_one(tmp_path, monkeypatch):
    target = tmp_path / "receipt.json"
    target.write_bytes(b"old")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(Unreachable, match="No space left") as caught:
        output.write_file(target, b"new")
    assert caught.value.code == "output-not-writable"
    assert caught.value.remedy
    assert target.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["receipt.json"]


def test_a_folder_that_is_a_file_is_told_as_not_writable(tmp_path):
    (tmp_path / "out").write_text("here already")
    with pytest.raises(Unreachable) as caught:
        output.store_file(tmp_path / "out", "norm.py", b"")
    assert caught.value.code == "output-not-writable"


def _append_twice(folder: Path, word: str) -> None:
    with output.locked(folder):
        for _ in range(200):
            with (folder / "log").open("a") as file:
                file.write(word)


def test_two_runs_at_once_take_turns(tmp_path):
    runs = [multiprocessing.Process(target=_append_twice, args=(tmp_path, word)) for word in "ab"]
    for run in runs:
        run.start()
    for run in runs:
        run.join(60)
    assert (tmp_path / "log").read_text() in ("a" * 200 + "b" * 200, "b" * 200 + "a" * 200)
