"""The prose in front of a diff."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from patchkit.catalog.header import Header, parse, render, split

DIFF = b"diff --git a/p/a.py b/p/a.py\n--- a/p/a.py\n+++ b/p/a.py\n@@ -1 +1 @@\n-a\n+b\n"
XPU = Path(__file__).parents[2] / "patches" / "xpu"


def test_fields_fold_over_lines_and_a_dot_is_a_blank_line():
    header = parse(b"Description: Short\n long one\n .\n more\nOrigin: vendor\nForwarded: no\n\n" + DIFF)
    assert header.title == "Short"
    assert header.get("description") == "Short\nlong one\n\nmore"
    assert header.get("Origin") == "vendor"


def test_a_format_patch_mail_gives_its_subject_author_and_body():
    mail = (
        b"From 1a410efbd13591db07496601ebc7a059dd55cfe9 Mon Sep 17 00:00:00 2001\n"
        b"From: =?UTF-8?q?J=C3=BCrgen?= <j@example.org>\nDate: Mon, 2 Nov 2026 10:00:00 +0100\n"
        b"Subject: [PATCH 2/3] Mend the norm of a very\n long subject\n\nBecause it broke.\n\n"
        b"Signed-off-by: J <j@example.org>\n---\n p/a.py | 2 +-\n 1 file changed\n\n"
    )
    header = parse(mail + DIFF + b"-- \n2.39.5\n")
    assert header.title == "Mend the norm of a very long subject"
    assert header.get("Author") == "Jürgen <j@example.org>"
    assert "Because it broke." in header.get("Description")
    assert "1 file changed" not in header.get("Description")
    assert header.get("Date") == ""


def test_loose_text_is_the_long_description():
    assert parse(b"Fix the thing\n\nIt was broken.\n" + DIFF).get("Description") == "Fix the thing\n\nIt was broken."


def test_a_diff_without_prose_has_an_empty_header():
    assert parse(DIFF) == Header()
    assert render(Header()) == b""


def test_prose_and_diff_together_are_the_patch_again():
    patch = b"Description: x\n\n" + DIFF
    assert split(patch) == (b"Description: x\n\n", DIFF)
    assert split(b"nothing here") == (b"nothing here", b"")


def test_bytes_that_are_not_utf8_are_shown_as_such():
    assert parse(b"Description: caf\xe9\n\n" + DIFF).title == "caf�"


def test_fields_are_written_in_dep3_order_and_unknown_ones_last():
    header = Header((("X-Own", "1"), ("Author", "A"), ("Description", "D"), ("Bug-Debian", "2")))
    assert render(header) == b"Description: D\nAuthor: A\nX-Own: 1\nBug-Debian: 2\n\n"


def test_a_field_is_set_changed_and_removed():
    header = Header((("Origin", "vendor"),)).with_field("origin", "upstream, 1a2b").with_field("Bug", "")
    assert header.fields == (("origin", "upstream, 1a2b"),)


def test_the_shipped_patches_read_back_as_they_were_written():
    for file in sorted(XPU.glob("*.patch")):
        prose, _ = split(file.read_bytes())
        header = parse(file.read_bytes())
        assert header.title, file
        assert header.get("Last-Update"), file
        assert dict(parse(render(header) + DIFF).fields) == dict(header.fields)
        assert prose


_LINE = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=20)
_VALUE = st.lists(_LINE.filter(lambda line: line != "."), min_size=1, max_size=4).map("\n".join)


@given(st.dictionaries(st.sampled_from(["Description", "Origin", "Bug", "Author", "X-Own"]), _VALUE))
def test_every_header_reads_back_as_it_was_written(fields):
    header = Header(tuple(fields.items()))
    assert dict(parse(render(header) + DIFF).fields) == fields
