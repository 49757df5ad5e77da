from __future__ import annotations

from pathlib import Path

import pytest

from patchkit.site.copies import find_copies
from patchkit.site.launch import launch_of
from patchkit.site.model import Copy
from tests.site.host import HostFiles
from tests.site.roots import config, link, put, small_root
from tests.site.test_record import row

SITE = "/opt/venv/lib/python3.11/site-packages"


@pytest.fixture
def fs(tmp_path: Path) -> HostFiles:
    return small_root(tmp_path)


def package(root: Path, base: str, version: str = "1.0") -> None:
    put(root, f"{base}/pkg/__init__.py", f"__version__ = '{version}'\n")


def wheel(root: Path, base: str, version: str = "1.0") -> None:
    package(root, base, version)
    put(root, f"{base}/pkg-{version}.dist-info/METADATA", f"Name: pkg\nVersion: {version}\n")
    put(root, f"{base}/pkg-{version}.dist-info/RECORD", row("pkg/__init__.py") + "\n")


def copies(fs: HostFiles, cwd: str = "/srv", **options: object) -> dict[str, Copy]:
    launch = launch_of(config(["serve"], cwd=cwd), fs)
    return {copy.root: copy for copy in find_copies(fs, launch, "pkg", **options)}  # type: ignore[arg-type]


def test_the_winner_comes_first_and_says_for_which_launches(fs: HostFiles, tmp_path: Path) -> None:
    wheel(tmp_path, SITE)
    put(tmp_path, "/srv/pyproject.toml")
    package(tmp_path, "/srv", "2.0.dev0")
    found = copies(fs)
    assert list(found) == [f"{SITE}/pkg", "/srv/pkg"]
    winner, other = found.values()
    assert (winner.kind, winner.version, winner.serves) == ("wheel", "1.0", True)
    assert winner.wins_for == ("serving", "console-script", "cwd=/")
    assert (other.kind, other.version, other.wins_for) == ("checkout", "2.0.dev0", ("-m", "-c"))
    assert winner.record == f"{SITE}/pkg-1.0.dist-info/RECORD"


def test_copies_are_found_where_people_and_tools_put_them(fs: HostFiles, tmp_path: Path) -> None:
    wheel(tmp_path, SITE)
    places = [
        "/workspace",
        "/app/deep/down/here",
        "/opt/conda/envs/other/lib/python3.10/site-packages",
        "/root/.local/lib/python3.11/site-packages",
        "/home/app/.local/share/pipx/venvs/pkg/lib/python3.11/site-packages",
        "/root/.cache/uv/archive-v0/abc",
        "/usr/local/lib/python3.11/dist-packages",
    ]
    for place in places:
        package(tmp_path, place)
    assert set(copies(fs)) == {f"{SITE}/pkg", *(f"{place}/pkg" for place in places)}


def test_what_lies_deeper_is_found_only_when_everything_is_walked(fs: HostFiles, tmp_path: Path) -> None:
    package(tmp_path, "/app/1/2/3/4/5")
    package(tmp_path, "/var/lib/hidden")
    package(tmp_path, f"{SITE}/other/_vendor")
    assert copies(fs) == {}
    found = copies(fs, everything=True)
    assert set(found) == {"/app/1/2/3/4/5/pkg", "/var/lib/hidden/pkg", f"{SITE}/other/_vendor/pkg"}
    assert {copy.kind for copy in found.values()} == {"vendored"}


def test_a_bare_folder_is_a_copy_only_where_it_shadows(fs: HostFiles, tmp_path: Path) -> None:
    put(tmp_path, "/srv/pkg/readme.txt")
    put(tmp_path, "/app/pkg/readme.txt")
    found = copies(fs)
    assert list(found) == ["/srv/pkg"]
    assert (found["/srv/pkg"].kind, found["/srv/pkg"].wins_for) == ("shadow", ("-m", "-c"))


def test_a_known_decoy_is_marked(fs: HostFiles, tmp_path: Path) -> None:
    wheel(tmp_path, SITE)
    package(tmp_path, "/data/src")
    for decoy in ("/data/src", "/data/src/pkg"):
        found = copies(fs, decoys=[decoy])
        assert found["/data/src/pkg"].decoy
        assert not found[f"{SITE}/pkg"].decoy


def test_links_to_one_folder_are_one_copy(fs: HostFiles, tmp_path: Path) -> None:
    wheel(tmp_path, SITE)
    link(tmp_path, "/opt/venv/lib64", "lib")
    link(tmp_path, "/workspace", "/opt/venv/lib/python3.11/site-packages")
    assert list(copies(fs)) == [f"{SITE}/pkg"]


def test_an_editable_install_is_one_with_its_sources_version(fs: HostFiles, tmp_path: Path) -> None:
    package(tmp_path, "/workspace/pkg")
    put(tmp_path, f"{SITE}/__editable__.pkg-1.5.pth", "/workspace/pkg\n")
    put(tmp_path, f"{SITE}/pkg-1.5.dist-info/METADATA", "Name: pkg\nVersion: 1.5\n")
    direct = '{"url": "file:///workspace/pkg", "dir_info": {"editable": true}}'
    put(tmp_path, f"{SITE}/pkg-1.5.dist-info/direct_url.json", direct)
    found = copies(fs)["/workspace/pkg/pkg"]
    assert (found.kind, found.version, found.serves) == ("editable", "1.5", True)


def test_a_single_module_is_a_copy(fs: HostFiles, tmp_path: Path) -> None:
    put(tmp_path, f"{SITE}/pkg.py", "x = 1\n")
    assert copies(fs)[f"{SITE}/pkg.py"].serves


def test_a_module_of_the_same_name_inside_a_copy_is_no_copy_unless_a_launch_imports_it(
    fs: HostFiles, tmp_path: Path
) -> None:
    package(tmp_path, "/workspace")
    put(tmp_path, "/workspace/pkg/config/__init__.py")
    put(tmp_path, "/workspace/pkg/config/pkg.py", "x = 1\n")
    put(tmp_path, "/workspace/other/_vendor/pkg.py", "x = 1\n")
    assert list(copies(fs)) == ["/workspace/other/_vendor/pkg.py", "/workspace/pkg"]
    assert "/workspace/pkg/config/pkg.py" in copies(fs, cwd="/workspace/pkg/config")


def test_a_package_that_is_nowhere_has_no_copies(fs: HostFiles) -> None:
    assert copies(fs) == {}


def test_the_root_as_working_folder_is_not_walked(fs: HostFiles, tmp_path: Path) -> None:
    package(tmp_path, "/var/lib")
    package(tmp_path, "/")
    assert list(copies(fs, cwd="/")) == ["/pkg"]
