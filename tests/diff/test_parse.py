"""What is read as a patch, and what is refused with its line."""

from __future__ import annotations

from contextlib import suppress

import pytest

from patchkit.diff import Patch, parse
from patchkit.errors import BadInput

HUNK = b"@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n"
PLAIN = b"--- a/m.py\n+++ b/m.py\n" + HUNK


def refused(data: bytes) -> BadInput:
    with pytest.raises(BadInput) as error:
        parse(data, "x.patch")
    return error.value


def malformed_at(data: bytes) -> int:
    error = refused(data)
    assert error.code == "malformed-patch"
    assert error.where is not None
    return int(error.where.removeprefix("x.patch:"))


def unsupported(data: bytes) -> str:
    error = refused(data)
    assert error.code == "unsupported-patch"
    return error.what


def only(patch: Patch):
    (section,) = patch.files
    return section


def test_a_plain_section_keeps_its_names_and_both_sides_of_its_hunk() -> None:
    section = only(parse(PLAIN))
    assert (section.kind, section.old_name, section.new_name, section.git) == ("modify", "a/m.py", "b/m.py", False)
    (hunk,) = section.hunks
    assert hunk.old == (b"a\n", b"b\n", b"c\n")
    assert hunk.new == (b"a\n", b"B\n", b"c\n")
    assert (hunk.prefix, hunk.suffix, hunk.old_start, hunk.line) == (1, 1, 1, 3)


def test_the_prose_before_the_first_section_is_the_header() -> None:
    patch = parse(b"Description: why\nOrigin: here\n\n" + PLAIN)
    assert patch.header == "Description: why\nOrigin: here\n\n"


def test_prose_may_quote_headers_of_every_kind() -> None:
    prose = (
        b"--- see below\n+++ and here\n text\ndiff --git is a command\n"
        b"@@ -1 +1 @@\nis one.\nBinary files a and b differ\n"
    )
    assert parse(prose + PLAIN).header == prose.decode()


@pytest.mark.parametrize(
    "stamp", [b"\t2024-01-01 10:00:00.000000000 +0100", b" 2024-01-01 10:00:00", b"\t(revision 7)"]
)
def test_a_time_stamp_is_no_part_of_the_name(stamp: bytes) -> None:
    section = only(parse(b"--- pkg-1.0/m.py" + stamp + b"\n+++ pkg-1.1/m.py" + stamp + b"\n" + HUNK))
    assert (section.old_name, section.new_name) == ("pkg-1.0/m.py", "pkg-1.1/m.py")


def test_a_name_with_blanks_ends_at_the_tab() -> None:
    assert only(parse(b"--- a/my file.py\t\n+++ b/my file.py\t\n" + HUNK)).target() == "my file.py"


def test_an_epoch_time_stamp_in_any_zone_means_no_file() -> None:
    created = b"--- a/new.py\t1970-01-01 01:00:00.000000000 +0100\n+++ b/new.py\t2024-01-01 00:00:00 +0000\n"
    created += b"@@ -0,0 +1 @@\n+x\n"
    assert only(parse(created)).kind == "create"
    late = created.replace(b"01:00:00.000000000 +0100", b"01:00:00.000000000 +0000")
    assert only(parse(late)).kind == "modify"


def test_counts_may_be_left_out_and_blank_context_lines_may_have_lost_their_blank() -> None:
    (hunk,) = only(parse(b"--- a/m\n+++ b/m\n@@ -1,3 +1,3 @@ def f():\n\n-b\n+B\n\n")).hunks
    assert hunk.old == (b"\n", b"b\n", b"\n")
    assert hunk.heading == b"def f():"
    (hunk,) = only(parse(b"--- a/m\n+++ b/m\n@@ -4 +4 @@\n-b\n+B\n")).hunks
    assert (hunk.old, hunk.new, hunk.place) == ((b"b\n",), (b"B\n",), 3)


def test_lines_that_look_like_headers_inside_a_hunk_are_its_lines() -> None:
    (hunk,) = only(parse(b"--- a/q.sql\n+++ b/q.sql\n@@ -1 +1 @@\n--- two\n+++ two\n")).hunks
    assert (hunk.old, hunk.new) == ((b"-- two\n",), (b"++ two\n",))


@pytest.mark.parametrize("marker", [b"\\ No newline at end of file", b"\\ Kein Zeilenumbruch am Dateiende.", b"\\ x"])
def test_a_marker_in_any_language_takes_the_line_feed_of_its_side(marker: bytes) -> None:
    data = b"--- a/m\n+++ b/m\n@@ -1 +1 @@\n-a\n" + marker + b"\n+b\n" + marker + b"\n"
    (hunk,) = only(parse(data)).hunks
    assert (hunk.old, hunk.new) == ((b"a",), (b"b",))


