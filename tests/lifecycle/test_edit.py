"""Pristine files into a work folder, and back as a patch."""

import hashlib
import json
import subprocess
from dataclasses import replace

import pytest

from patchkit import api
from patchkit.catalog.header import Header
from patchkit.errors import BadInput, Refused, Unreachable
from patchkit.lifecycle import edit, work
from patchkit.lifecycle.releases import plan_for
from patchkit.lifecycle.save import Draft, save
from patchkit.lifecycle.work import Task
from patchkit.plan import digest_of
from tests.site.roots import config, put, small_root

PAD = b"".join(b"x%d = %d\n" % (n, n) for n in range(9))
L0, L1, L2 = (PAD + line + PAD for line in (b"a = 0\n", b"a = 1\n", b"a = 2\n"))
A0, A1, A2 = b"a = 0\nb = 0\n", b"a = 1\nb = 0\n", b"a = 1\nb = 1\n"
WHY = Header((("Description", "Why"),))
LINUX = "linux/amd64"


def task(mine, **more):
    return Task("mine", str(mine.root), "pkg", "pkg 1.0", "1.0", (3, 11), **more)


def opened(mine, release, *paths, patch="", name="new"):
    base = edit.ground(release, mine.series, patch, paths, LINUX)
    return edit.open_work(work.home() / "mine" / name, task(mine), base, mine.series)


def saved(mine, opened, name, file=""):
    return save(mine.catalog, mine.manifest, Draft(name, work.changes(opened), WHY, "1.0", (3, 11), file))


def git(folder, *arguments):
    return subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout


def test_a_work_folder_holds_pristine_files_and_git_shows_the_work(mine, tree):
    place = opened(mine, tree("1.0", {"pkg/a.py": A0, "pkg/data.json": b"{}"}), "pkg/a.py", "pkg/data.json")
    assert (place.folder / "pkg/a.py").read_bytes() == A0
    assert git(place.folder, "status", "--short") == ""
    (place.folder / "pkg/a.py").write_bytes(A1)
    assert git(place.folder, "status", "--short") == " M pkg/a.py\n"
    assert work.changes(place) == {"pkg/a.py": (A0, A1)}


def test_new_and_removed_files_are_changes_and_leavings_are_not(mine, tree):
    place = opened(mine, tree("1.0", {"pkg/a.py": A0}), "pkg/a.py")
    (place.folder / "pkg/a.py").unlink()
    (place.folder / "pkg/sub").mkdir()
    (place.folder / "pkg/sub/new.py").write_bytes(b"x = 1\n")
    (place.folder / "pkg/__pycache__").mkdir()
    (place.folder / "pkg/__pycache__/a.pyc").write_bytes(b"")
    (place.folder / "pkg/a.py.orig").write_bytes(b"")
    assert work.changes(place) == {"pkg/a.py": (A0, None), "pkg/sub/new.py": (None, b"x = 1\n")}


def test_a_symlink_in_the_work_is_refused(mine, tree):
    place = opened(mine, tree("1.0", {"pkg/a.py": A0}), "pkg/a.py")
    (place.folder / "pkg/link.py").symlink_to("/etc/passwd")
    with pytest.raises(Refused, match="regular files only"):
        work.changes(place)


def test_editing_again_takes_up_the_same_folder_and_adds_further_files(mine, tree):
    release = tree("1.0", {"pkg/a.py": A0, "pkg/b.py": b"b\n"})
    first = opened(mine, release, "pkg/a.py")
    (first.folder / "pkg/a.py").write_bytes(A1)
    again = opened(mine, release, "pkg/a.py", "pkg/b.py")
    assert again.folder == first.folder
    assert work.changes(again) == {"pkg/a.py": (A0, A1)}
    assert set(again.base) == {"pkg/a.py", "pkg/b.py"}
    assert work.load(again.folder) == again


def test_unsaved_work_on_another_release_is_never_thrown_away(mine, tree):
    place = opened(mine, tree("1.0", {"pkg/a.py": A0}), "pkg/a.py")
    (place.folder / "pkg/a.py").write_bytes(A1)
    with pytest.raises(Refused) as caught:
        opened(mine, tree("1.0", {"pkg/a.py": A2}), "pkg/a.py")
    assert caught.value.code == "work-in-folder"
    assert (place.folder / "pkg/a.py").read_bytes() == A1
    (place.folder / "pkg/a.py").write_bytes(A0)
    assert opened(mine, tree("1.0", {"pkg/a.py": A2}), "pkg/a.py").base == {"pkg/a.py": A2}


def test_work_that_was_saved_makes_room_for_the_next_release(mine, tree):
    place = opened(mine, tree("1.0", {"pkg/a.py": L0}), "pkg/a.py")
    (place.folder / "pkg/a.py").write_bytes(L1)
    work.settle(place, "fix", saved(mine, place, "fix").entry.file)
    newer = b"# newer\n" + L0
    again = opened(mine, tree("2.0", {"pkg/a.py": newer}), patch="fix", name="fix")
    assert again.base == {"pkg/a.py": newer}
    assert (again.folder / "pkg/a.py").read_bytes() == b"# newer\n" + L1


