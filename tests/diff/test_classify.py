"""What a patch would do to a file: the states, and what each tells."""

from __future__ import annotations

import hashlib

import pytest

from patchkit.diff import FileResult, PatchResult, evaluate, parse, reverse, write
from patchkit.errors import BadInput, Refused

BASE = [b"line %d\n" % i for i in range(1, 31)]


def text(lines: list[bytes]) -> bytes:
    return b"".join(lines)


def replaced(lines: list[bytes], at: int, line: bytes) -> list[bytes]:
    """The lines with line ``at`` (1-based) replaced."""
    return [*lines[: at - 1], line, *lines[at:]]


def plain(old: bytes, new: bytes, context: int = 3, path: str = "m.py") -> bytes:
    """A diff without blob ids: only its lines can tell where it belongs."""
    lines = write({path: old}, {path: new}, context=context).splitlines(keepends=True)
    return b"".join(line for line in lines if not line.startswith((b"diff --git", b"index ")))


def on(patch: bytes, files: dict[str, bytes] | bytes, **allowed) -> PatchResult:
    tree = files if isinstance(files, dict) else {"m.py": files}
    return evaluate(parse(patch), tree.get, **allowed)


def only(result: PatchResult) -> FileResult:
    (file,) = result.files
    return file


NEW = replaced(BASE, 15, b"changed\n")
TWO = replaced(NEW, 25, b"changed too\n")
PATCH = plain(text(BASE), text(NEW))
PATCH_TWO = plain(text(BASE), text(TWO))


# The states


def test_a_hunk_at_its_stated_place_applies() -> None:
    result = on(PATCH, text(BASE))
    assert (result.state, result.ok) == ("applies", True)
    assert result.changes == {"m.py": text(NEW)}
    (hunk,) = only(result).hunks
    assert (hunk.state, hunk.stated, hunk.found, hunk.offset) == ("applies", 12, 12, 0)


def test_a_hunk_at_one_place_elsewhere_is_offset_and_tells_the_distance() -> None:
    drifted = [b"new\n"] * 7 + BASE
    result = on(PATCH, text(drifted))
    assert (result.state, result.ok) == ("offset", True)
    assert result.changes == {"m.py": text([b"new\n"] * 7 + NEW)}
    (hunk,) = only(result).hunks
    assert (hunk.found, hunk.offset) == (19, 7)
    assert "7 lines below" in hunk.why


def test_the_offset_of_a_hunk_is_carried_to_the_next() -> None:
    result = on(PATCH_TWO, text([b"new\n"] * 7 + BASE))
    assert [hunk.offset for hunk in only(result).hunks] == [7, 7]


def test_the_new_side_at_its_place_is_applied_and_changes_nothing() -> None:
    result = on(PATCH, text(NEW))
    assert (result.state, result.ok, result.changes) == ("applied", True, {})


def test_applied_is_told_of_a_drifted_file_too() -> None:
    assert on(PATCH_TWO, text([b"new\n"] * 7 + TWO)).state == "applied"


def test_some_hunks_there_are_partial_and_refused_unless_completing_is_allowed() -> None:
    for half in (NEW, replaced(BASE, 25, b"changed too\n")):
        result = on(PATCH_TWO, text(half))
        assert (result.state, result.ok, result.done, result.total) == ("partial", False, 1, 2)
        assert result.changes == {}
        assert only(result).after == text(half)
        assert on(PATCH_TWO, text(half), complete=True).changes == {"m.py": text(TWO)}


def test_one_file_done_and_another_not_is_partial_for_the_patch() -> None:
    patch = plain(text(BASE), text(NEW)) + plain(text(BASE), text(NEW), path="n.py")
    files = {"m.py": text(NEW), "n.py": text(BASE)}
    result = on(patch, files)
    assert (result.state, result.ok) == ("partial", False)
    assert [file.state for file in result.files] == ["applied", "applies"]
    assert on(patch, files, complete=True).changes == {"n.py": text(NEW)}