def test_one_marker_after_a_context_line_counts_for_both_sides() -> None:
    (hunk,) = only(parse(b"--- a/m\n+++ b/m\n@@ -1,2 +1,2 @@\n-a\n+A\n z\n\\ No newline at end of file\n")).hunks
    assert hunk.old[-1] == hunk.new[-1] == b"z"


def test_separators_that_python_takes_for_line_ends_stay_inside_their_line() -> None:
    odd = b"a\x0bb\x0cc\x1cd\x85e\xe2\x80\xa8f\rg"
    (hunk,) = only(parse(b"--- a/m\n+++ b/m\n@@ -1 +1 @@\n-" + odd + b"\n+x\n")).hunks
    assert hunk.old == (odd + b"\n",)


def test_bytes_that_are_no_text_are_kept() -> None:
    (hunk,) = only(parse(b"--- a/m\n+++ b/m\n@@ -1 +1 @@\n-caf\xe9\0\n+\xff\xfe\n")).hunks
    assert (hunk.old, hunk.new) == ((b"caf\xe9\0\n",), (b"\xff\xfe\n",))


def test_a_byte_order_mark_before_the_patch_is_dropped() -> None:
    assert only(parse(b"\xef\xbb\xbf" + PLAIN)).target() == "m.py"


def test_a_whole_crlf_patch_loses_the_carriage_returns_of_its_header_lines_only() -> None:
    data = (b"diff --git a/m.py b/m.py\nold mode 100644\nnew mode 100755\n" + PLAIN).replace(b"\n", b"\r\n")
    section = only(parse(data))
    assert section.crlf
    assert (section.target(), section.old_mode, section.new_mode) == ("m.py", "100644", "100755")
    assert section.hunks[0].old[0] == b"a\r\n"


def test_a_last_line_without_line_feed_is_mended_when_the_counts_are_complete() -> None:
    (hunk,) = only(parse(b"--- a/m\n+++ b/m\n@@ -1 +1,2 @@\n a\n+b")).hunks
    assert hunk.new == (b"a\n", b"b\n")


@pytest.mark.parametrize(
    "end",
    [b"-- \n2.39.5\n\n", b"--\nme\n", b"\n---\n", b"\n----------\n", b"\n-----Original Message-----\n", b"\n\n\n"],
)
def test_what_mails_put_under_a_patch_is_no_line_of_it(end: bytes) -> None:
    assert len(only(parse(PLAIN + end)).hunks) == 1


# Git's headers


def test_blob_ids_and_modes_are_read() -> None:
    section = only(parse(b"diff --git a/m.py b/m.py\nindex 0123456789..abcdef0123 100644\n" + PLAIN))
    assert (section.git, section.old_blob, section.new_blob) == (True, "0123456789", "abcdef0123")


def test_an_empty_file_is_created_and_deleted_without_hunks() -> None:
    header = b"diff --git a/p/__init__.py b/p/__init__.py\n"
    created = only(parse(header + b"new file mode 100644\nindex 0000000..e69de29\n"))
    deleted = only(parse(header + b"deleted file mode 100644\nindex e69de29..0000000\n"))
    assert (created.kind, created.target(), created.hunks) == ("create", "p/__init__.py", ())
    assert (deleted.kind, deleted.target(), deleted.hunks) == ("delete", "p/__init__.py", ())


@pytest.mark.parametrize("kind", ["rename", "copy"])
def test_renames_and_copies_are_told_apart_and_strip_like_all_names(kind: str) -> None:
    word = kind.encode()
    data = b"diff --git a/x b/y.py b/z b/w.py\nsimilarity index 100%%\n%s from x b/y.py\n%s to z b/w.py\n" % (
        word,
        word,
    )
    section = only(parse(data))
    assert (section.kind, section.names()) == (kind, ("x b/y.py", "z b/w.py"))


def test_a_rename_without_prefixes_strips_at_level_zero() -> None:
    data = b"diff --git x.py y.py\nsimilarity index 100%\nrename from x.py\nrename to y.py\n"
    assert only(parse(data)).names(0) == ("x.py", "y.py")


def test_a_mode_change_alone_names_its_file_even_when_the_name_holds_the_other_prefix() -> None:
    section = only(parse(b"diff --git a/x b/y b/x b/y\nold mode 100644\nnew mode 100755\n"))
    assert (section.kind, section.target(), section.new_mode) == ("mode", "x b/y", "100755")


def test_quoted_names_are_unquoted_byte_by_byte() -> None:
    data = b'diff --git "a/caf\\303\\251 \\"x\\".py" "b/caf\\303\\251 \\"x\\".py"\nold mode 100644\nnew mode 100755\n'
    assert only(parse(data)).target() == 'café "x".py'


