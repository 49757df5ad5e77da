"""Other people's changes: where they belong is found, what has no effect is told."""

import pytest

from patchkit.errors import BadInput, Refused
from patchkit.lifecycle import importing
from patchkit.lifecycle.importing import Piece

A0, A1 = b"a\nb\nc\n", b"a\nB\nc\n"
BODY = "@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n"


def section(name, body=BODY, prefix=("a/", "b/")):
    return f"diff --git {prefix[0]}{name} {prefix[1]}{name}\n--- {prefix[0]}{name}\n+++ {prefix[1]}{name}\n{body}"


def piece(text, strip=None):
    return Piece("change", text.encode(), strip)


@pytest.fixture
def release(tree):
    return tree("1.0", {"pkg/a.py": A0, "pkg/sub/b.py": A0, "pkg/sub/a.py": b"other\n"})


@pytest.mark.parametrize(("name", "strip"), [("pkg/a.py", 1), ("src/pkg/a.py", 2), ("python/x/pkg/sub/b.py", 3)])
def test_the_strip_level_is_found_by_the_files_that_are_installed(release, name, strip):
    fitted = importing.fit(piece(section(name)), release, "pkg")
    assert fitted.strip == strip
    assert fitted.missing == ()


def test_a_diff_without_prefixes_is_found_too(release):
    assert importing.fit(piece(f"--- pkg/a.py\n+++ pkg/a.py\n{BODY}"), release, "pkg").strip == 0


def test_files_of_no_installation_are_told_apart(release):
    fitted = importing.fit(
        piece(section("pkg/a.py") + section("tests/test_a.py") + section("csrc/x.cu")), release, "pkg"
    )
    assert [each.new_name for each in fitted.patch.files] == ["b/pkg/a.py"]
    assert fitted.missing == ("b/tests/test_a.py", "b/csrc/x.cu")
    with pytest.raises(Refused) as caught:
        importing.refuse_missing(fitted.missing, drop=False)
    assert caught.value.code == "files-not-installed"
    assert "--drop-missing" in caught.value.remedy
    importing.refuse_missing(fitted.missing, drop=True)


def test_new_files_inside_the_package_are_kept_and_new_tests_are_not(release):
    new = "diff --git a/{0} b/{0}\nnew file mode 100644\n--- /dev/null\n+++ b/{0}\n@@ -0,0 +1 @@\n+x = 1\n"
    text = section("pkg/a.py") + new.format("pkg/sub/new.py") + new.format("tests/new.py")
    fitted = importing.fit(piece(text), release, "pkg")
    assert [each.new_name for each in fitted.patch.files] == ["b/pkg/a.py", "b/pkg/sub/new.py"]
    assert fitted.missing == ("b/tests/new.py",)


def test_a_diff_for_something_else_is_refused(release):
    with pytest.raises(BadInput, match=r"none of its files is in pkg 1\.0"):
        importing.fit(piece(section("other/x.py")), release, "pkg")


def test_two_levels_that_fit_alike_must_be_chosen_by_the_person(tree):
    release = tree("1.0", {"pkg/pkg/a.py": A0, "pkg/a.py": A0})
    with pytest.raises(BadInput, match="with -p 1 or 2"):
        importing.fit(piece(section("pkg/pkg/a.py")), release, "pkg")
    assert importing.fit(piece(section("pkg/pkg/a.py"), strip=2), release, "pkg").strip == 2


def test_every_path_that_a_diff_might_mean_can_be_read_beforehand():
    assert importing.candidates(piece(section("src/pkg/a.py"))) == [
        "a/src/pkg/a.py", "b/src/pkg/a.py", "src/pkg/a.py", "pkg/a.py", "a.py",
    ]  # fmt: skip


def test_what_the_diff_changes_is_drawn_against_the_release(release):
    fitted = importing.fit(piece(section("src/pkg/a.py")), release, "pkg")
    assert importing.drawn(fitted, release.read, "x") == {"pkg/a.py": (A0, A1)}


def test_a_diff_that_is_in_already_and_one_that_does_not_fit_are_told(tree):
    fitted = importing.fit(piece(section("pkg/a.py")), tree("1.0", {"pkg/a.py": A1}), "pkg")
    with pytest.raises(Refused, match="hold every hunk already"):
        importing.drawn(fitted, {"pkg/a.py": A1}.get, "x")
    with pytest.raises(Refused) as caught:
        importing.drawn(fitted, {"pkg/a.py": b"nothing\n"}.get, "x")
    assert caught.value.code == "does-not-apply"
    assert caught.value.details[0].startswith("pkg/a.py: hunk 1: conflict")
    assert "survey" in caught.value.remedy


