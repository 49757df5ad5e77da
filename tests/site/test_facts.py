from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path

import pytest

from patchkit.catalog.load import load_catalog
from patchkit.catalog.model import Match
from patchkit.errors import Refused, Unreachable
from patchkit.images.model import Identity, Reference, Run, RunResult
from patchkit.plan import Plan, Series, load_series, make_plan
from patchkit.site.facts import from_json, site_facts, to_json
from patchkit.site.findings import site_findings
from patchkit.site.launch import launch_of
from patchkit.site.model import Compiled, Copy, Disagreement, Launch, Site, module_of
from tests.site.host import HostImage
from tests.site.roots import config, put, small_root
from tests.site.test_copies import SITE, package, wheel


class StillImage(HostImage):
    """A small root that can only be read, under a digest of its own."""

    reference = Reference("oci", "still")
    can_run = False

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.fs = small_root(root)
        self.identity = Identity(f"sha256:{hashlib.sha256(str(root).encode()).hexdigest()}", (), "linux/amd64")

    @property
    def launch(self) -> Launch:
        return launch_of(config(["serve"]), self.fs)


@pytest.fixture
def image(tmp_path: Path) -> StillImage:
    return StillImage(tmp_path)


def test_files_come_with_their_real_place_and_their_hash_as_shipped(image: StillImage, tmp_path: Path) -> None:
    wheel(tmp_path, SITE)
    site = site_facts(image, image.launch, "pkg", ["pkg/__init__.py", "pkg/gone.py"])
    fact = site.files["pkg/__init__.py"]
    assert fact is not None
    assert (fact.path, fact.entry.path, fact.data) == (f"{SITE}/pkg/__init__.py",) * 2 + (b"__version__ = '1.0'\n",)
    assert fact.shipped == hashlib.sha256(b"x").hexdigest()
    assert site.files["pkg/gone.py"] is None
    assert (site.version, site.dist_info, site.how) == ("1.0", f"{SITE}/pkg-1.0.dist-info", "static")


def test_the_compiled_files_of_each_file_are_told(image: StillImage, tmp_path: Path) -> None:
    wheel(tmp_path, SITE)
    cache = f"{SITE}/pkg/__pycache__"
    for name in ("__init__.cpython-311.pyc", "__init__.cpython-311.opt-1.pyc", "other.cpython-311.pyc"):
        put(tmp_path, f"{cache}/{name}", b"0123456789abcdef and more")
    put(tmp_path, f"{SITE}/pkg/__init__.pyc", b"short")
    site = site_facts(image, image.launch, "pkg", ["pkg/__init__.py"])
    source = f"{SITE}/pkg/__init__.py"
    assert site.pycs == {
        f"{SITE}/pkg/__init__.pyc": Compiled(source, b"short"),
        f"{cache}/__init__.cpython-311.opt-1.pyc": Compiled(source, b"0123456789abcdef"),
        f"{cache}/__init__.cpython-311.pyc": Compiled(source, b"0123456789abcdef"),
    }


def test_the_compiled_files_of_a_linked_file_are_looked_for_by_both_of_its_names_and_in_the_launchs_own_tree(
    image: StillImage, tmp_path: Path
) -> None:
    wheel(tmp_path, SITE)
    put(tmp_path, "/store/a1b2", b"value = 1\n")
    (tmp_path / f"{SITE}/pkg/mod.py".lstrip("/")).symlink_to("/store/a1b2")
    places = (f"{SITE}/pkg/__pycache__/mod.cpython-311.pyc", "/store/__pycache__/a1b2.cpython-311.pyc")
    for place in places:
        put(tmp_path, place, b"0123456789abcdef")
        put(tmp_path, f"/tree{place.replace('/__pycache__', '')}", b"in a tree")
    site = site_facts(image, image.launch, "pkg", ["pkg/mod.py"])
    assert {path: pyc.source for path, pyc in site.pycs.items()} == dict.fromkeys(places, "/store/a1b2")
    moved = dataclasses.replace(image.launch, env={"PYTHONPYCACHEPREFIX": "/tree"})
    site = site_facts(image, moved, "pkg", ["pkg/mod.py"])
    assert {pyc.head for pyc in site.pycs.values()} == {b"in a tree"}
    assert {pyc.source for pyc in site.pycs.values()} == {"/store/a1b2"}


def test_another_copy_is_looked_at_when_it_is_named(image: StillImage, tmp_path: Path) -> None:
    wheel(tmp_path, SITE)
    package(tmp_path, "/workspace", "2.0")
    for name in ("/workspace", "/workspace/pkg", "/workspace/pkg/"):
        site = site_facts(image, image.launch, "pkg", ["pkg/__init__.py"], copy=name)
        fact = site.files["pkg/__init__.py"]
        assert fact is not None
        assert (fact.path, site.version) == ("/workspace/pkg/__init__.py", "2.0")
        assert site.winner is not None
        assert site.winner.root == f"{SITE}/pkg"