def test_a_mode_change_may_be_followed_by_a_plain_section() -> None:
    patch = parse(b"diff --git a/x b/x\nold mode 100644\nnew mode 100755\n" + PLAIN.replace(b"/m.py", b"/x"))
    assert [section.kind for section in patch.files] == ["modify"]
    patch = parse(b"diff --git a/x b/x\nold mode 100644\nnew mode 100755\n\n" + PLAIN)
    assert [section.kind for section in patch.files] == ["mode", "modify"]


# Refused by name


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"diff --git a/x b/x\nindex 1111111..2222222 100644\nGIT binary patch\nliteral 3\nKcmZ\n\n", "binary"),
        (b"diff --git a/x b/x\nindex 1111111..2222222\nBinary files a/x and b/x differ\n", "binary"),
        (PLAIN + b"Binary files a/x.so and b/x.so differ\n", "binary"),
        (b"diff -r 1 -r 2 x.so\nBinary file x.so has changed\n" + PLAIN, "binary"),
        (b"Index: x.so\n=====\nCannot display: file marked as a binary type.\n" + PLAIN, "binary"),
        (b"diff --cc m.py\nindex 1,2..3\n--- a/m.py\n+++ b/m.py\n@@@ -1,2 -1,2 +1,2 @@@\n  a\n", "combined"),
        (b"--- a/m.py\n+++ b/m.py\n@@@ -1,2 -1,2 +1,2 @@@\n  a\n", "combined"),
        (b"*** a/m.py\n--- b/m.py\n***************\n*** 1 ****\n! a\n--- 1 ----\n! b\n", "context"),
        (b"1c1\n< a\n---\n> b\n", "normal"),
        (b"diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+/etc\n", "symbolic link"),
        (b"diff --git a/s b/s\nindex 1111111..2222222 160000\n--- a/s\n+++ b/s\n@@ -1 +1 @@\n-x\n+y\n", "submodule"),
        (PLAIN.decode().encode("utf-16"), "UTF-16"),
    ],
)
def test_what_is_no_unified_text_diff_is_refused_by_name(data: bytes, word: str) -> None:
    assert word in unsupported(data)


# Refused as malformed, with the line


def test_an_empty_patch_and_prose_alone_are_malformed() -> None:
    assert malformed_at(b"") == 1
    assert malformed_at(b"\n\n") == 1
    assert malformed_at(b"just words\n") == 1


def test_an_indented_patch_is_malformed_where_it_starts() -> None:
    indented = b"".join(b"  " + line + b"\n" for line in PLAIN.split(b"\n"))
    assert malformed_at(b"see:\n" + indented) == 2


def test_lines_left_over_after_a_complete_hunk_are_malformed() -> None:
    assert malformed_at(PLAIN + b"+lost\n") == 8
    assert malformed_at(PLAIN + b" lost\n") == 8
    assert malformed_at(PLAIN + b"\n+lost\n") == 9
    assert malformed_at(PLAIN + b"\n a\n-lost\n") == 10
    assert malformed_at(PLAIN + b"-- \n+lost\n") == 9


def test_a_hunk_cut_short_is_malformed_at_the_cut() -> None:
    lines = PLAIN.splitlines(keepends=True)
    for end in range(3, len(lines)):
        assert malformed_at(b"".join(lines[:end])) == end


def test_a_section_without_a_hunk_is_malformed() -> None:
    assert malformed_at(b"--- a/m.py\n+++ b/m.py\n") == 2
    assert malformed_at(b"--- a/m.py\n+++ b/m.py\n" + PLAIN) == 3
    assert malformed_at(b"diff --git a/m.py b/m.py\n--- a/m.py\n+++ b/m.py\n") == 3
    assert malformed_at(b"diff --git a/m.py b/m.py\nindex 1111111..2222222 100644\n") == 1
    assert malformed_at(PLAIN + b"diff --git a/m.py b/m.py\n") == 8


def test_a_new_file_whose_content_is_missing_is_malformed() -> None:
    assert malformed_at(b"diff --git a/m.py b/m.py\nnew file mode 100644\nindex 0000000..2222222\n") == 1


def test_a_hunk_outside_of_any_section_is_malformed() -> None:
    assert malformed_at(HUNK) == 1
    assert malformed_at(PLAIN + b"\n" + HUNK) == 9
    assert malformed_at(b"--- a/m.py\n" + HUNK) == 2


