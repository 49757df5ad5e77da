"""What holds for any two files and any bytes. ``make fuzz`` runs these with many more examples."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from patchkit.diff import check_python, evaluate, evaluate_series, merge3, parse, reverse, write
from patchkit.errors import BadInput, PatchkitError

WORDS = st.sampled_from(
    [b"a", b"b", b"c", b"    pass", b"", b"x\r", b"\x0c", b"\xff\0", b"-- ", b"@@ -1 +1 @@", b"\\ x"]
)
LINES = st.lists(WORDS, max_size=14)


@st.composite
def files(draw: st.DrawFn) -> bytes:
    lines = draw(LINES)
    return b"\n".join(lines) + (b"\n" if lines and draw(st.booleans()) else b"")


TREES = st.dictionaries(st.sampled_from(["m.py", "p/n.py", "p/q/o b.py", "é.py"]), files(), max_size=3)
CONTEXT = st.integers(0, 4)


def after(tree: dict[str, bytes], changes) -> dict[str, bytes]:
    return {path: data for path, data in (tree | dict(changes)).items() if data is not None}


@given(TREES, TREES, CONTEXT)
def test_the_diff_of_two_trees_makes_one_out_of_the_other(old, new, context) -> None:
    patch = write(old, new, context=context)
    if old != new:
        result = evaluate(parse(patch), old.get)
        assert result.ok
        assert after(old, result.changes) == new


@given(TREES, TREES, CONTEXT)
def test_the_reverse_undoes_the_patch(old, new, context) -> None:
    if old != new:
        patch = parse(write(old, new, context=context))
        result = evaluate(reverse(patch), new.get)
        assert result.ok
        assert after(new, result.changes) == old
        assert reverse(reverse(patch)) == patch


@given(TREES, TREES, CONTEXT)
def test_applying_twice_says_applied_and_changes_nothing(old, new, context) -> None:
    if old != new:
        result = evaluate(parse(write(old, new, context=context)), new.get)
        assert (result.state, result.ok, dict(result.changes)) == ("applied", True, {})


@given(files(), files(), files(), CONTEXT, st.integers(0, 2), st.booleans())
def test_the_verdict_never_contradicts_the_result(old, new, target, context, fuzz, complete) -> None:
    if old == new:
        return
    patch = write({"m.py": old}, {"m.py": new}, context=context)
    patch = b"".join(line for line in patch.splitlines(keepends=True) if not line.startswith(b"index "))
    result = evaluate(parse(patch), {"m.py": target}.get, fuzz=fuzz, complete=complete)
    (file,) = result.files
    assert result.ok == (
        file.state in ("applies", "offset", "applied")
        or (file.state == "partial" and complete)
        or (file.state == "fuzzy" and result.ok and fuzz > 0)
    )
    if not result.ok or file.state == "applied":
        assert (dict(result.changes), file.after) == ({}, target)
    else:
        assert result.changes == {"m.py": file.after}
        assert file.after != target
    assert all(hunk.why for hunk in file.hunks)


@given(files(), files(), files(), CONTEXT)
def test_what_applies_to_any_file_is_undone_by_its_reverse_or_told(old, new, target, context) -> None:
    """Going back never gives a third file: the old one, or a refusal."""
    if old == new:
        return
    patch = write({"m.py": old}, {"m.py": new}, context=context)
    patch = parse(b"".join(line for line in patch.splitlines(keepends=True) if not line.startswith(b"index ")))
    there = evaluate(patch, {"m.py": target}.get)
    if there.ok and there.state in ("applies", "offset"):
        back = evaluate(reverse(patch), {"m.py": there.files[0].after}.get)
        assert not back.ok or back.state == "applied" or back.changes == {"m.py": target}


@given(st.lists(files(), min_size=2, max_size=5), CONTEXT)
def test_a_series_equals_its_composition(versions, context) -> None:
    steps = [parse(write({"m.py": a}, {"m.py": b}, context=context)) for a, b in pairwise(versions) if a != b]
    result = evaluate_series(steps, {"m.py": versions[0]}.get)
    assert result.ok
    assert after({"m.py": versions[0]}, result.changes) == {"m.py": versions[-1]}
    file = versions[0]
    for step in steps:
        file = after({"m.py": file}, evaluate(step, {"m.py": file}.get).changes)["m.py"]
    assert file == versions[-1]


PIECES = st.sampled_from(
    b"""
--- a/m
+++ b/m
@@ -1 +1 @@
@@ -1,2 +1,2 @@
@@ -0,0 +1 @@
@@ -1 +0,0 @@
-a
+b
 c
\\ No newline at end of file
diff --git a/m b/m
diff --git a/m b/n
index 1111111..2222222 100644
new file mode 100644
deleted file mode 100644
old mode 100644
new mode 100755
similarity index 90%
rename from m
rename to n
copy from m
--- /dev/null
+++ /dev/null
--- a/../m
--- "a/\\303\\n"
@@@ -1 -1 +1 @@@
GIT binary patch
--\x20
2.39.5
text
\t
\r
+no line feed""".replace(b"\\\\", b"\\").splitlines(keepends=True)
)


@given(st.one_of(st.binary(max_size=300), st.lists(PIECES, max_size=14).map(b"".join)))
def test_reading_a_patch_raises_nothing_but_our_own_errors(data) -> None:
    with suppress(BadInput):
        patch = parse(data)
        assert patch.files
        with suppress(PatchkitError):
            evaluate(patch, {"m": b"a\n", "n": b"c\n"}.get, fuzz=2, complete=True, context_free=True)
        with suppress(PatchkitError):
            assert reverse(reverse(patch)) == patch


@given(files(), files(), files())
def test_a_merge_gives_back_what_only_one_side_changed(base, theirs, ours) -> None:
    assert merge3(base, theirs, base).data == theirs
    assert merge3(base, base, ours).data == ours
    assert merge3(base, theirs, theirs) == merge3(base, theirs, base)
    merge3(base, theirs, ours)


@given(st.one_of(st.binary(max_size=200), st.text(max_size=200).map(str.encode)))
def test_checking_python_raises_nothing(data) -> None:
    check_python(data, "m.py", (3, 11))
