"""Series of patches, patches that build on one another, and undoing them."""

from __future__ import annotations

from patchkit.diff import Patch, evaluate, evaluate_series, parse, reverse, write

V1, V2, V3 = b"a\nb\nc\nd\n", b"a\nB\nc\nd\n", b"a\nBB\nc\nd\n"


def step(old: bytes, new: bytes, path: str = "m.py") -> Patch:
    """A plain diff without blob ids."""
    lines = write({path: old}, {path: new}).splitlines(keepends=True)
    return parse(b"".join(line for line in lines if not line.startswith((b"diff --git", b"index "))))


SERIES = [step(V1, V2), step(V2, V3)]


def test_later_patches_see_earlier_ones_results() -> None:
    result = evaluate_series(SERIES, {"m.py": V1}.get)
    assert [patch.state for patch in result.patches] == ["applies", "applies"]
    assert (result.ok, result.changes) == (True, {"m.py": V3})
    assert result.patches[0].changes == {"m.py": V2}


def test_one_patch_that_does_not_apply_refuses_the_whole_series() -> None:
    result = evaluate_series([*SERIES, step(V1, V2)], {"m.py": V1}.get)
    assert [patch.state for patch in result.patches] == ["applies", "applies", "conflict"]
    assert (result.ok, result.changes) == (False, {})


def test_a_patch_that_does_not_apply_leaves_its_files_to_the_later_ones() -> None:
    other = step(b"x\n", b"y\n", "n.py")
    both = parse(b"--- a/n.py\n+++ b/n.py\n@@ -1 +1 @@\n-x\n+z\n--- a/m.py\n+++ b/m.py\n@@ -1 +1 @@\n-nothing\n+z\n")
    result = evaluate_series([both, other], {"m.py": V1, "n.py": b"x\n"}.get)
    assert [patch.state for patch in result.patches] == ["conflict", "applies"]
    assert not result.ok


def test_a_series_that_is_there_is_applied_though_later_patches_have_covered_earlier_ones() -> None:
    result = evaluate_series(SERIES, {"m.py": V3}.get)
    assert [patch.state for patch in result.patches] == ["applied", "applied"]
    assert (result.ok, result.changes) == (True, {})


def test_the_missing_end_of_a_series_is_put_on_top_of_what_is_there() -> None:
    result = evaluate_series(SERIES, {"m.py": V2}.get)
    assert [patch.state for patch in result.patches] == ["applied", "applies"]
    assert result.changes == {"m.py": V3}


def test_a_series_in_the_wrong_order_does_not_apply() -> None:
    assert not evaluate_series(SERIES[::-1], {"m.py": V1}.get).ok


def test_a_file_created_by_one_patch_is_changed_by_the_next() -> None:
    create = parse(write({}, {"n.py": V1}))
    result = evaluate_series([create, step(V1, V2, "n.py")], {}.get)
    assert result.changes == {"n.py": V2}
    again = evaluate_series([create, step(V1, V2, "n.py")], {"n.py": V2}.get)
    assert [patch.state for patch in again.patches] == ["applied", "applied"]


def test_what_one_patch_creates_and_another_deletes_is_no_change() -> None:
    result = evaluate_series([parse(write({}, {"n.py": V1})), parse(write({"n.py": V1}, {}))], {}.get)
    assert (result.ok, result.changes) == (True, {})


def test_two_sections_for_one_file_build_on_one_another() -> None:
    patch = parse(b"--- a/v\n+++ b/v\n@@ -1 +1 @@\n-1\n+2\n" + b"--- a/v\n+++ b/v\n@@ -1 +1 @@\n-2\n+3\n")
    assert evaluate(patch, {"v": b"1\n"}.get).changes == {"v": b"3\n"}
    there = evaluate(patch, {"v": b"3\n"}.get)
    assert (there.state, there.ok, there.changes) == ("applied", True, {})


def test_each_patch_has_its_own_pins_and_fuzz() -> None:
    drifted = V1.replace(b"d\n", b"D\n")
    assert not evaluate_series([step(V1, V2)], {"m.py": drifted}.get, fuzz=[0]).ok
    assert evaluate_series([step(V1, V2)], {"m.py": drifted}.get, fuzz=[1]).ok


def test_the_reverse_undoes_the_patch_last_section_first() -> None:
    patch = parse(b"--- a/v\n+++ b/v\n@@ -1 +1 @@\n-1\n+2\n" + b"--- a/v\n+++ b/v\n@@ -1 +1 @@\n-2\n+3\n")
    assert evaluate(reverse(patch), {"v": b"3\n"}.get).changes == {"v": b"1\n"}
    assert reverse(reverse(patch)) == patch


def test_reversing_a_creation_deletes_and_reversing_a_deletion_restores() -> None:
    create, delete = parse(write({}, {"n.py": V1})), parse(write({"n.py": V1}, {}))
    assert evaluate(reverse(create), {"n.py": V1}.get).changes == {"n.py": None}
    assert evaluate(reverse(delete), {}.get).changes == {"n.py": V1}


def test_reversing_a_rename_and_a_mode_change() -> None:
    rename = parse(b"diff --git a/o b/n\nsimilarity index 100%\nrename from o\nrename to n\n")
    assert evaluate(reverse(rename), {"n": V1}.get).changes == {"o": V1, "n": None}
    mode = parse(b"diff --git a/m.py b/m.py\nold mode 100644\nnew mode 100755\n")
    assert evaluate(reverse(mode), {"m.py": V1}.get).modes == {"m.py": "100644"}