def mail(subject, number):
    return (
        f"From {str(number) * 40} Mon Sep 17 00:00:00 2001\nFrom: A <a@example.org>\nDate: today\n"
        f"Subject: [PATCH {number}/2] {subject}\n\nBecause.\n---\n a | 2 +-\n\n{section('pkg/a.py')}-- \n2.39\n\n"
    )


def test_an_mbox_is_a_patch_a_mail_called_by_its_subject():
    found = importing.pieces("all.mbox", (mail("Mend the norm", 1) + mail("Mend: more!", 2)).encode())
    assert [each.name for each in found] == ["mend-the-norm", "mend-more"]
    prose = importing.prose_of(found[0], "other, all.mbox", "")
    assert (prose.title, prose.get("Author"), prose.get("Origin")) == (
        "Mend the norm",
        "A <a@example.org>",
        "other, all.mbox",
    )


def test_one_diff_is_called_by_its_file():
    (found,) = importing.pieces("/tmp/Fix Norm.patch", section("pkg/a.py").encode())
    assert found.name == "fix-norm"


def test_an_origin_that_the_patch_names_itself_is_kept():
    own = Piece("x", f"Description: D\nOrigin: upstream, https://example.org/1\n\n{section('pkg/a.py')}".encode())
    assert importing.prose_of(own, "other, x.patch", "").get("Origin") == "upstream, https://example.org/1"
    assert importing.prose_of(own, "other", "Mine").title == "Mine"


def test_a_quilt_series_keeps_its_order_and_levels(tmp_path):
    for name in ("one.patch", "two.diff", "left-out.patch"):
        (tmp_path / name).write_text(section("pkg/a.py"))
    (tmp_path / "series").write_text("# first\none.patch\n\ntwo.diff -p0 # second\n#left-out.patch\n")
    assert [(each.name, each.strip) for each in importing.quilt(tmp_path)] == [("one", None), ("two", 0)]


@pytest.mark.parametrize("line", ["gone.patch", "../outside.patch", "/etc/passwd"])
def test_a_series_that_lists_what_is_not_in_its_folder_is_refused(tmp_path, line):
    (tmp_path / "q").mkdir()
    (tmp_path / "outside.patch").write_text(section("pkg/a.py"))
    (tmp_path / "q" / "series").write_text(f"{line}\n")
    with pytest.raises(BadInput, match="not there"):
        importing.quilt(tmp_path / "q")


def test_an_overlay_belongs_to_the_installed_file_that_ends_as_it_does(tmp_path, release):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b.py").write_bytes(A1)
    (tmp_path / "README").write_bytes(b"x")
    (tmp_path / "link.py").symlink_to(tmp_path / "sub" / "b.py")
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "b.pyc").write_bytes(b"x")
    assert importing.overlays(tmp_path, release.paths()) == ({"pkg/sub/b.py": A1}, ["README", "link.py"])


def test_an_overlay_that_might_be_two_files_is_refused_naming_them(tmp_path, release):
    (tmp_path / "a.py").write_bytes(A1)
    with pytest.raises(BadInput) as caught:
        importing.overlays(tmp_path, release.paths())
    assert caught.value.details == ("pkg/a.py", "pkg/sub/a.py")


def test_an_overlay_made_from_another_release_is_found_out(tree):
    old, new = b"".join(b"%d\n" % n for n in range(50)), b"".join(b"%d!\n" % n for n in range(50))
    overlay = {"pkg/a.py": old + b"mine\n"}
    one, two = tree("1.0", {"pkg/a.py": old}), tree("2.0", {"pkg/a.py": new})
    near = importing.nearer(overlay, two, [two, one])
    assert near[0].version == "1.0"
    assert near[1] < near[2]
    assert importing.nearer(overlay, one, [two, one]) is None


def test_names_that_leave_the_tree_are_bad_input(release):
    with pytest.raises(BadInput):
        importing.fit(piece("--- a/../../etc/x\n+++ b/../../etc/x\n" + BODY), release, "pkg")