def test_work_that_was_changed_after_it_was_saved_is_kept(mine, tree):
    place = opened(mine, tree("1.0", {"pkg/a.py": L0}), "pkg/a.py")
    (place.folder / "pkg/a.py").write_bytes(L1)
    settled = work.settle(place, "fix", saved(mine, place, "fix").entry.file)
    (settled / "pkg/a.py").write_bytes(L2)
    with pytest.raises(Refused, match="unsaved changes"):
        opened(mine, tree("2.0", {"pkg/a.py": b"# newer\n" + L0}), patch="fix", name="fix")


def test_an_existing_patch_is_edited_with_itself_applied_and_saved_in_its_place(mine, tree):
    release = tree("1.0", {"pkg/a.py": A0})
    place = opened(mine, release, "pkg/a.py")
    (place.folder / "pkg/a.py").write_bytes(A1)
    file = saved(mine, place, "fix").entry.file
    again = opened(mine, release, patch="fix", name="fix")
    assert again.base == {"pkg/a.py": A0}
    assert (again.folder / "pkg/a.py").read_bytes() == A1
    assert (again.task.patch, again.task.entry_file) == ("fix", file)
    (again.folder / "pkg/a.py").write_bytes(A2)
    assert saved(mine, again, "fix", file).entry.post == dict.fromkeys(["pkg/a.py"], digest_of(A2))


def test_a_second_patch_of_one_file_stands_on_the_first(mine, tree):
    release = tree("1.0", {"pkg/a.py": A0})
    first = opened(mine, release, "pkg/a.py")
    (first.folder / "pkg/a.py").write_bytes(A1)
    saved(mine, first, "one")
    ground = edit.ground(release, mine.series, "", ["pkg/a.py"], LINUX)
    assert ground.files == {"pkg/a.py": A1}
    assert ground.notes == ("pkg/a.py: with patch one applied, which comes first in the series",)
    second = opened(mine, release, "pkg/a.py", name="second")
    (second.folder / "pkg/a.py").write_bytes(A2)
    saved(mine, second, "two")
    plan = plan_for(release, mine.series)
    assert [file.data for file in plan.files] == [A2]


def test_a_file_below_a_patch_that_does_not_apply_is_refused(mine, tree):
    first = opened(mine, tree("1.0", {"pkg/a.py": A0}), "pkg/a.py")
    (first.folder / "pkg/a.py").write_bytes(A1)
    saved(mine, first, "one")
    with pytest.raises(Refused, match="comes first in the series"):
        edit.ground(tree("2.0", {"pkg/a.py": b"other\n"}), mine.series, "", ["pkg/a.py"], LINUX)


def test_a_patch_that_is_already_there_cannot_be_edited(mine, tree):
    first = opened(mine, tree("1.0", {"pkg/a.py": A0}), "pkg/a.py")
    (first.folder / "pkg/a.py").write_bytes(A1)
    saved(mine, first, "one")
    with pytest.raises(Refused, match="is applied on"):
        opened(mine, tree("2.0", {"pkg/a.py": A1}), patch="one", name="one")


@pytest.mark.parametrize(
    ("path", "code", "remedy"),
    [
        ("pkg/model/norms.py", "no-such-file", "did you mean pkg/model/norm.py"),
        ("norm.py", "no-such-file", "did you mean pkg/model/norm.py"),
        ("../etc/passwd", "bad-path", "site-packages"),
        ("/etc/passwd", "bad-path", "site-packages"),
    ],
)
def test_a_wrong_path_is_told_with_the_near_one(tree, path, code, remedy):
    with pytest.raises(BadInput) as caught:
        edit.check_paths([path], tree("1.0", {"pkg/model/norm.py": b"", "pkg/b.py": b""}))
    assert caught.value.code == code
    assert remedy in caught.value.remedy


def test_an_unknown_patch_is_told(mine, tree):
    with pytest.raises(BadInput, match="has no patch nope"):
        edit.ground(tree("1.0", {}), mine.series, "nope", [], LINUX)


def test_a_work_folder_never_lies_inside_a_repository(mine, tree, tmp_path):
    git(tmp_path, "init", "--quiet")
    base = edit.ground(tree("1.0", {"pkg/a.py": A0}), mine.series, "", ["pkg/a.py"], LINUX)
    with pytest.raises(Refused, match="in the repository"):
        edit.open_work(tmp_path / "work", task(mine), base, mine.series)


