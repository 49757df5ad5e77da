"""Every patch on every release: the states that an image with that release would get, from the index alone."""

import hashlib
import http.server
import io
import tarfile
import threading
import zipfile
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from packaging.version import Version

from patchkit import api
from patchkit.catalog.header import Header
from patchkit.errors import BadInput
from patchkit.lifecycle import matrix, releases
from patchkit.lifecycle.rehearse import rehearse
from patchkit.lifecycle.save import Draft, save
from patchkit.lifecycle.survey import LEGEND, choose_versions, survey

WHY = Header((("Description", "Why"), ("Origin", "vendor")))
HEAD = b"".join(b"x%d = %d\n" % (n, n) for n in range(30))
A0 = HEAD + b"def f():\n    return 1\n" + HEAD
A1 = A0.replace(b"return 1", b"return 2")
B0, B1 = b"b = 0\n", b"b = 1\n"


def wheel(folder, version, files):
    """A wheel as any build tool would make it."""
    import base64

    name = f"pkg-{version}-py3-none-any.whl"
    info = f"pkg-{version}.dist-info"
    files = {
        **files,
        f"{info}/METADATA": f"Name: pkg\nVersion: {version}\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\n",
    }
    lines = []
    with zipfile.ZipFile(folder / name, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in files.items():
            archive.writestr(path, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            lines.append(f"{path},sha256={digest},{len(data)}\n")
        archive.writestr(f"{info}/RECORD", "".join(lines) + f"{info}/RECORD,,\n")
    return name


def sdist(folder, version, files):
    """A source distribution with its package below ``src``, as many projects have it."""
    name = f"pkg-{version}.tar.gz"
    with tarfile.open(folder / name, "w:gz") as archive:
        for path, data in files.items():
            member = tarfile.TarInfo(f"pkg-{version}/src/{path}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return name


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture
def index(tmp_path):
    """A package index on this machine: give it releases, get its indexes."""
    folder = tmp_path / "index" / "pkg"
    folder.mkdir(parents=True)
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), lambda *args: _Quiet(*args, directory=str(tmp_path / "index"))
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def make(contents, build=wheel):
        names = [build(folder, version, files) for version, files in contents.items()]
        links = "".join(f'<a href="{name}">{name}</a>\n' for name in names)
        (folder / "index.html").write_text(f"<!doctype html><body>{links}</body>")
        return releases.indexes(f"http://127.0.0.1:{server.server_address[1]}")

    yield make
    server.shutdown()
    server.server_close()


@pytest.fixture
def two(mine):
    """Two patches made on 1.0."""
    save(mine.catalog, mine.manifest, Draft("a", {"pkg/a.py": (A0, A1)}, WHY, "1.0", (3, 11)))
    save(mine.catalog, mine.manifest, Draft("b", {"pkg/b.py": (B0, B1)}, WHY, "1.0", (3, 11)))
    return mine


RELEASES = {
    "1.0": {"pkg/a.py": A0, "pkg/b.py": B0},
    "1.1": {"pkg/a.py": b"# new\n" + A0, "pkg/b.py": B1},
    "1.2": {"pkg/a.py": A0.replace(b"return 1", b"return 3"), "pkg/b.py": b"c = 0\n"},
    "2.0": {"pkg/a.py": A1},
}


def made(mine, index, versions):
    indexes = index(RELEASES)
    return survey(indexes, "pkg", [("", mine.series)], versions)


def test_the_matrix_tells_each_patch_on_each_release(two, index):
    found = made(two, index, ["2.0", "1.2", "1.1", "1.0"])
    assert {version: [cell.told for cell in found.row(version)] for version in found.versions} == {
        "1.0": ["applies", "applies"],
        "1.1": ["offset", "upstream"],
        "1.2": ["conflict", "conflict"],
        "2.0": ["upstream", "target-missing"],
    }
    assert [cell.good for cell in found.row("1.1")] == [True, True]
    assert [cell.good for cell in found.row("2.0")] == [True, False]


def test_an_equal_pre_image_is_answered_by_record_without_reading_the_file(two, index):
    made(two, index, ["1.0"])
    cells = made(two, index, ["1.0"]).row("1.0")
    assert {cell.detail for cell in cells} == {"every pre-image is a listed one"}


def test_a_release_without_a_wheel_is_read_from_its_source(two, index):
    found = survey(index(RELEASES, sdist), "pkg", [("", two.series)], ["1.1", "1.0"])
    assert [cell.told for cell in found.row("1.0")] == ["applies", "applies"]
    # Nothing tells what the project's build makes of its files, so that a held patch counts as applied, not upstream.
    assert [cell.told for cell in found.row("1.1")] == ["offset", "applied"]


def test_a_release_that_cannot_be_read_is_told_and_the_others_stay(two, index, tmp_path):
    indexes = index(RELEASES)
    (tmp_path / "index/pkg/pkg-1.1-py3-none-any.whl").write_bytes(b"no wheel at all")
    found = survey(indexes, "pkg", [("", two.series)], ["1.1", "1.0"])
    assert {cell.state for cell in found.row("1.1")} == {"unreadable"}
    assert [cell.told for cell in found.row("1.0")] == ["applies", "applies"]


def test_the_same_survey_gives_the_same_bytes_in_every_form(two, index):
    one, other = made(two, index, ["1.1", "1.0"]), made(two, index, ["1.1", "1.0"])
    for form in (matrix.markdown, matrix.html, matrix.parts):
        assert form(one) == form(other)


def test_the_html_is_one_sound_page_with_a_legend_of_what_it_shows(two, index):
    page = matrix.html(made(two, index, ["2.0", "1.0"]))
    open_tags = []

    class Checker(HTMLParser):
        def handle_starttag(self, tag, attrs):
            if tag != "meta":
                open_tags.append(tag)
            assert not [value for name, value in attrs if name in ("src", "href")]

        def handle_endtag(self, tag):
            assert open_tags.pop() == tag

    Checker().feed(page)
    assert open_tags == []
    assert page.count("<td") == 4
    assert LEGEND["upstream"] in page
    assert LEGEND["partial"] not in page


def test_names_in_a_page_are_text_and_never_markup(two, index):
    series = two.series
    found = survey(index(RELEASES), "pkg", [("<script>/", series)], ["1.0"])
    assert "<script>" not in matrix.html(found)
    assert "&lt;script&gt;/a" in matrix.html(found)


def test_releases_that_are_alike_are_told_in_one_line(two, index):
    found = made(two, index, ["1.0"])
    assert matrix.short_rows(found) == [["1.0", "applies", "applies"]]
    twice = survey(index({**RELEASES, "1.0.1": RELEASES["1.0"]}), "pkg", [("", two.series)], ["1.0.1", "1.0"])
    assert matrix.short_rows(twice) == [["1.0.1 to 1.0 (2)", "applies", "applies"]]


def test_a_range_takes_pre_releases_only_where_it_names_one():
    from packaging.version import Version

    known = [Version(text) for text in ("1.0", "1.1rc1", "1.1", "2.0rc1")]
    assert choose_versions(known, None) == ["1.1", "1.0"]
    assert choose_versions(known, ">=1.1") == ["1.1"]
    assert choose_versions(known, ">=1.1rc1") == ["2.0rc1", "1.1", "1.1rc1"]


def test_a_release_that_fulfils_a_drop_condition_is_marked(two, index):
    path = two.manifest.path
    path.write_text(path.read_text() + "    drop_when: {syntax: {path: pkg/new.py, future: annotations}}\n")
    contents = {
        "3.0": {**RELEASES["1.0"], "pkg/b.py": b"c = 0\n", "pkg/new.py": b"from __future__ import annotations\n"}
    }
    found = survey(index(contents), "pkg", [("", two.series)], ["3.0"])
    assert matrix.cell_text(found.row("3.0")[1]) == "conflict, can be dropped"


def test_the_release_that_a_patch_was_made_on_is_found_by_its_pre_images(two, index):
    indexes = index(RELEASES)
    entry = two.manifest.patches[0]
    assert releases.made_on(indexes, two.series, entry, []).version == "1.0"
    assert releases.made_on(indexes, two.series, entry, ["1.1", "none"]).version == "1.0"
    assert releases.made_on(index({"1.1": RELEASES["1.1"]}), two.series, entry, []) is None


def test_a_rehearsal_holds_the_manifest_against_its_releases(two, index):
    assert rehearse(two.catalog, two.manifest, index(RELEASES)) == []
    path = two.manifest.path
    sound = path.read_text()
    path.write_text(sound + "    drop_when: {syntax: {path: pkg/a.py, function: f, calls_no: [g]}}\n")
    (found,) = rehearse(two.catalog, two.manifest, index(RELEASES))
    assert (found.id, found.severity) == ("drops-at-once", "error")
    path.write_text(sound + "    drop_when: {syntax: {path: pkg/b.py, function: f, calls_no: [g]}}\n")
    (found,) = rehearse(two.catalog, two.manifest, index(RELEASES))
    assert (found.id, found.severity) == ("never-drops", "note")
    other = "sha256:" + "0" * 64
    path.write_text(sound.replace(two.manifest.patches[0].post["pkg/a.py"], other))
    (found,) = rehearse(two.catalog, two.manifest, index(RELEASES))
    assert (found.id, found.severity) == ("other-post-image", "error")
    path.write_text(sound)
    assert {found.id for found in rehearse(two.catalog, two.manifest, index({"1.1": RELEASES["1.1"]}))} == {
        "not-rehearsed"
    }


@pytest.mark.parametrize(("callee", "told"), [("op", set()), ("gone", {"never-drops"})])
def test_a_patch_may_make_up_for_an_argument_in_another_way_than_passing_it_on(mine, index, callee, told):
    before = b"def f(x):\n    return op()\n"
    save(mine.catalog, mine.manifest, Draft("a", {"pkg/a.py": (before, before + b"\n\nx = 1\n")}, WHY, "1.0", (3, 11)))
    path = mine.manifest.path
    path.write_text(
        path.read_text()
        + f"    drop_when: {{syntax: {{path: pkg/a.py, function: f, calls_with: {{{callee}: [x]}}}}}}\n"
    )
    assert {each.id for each in rehearse(mine.catalog, mine.manifest, index({"1.0": {"pkg/a.py": before}}))} == told


def test_a_version_alone_is_a_range_of_just_that_one():
    known = [Version(text) for text in ("0.32.0", "0.33.0", "0.33.1")]
    assert choose_versions(known, "0.33.0") == ["0.33.0"]
    assert choose_versions(known, ">=0.32,!=0.33.0") == ["0.33.1", "0.32.0"]


@pytest.mark.parametrize("text", ["garbage", ">=", "0.33.0 or so", ">=1.0+local"])
def test_what_is_no_range_is_a_wrong_call_that_says_what_to_write(text):
    with pytest.raises(BadInput) as caught:
        api.survey("vllm", text)
    assert caught.value.code == "no-range"
    assert "'>=0.33,<0.34'" in caught.value.remedy


@pytest.mark.parametrize("text", ["garbage", ">=1"])
@pytest.mark.parametrize(
    "call",
    [
        lambda text: api.edit(["vllm/envs.py"], version=text, options=api.Options(manifest="vllm-xpu")),
        lambda text: api.import_change("fix.patch", version=text, options=api.Options(manifest="vllm-xpu")),
        lambda text: api.rebase(onto=text, options=api.Options(manifest="vllm-xpu")),
        lambda text: api.retire(version=text, options=api.Options(manifest="vllm-xpu")),
    ],
)
def test_what_is_no_version_is_a_wrong_call_before_any_index_is_asked(tmp_path, monkeypatch, call, text):
    monkeypatch.chdir(tmp_path)
    Path("fix.patch").write_bytes(b"--- a/vllm/envs.py\n+++ b/vllm/envs.py\n@@ -1 +1 @@\n-a\n+b\n")
    with pytest.raises(BadInput) as caught:
        call(text)
    assert caught.value.code == "no-version"
    assert "0.33.0" in caught.value.remedy


def test_a_package_that_no_index_knows_is_not_rehearsed_and_that_is_told(two, index):
    indexes = index(RELEASES)
    private = replace(two.manifest, distribution="private")
    (found,) = rehearse(two.catalog, private, indexes)
    assert (found.id, found.severity, found.remedy) == ("not-rehearsed", "note", "--index URL")