def test_a_hunk_with_two_places_is_ambiguous_and_tells_both() -> None:
    block = [b"try:\n", b"    a()\n", b"    b()\n", b"    c()\n", b"done\n"]
    old = [*BASE[:5], *block, *BASE[5:]]
    new = [*BASE[:5], *replaced(block, 3, b"    B()\n"), *BASE[5:]]
    patch = plain(text(old), text(new), context=2)
    target = [*BASE[:2], *block, *BASE[2:12], *block, *BASE[12:]]
    result = on(patch, text(target))
    assert (result.state, result.ok) == ("ambiguous", False)
    assert only(result).hunks[0].candidates == (3, 18)
    assert "lines 3 and 18" in only(result).hunks[0].why


def test_an_exact_place_with_others_applies_and_tells_them() -> None:
    block = [b"try:\n", b"    a()\n", b"    b()\n"]
    old = block * 4
    patch = b"--- a/m.py\n+++ b/m.py\n@@ -4,3 +4,3 @@\n try:\n-    a()\n+    A()\n     b()\n"
    result = on(patch, text(old))
    assert result.changes == {"m.py": text([*block, b"try:\n", b"    A()\n", b"    b()\n", *block, *block])}
    assert only(result).hunks[0].candidates == (1, 4, 7, 10)


def test_a_repeated_block_is_in_doubt_when_the_next_hunk_has_moved() -> None:
    block = [b"try:\n", b"    a()\n", b"    b()\n"]
    old = block * 4 + BASE
    new = [*block, b"try:\n", b"    A()\n", b"    b()\n", *block, *block, *replaced(BASE, 15, b"x\n")]
    patch = plain(text(old), text(new), context=1)
    assert on(patch, text(old)).state == "applies"
    drifted = on(patch, text([*block, *old]))
    assert (drifted.state, drifted.ok) == ("ambiguous", False)
    assert on(write({"m.py": text(old)}, {"m.py": text(new)}), text(old)).state == "applies"


def test_a_place_that_fits_before_and_after_alike_is_ambiguous_unless_a_blob_id_tells() -> None:
    run = [b"0,\n"] * 12
    patch = b"--- a/m.py\n+++ b/m.py\n@@ -3,6 +3,7 @@\n" + b" 0,\n" * 3 + b"+0,\n" + b" 0,\n" * 3
    result = on(patch, text(run))
    assert (result.state, result.ok) == ("ambiguous", False)
    assert "before and after" in only(result).why
    true = write({"m.py": text(run)}, {"m.py": text([*run, b"0,\n"])})
    assert on(true, text(run)).state == "applies"
    assert on(true, text([*run, b"0,\n"])).state == "applied"


def test_an_insertion_that_is_there_is_not_put_in_twice_though_its_context_stands_again() -> None:
    classes = [b"class A:\n", b"    pass\n", b"\n", b"\n", b"class C:\n", b"    pass\n", b"\n"]
    added = [b"class B:\n", b"    pass\n", b"\n", b"\n"]
    new = [*classes[:4], *added, *classes[4:]]
    patch = b"--- a/m.py\n+++ b/m.py\n@@ -2,6 +2,10 @@\n     pass\n \n \n"
    patch += b"".join(b"+" + line for line in added) + b" class C:\n     pass\n \n"
    assert on(patch, text(classes)).changes == {"m.py": text(new)}
    assert on(patch, text(new)).state == "applied"


def test_the_same_fix_in_another_place_does_not_prove_that_it_is_there() -> None:
    def block(name: bytes, call: bytes) -> list[bytes]:
        return [b"def %s():\n" % name, b"    try:\n", b"        " + call + b"\n", b"    except E:\n", b"        pass\n"]

    fixed = block(b"other", b"new()")
    old, new = [*BASE, *block(b"mine", b"old()"), *BASE, *fixed], [*BASE, *block(b"mine", b"new()"), *BASE, *fixed]
    patch = plain(text(old), text(new), context=1)
    upstream = [*BASE, b"def mine():\n", b"    try:  # now\n", *old[32:]]
    assert on(patch, text(old)).changes == {"m.py": text(new)}
    assert on(patch, text(upstream)).state == "ambiguous"
    assert on(patch, text(new)).state == "applied"


def test_a_far_exact_place_beats_a_near_one_in_other_context_and_the_near_one_is_told() -> None:
    target = [*replaced(BASE, 12, b"other\n"), *BASE[10:20]]
    result = on(PATCH, text(target))
    assert result.changes == {"m.py": text([*target[:34], b"changed\n", *target[35:]])}
    assert "line 12, nearer to it" in only(result).why


