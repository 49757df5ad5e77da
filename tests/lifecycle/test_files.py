"""Several files as one step: all of them, or none."""

import stat
import subprocess
import sys

import pytest

import patchkit
from patchkit.errors import Refused
from patchkit.lifecycle.files import changing, write_all


def test_files_are_written_made_and_removed_together(tmp_path):
    (tmp_path / "old").write_bytes(b"old")
    (tmp_path / "old").chmod(0o600)
    (tmp_path / "gone").write_bytes(b"gone")
    write_all({tmp_path / "old": b"new", tmp_path / "deep/new": b"made", tmp_path / "gone": None})
    assert {path.name: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == {
        "old": b"new",
        "new": b"made",
    }
    assert stat.S_IMODE((tmp_path / "old").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "deep/new").stat().st_mode) == 0o644


def test_a_step_that_fails_gives_everything_back(tmp_path):
    (tmp_path / "old").write_bytes(b"old")
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match=r"[Dd]irectory"):
        write_all(
            {tmp_path / "old": b"new", tmp_path / "made": b"made", tmp_path / "folder": b"a folder is in the way"}
        )
    assert (tmp_path / "old").read_bytes() == b"old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "old"]


def test_a_second_run_waits_until_the_first_lets_the_catalog_go(tmp_path):
    program = (
        "import sys; from pathlib import Path; from patchkit.lifecycle.files import changing\n"
        "print('ready', flush=True)\n"
        "with changing(Path(sys.argv[1])): print((Path(sys.argv[1]) / 'file').read_text(), flush=True)\n"
    )
    with changing(tmp_path):
        other = subprocess.Popen([sys.executable, "-c", program, tmp_path], stdout=subprocess.PIPE, text=True)
        assert other.stdout.readline() == "ready\n"
        (tmp_path / "file").write_text("written by the first")
    assert other.communicate()[0] == "written by the first\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]


def test_the_catalog_of_an_installation_is_never_changed(tmp_path, monkeypatch):
    (tmp_path / "_catalog").mkdir()
    monkeypatch.setattr(patchkit, "__file__", str(tmp_path / "__init__.py"))
    with pytest.raises(Refused, match="part of the installed patchkit"), changing(tmp_path / "_catalog"):
        pass
    with changing(tmp_path):
        pass
