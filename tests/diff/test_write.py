"""What we write, GNU patch, git apply and we ourselves read back to the same bytes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from patchkit.diff import evaluate, parse, write

BASE = b"".join(b"line %d\n" % i for i in range(1, 31))
TREES = {
    "one line": ({"m.py": BASE}, {"m.py": BASE.replace(b"line 15\n", b"x\n")}),
    "two hunks": ({"m.py": BASE}, {"m.py": BASE.replace(b"line 5\n", b"").replace(b"line 25\n", b"x\ny\n")}),
    "first and last line": ({"m.py": BASE}, {"m.py": b"new\n" + BASE + b"end\n"}),
    "no line feed": ({"m.py": b"a\nb"}, {"m.py": b"a\nb\n"}),
    "line feed lost": ({"m.py": b"a\nb\n"}, {"m.py": b"a\nc"}),
    "created": ({}, {"p/n.py": BASE}),
    "created empty": ({}, {"p/__init__.py": b""}),
    "deleted": ({"p/n.py": BASE, "p/k": b"k\n"}, {"p/k": b"k\n"}),
    "deleted empty": ({"e.py": b"", "k": b"k\n"}, {"k": b"k\n"}),
    "emptied": ({"m.py": BASE}, {"m.py": b""}),
    "filled": ({"m.py": b""}, {"m.py": BASE}),
    "names": ({"a b.py": b"1\n", 'q"é.py': b"1\n"}, {"a b.py": b"2\n", 'q"é.py': b"2\n"}),
    "carriage returns": ({"m.py": b"a\r\nb\rc\r\n"}, {"m.py": b"a\r\nb\rd\r\n"}),
    "odd bytes": ({"m.py": b"\xff\x0c\n\xe2\x80\xa8\n"}, {"m.py": b"\xff\x0c\n\x85\n"}),
}


def laid_out(folder: Path, tree: dict[str, bytes]) -> Path:
    for path, data in tree.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    return folder


def found(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("context", [0, 1, 3])
@pytest.mark.parametrize("name", TREES)
def test_three_readers_agree_on_what_was_written(name: str, context: int, tmp_path: Path) -> None:
    old, new = TREES[name]
    patch = write(old, new, context=context)
    result = evaluate(parse(patch), old.get)
    assert result.ok
    assert {path: data for path, data in (old | result.changes).items() if data is not None} == new
    (tmp_path / "p").write_bytes(patch)
    environment = {"PATH": "/usr/bin:/bin", "GIT_CEILING_DIRECTORIES": str(tmp_path), "HOME": "/", "LC_ALL": "C.UTF-8"}
    for tool, command in (("gnu", "patch -p1 --binary -i ../p"), ("git", "git apply --unidiff-zero ../p")):
        folder = tmp_path / tool
        folder.mkdir()
        laid_out(folder, old)
        done = subprocess.run(command.split(), cwd=folder, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        assert found(folder) == new


def test_equal_trees_give_nothing() -> None:
    assert write({"m.py": BASE}, {"m.py": BASE}) == b""


def test_files_come_in_order_with_full_blob_ids() -> None:
    patch = write({"b": b"1\n", "a": b"1\n"}, {"b": b"2\n", "a": b"2\n"})
    assert [line for line in patch.splitlines() if line.startswith((b"diff", b"index"))] == [
        b"diff --git a/a b/a",
        b"index d00491fd7e5bb6fa28c517a0bb32b8b506539d4d..0cfbf08886fca9a91cb753ec8734c84fcbe52c9f 100644",
        b"diff --git a/b b/b",
        b"index d00491fd7e5bb6fa28c517a0bb32b8b506539d4d..0cfbf08886fca9a91cb753ec8734c84fcbe52c9f 100644",
    ]


def test_an_added_block_stands_whole_and_a_moved_line_costs_no_rewrite() -> None:
    old = b"def a():\n    return 1\n\n\ndef c():\n    return 3\n"
    new = b"def a():\n    return 1\n\n\ndef b():\n    return 2\n\n\ndef c():\n    return 3\n"
    added = [line for line in write({"m": old}, {"m": new}).splitlines() if line.startswith(b"+") and line[1:2] != b"+"]
    assert added == [b"+def b():", b"+    return 2", b"+", b"+"]


def test_a_diff_of_unrelated_large_files_ends() -> None:
    old = b"".join(b"%d\n" % (i % 7) for i in range(20_000))
    new = b"".join(b"%d\n" % (i * i % 11) for i in range(20_000))
    patch = write({"m": old}, {"m": new})
    assert evaluate(parse(patch), {"m": old}.get).changes == {"m": new}