@pytest.mark.parametrize(
    "header",
    [
        b"@@ -1,3 +1,3",
        b"@@ 1,3 1,3 @@",
        b"@@ -1,3 +1,3 @",
        b"@@ -1,99999999999999999999 +1,3 @@",
        b"@@ -1,\xd9\xa3 +1,3 @@",
    ],
)
def test_a_hunk_header_that_cannot_be_read_is_malformed(header: bytes) -> None:
    assert malformed_at(b"--- a/m\n+++ b/m\n" + header + b"\n a\n-b\n+B\n c\n") == 3


def test_counts_that_the_lines_overrun_are_malformed() -> None:
    assert malformed_at(b"--- a/m\n+++ b/m\n@@ -1,1 +1,3 @@\n-a\n-b\n+c\n+d\n+e\n") == 3


def test_a_hunk_that_changes_nothing_is_malformed() -> None:
    assert malformed_at(b"--- a/m\n+++ b/m\n@@ -1,2 +1,2 @@\n a\n b\n") == 3
    assert malformed_at(b"--- a/m\n+++ b/m\n@@ -1,2 +1,2 @@\n-a\n+a\n b\n") == 3


def test_markers_in_the_wrong_place_are_malformed() -> None:
    marker = b"\\ No newline at end of file\n"
    assert malformed_at(b"--- a/m\n+++ b/m\n@@ -1 +1 @@\n" + marker + b"-a\n+b\n") == 4
    assert malformed_at(b"--- a/m\n+++ b/m\n@@ -1 +1 @@\n-a\n" + marker + marker + b"+b\n") == 6
    assert malformed_at(b"--- a/m\n+++ b/m\n@@ -1,2 +1 @@\n-a\n" + marker + b"-b\n+c\n") == 5
    cut_off = b"--- a/m\n+++ b/m\n@@ -1,9 +1,9 @@\n" + marker + b"-a\n+b\n"
    assert malformed_at(cut_off) == 4, "the first line that is wrong is told, not where the patch ends"


def test_the_signature_taken_for_a_removed_line_is_malformed() -> None:
    assert malformed_at(b"--- a/m\n+++ b/m\n@@ -1,2 +1 @@\n-x\n+y\n-- \n2.39.5\n") == 6


def test_a_context_line_that_lost_its_blank_before_a_tab_is_malformed() -> None:
    assert malformed_at(b"--- a/m\n+++ b/m\n@@ -1,2 +1,2 @@\n\tx\n-a\n+b\n") == 4


def test_headers_that_name_different_files_are_malformed() -> None:
    assert malformed_at(b"diff --git a/v.py b/v.py\n--- a/w.py\n+++ b/w.py\n" + HUNK) == 1
    assert malformed_at(b"diff --git a/v.py b/v.py\n--- a/v.py\n+++ b/w.py\n" + HUNK) == 1
    assert malformed_at(b"diff --git a/v.py b/w.py\nold mode 100644\nnew mode 100755\n") == 1


def test_a_header_and_names_that_disagree_about_a_creation_are_malformed() -> None:
    assert malformed_at(b"diff --git a/v b/v\nnew file mode 100644\n--- a/v\n+++ b/v\n@@ -0,0 +1 @@\n+x\n") == 3
    assert malformed_at(b"--- /dev/null\n+++ b/v\n@@ -1 +1,2 @@\n a\n+x\n") == 1
    assert malformed_at(b"--- /dev/null\n+++ /dev/null\n@@ -0,0 +1 @@\n+x\n") == 1


# Hostile input


@pytest.mark.parametrize(
    "data",
    [
        b"Binary files " + b" and " * 200_000 + b" differ\n" + PLAIN,
        b"diff --git " + b"a b " * 100_000 + b"\nold mode 100644\nnew mode 100755\n",
        b"diff --git a/" + b" b/" * 190 + b"\nold mode 100644\nnew mode 100755\n" + PLAIN,
        b"--- a/m" + b" " * 500_000 + b"x\n+++ b/m\n" + HUNK,
        b"--- " + b'"' + b"\\" * 500_000 + b"\n+++ b/m\n" + HUNK,
        b"@@ -1 +1 @@ " * 100_000,
        b"--- a/m\n+++ b/m\n@@ -1,999999999 +1,999999999 @@\n" + b" a\n" * 100_000,
        b"--- a/m\n+++ b/m\n" * 100_000,
        PLAIN * 5 + b" " * 1_000_000,
    ],
    ids=["binary", "git-blanks", "git-splits", "blanks", "quotes", "headers", "counts", "sections", "tail"],
)
def test_hostile_input_ends_soon_and_in_our_own_errors(data: bytes) -> None:
    with suppress(BadInput):
        parse(data)


def test_a_patch_of_absurd_size_is_refused() -> None:
    assert refused(b"x" * (64 * 1024 * 1024 + 1)).code == "patch-too-large"