def test_dropped_context_is_fuzzy_and_refused_unless_allowed() -> None:
    target = replaced(BASE, 12, b"other\n")
    result = on(PATCH, text(target))
    assert (result.state, result.ok, only(result).hunks[0].fuzz) == ("fuzzy", False, 1)
    allowed = on(PATCH, text(target), fuzz=1)
    assert (allowed.state, allowed.ok) == ("fuzzy", True)
    assert allowed.changes == {"m.py": text(replaced(target, 15, b"changed\n"))}
    assert not on(PATCH, text(replaced(BASE, 13, b"other\n")), fuzz=1).ok
    assert on(PATCH, text(replaced(BASE, 13, b"other\n")), fuzz=2).ok


def test_fuzz_never_drops_all_there_is_to_compare() -> None:
    patch = b"--- a/m.py\n+++ b/m.py\n@@ -2,4 +2,5 @@\n a\n b\n+new\n c\n d\n"
    assert on(patch, b"1\n2\n3\n4\n5\n6\n", fuzz=2).state == "conflict"


def test_fuzz_does_not_put_in_what_is_there_with_other_context() -> None:
    target = replaced([*BASE[:15], b"added\n", *BASE[15:]], 13, b"other\n")
    result = on(plain(text(BASE), text([*BASE[:15], b"added\n", *BASE[15:]])), text(target), fuzz=2)
    assert (result.state, result.ok) == ("conflict", False)
    assert "already" in only(result).why


def test_fuzz_never_drops_a_changed_line() -> None:
    assert on(PATCH, text(replaced(BASE, 15, b"line fifteen\n")), fuzz=2).state == "conflict"


def test_a_conflict_tells_the_nearest_place_and_the_first_differing_line() -> None:
    target = [b"new\n", *replaced(BASE, 15, b"line fifteen\n")]
    result = on(PATCH, text(target))
    assert (result.state, result.ok) == ("conflict", False)
    nearest = only(result).hunks[0].nearest
    assert nearest is not None
    assert (nearest.line, nearest.matched, nearest.total) == (13, 6, 7)
    assert (nearest.differs_at, nearest.expected, nearest.found) == (16, b"line 15\n", b"line fifteen\n")
    assert "line 16 should be 'line 15', and the file has 'line fifteen'" in only(result).why


def test_one_conflict_refuses_the_whole_patch() -> None:
    target = replaced(BASE, 25, b"other\n")
    result = on(PATCH_TWO, text(target))
    assert [hunk.state for hunk in only(result).hunks] == ["applies", "conflict"]
    assert (result.ok, result.changes, only(result).after) == (False, {}, text(target))


def test_a_missing_file_is_target_missing() -> None:
    result = on(PATCH, {})
    assert (result.state, result.ok, only(result).path) == ("target-missing", False, "m.py")


# Start and end of the file


def test_a_hunk_without_context_before_it_belongs_to_the_start_of_the_file() -> None:
    patch = plain(text(BASE), text([b"# licence\n", *BASE]))
    assert on(patch, text(BASE)).state == "applies"
    shifted = on(patch, text([b"#!/bin/sh\n", *BASE]))
    assert (shifted.state, shifted.ok) == ("conflict", False)
    assert "expects the file to start here" in only(shifted).why


def test_a_hunk_without_context_after_it_belongs_to_the_end_of_the_file() -> None:
    patch = plain(text(BASE), text([*BASE, b"end\n"]))
    assert on(patch, text([b"new\n", *BASE])).changes == {"m.py": text([b"new\n", *BASE, b"end\n"])}
    longer = on(patch, text([*BASE, b"more\n"]))
    assert longer.state == "conflict"
    assert "expects the file to end here" in only(longer).why


def test_lines_removed_from_the_end_are_not_taken_for_gone_while_they_stand() -> None:
    patch = plain(text(BASE), text(BASE[:-2]))
    assert on(patch, text(BASE)).state == "applies"
    assert on(patch, text(BASE[:-2])).state == "applied"