def test_a_copy_that_is_not_there_is_refused_with_those_that_are(image: StillImage, tmp_path: Path) -> None:
    wheel(tmp_path, SITE)
    with pytest.raises(Refused) as refused:
        site_facts(image, image.launch, "pkg", [], copy="/nowhere")
    assert (refused.value.code, refused.value.details) == ("copy-unknown", (f"{SITE}/pkg",))


def test_an_absent_package_has_no_winner_and_no_files(image: StillImage) -> None:
    site = site_facts(image, image.launch, "pkg", ["pkg/__init__.py"])
    assert (site.winner, site.copies, site.files) == (None, (), {"pkg/__init__.py": None})


def test_a_package_whose_folder_has_another_name_is_found_file_by_file(image: StillImage, tmp_path: Path) -> None:
    finder = "MAPPING = {'pkg': '/src/lib'}\nNAMESPACES = {}\n"
    put(tmp_path, f"{SITE}/__editable___pkg_finder.py", finder)
    put(tmp_path, f"{SITE}/pkg.pth", "import __editable___pkg_finder; __editable___pkg_finder.install()\n")
    put(tmp_path, "/src/lib/__init__.py", "a = 1\n")
    put(tmp_path, "/src/lib/mod.py", "b = 1\n")
    site = site_facts(image, image.launch, "pkg", ["pkg/mod.py"])
    fact = site.files["pkg/mod.py"]
    assert fact is not None
    assert fact.path == "/src/lib/mod.py"


def one_new_file(folder: Path) -> Series:
    """A series of one patch, which adds the file ``pkg/new.py``."""
    patch = "Description: New\nOrigin: vendor\n\n--- /dev/null\n+++ b/pkg/new.py\n@@ -0,0 +1 @@\n+b = 1\n"
    put(folder, "/catalog/patches/new.patch", patch)
    manifest = "name: pkg\npackage: pkg\nversions: '>=0'\nimages: [{match: 'x'}]\n"
    put(folder, "/catalog/manifests/pkg.yaml", manifest + "patches: [{id: new, file: patches/new.patch}]\n")
    catalog = load_catalog(folder / "catalog")
    (listed,) = catalog.manifests
    return load_series(catalog, listed)


def planned(image: StillImage, series: Series, site: Site) -> Plan:
    assert site.winner is not None
    match = Match(series.manifest, "name", "")
    return make_plan(image.reference, image.identity, match, series, site, site.winner)


def test_a_new_file_is_planned_in_the_packages_folder_whatever_that_is_called(
    image: StillImage, tmp_path: Path
) -> None:
    finder = "MAPPING = {'pkg': '/src/lib'}\nNAMESPACES = {}\n"
    put(tmp_path, f"{SITE}/__editable___pkg_finder.py", finder)
    put(tmp_path, f"{SITE}/pkg.pth", "import __editable___pkg_finder; __editable___pkg_finder.install()\n")
    put(tmp_path, "/src/lib/__init__.py", "a = 1\n")
    series = one_new_file(tmp_path)
    site = site_facts(image, image.launch, "pkg", series.paths)
    plan = planned(image, series, site)
    assert [file.image_path for file in plan.files] == ["/src/lib/new.py"]
    assert [row.image_path for row in plan.rows] == ["/src/lib/new.py"]


def test_a_namespace_package_is_looked_at_in_all_its_places_in_order(image: StillImage, tmp_path: Path) -> None:
    put(tmp_path, f"{SITE}/pkg/one.py", "1\n")
    put(tmp_path, f"{SITE}/pkg/both.py", "first\n")
    put(tmp_path, "/a/pkg/two.py", "2\n")
    put(tmp_path, "/a/pkg/both.py", "second\n")
    put(tmp_path, f"{SITE}/a.pth", "/a\n")
    site = site_facts(image, image.launch, "pkg", ["pkg/one.py", "pkg/two.py", "pkg/both.py"])
    assert [copy.root for copy in site.copies if copy.serves] == [f"{SITE}/pkg", "/a/pkg"]
    assert {name: fact and fact.path for name, fact in site.files.items()} == {
        "pkg/one.py": f"{SITE}/pkg/one.py",
        "pkg/two.py": "/a/pkg/two.py",
        "pkg/both.py": f"{SITE}/pkg/both.py",
    }


def test_a_package_that_changes_its_own_path_is_told(image: StillImage, tmp_path: Path) -> None:
    wheel(tmp_path, SITE)
    put(tmp_path, f"{SITE}/pkg/sub/__init__.py", "__path__ = ['/elsewhere']\n")
    assert site_facts(image, image.launch, "pkg", ["pkg/__init__.py"]).notes == ()
    (note,) = site_facts(image, image.launch, "pkg", ["pkg/sub/mod.py"]).notes
    assert f"{SITE}/pkg/sub/__init__.py names __path__" in note


def test_facts_survive_json(image: StillImage, tmp_path: Path) -> None:
    wheel(tmp_path, SITE)
    put(tmp_path, f"{SITE}/pkg/data.bin", b"\xff\x00")
    put(tmp_path, f"{SITE}/odd.pth", "import os; os.x = 1\n")
    site = site_facts(image, image.launch, "pkg", ["pkg/__init__.py", "pkg/data.bin", "pkg/no.py"])
    site = dataclasses.replace(site, disagreements=(Disagreement("a", "b", "c"),))
    assert from_json(json.loads(json.dumps(to_json(site)))) == site


