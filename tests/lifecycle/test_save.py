"""A patch into the catalog: checked whole before a byte is written, the same bytes every time."""

from pathlib import Path

import pytest

from patchkit.catalog.header import Header
from patchkit.catalog.load import load_catalog
from patchkit.errors import BadInput, Refused
from patchkit.lifecycle.releases import plan_for
from patchkit.lifecycle.save import Draft, save

WHY = Header((("Description", "Why"), ("Origin", "vendor")))
A0 = b"def a():\n    return 1\n"
A1 = b"def a():\n    return 2\n"


def draft(changes, name="fix", version="1.0", **more):
    return Draft(name, changes, WHY, version, (3, 11), **more)


def saved(mine, changes, **more):
    return save(mine.catalog, mine.manifest, draft(changes, **more))


def test_a_saved_patch_applies_to_what_it_was_made_of(mine, tree):
    done = saved(mine, {"pkg/a.py": (A0, A1), "pkg/new.json": (None, b"{}\n"), "pkg/old.py": (b"x = 1\n", None)})
    assert done.changed
    plan = plan_for(tree("1.0", {"pkg/a.py": A0, "pkg/old.py": b"x = 1\n"}), mine.series)
    assert {row.path: row.state for row in plan.rows} == dict.fromkeys(
        ["pkg/a.py", "pkg/new.json", "pkg/old.py"], "applies"
    )
    assert {file.path: file.data for file in plan.files} == {
        "pkg/a.py": A1,
        "pkg/new.json": b"{}\n",
        "pkg/old.py": None,
    }
    (entry,) = mine.manifest.patches
    assert entry.pre["pkg/new.json"] == "absent"
    assert entry.post["pkg/old.py"] == "absent"


def test_saving_twice_gives_the_same_bytes(mine):
    saved(mine, {"pkg/a.py": (A0, A1)})
    before = mine.files()
    assert not saved(mine, {"pkg/a.py": (A0, A1)}, file="patches/fix.patch").changed
    assert mine.files() == before


def test_a_changed_patch_is_written_over_with_its_new_hashes(mine):
    saved(mine, {"pkg/a.py": (A0, A1)})
    old = mine.manifest.patches[0]
    saved(mine, {"pkg/a.py": (A0, A1 + b"# more\n"), "pkg/b.py": (b"", b"x = 1\n")}, file="patches/fix.patch")
    (new,) = mine.manifest.patches
    assert new.file == old.file
    assert new.post["pkg/a.py"] != old.post["pkg/a.py"]
    assert set(new.pre) == {"pkg/a.py", "pkg/b.py"}


def test_a_new_patch_never_takes_the_name_of_another(mine):
    saved(mine, {"pkg/a.py": (A0, A1)})
    before = mine.files()
    with pytest.raises(BadInput) as caught:
        saved(mine, {"pkg/b.py": (b"x\n", b"y\n")})
    assert caught.value.code == "patch-exists"
    assert mine.files() == before


@pytest.mark.parametrize(
    ("after", "code", "place"),
    [
        (b"def a(:\n", "does-not-compile", "pkg/a.py:1"),
        (b"<<<<<<< ours\nx = 1\n=======\nx = 2\n>>>>>>> theirs\n", "conflict-markers", "pkg/a.py:1"),
    ],
)
def test_a_result_that_is_not_python_or_not_settled_is_refused_with_its_line(mine, after, code, place):
    before = mine.files()
    with pytest.raises(Refused) as caught:
        saved(mine, {"pkg/a.py": (A0, after)})
    assert caught.value.code == code
    assert caught.value.where.startswith(place)
    assert mine.files() == before


def test_a_patch_without_change_or_reason_is_refused(mine):
    with pytest.raises(Refused, match="no file differs"):
        saved(mine, {})
    with pytest.raises(BadInput, match="needs a reason"):
        save(mine.catalog, mine.manifest, Draft("fix", {"pkg/a.py": (A0, A1)}, Header(), "1.0", (3, 11)))


def test_another_pre_image_becomes_a_variant_and_the_old_one_keeps_its_range(mine, tree):
    saved(mine, {"pkg/a.py": (A0, A1)})
    new0, new1 = b"# two\n" + A0, b"# two\n" + A1
    saved(mine, {"pkg/a.py": (new0, new1)}, version="2.0", file="patches/fix.patch")
    assert [(entry.file, entry.versions) for entry in mine.manifest.patches] == [
        ("patches/fix.patch", "<2.0"),
        ("patches/fix-2.0.patch", ">=2.0"),
    ]
    for version, before, after in (("1.0", A0, A1), ("2.0", new0, new1)):
        plan = plan_for(tree(version, {"pkg/a.py": before}), mine.series)
        assert [file.data for file in plan.files] == [after]
        assert [row.state for row in plan.rows] == ["applies"]
        assert not plan.findings


def test_a_variant_for_an_older_release_takes_that_release_alone(mine):
    saved(mine, {"pkg/a.py": (A0, A1)}, version="2.0")
    manifest = mine.manifest.path
    manifest.write_text(manifest.read_text().replace('versions: ""', 'versions: ">=2.0,<3"'))
    saved(mine, {"pkg/a.py": (b"# one\n" + A0, b"# one\n" + A1)}, version="1.5", file="patches/fix.patch")
    assert [entry.versions for entry in mine.manifest.patches] == ["!=1.5", "==1.5"]
    assert mine.manifest.versions == ">=1.5,<3"


def test_a_series_widens_its_range_when_a_newer_release_gets_a_variant(mine):
    manifest = mine.manifest.path
    saved(mine, {"pkg/a.py": (A0, A1)}, version="1.0")
    manifest.write_text(manifest.read_text().replace('versions: ""', 'versions: ">=1.0,<2"  # ours'))
    saved(mine, {"pkg/a.py": (b"# two\n" + A0, b"# two\n" + A1)}, version="2.1", file="patches/fix.patch")
    assert mine.manifest.versions == ">=1.0,<=2.1"
    assert "# ours" in manifest.read_text()


def test_a_failed_write_leaves_the_catalog_as_it_was(mine, monkeypatch):
    before = mine.files()
    replace = Path.replace
    calls = []

    def fails_at_the_second(self, target):
        calls.append(target)
        if len(calls) == 2:
            raise OSError("disk full")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", fails_at_the_second)
    with pytest.raises(OSError, match="disk full"):
        saved(mine, {"pkg/a.py": (A0, A1)})
    monkeypatch.undo()
    assert mine.files() == before
    assert load_catalog(mine.root)


def test_a_variant_for_a_version_with_a_local_part_gets_a_range_that_pep_440_knows(mine):
    saved(mine, {"pkg/a.py": (A0, A1)}, version="1.0")
    other = A0 + b"# other\n"
    saved(mine, {"pkg/a.py": (other, other.replace(b"1", b"2"))}, version="2.0+xpu", file="patches/fix.patch")
    assert [each.versions for each in mine.manifest.patches] == ["<2.0", ">=2.0"]


def test_a_variant_for_what_is_no_version_is_refused(mine):
    saved(mine, {"pkg/a.py": (A0, A1)}, version="1.0")
    other = A0 + b"# other\n"
    with pytest.raises(Refused) as caught:
        saved(mine, {"pkg/a.py": (other, A1)}, version="unknown", file="patches/fix.patch")
    assert caught.value.code == "no-version"