def test_short_context_at_the_end_makes_two_exact_places_ambiguous() -> None:
    patch = b"--- a/m.py\n+++ b/m.py\n@@ -1,4 +1,5 @@\n a\n b\n c\n+new\n d\n"
    assert on(patch, b"a\nb\nc\nd\n").state == "applies"
    assert on(patch, b"a\nb\nc\nd\nx\na\nb\nc\nd\n").state == "ambiguous"


def test_the_line_feed_at_the_end_is_part_of_the_line() -> None:
    patch = plain(b"a\nb", b"a\nB")
    assert on(patch, b"a\nb").changes == {"m.py": b"a\nB"}
    assert on(patch, b"a\nb\n").state == "conflict"
    assert on(plain(b"a\nb\n", b"a\nB\n"), b"a\nb").state == "conflict"
    assert on(plain(b"a\nb", b"a\nb\n"), b"a\nb").changes == {"m.py": b"a\nb\n"}


def test_a_hunk_that_would_join_two_lines_is_refused() -> None:
    patch = b"--- a/m.py\n+++ b/m.py\n@@ -2 +2 @@\n-b\n+B\n\\ No newline at end of file\n"
    assert on(patch, b"a\nb\nc\n").state == "conflict"
    insertion = b"--- a/m.py\n+++ b/m.py\n@@ -2,0 +3 @@\n+c\n"
    assert on(insertion, b"a\nb", context_free=True).state == "conflict"


# Without context


INSERTION = b"--- a/m.py\n+++ b/m.py\n@@ -3,0 +4 @@\n+new\n"


def test_an_insertion_without_context_needs_somebody_to_vouch_for_the_place() -> None:
    refused = on(INSERTION, text(BASE))
    assert (refused.state, refused.ok) == ("fuzzy", False)
    assert not on(INSERTION, text(BASE), fuzz=2).ok
    allowed = on(INSERTION, text(BASE), context_free=True)
    assert allowed.changes == {"m.py": text([*BASE[:3], b"new\n", *BASE[3:]])}
    assert any("without context" in note for note in only(allowed).notes)
    with_ids = write({"m.py": text(BASE)}, {"m.py": text([*BASE[:3], b"new\n", *BASE[3:]])}, context=0)
    assert on(with_ids, text(BASE)).state == "applies"
    assert not on(with_ids, text([b"0\n", *BASE])).ok


def test_an_insertion_without_context_that_is_there_is_applied() -> None:
    assert on(INSERTION, text([*BASE[:3], b"new\n", *BASE[3:]])).state == "applied"


def test_an_insertion_past_the_end_is_a_conflict() -> None:
    assert on(INSERTION, b"a\n", context_free=True).state == "conflict"


def test_a_removal_without_context_never_proves_that_it_is_there() -> None:
    patch = b"--- a/m.py\n+++ b/m.py\n@@ -3 +2,0 @@\n-gone\n"
    assert on(patch, text(BASE)).state == "conflict"


def test_filling_a_file_that_should_be_empty_is_no_insertion_at_its_top() -> None:
    patch = b"--- a/m.py\n+++ b/m.py\n@@ -0,0 +1 @@\n+x\n"
    assert on(patch, b"").changes == {"m.py": b"x\n"}
    assert on(patch, b"x\n").state == "applied"
    assert on(patch, b"y\n", context_free=True).state == "conflict"


def test_blank_lines_alone_do_not_move_a_hunk() -> None:
    patch = b"--- a/m.py\n+++ b/m.py\n@@ -2,2 +2,3 @@\n \n+new\n \n"
    assert on(patch, b"a\n\n\nb\n").state == "applies"
    assert on(patch, b"a\nb\nc\n\n\nd\n").state == "ambiguous"


def test_little_context_alone_does_not_prove_a_removal_elsewhere() -> None:
    patch = b"--- a/m.py\n+++ b/m.py\n@@ -2,3 +2,2 @@\n try:\n-    old()\n except E:\n"
    assert on(patch, b"a\ntry:\n    new()\nexcept E:\nb\ntry:\nexcept E:\n").state == "conflict"


# Hashes decide first