def test_facts_are_kept_by_image_launch_and_question(image: StillImage, tmp_path: Path) -> None:
    wheel(tmp_path, SITE)
    before = site_facts(image, image.launch, "pkg", ["pkg/__init__.py"])
    package(tmp_path, SITE, "9")
    assert site_facts(image, image.launch, "pkg", ["pkg/__init__.py"]) == before
    other = dataclasses.replace(image.launch, flags=("-I",))
    for changed in (
        site_facts(image, other, "pkg", ["pkg/__init__.py"]),
        site_facts(image, image.launch, "pkg", ["pkg/__init__.py"], everything=True),
    ):
        fact = changed.files["pkg/__init__.py"]
        assert fact is not None
        assert fact.data == b"__version__ = '9'\n"


def test_facts_of_an_unpacked_root_are_not_kept(image: StillImage, tmp_path: Path) -> None:
    image.reference = Reference("rootfs", str(tmp_path))
    wheel(tmp_path, SITE)
    before = site_facts(image, image.launch, "pkg", ["pkg/__init__.py"])
    package(tmp_path, SITE, "9")
    assert site_facts(image, image.launch, "pkg", ["pkg/__init__.py"]) != before


class Failing(StillImage):
    """An image that its engine cannot start."""

    can_run = True
    code = "cannot-run"

    def run(self, run: Run) -> RunResult:
        raise Unreachable(self.code, "exec format error")


def test_what_cannot_be_started_leaves_the_facts_read(tmp_path: Path) -> None:
    image = Failing(tmp_path)
    wheel(tmp_path, SITE)
    site = site_facts(image, image.launch, "pkg", [])
    assert (site.how, site.disagreements) == ("static", ())
    assert any("exec format error" in note for note in site.notes)


def test_an_answer_that_did_not_come_is_asked_for_again(tmp_path: Path) -> None:
    image = Failing(tmp_path)
    wheel(tmp_path, SITE)
    site_facts(image, image.launch, "pkg", ["pkg/__init__.py"])
    package(tmp_path, SITE, "9")
    fact = site_facts(image, image.launch, "pkg", ["pkg/__init__.py"]).files["pkg/__init__.py"]
    assert fact is not None
    assert b"9" in fact.data


def test_an_engine_that_is_gone_is_told_as_such(tmp_path: Path) -> None:
    image = Failing(tmp_path)
    image.code = "engine-gone"
    with pytest.raises(Unreachable):
        site_facts(image, image.launch, "pkg", [])


def test_running_is_never_asked_for_when_it_is_not_allowed(tmp_path: Path) -> None:
    image = Failing(tmp_path)
    wheel(tmp_path, SITE)
    assert site_facts(image, image.launch, "pkg", [], run=False).notes == ()


@pytest.mark.parametrize(
    ("file", "module"),
    [("a/b.py", "a.b"), ("a/__init__.py", "a"), ("a.py", "a"), ("a/b.json", ""), ("a/b.pyi", "")],
)
def test_a_path_tells_its_module(file: str, module: str) -> None:
    assert module_of(file) == module


def test_a_file_beside_the_package_lies_in_the_copys_base() -> None:
    copy = Copy("/s/pkg", "/s", "wheel", "1")
    assert copy.place_of("pkg", "pkg/x.py") == "/s/pkg/x.py"
    assert copy.place_of("pkg", "other/x.py") == "/s/other/x.py"
    assert Copy("/s/pkg.py", "/s", "wheel", "1").place_of("pkg", "pkg.py") == "/s/pkg.py"


def test_two_answers_about_an_import_are_an_error_and_about_the_path_a_warning(
    image: StillImage, tmp_path: Path
) -> None:
    wheel(tmp_path, SITE)
    package(tmp_path, "/srv")
    site = site_facts(image, image.launch, "pkg", [])
    told = (Disagreement("import pkg", "/a", "/b"), Disagreement("the search path", "/a", "/b"))
    findings = site_findings(dataclasses.replace(site, disagreements=told, notes=("note",)))
    assert [(finding.id, finding.severity) for finding in findings] == [
        ("resolution-disagrees", "error"),
        ("resolution-disagrees", "warning"),
        ("other-copy", "note"),
        ("import-hook", "note"),
    ]


def test_a_plan_tells_what_the_facts_say_under_the_ids_and_in_the_words_of_resolve(
    image: StillImage, tmp_path: Path
) -> None:
    wheel(tmp_path, SITE)
    package(tmp_path, "/srv")
    series = one_new_file(tmp_path)
    told = (Disagreement("import pkg", "/a", "/b"), Disagreement("the search path", "/a", "/b"))
    site = dataclasses.replace(site_facts(image, image.launch, "pkg", series.paths), disagreements=told)
    by_plan = planned(image, series, site).findings
    assert {finding.id for finding in by_plan} == {"resolution-disagrees", "other-copy"}
    assert {(each.id, each.what, each.where) for each in by_plan} == {
        (each.id, each.what, each.where) for each in site_findings(site)
    }
