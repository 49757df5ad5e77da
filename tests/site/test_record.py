from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path

import pytest

from patchkit.site.record import dists_in, find_dist
from patchkit.site.shipped import parse_record
from tests.site.host import HostFiles
from tests.site.roots import put

BASE = "/site"


def row(path: str, data: bytes = b"x", algorithm: str = "sha256") -> str:
    digest = base64.urlsafe_b64encode(hashlib.new(algorithm, data).digest()).rstrip(b"=").decode()
    return f"{path},{algorithm}={digest},{len(data)}"


def dist(root: Path, name: str, rows: list[str], metadata: str = "", direct: object = None) -> None:
    folder = f"{BASE}/{name}.dist-info"
    put(root, f"{folder}/RECORD", "\n".join([*rows, f"{name}.dist-info/RECORD,,"]) + "\n")
    stem, _, version = name.partition("-")
    put(
        root,
        f"{folder}/METADATA",
        metadata or f"Metadata-Version: 2.1\nName: {stem}\nVersion: {version}\n\nVersion: 9\n",
    )
    if direct is not None:
        put(root, f"{folder}/direct_url.json", json.dumps(direct))


def test_a_row_is_a_path_and_its_sha256_in_hex() -> None:
    assert parse_record(row("a/b.py", b"data").encode()) == {"a/b.py": hashlib.sha256(b"data").hexdigest()}


def test_quoted_names_and_names_outside_of_the_folder_are_read() -> None:
    text = f"{row(chr(34) + 'a,b.py' + chr(34))}\r\n{row('../../../bin/tool')}\r\n"
    assert set(parse_record(text.encode())) == {"a,b.py", "../../../bin/tool"}


@pytest.mark.parametrize(
    "line", ["a.py,,", "a.py", "", "a.py,sha256=short,1", "a.py,sha256=!!!,1", "a.py,md5=abc,1", 'a.py,"sha256=']
)
def test_rows_that_tell_no_sha256_are_left_out(line: str) -> None:
    assert parse_record(line.encode()) == {}


def test_other_algorithms_are_left_out() -> None:
    assert parse_record(row("a.py", algorithm="sha384").encode()) == {}


def test_a_record_of_nonsense_is_empty() -> None:
    assert parse_record(b"\xff\xfe\x00" * 1000) == {}
    assert parse_record(b'"' * 2_000_000) == {}


def test_the_distribution_of_the_same_name_is_found_whatever_its_spelling(tmp_path: Path) -> None:
    dist(tmp_path, "My_Pkg-1.0", [row("my_pkg/__init__.py")])
    found = find_dist(HostFiles(tmp_path), BASE, "my_pkg")
    assert found is not None
    assert (found.version, found.record) == ("1.0", "/site/My_Pkg-1.0.dist-info/RECORD")


def test_a_package_of_another_distributions_name_is_found_by_record(tmp_path: Path) -> None:
    dist(tmp_path, "pyyaml-6.0", [row("yaml/__init__.py")])
    dist(tmp_path, "yaml-0.1", [row("other/__init__.py")])
    found = find_dist(HostFiles(tmp_path), BASE, "yaml")
    assert found is not None
    assert found.name == "pyyaml"


def test_of_two_versions_metadata_the_newest_counts(tmp_path: Path) -> None:
    for version in ("0.9.0", "0.10.0"):
        dist(tmp_path, f"pkg-{version}", [row("pkg/__init__.py")])
    found = find_dist(HostFiles(tmp_path), BASE, "pkg")
    assert found is not None
    assert found.version == "0.10.0"


def test_nothing_is_found_where_nobody_installed_the_package(tmp_path: Path) -> None:
    dist(tmp_path, "other-1", [row("other/__init__.py")])
    assert find_dist(HostFiles(tmp_path), BASE, "pkg") is None
    assert find_dist(HostFiles(tmp_path), "/nowhere", "pkg") is None


def test_an_editable_install_names_its_source(tmp_path: Path) -> None:
    direct = {"url": "file:///work%20space/pkg/", "dir_info": {"editable": True}}
    dist(tmp_path, "pkg-1.0", [row("__editable__.pkg-1.0.pth")], direct=direct)
    found = find_dist(HostFiles(tmp_path), BASE, "pkg")
    assert found is not None
    assert found.editable == "/work space/pkg"


@pytest.mark.parametrize(
    "direct",
    [
        {"url": "file:///w", "dir_info": {}},
        {"url": "https://host/w", "dir_info": {"editable": True}},
        {"url": 5, "dir_info": 5},
        [],
        None,
    ],
)
def test_other_direct_urls_are_no_editable_install(tmp_path: Path, direct: object) -> None:
    dist(tmp_path, "pkg-1.0", [row("pkg/__init__.py")], direct=direct)
    assert [found.editable for found in dists_in(HostFiles(tmp_path), BASE)] == [""]


def test_an_egg_info_folder_tells_name_and_version(tmp_path: Path) -> None:
    put(tmp_path, f"{BASE}/pkg.egg-info/PKG-INFO", "Name: pkg\nVersion: 3\n")
    put(tmp_path, f"{BASE}/pkg.egg-info/top_level.txt", "pkg\n")
    found = find_dist(HostFiles(tmp_path), BASE, "pkg")
    assert found is not None
    assert (found.version, found.record) == ("3", "")