def sha(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def test_a_blob_id_tells_the_new_file_though_the_old_text_stands_in_it_again() -> None:
    new = [*BASE[:5], *BASE[:5], *BASE[5:]]
    patch = write({"m.py": text(BASE)}, {"m.py": text(new)})
    result = on(patch, text(new))
    assert (result.state, only(result).known) == ("applied", "blob-id")
    assert (on(patch, text(BASE)).state, only(on(patch, text(BASE))).known) == ("applies", "blob-id")


def test_a_blob_id_that_is_too_short_or_unknown_decides_nothing() -> None:
    patch = b"diff --git a/m.py b/m.py\nindex 1111111..2222222 100644\n" + PATCH
    assert only(on(patch, text(BASE))).known == ""
    assert on(patch, text(BASE)).state == "applies"


def test_a_blob_id_of_the_lf_text_vouches_for_a_crlf_file() -> None:
    patch = write({"m.py": text(BASE)}, {"m.py": text(NEW)})
    crlf = text(BASE).replace(b"\n", b"\r\n")
    result = on(patch, crlf)
    assert only(result).known == "blob-id"
    assert result.changes == {"m.py": text(NEW).replace(b"\n", b"\r\n")}


def test_pins_tell_pre_and_post_image() -> None:
    pins = {"pre": {"m.py": sha(text(BASE))}, "post": {"m.py": sha(text(NEW))}}
    assert only(on(PATCH, text(BASE), **pins)).known == "pre-image"
    done = on(PATCH, text(NEW), **pins)
    assert (done.state, only(done).known) == ("applied", "post-image")


def test_a_pre_image_that_is_not_listed_is_told() -> None:
    result = on(PATCH, text([b"new\n", *BASE]), pre={"m.py": sha(text(BASE))}, post={"m.py": sha(text(NEW))})
    assert (result.state, result.ok) == ("offset", True)
    assert "pre-image not listed" in only(result).notes


def test_a_listed_pre_image_must_become_the_listed_post_image() -> None:
    result = on(PATCH, text(BASE), pre={"m.py": sha(text(BASE))}, post={"m.py": sha(b"something else")})
    assert (result.state, result.ok, result.changes) == ("conflict", False, {})


def test_fuzz_must_give_the_pinned_post_image() -> None:
    target = replaced(BASE, 12, b"other\n")
    right = sha(text(replaced(target, 15, b"changed\n")))
    assert on(PATCH, text(target), fuzz=1, post={"m.py": right}).ok
    wrong = on(PATCH, text(target), fuzz=1, post={"m.py": sha(text(NEW))})
    assert (wrong.state, wrong.ok, wrong.changes) == ("fuzzy", False, {})


# Line ends


def crlf(data: bytes) -> bytes:
    return data.replace(b"\n", b"\r\n")


def test_a_crlf_file_under_an_lf_patch_keeps_crlf() -> None:
    result = on(PATCH, crlf(text(BASE)))
    assert result.changes == {"m.py": crlf(text(NEW))}
    assert on(PATCH, crlf(text(NEW))).state == "applied"


def test_a_crlf_file_without_final_line_end_keeps_both() -> None:
    patch = plain(b"a\nb\nc", b"a\nB\nc")
    assert on(patch, b"a\r\nb\r\nc").changes == {"m.py": b"a\r\nB\r\nc"}


def test_an_lf_file_under_a_patch_turned_crlf_on_the_way_stays_lf() -> None:
    assert on(crlf(PATCH), text(BASE)).changes == {"m.py": text(NEW)}
    assert on(crlf(PATCH), crlf(text(BASE))).changes == {"m.py": crlf(text(NEW))}


def test_a_patch_made_from_the_very_bytes_may_put_lf_lines_into_a_crlf_file() -> None:
    old, new = b"x\r\ny\r\n", b"x\r\na\ny\r\n"
    assert on(write({"m.py": old}, {"m.py": new}, context=0), old).changes == {"m.py": new}


def test_a_mixed_file_is_compared_byte_by_byte() -> None:
    mixed = text(BASE).replace(b"line 12\n", b"line 12\r\n")
    assert on(PATCH, mixed).state == "fuzzy"
    assert on(PATCH, text(BASE).replace(b"line 2\n", b"line 2\r\n")).state == "applies"


def test_crlf_lines_under_lf_headers_are_meant() -> None:
    patch = plain(crlf(text(BASE)), crlf(text(NEW)))
    assert on(patch, crlf(text(BASE))).state == "applies"
    assert on(patch, text(BASE)).state == "conflict"


# Files that come, go and move


CREATE = b"--- /dev/null\n+++ b/p/n.py\n@@ -0,0 +1,2 @@\n+a\n+b\n"
DELETE = b"--- a/p/n.py\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-a\n-b\n"


def test_a_creation_makes_the_file_or_finds_it_made() -> None:
    assert on(CREATE, {}).changes == {"p/n.py": b"a\nb\n"}
    assert on(CREATE, {"p/n.py": b"a\nb\n"}).state == "applied"
    assert on(CREATE, {"p/n.py": b"a\r\nb\r\n"}).state == "applied"
    for other in (b"", b"a\nb\nc\n", b"a\n"):
        result = on(CREATE, {"p/n.py": other})
        assert (result.state, result.ok, result.changes) == ("conflict", False, {})


def test_a_creation_below_a_file_is_a_conflict() -> None:
    assert on(CREATE, {"p": b"I am a file\n"}).state == "conflict"


def test_a_deletion_takes_away_exactly_what_it_names() -> None:
    assert on(DELETE, {"p/n.py": b"a\nb\n"}).changes == {"p/n.py": None}
    assert on(DELETE, {}).state == "applied"
    for other in (b"a\nb\nc\n", b"", b"b\na\n"):
        result = on(DELETE, {"p/n.py": other})
        assert (result.state, result.ok) == ("conflict", False)


def test_a_file_emptied_is_not_a_file_deleted() -> None:
    assert on(b"--- a/m.py\n+++ b/m.py\n@@ -1 +0,0 @@\n-a\n", b"a\n").changes == {"m.py": b""}


RENAME = b"diff --git a/o.py b/n.py\nsimilarity index 100%\nrename from o.py\nrename to n.py\n"
RENAME_AND_EDIT = (
    b"diff --git a/o.py b/n.py\nsimilarity index 80%\nrename from o.py\nrename to n.py\n"
    b"--- a/o.py\n+++ b/n.py\n@@ -1,2 +1,2 @@\n-a\n+A\n b\n"
)


def test_a_rename_moves_the_file_and_never_overwrites() -> None:
    assert on(RENAME, {"o.py": b"x\n"}).changes == {"n.py": b"x\n", "o.py": None}
    assert on(RENAME, {"n.py": b"x\n"}).state == "applied"
    assert on(RENAME, {}).state == "target-missing"
    both = on(RENAME, {"o.py": b"x\n", "n.py": b"x\n"})
    assert (both.state, both.ok) == ("conflict", False)


def test_a_rename_with_hunks_is_judged_by_both() -> None:
    assert on(RENAME_AND_EDIT, {"o.py": b"a\nb\n"}).changes == {"n.py": b"A\nb\n", "o.py": None}
    assert on(RENAME_AND_EDIT, {"n.py": b"A\nb\n"}).state == "applied"
    assert on(RENAME_AND_EDIT, {"o.py": b"x\ny\n"}).state == "conflict"
    for half in ({"o.py": b"A\nb\n"}, {"n.py": b"a\nb\n"}):
        result = on(RENAME_AND_EDIT, half)
        assert (result.state, result.ok) == ("partial", False)
        finished = dict(half) | on(RENAME_AND_EDIT, half, complete=True).changes
        assert {path: data for path, data in finished.items() if data is not None} == {"n.py": b"A\nb\n"}


def test_a_copy_leaves_its_source() -> None:
    copy = RENAME.replace(b"rename", b"copy")
    assert on(copy, {"o.py": b"x\n"}).changes == {"n.py": b"x\n"}
    assert on(copy, {"o.py": b"x\n", "n.py": b"x\n"}).state == "applied"
    assert on(copy, {"o.py": b"x\n", "n.py": b"y\n"}).state == "conflict"
    with pytest.raises(Refused):
        reverse(parse(copy))


MODE = b"diff --git a/m.py b/m.py\nold mode 100644\nnew mode 100755\n"


def test_a_mode_change_is_applied_only_where_the_mode_is_seen_to_be_set() -> None:
    assert on(MODE, b"x\n").modes == {"m.py": "100755"}
    assert on(MODE, b"x\n").state == "applies"
    assert on(MODE, b"x\n", mode=lambda path: 0o644).state == "applies"
    assert on(MODE, b"x\n", mode=lambda path: 0o755).state == "applied"
    assert on(MODE, {}).state == "target-missing"


def test_a_mode_that_is_set_is_not_set_again() -> None:
    create = b"diff --git a/n b/n\nnew file mode 100755\n--- /dev/null\n+++ b/n\n@@ -0,0 +1 @@\n+x\n"
    assert on(create, {}).modes == {"n": "100755"}
    assert on(MODE, b"x\n", mode=lambda path: 0o755).modes == {}
    assert on(create, {"n": b"x\n"}, mode=lambda path: 0o755).modes == {}
    assert on(create, {"n": b"x\n"}, mode=lambda path: 0o644).state == "partial"


def test_text_there_and_mode_not_is_partial() -> None:
    patch = MODE + PATCH
    assert on(patch, text(NEW), mode=lambda path: 0o644).state == "partial"
    assert on(patch, text(NEW), mode=lambda path: 0o755).state == "applied"
    assert on(patch, text(BASE), mode=lambda path: 0o644).modes == {"m.py": "100755"}


# Names


@pytest.mark.parametrize(
    "name", [b"../x", b"a/../../x", b"/etc/x", b"a/b/../x", b"C:\\x", b"a/C:/x", b"a/.git/hooks/x", b"a/./x", b"a/x/"]
)
def test_a_name_that_leaves_the_tree_is_refused_on_either_side(name: bytes) -> None:
    for old, new in ((name, b"b/m.py"), (b"a/m.py", name), (b"/dev/null", name)):
        patch = b"--- " + old + b"\n+++ " + new + b"\n@@ -0,0 +1 @@\n+x\n"
        with pytest.raises(BadInput) as error:
            on(patch, b"")
        assert error.value.code == "unsafe-path"


def test_doubled_slashes_collapse_before_stripping() -> None:
    assert on(PATCH.replace(b"a/m.py", b"a//m.py").replace(b"b/m.py", b"b//m.py"), text(BASE)).ok


def test_a_strip_level_that_eats_the_name_is_refused() -> None:
    with pytest.raises(BadInput) as error:
        on(PATCH, text(BASE), strip=2)
    assert error.value.code == "strip-too-deep"


def test_a_backup_name_is_not_a_rename() -> None:
    for old, new in ((b"m.py.orig", b"m.py"), (b"m.py", b"m.py.orig"), (b"m.py~", b"m.py")):
        patch = PATCH.replace(b"a/m.py", b"a/" + old).replace(b"b/m.py", b"b/" + new)
        assert on(patch, text(BASE)).changes == {"m.py": text(NEW)}


def test_two_names_of_files_that_are_both_there_are_ambiguous() -> None:
    patch = PATCH.replace(b"b/m.py", b"b/n.py")
    assert on(patch, {"m.py": text(BASE)}).changes == {"m.py": text(NEW)}
    assert on(patch, {"n.py": text(BASE)}).changes == {"n.py": text(NEW)}
    assert on(patch, {"m.py": text(BASE), "n.py": text(BASE)}).state == "ambiguous"


# Worth telling


def test_an_added_line_that_stands_right_beside_the_hunk_is_told() -> None:
    old = [*BASE[:10], b"    call(\n", b"        a=1,\n", b"        b=2,\n", b"        c=3,\n", b"    )\n", *BASE[10:]]
    new = [*old[:13], b"        flag=True,\n", *old[13:]]
    patch = plain(text(old), text(new), context=1)
    upstream = [*old[:11], b"        flag=True,\n", *old[11:]]
    result = on(patch, text(upstream))
    assert result.state == "offset"
    assert any("flag=True" in note and "line 12" in note for note in only(result).notes)
    assert only(on(patch, text(old))).notes == ()


def test_input_made_to_keep_the_search_busy_is_refused() -> None:
    hunk = b"@@ -%d,200 +%d,201 @@\n" + b" a\n" * 100 + b"+x\n" + b" a\n" * 99 + b" b\n"
    patch = b"--- a/m.py\n+++ b/m.py\n" + b"".join(hunk % (i * 300 + 1, i * 300 + 1) for i in range(2000))
    with pytest.raises(BadInput) as error:
        on(patch, (b"a\n" * 150 + b"b\n") * 2000)
    assert error.value.code == "patch-too-costly"