def test_a_folder_that_is_no_work_folder_is_left_alone(mine, tree, tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "mine.txt").write_text("mine")
    base = edit.ground(tree("1.0", {"pkg/a.py": A0}), mine.series, "", ["pkg/a.py"], LINUX)
    with pytest.raises(BadInput, match="no work folder"):
        edit.open_work(tmp_path / "work", task(mine), base, mine.series)
    assert (tmp_path / "work" / "mine.txt").read_text() == "mine"


def test_save_finds_the_work_by_the_patch_name_or_the_one_new_work(mine, tree):
    place = opened(mine, tree("1.0", {"pkg/a.py": A0}), "pkg/a.py")
    assert work.find("anything") == place.folder
    settled = work.settle(place, "fix", "patches/fix.patch")
    assert settled == place.folder.parent / "fix"
    assert work.find("fix") == settled
    with pytest.raises(BadInput, match="no work folder for other"):
        work.find("other")


def test_two_works_that_fit_are_told_apart_by_the_catalog_in_use_or_must_be_by_the_person(mine, tree, tmp_path):
    place = opened(mine, tree("1.0", {"pkg/a.py": A0}), "pkg/a.py")
    other = replace(task(mine), manifest="other", catalog=str(tmp_path / "other"))
    theirs = work.create(work.home() / "other" / "new", other, {"pkg/a.py": A0}, {"pkg/a.py": A0})
    for catalog in ("", str(tmp_path / "third")):
        with pytest.raises(BadInput, match="2 work folders fit") as caught:
            work.find("fix", catalog)
        assert caught.value.details == (str(place.folder), str(theirs.folder))
        assert "patchkit save --name fix --work" in caught.value.remedy
    assert work.find("fix", place.task.catalog) == place.folder
    assert work.find("fix", other.catalog) == theirs.folder


def test_a_persons_git_settings_and_hooks_do_not_touch_the_files(mine, tree, tmp_path, monkeypatch):
    config = tmp_path / "gitconfig"
    config.write_text("[core]\n\tautocrlf = true\n[commit]\n\tgpgsign = true\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    crlf = b"a = 1\r\nb = 2\n"
    place = opened(mine, tree("1.0", {"pkg/a.py": crlf}), "pkg/a.py")
    monkeypatch.delenv("GIT_DIR")
    assert git(place.folder, "rev-parse", "HEAD:pkg/a.py").strip() == blob_id(crlf)
    assert work.changes(place) == {}


def blob_id(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def test_a_home_without_room_for_work_is_told_with_the_setting_that_helps(mine, tree, tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with pytest.raises(Unreachable) as caught:
        opened(mine, tree("1.0", {"pkg/a.py": A0}), "pkg/a.py")
    assert caught.value.code == "work-unwritable"
    assert "XDG_STATE_HOME" in caught.value.remedy
    assert "--work" in caught.value.remedy


def test_work_for_one_catalog_is_not_saved_where_the_environment_names_another(mine, tree, tmp_path, monkeypatch):
    place = opened(mine, tree("1.0", {"pkg/a.py": A0}), "pkg/a.py")
    (place.folder / "pkg/a.py").write_bytes(A1)
    before = mine.files()
    monkeypatch.setenv("PATCHKIT_CATALOG", str(tmp_path / "other"))
    with pytest.raises(Refused) as caught:
        api.save("fix", api.Prose("Why"), folder=place.folder)
    assert caught.value.code == "other-catalog"
    assert str(mine.root) in caught.value.what
    assert str(tmp_path / "other") in caught.value.what
    assert mine.files() == before


def test_unsaved_work_says_which_catalog_it_belongs_to(mine, tree):
    place = opened(mine, tree("1.0", {"pkg/a.py": A0}), "pkg/a.py")
    (place.folder / "pkg/a.py").write_bytes(A1)
    with pytest.raises(Refused) as caught:
        work.create(place.folder, replace(task(mine), catalog="/elsewhere"), {"pkg/a.py": A0}, {"pkg/a.py": A0})
    assert f"for the catalog {mine.root}" in caught.value.what


def test_files_of_an_image_whose_record_is_damaged_are_had_all_the_same(mine, tmp_path):
    root = tmp_path / "root"
    small_root(root)
    site = "/opt/venv/lib/python3.11/site-packages"
    put(root, f"{site}/pkg/__init__.py")
    put(root, f"{site}/pkg/a.py", A0)
    put(root, f"{site}/pkg-1.0.dist-info/METADATA", "Name: pkg\nVersion: 1.0\n")
    put(root, f"{site}/pkg-1.0.dist-info/RECORD", "pkg/a.py,sha256=no-base64!,x\n")
    about = {**config(["serve"]), "architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": []}}
    (tmp_path / "root.config.json").write_text(json.dumps(about))
    options = api.Options(catalog=mine.root, manifest="mine", run=False)
    found, _ = api.edit(["pkg/a.py"], image=f"rootfs:{root}", options=options)
    assert found.base == {"pkg/a.py": A0}
