"""``patchkit patch``: what people call and programs read."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from patchkit.cli import main
from patchkit.diff import write

BASE = b"".join(b"line %d\n" % i for i in range(1, 31))
NEW = BASE.replace(b"line 15\n", b"changed\n")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A tree with one file, beside the patch for it."""
    tree = tmp_path / "tree"
    (tree / "pkg").mkdir(parents=True)
    (tree / "pkg/m.py").write_bytes(BASE)
    (tmp_path / "fix.patch").write_bytes(write({"pkg/m.py": BASE}, {"pkg/m.py": NEW}))
    return tmp_path


def patchkit(*arguments: object) -> int:
    with pytest.raises(SystemExit) as stop:
        main(["patch", *map(str, arguments)])
    assert isinstance(stop.value.code, int)
    return stop.value.code


def answer(capsys: pytest.CaptureFixture[str]) -> dict:
    return json.loads(capsys.readouterr().out)


def test_apply_writes_once_and_then_has_nothing_to_do(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert patchkit("apply", folder / "fix.patch", folder / "tree") == 0
    assert (folder / "tree/pkg/m.py").read_bytes() == NEW
    capsys.readouterr()
    assert patchkit("apply", folder / "fix.patch", folder / "tree") == 0
    assert "nothing to do" in capsys.readouterr().out


def test_backwards_undoes(folder: Path) -> None:
    patchkit("apply", folder / "fix.patch", folder / "tree")
    assert patchkit("apply", "-R", folder / "fix.patch", folder / "tree") == 0
    assert (folder / "tree/pkg/m.py").read_bytes() == BASE


def test_a_refusal_tells_file_and_line_and_writes_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = BASE.replace(b"line 15\n", b"line fifteen\n")
    (folder / "tree/pkg/m.py").write_bytes(other)
    assert patchkit("apply", folder / "fix.patch", folder / "tree") == 1
    told = capsys.readouterr()
    assert "conflict" in told.out
    assert "line 15 should be 'line 15', and the file has 'line fifteen'" in told.out
    assert "nothing was written" in told.err
    assert "next: mend the patch, or merge: patchkit patch merge OURS BASE THEIRS" in told.err
    assert (folder / "tree/pkg/m.py").read_bytes() == other


def test_a_dry_run_writes_nothing(folder: Path) -> None:
    assert patchkit("apply", "--dry-run", folder / "fix.patch", folder / "tree") == 0
    assert (folder / "tree/pkg/m.py").read_bytes() == BASE


def test_several_patches_are_one_series_all_or_nothing(folder: Path) -> None:
    second = folder / "second.patch"
    second.write_bytes(write({"pkg/m.py": NEW}, {"pkg/m.py": NEW + b"end\n"}))
    bad = folder / "bad.patch"
    bad.write_bytes(b"--- a/pkg/m.py\n+++ b/pkg/m.py\n@@ -1 +1 @@\n-no such line\n+x\n")
    assert patchkit("apply", folder / "fix.patch", second, bad, folder / "tree") == 1
    assert (folder / "tree/pkg/m.py").read_bytes() == BASE
    assert patchkit("apply", folder / "fix.patch", second, folder / "tree") == 0
    assert (folder / "tree/pkg/m.py").read_bytes() == NEW + b"end\n"
    assert patchkit("apply", "-R", folder / "fix.patch", second, folder / "tree") == 0
    assert (folder / "tree/pkg/m.py").read_bytes() == BASE


def test_json_tells_every_hunk(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "tree/pkg/m.py").write_bytes(b"new\n" * 3 + BASE)
    assert patchkit("apply", "--json", folder / "fix.patch", folder / "tree") == 0
    told = answer(capsys)
    assert (told["schema"], told["ok"]) == ("patchkit.patch.apply", True)
    (file,) = told["files"]
    assert (file["path"], file["state"]) == ("pkg/m.py", "offset")
    assert file["hunks"][0] | {"why": ""} == {
        "number": 1, "state": "offset", "stated": 12, "found": 15, "offset": 3, "fuzz": 0, "candidates": [],
        "nearest": None, "why": "",
    }  # fmt: skip


def test_a_malformed_patch_is_exit_status_2_with_its_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "fix.patch").write_bytes(b"--- a/pkg/m.py\n+++ b/pkg/m.py\n@@ -1 +1 @@\n-a\n")
    assert patchkit("apply", folder / "fix.patch", folder / "tree") == 2
    assert f"{folder / 'fix.patch'}:4:" in capsys.readouterr().err


