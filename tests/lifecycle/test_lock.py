"""patchkit.lock: what was looked at, line by line, mergeable, and nothing else is delivered under it."""

import subprocess
from dataclasses import replace

import pytest

from patchkit.catalog.header import Header
from patchkit.errors import BadInput, Refused
from patchkit.images.model import Identity
from patchkit.lifecycle import lock, retired
from patchkit.lifecycle.releases import plan_for
from patchkit.lifecycle.save import Draft, save

WHY = Header((("Description", "Why"),))
A0, A1 = b"a = 0\n", b"a = 1\n"
IMAGE, OTHER = "sha256:" + "1" * 64, "sha256:" + "2" * 64


@pytest.fixture
def plan(mine, tree):
    save(mine.catalog, mine.manifest, Draft("fix", {"pkg/a.py": (A0, A1)}, WHY, "1.0", (3, 11)))

    def make(data=A0, image=IMAGE, version="1.0"):
        made = plan_for(tree(version, {"pkg/a.py": data}), mine.series)
        return replace(made, identity=Identity(image, (), "linux/amd64"))

    return make


def keyed(*lines):
    return {line.key: line for line in lines}


def test_a_lock_reads_back_as_it_was_written_and_twice_gives_the_same_bytes(plan):
    one, two = lock.locked(plan()), lock.locked(plan(image=OTHER))
    text = lock.dumps([two, one])
    assert lock.loads(text) == keyed(one, two)
    assert lock.dumps(lock.loads(text).values()) == text
    assert one.files["pkg/a.py"].pre != one.files["pkg/a.py"].post
    assert (one.version, one.patches[0].state, one.patches[0].file) == ("1.0", "applies", "patches/fix.patch")


def test_an_image_that_is_not_in_the_lock_is_refused(plan):
    with pytest.raises(Refused) as caught:
        lock.require({}, plan())
    assert caught.value.code == "not-locked"
    assert "patchkit lock --image" in caught.value.remedy


def test_the_locked_image_itself_is_taken(plan):
    lock.require(keyed(lock.locked(plan())), plan())


def test_other_bytes_under_the_same_name_are_refused_with_every_difference(plan, mine):
    lines = keyed(lock.locked(plan()))
    mine.manifest.path.parent.parent.joinpath("patches/fix.patch").write_bytes(
        (mine.root / "patches/fix.patch").read_bytes().replace(b"Why", b"Other")
    )
    with pytest.raises(Refused) as caught:
        lock.require(lines, plan(A0 + b"# more\n", version="1.1"))
    assert [line.split(":")[0] for line in caught.value.details] == ["patch fix", "pkg/a.py", "pkg"]


def test_two_branches_that_each_add_an_image_merge_by_themselves(plan, tmp_path):
    def git(*arguments):
        return subprocess.run(
            ["git", "-c", "user.name=t", "-c", "user.email=t@t", *arguments],
            cwd=tmp_path,
            check=True,
            capture_output=True,
        )

    base = lock.locked(plan(image="sha256:" + "0" * 64))
    path = tmp_path / lock.NAME
    git("init", "--quiet", "-b", "main")
    (tmp_path / ".gitattributes").write_text("patchkit.lock merge=union\n")
    path.write_text(lock.dumps([base]))
    git("add", ".")
    git("commit", "-qm", "base")
    lines = [lock.locked(plan(image=f"sha256:{digit * 64}")) for digit in "34"]
    for name, line in zip(("left", "right"), lines, strict=True):
        git("checkout", "-q", "-b", name, "main")
        path.write_text(lock.dumps([base, line]))
        git("commit", "-qam", name)
    git("merge", "-q", "left")
    assert lock.load(tmp_path) == keyed(base, *lines)


def test_the_markers_of_a_conflict_are_passed_over_and_both_sides_count(plan):
    one, two = lock.locked(plan()), lock.locked(plan(image=OTHER))
    head, first = lock.dumps([one]).splitlines()
    second = lock.dumps([two]).splitlines()[1]
    text = f"{head}\n<<<<<<< HEAD\n{first}\n=======\n{second}\n{first}\n>>>>>>> other\n"
    assert lock.loads(text) == keyed(one, two)


