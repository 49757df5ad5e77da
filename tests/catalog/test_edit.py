"""Changes to a manifest leave every other byte alone."""

import difflib

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from patchkit.catalog.edit import learned, with_patch, without_patch
from patchkit.catalog.model import PatchEntry

D1, D2 = "sha256:" + "1" * 64, "sha256:" + "2" * 64
TEXT = """\
# head

name: x      # the name
versions: ">=1"
# why these
patches:
  # about a
  - id: a
    file: 'patches/a.patch'   # odd quotes
    pre: {"p/a.py": "sha256:1"}
    # still a

  # about b
  - id: b
    file: patches/b.patch
    drop_when:
      syntax:
        path: p/b.py
        future: annotations
    asserts:
      - module: p.b
        code: |
          import p

          p.b

# tail
decoys: [/workspace]

# end
"""


def lines_changed(before, after):
    delta = difflib.ndiff(before.splitlines(), after.splitlines())
    return [line for line in delta if line[:1] in "+-"]


def test_learning_a_digest_adds_its_lines_and_nothing_else():
    after = learned(TEXT, {D1: "0.33.0"}, "2026-11-30")
    assert lines_changed(TEXT, after) == [
        "+ digests:",
        f'+   {D1}: {{version: "0.33.0", seen: "2026-11-30"}}'.replace(D1, f'"{D1}"'),
    ]
    assert after.index("digests:") < after.index("# why these")


def test_learning_twice_changes_nothing():
    once = learned(TEXT, {D1: "0.33.0"}, "2026-11-30")
    assert learned(once, {D1: "0.34.0"}, "2027-01-01") == once


def test_a_further_digest_stands_behind_the_listed_ones():
    once = learned(TEXT, {D1: "0.33.0"}, "")
    twice = learned(once, {D1: "0.33.0", D2: "0.33.1"}, "")
    assert lines_changed(once, twice) == [f'+   "{D2}": {{version: "0.33.1"}}']
    assert list(yaml.safe_load(twice)["digests"]) == [D1, D2]


@pytest.mark.parametrize(
    "listed",
    [
        "digests: {}  # none yet",
        f'digests: {{"{D1}": {{version: "1"}}}}  # one',
        f'digests:\n    "{D1}": {{version: "1"}}',
    ],
)
def test_every_way_to_write_the_digests_is_kept(listed):
    text = f"name: x\n{listed}\npatches: []\n"
    after = learned(text, {D2: "2"}, "")
    assert yaml.safe_load(after)["digests"][D2] == {"version": "2"}
    assert yaml.safe_load(after)["patches"] == []
    assert ("# none yet" in after, "# one" in after) == ("# none yet" in text, "# one" in text)


def test_a_new_patch_stands_behind_the_last_one_and_before_the_tail_comment():
    after = with_patch(
        TEXT, PatchEntry("c", "patches/c.patch", pre={"p/c.py": "sha256:3"}, post={"p/c.py": "sha256:4"})
    )
    assert lines_changed(TEXT, after) == [
        "+   - id: c",
        "+     file: patches/c.patch",
        "+     pre:",
        '+       p/c.py: "sha256:3"',
        "+     post:",
        '+       p/c.py: "sha256:4"',
    ]
    assert after.index("p.b\n  - id: c") < after.index("# tail")


def test_a_variant_stands_behind_the_last_one_of_its_id():
    after = with_patch(TEXT, PatchEntry("a", "patches/a-2.patch", versions=">=2"))
    assert [(each["id"], each["file"]) for each in yaml.safe_load(after)["patches"]] == [
        ("a", "patches/a.patch"),
        ("a", "patches/a-2.patch"),
        ("b", "patches/b.patch"),
    ]
    assert after.index("# still a") < after.index("a-2.patch") < after.index("# about b")