def test_a_missing_patch_and_a_missing_folder_are_told(folder: Path) -> None:
    assert patchkit("apply", folder / "none.patch", folder / "tree") == 2
    assert patchkit("apply", folder / "fix.patch", folder / "none") == 1


def test_the_strip_level_is_found_by_itself_when_asked(folder: Path) -> None:
    deep = (folder / "fix.patch").read_bytes().replace(b"a/pkg", b"a/src/lib/pkg").replace(b"b/pkg", b"b/src/lib/pkg")
    (folder / "deep.patch").write_bytes(deep)
    assert patchkit("apply", folder / "deep.patch", folder / "tree") == 1
    assert patchkit("apply", "-p", "auto", folder / "deep.patch", folder / "tree") == 0
    assert (folder / "tree/pkg/m.py").read_bytes() == NEW
    assert patchkit("apply", "-p", "x", folder / "deep.patch", folder / "tree") == 2


def test_a_result_that_does_not_compile_is_refused_when_a_python_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "tree/pkg/m.py").write_bytes(b"f(\n    a=1,\n)\n")
    bad = write({"pkg/m.py": b"f(\n    a=1,\n)\n"}, {"pkg/m.py": b"f(\n    a=1,\n    a=2,\n)\n"})
    (folder / "fix.patch").write_bytes(bad)
    assert patchkit("apply", "--python", "3.11", folder / "fix.patch", folder / "tree") == 1
    assert "pkg/m.py:3: the result is no Python 3.11: keyword argument repeated: a" in capsys.readouterr().err
    assert (folder / "tree/pkg/m.py").read_bytes() == b"f(\n    a=1,\n)\n"
    assert patchkit("apply", folder / "fix.patch", folder / "tree") == 0
    assert patchkit("apply", "--python", "new", folder / "fix.patch", folder / "tree") == 2


def test_check_reads_a_patch_alone_or_against_a_folder(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert patchkit("check", "--json", folder / "fix.patch") == 0
    assert answer(capsys)["files"] == [
        {"patch": str(folder / "fix.patch"), "path": "pkg/m.py", "kind": "modify", "hunks": 1}
    ]
    assert patchkit("check", "--json", folder / "fix.patch", folder / "tree") == 0
    assert answer(capsys)["files"][0]["state"] == "applies"
    assert (folder / "tree/pkg/m.py").read_bytes() == BASE
    (folder / "tree/pkg/m.py").unlink()
    assert patchkit("check", folder / "fix.patch", folder / "tree") == 1


def test_a_patch_comes_by_standard_input_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = (folder / "fix.patch").read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert patchkit("apply", "-", folder / "tree") == 0
    assert (folder / "tree/pkg/m.py").read_bytes() == NEW


def test_a_name_that_is_no_utf_8_comes_back_from_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = b"caf\xe9.py".decode("utf-8", "surrogateescape")
    (folder / "tree" / name).write_bytes(b"a\n")
    (folder / "fix.patch").write_bytes(b'--- "a/caf\\351.py"\n+++ "b/caf\\351.py"\n@@ -1 +1 @@\n-a\n+b\n')
    assert patchkit("apply", "--json", folder / "fix.patch", folder / "tree") == 0
    assert answer(capsys)["files"][0]["path"] == name
    assert (folder / "tree" / name).read_bytes() == b"b\n"


def test_terminal_escapes_in_names_are_made_harmless(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "fix.patch").write_bytes(b"--- a/\x1b[2Jx\n+++ b/\x1b[2Jx\n@@ -1 +1 @@\n-a\n+b\n")
    assert patchkit("apply", folder / "fix.patch", folder / "tree") == 1
    assert "\x1b" not in capsys.readouterr().out


def test_merge_writes_the_result_and_marks_conflicts(folder: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    for name, data in (
        ("base", BASE),
        ("theirs", NEW),
        ("ours", b"new\n" + BASE),
        ("other", BASE.replace(b"15", b"!")),
    ):
        (folder / name).write_bytes(data)
    out = folder / "out"
    assert patchkit("merge", folder / "ours", folder / "base", folder / "theirs", "-o", out) == 0
    assert out.read_bytes() == b"new\n" + NEW
    assert patchkit("merge", folder / "other", folder / "base", folder / "theirs") == 1
    told = capfdbinary.readouterr()
    assert b"<<<<<<< ours: other\nline !\n=======\nchanged\n>>>>>>> theirs: theirs\n" in told.out
    assert b"1 conflict left" in told.err