def test_two_lines_that_contradict_each_other_are_refused_with_both_places(plan):
    one = lock.locked(plan())
    text = lock.dumps([one]) + lock.dumps([replace(one, version="9")])
    with pytest.raises(BadInput) as caught:
        lock.loads(text)
    assert caught.value.code == "lock-contradicts"
    assert caught.value.where == "patchkit.lock:4:1"
    assert "line 2" in caught.value.what


@pytest.mark.parametrize("line", ["nothing", "{}", "[]", '{"image": 1}', "null", '{"image": "x", "more": 1}'])
def test_a_line_that_is_none_is_bad_input_with_its_place(line):
    with pytest.raises(BadInput) as caught:
        lock.loads(f"{line}\n")
    assert (caught.value.code, caught.value.where) == ("bad-lock", "patchkit.lock:1:1")


def test_check_tells_a_changed_diff_a_gone_patch_and_a_new_one(plan, mine):
    lines = keyed(lock.locked(plan()))
    assert lock.check(lines, mine.catalog) == []
    file = mine.root / "patches/fix.patch"
    before = file.read_bytes()
    file.write_bytes(before.replace(b"Why", b"Other"))
    assert [each.what for each in lock.check(lines, mine.catalog)] == [
        "patches/fix.patch is not the diff that was locked"
    ]
    file.write_bytes(before)
    save(mine.catalog, mine.manifest, Draft("more", {"pkg/b.py": (b"", b"x = 1\n")}, WHY, "1.0", (3, 11)))
    assert [each.what for each in lock.check(lines, mine.catalog)] == ["patch more came into the series since"]
    retired.retire(mine.catalog, mine.manifest, "more", "why", "")
    retired.retire(mine.catalog, mine.manifest, "fix", "why", "")
    assert "not in the series any more" in lock.check(lines, mine.catalog)[0].what


def test_a_lock_beside_the_catalog_counts_in_ci_and_where_it_is_asked_for(tmp_path):
    assert not lock.wanted(tmp_path, False, {"CI": "true"})
    (tmp_path / lock.NAME).write_text(lock.dumps([]))
    assert lock.wanted(tmp_path, False, {"CI": "true"})
    assert not lock.wanted(tmp_path, False, {})
    assert lock.wanted(tmp_path, True, {})


def test_a_patch_is_retirable_when_some_image_has_it_and_none_needs_it(plan, mine):
    needs, has = lock.locked(plan()), lock.locked(plan(A1, OTHER, "2.0"))
    assert has.patches[0].state == "upstream"
    (case,) = retired.cases(mine.manifest, [needs, has])
    assert not case.proven
    assert case.needed_by == (f"pkg 1.0 ({IMAGE[:19]})",)
    (case,) = retired.cases(mine.manifest, [has])
    assert (case.proven, case.version) == (True, "2.0")
    (case,) = retired.cases(mine.manifest, [])
    assert not case.proven


def test_a_retired_patch_leaves_the_series_and_is_kept_with_its_reason(plan, mine):
    before = (mine.root / "patches/fix.patch").read_bytes()
    (kept,) = retired.retire(mine.catalog, mine.manifest, "fix", "the fix is in", "pkg 2.0")
    assert mine.manifest.patches == ()
    assert not (mine.root / "patches/fix.patch").exists()
    assert kept == mine.root / "patches/retired/fix.patch"
    (found,) = retired.all_of(mine.root)
    assert (found.id, found.reason, found.prose.get("Applied-Upstream")) == ("fix", "the fix is in", "pkg 2.0")
    assert kept.read_bytes().endswith(before.partition(b"\n\n")[2])


def test_a_patch_that_nobody_lists_cannot_be_retired(plan, mine):
    plan()
    with pytest.raises(BadInput, match="has no patch other"):
        retired.retire(mine.catalog, mine.manifest, "other", "why", "")