def test_saving_a_patch_again_sets_its_hashes_and_keeps_the_rest():
    entry = PatchEntry("a", "patches/a.patch", pre={"p/a.py": "sha256:1"}, post={"p/a.py": "sha256:9"})
    after = with_patch(TEXT, entry)
    assert lines_changed(TEXT, after) == ["+     post:", '+       p/a.py: "sha256:9"']
    assert with_patch(after, entry) == after
    again = with_patch(after, PatchEntry("a", "patches/a.patch", pre={"p/a.py": "sha256:7", "p/b.py": "sha256:8"}))
    assert yaml.safe_load(again)["patches"][0]["pre"] == {"p/a.py": "sha256:7", "p/b.py": "sha256:8"}
    block = with_patch(after, PatchEntry("a", "patches/a.patch", post={"p/z.py": "sha256:7", "p/b.py": "sha256:8"}))
    assert yaml.safe_load(block)["patches"][0]["post"] == {"p/z.py": "sha256:7", "p/b.py": "sha256:8"}
    assert "# still a" in block


def test_a_removed_patch_takes_its_comment_with_it_and_no_other():
    after = without_patch(TEXT, "a")
    assert "about a" not in after
    assert "still a" not in after
    assert "# about b" in after
    assert "# why these" in after
    assert [each["id"] for each in yaml.safe_load(after)["patches"]] == ["b"]


def test_the_last_patch_removed_leaves_an_empty_series():
    after = without_patch(without_patch(TEXT, "b"), "a")
    assert yaml.safe_load(after)["patches"] == []
    assert "# tail" in after
    assert yaml.safe_load(with_patch(after, PatchEntry("n", "n.patch")))["patches"] == [{"id": "n", "file": "n.patch"}]


def test_one_variant_is_removed_alone():
    text = with_patch(TEXT, PatchEntry("a", "patches/a-2.patch", versions=">=2"))
    assert without_patch(text, "a", "patches/a-2.patch") == TEXT


def test_a_series_in_brackets_is_changed_too():
    text = "name: x\npatches: [{id: a, file: a.patch}, {id: b, file: b.patch}]  # short\n"
    added = with_patch(text, PatchEntry("c", "c.patch", versions="<2"))
    assert yaml.safe_load(added)["patches"][2] == {"id": "c", "file": "c.patch", "versions": "<2"}
    assert without_patch(added, "c") == text
    assert yaml.safe_load(without_patch(text, "a"))["patches"] == [{"id": "b", "file": "b.patch"}]
    assert yaml.safe_load(without_patch(without_patch(text, "a"), "b"))["patches"] == []
    set_ = with_patch(text, PatchEntry("a", "a.patch", pre={"p/a.py": "sha256:1"}))
    assert yaml.safe_load(set_)["patches"][0]["pre"] == {"p/a.py": "sha256:1"}


def test_crlf_and_a_missing_last_line_end_are_kept_or_mended():
    text = TEXT.replace("\n", "\r\n")
    after = learned(text, {D1: "1"}, "")
    assert after.replace("\r\n", "").count("\n") == 0
    assert learned(TEXT.rstrip("\n"), {D1: "1"}, "").endswith("# end\n")


@given(
    st.sampled_from(["  ", "", "    "]),
    st.lists(st.sampled_from(["a", "b", "c", "d"]), min_size=1, max_size=4, unique=True),
    st.sampled_from(["", "\n", "  # x\n", "\n# y\n\n"]),
    st.data(),
)
def test_any_entry_of_any_series_is_added_and_removed_again(indent, ids, between, data):
    body = between.join(f"{indent}- id: {each}\n{indent}  file: {each}.patch\n" for each in ids)
    text = f"name: x\npatches:\n{body}{between}service: s\n"
    expected = yaml.safe_load(text)
    gone = data.draw(st.sampled_from(ids))
    after = yaml.safe_load(without_patch(text, gone))
    expected["patches"] = [each for each in expected["patches"] if each["id"] != gone]
    assert after == expected
    added = with_patch(text, PatchEntry("new", "new.patch"))
    assert without_patch(added, "new") == text
