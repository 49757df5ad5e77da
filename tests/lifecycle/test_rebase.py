"""The series on a new release: a three-way merge, and the truth about what is left of each patch."""

from dataclasses import replace

import pytest

from patchkit.catalog.header import Header
from patchkit.errors import Refused
from patchkit.lifecycle.rebase import rebase
from patchkit.lifecycle.save import Draft, save

WHY = Header((("Description", "Why"),))
LINUX = "linux/amd64"
HEAD = b"".join(b"x%d = %d\n" % (n, n) for n in range(20))
OLD = HEAD + b"def f():\n    return 1\n" + HEAD
FIXED = OLD.replace(b"return 1", b"return 2")
TWO = OLD.replace(b"x3 = 3\n", b"x3 = 33\n", 1).replace(b"return 1", b"return 2")


@pytest.fixture
def with_patch(mine, tree):
    """A catalog with patches made on release 1.0; the release, and the call that rebases onto a newer file."""

    def make(*afters):
        before = OLD
        for number, after in enumerate(afters, 1):
            save(mine.catalog, mine.manifest, Draft(f"fix{number}", {"pkg/a.py": (before, after)}, WHY, "1.0", (3, 11)))
            before = after
        old = tree("1.0", {"pkg/a.py": OLD})

        def onto(data, only=frozenset(), finder=lambda entry: old):
            files = {} if data is None else {"pkg/a.py": data}
            return rebase(mine.series, tree("2.0", files), finder, LINUX, only)

        return onto

    return make


def outcomes(found):
    return [(each.id, each.outcome) for each in found]


def test_a_file_that_did_not_change_needs_nothing(with_patch):
    assert outcomes(with_patch(FIXED)(OLD)) == [("fix1", "unchanged")]


def test_a_moved_place_is_merged_cleanly_onto_the_new_file(with_patch):
    new = b"".join(b"y%d = %d\n" % (n, n) for n in range(200)) + OLD
    (found,) = with_patch(FIXED)(new)
    assert found.outcome == "clean"
    assert found.changes == {"pkg/a.py": (new, new.replace(b"return 1", b"return 2"))}


def test_context_that_changed_is_no_hindrance_where_the_line_itself_stands(with_patch):
    new = OLD.replace(b"x19 = 19\ndef", b"x19 = 91\ndef")
    (found,) = with_patch(FIXED)(new)
    assert found.outcome == "clean"
    assert found.changes["pkg/a.py"][1] == new.replace(b"return 1", b"return 2")


def test_the_same_line_changed_otherwise_is_a_conflict_with_labelled_markers(with_patch):
    new = OLD.replace(b"return 1", b"return 3")
    (found,) = with_patch(FIXED)(new)
    assert (found.outcome, found.conflicts) == ("conflict", 1)
    merged = found.changes["pkg/a.py"][1]
    assert b"<<<<<<< pkg 2.0\n    return 3\n=======\n    return 2\n>>>>>>> patch fix1\n" in merged


def test_a_fix_that_is_in_is_upstream(with_patch):
    (found,) = with_patch(FIXED)(FIXED)
    assert found.outcome == "upstream"
    assert found.changes is None


def test_a_fix_that_is_in_in_a_changed_file_is_upstream_too(with_patch):
    (found,) = with_patch(FIXED)(FIXED.replace(b"x19 = 19\ndef", b"x19 = 91\ndef"))
    assert found.outcome == "upstream"


def test_half_of_a_fix_is_partial_and_the_rest_is_carried(with_patch):
    new = OLD.replace(b"x3 = 3\n", b"x3 = 33\n", 1)
    (found,) = with_patch(TWO)(new)
    assert (found.outcome, found.changes) == ("partial", {"pkg/a.py": (new, TWO)})
    assert "holds 1 of 2 hunks" in found.detail


def test_a_file_that_is_gone_is_told(with_patch):
    (found,) = with_patch(FIXED)(None)
    assert found.outcome == "gone"
    assert "pkg/a.py" in found.detail


def test_a_later_patch_stands_on_the_earlier_one_carried_over(with_patch):
    second = FIXED.replace(b"x7 = 7\n", b"x7 = 77\n", 1)
    new = b"top = 1\n" * 50 + OLD
    found = with_patch(FIXED, second)(new)
    assert outcomes(found) == [("fix1", "clean"), ("fix2", "clean")]
    assert found[1].changes == {"pkg/a.py": (b"top = 1\n" * 50 + FIXED, b"top = 1\n" * 50 + second)}


def test_one_patch_alone_is_carried_over_on_top_of_the_others(with_patch):
    second = FIXED.replace(b"x7 = 7\n", b"x7 = 77\n", 1)
    found = with_patch(FIXED, second)(b"top = 1\n" * 50 + OLD, frozenset({"fix2"}))
    assert outcomes(found) == [("fix2", "clean")]


def test_without_the_old_release_a_merge_is_refused_and_a_unique_place_is_not(with_patch):
    onto = with_patch(FIXED)
    (found,) = onto(b"top = 1\n" * 50 + OLD, finder=lambda entry: None)
    assert found.outcome == "clean"
    with pytest.raises(Refused) as caught:
        onto(OLD.replace(b"return 1", b"return 3"), finder=lambda entry: None)
    assert caught.value.code == "old-release-unknown"
    assert "--from" in caught.value.remedy


def test_a_release_that_the_patch_was_not_made_on_is_refused(with_patch, tree):
    wrong = tree("0.9", {"pkg/a.py": b"other = 1\n"})
    with pytest.raises(Refused, match="where it should apply"):
        with_patch(FIXED)(OLD.replace(b"return 1", b"return 3"), finder=lambda entry: wrong)


def test_a_patch_for_another_platform_is_left_alone(with_patch, mine, tree):
    with_patch(FIXED)
    series = mine.series
    entries = tuple(replace(entry, platforms=("linux/arm64",)) for entry in series.manifest.patches)
    series = replace(series, manifest=replace(series.manifest, patches=entries))
    assert outcomes(rebase(series, tree("2.0", {"pkg/a.py": OLD}), lambda entry: None, LINUX)) == [
        ("fix1", "not-applicable")
    ]
