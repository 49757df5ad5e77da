"""Three-way merges: small ones by hand, and random ones beside git merge-file."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

from patchkit.diff import merge3
from tests.fuzz.differential import edited, real_files

BASE = b"".join(b"line %d\n" % i for i in range(1, 21))


def test_changes_to_different_lines_come_together() -> None:
    ours, theirs = BASE.replace(b"line 3\n", b"ours\n"), BASE.replace(b"line 15\n", b"theirs\n")
    merged = merge3(BASE, theirs, ours)
    assert (merged.data, merged.conflicts) == (ours.replace(b"line 15\n", b"theirs\n"), 0)


def test_the_same_change_on_both_sides_is_taken_once() -> None:
    both = BASE.replace(b"line 3\n", b"same\n")
    assert merge3(BASE, both, both) == merge3(BASE, both, BASE) == merge3(BASE, BASE, both)


def test_a_block_added_by_both_between_equal_lines_is_not_doubled() -> None:
    block = b"x:\n    pass\n\n"
    base, both = BASE + block * 3 + b"end\n", BASE + block * 4 + b"end\n"
    ours = both.replace(b"line 3\n", b"ours\n")
    assert merge3(base, both, ours) == merge3(base, ours, both)
    assert merge3(base, both, ours).data == ours


def test_different_changes_to_one_line_conflict_with_both_sides_named() -> None:
    ours, theirs = BASE.replace(b"line 3\n", b"ours\n"), BASE.replace(b"line 3\n", b"theirs\n")
    merged = merge3(BASE, theirs, ours, ("the image", "the patch"))
    assert merged.conflicts == 1
    marked = b"<<<<<<< the image\nours\n=======\ntheirs\n>>>>>>> the patch\n"
    assert merged.data == BASE.replace(b"line 3\n", marked)


def test_changes_that_touch_conflict() -> None:
    ours, theirs = BASE.replace(b"line 3\n", b"ours\n"), BASE.replace(b"line 4\n", b"theirs\n")
    assert merge3(BASE, theirs, ours).conflicts == 1


def test_a_missing_line_feed_never_glues_a_marker_to_a_line() -> None:
    merged = merge3(b"a\n", b"a\nb", b"a\nc")
    assert merged.data == b"a\n<<<<<<< ours\nc\n=======\nb\n>>>>>>> theirs\n"


def test_random_merges_end_as_git_merge_file_ends_them(tmp_path: Path) -> None:
    chance = random.Random("merge/1")
    for number in range(100):
        lines = [line + b"\n" for line in chance.choice(real_files()).read_bytes().split(b"\n")[:-1]]
        base, theirs = lines, edited(lines, chance, lines, 3)
        ours = edited(theirs if chance.random() < 0.3 else lines, chance, lines, 3)
        for name, side in (("base", base), ("theirs", theirs), ("ours", ours)):
            (tmp_path / name).write_bytes(b"".join(side))
        git = subprocess.run(["git", "merge-file", "-p", "ours", "base", "theirs"], cwd=tmp_path, capture_output=True)
        merged = merge3(b"".join(base), b"".join(theirs), b"".join(ours))
        assert bool(merged.conflicts) == bool(git.returncode), number
        if not merged.conflicts:
            assert merged.data == git.stdout, number
