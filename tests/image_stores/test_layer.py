from __future__ import annotations

import gzip
import io
import tarfile
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchkit.errors import Refused
from patchkit.images.layer import build_layer, sha256, stored_gzip
from patchkit.images.model import Change, Entry

from .trees import Tree, file, folder


def tree():
    return Tree(
        folder("/", mtime=1),
        folder("/opt", mtime=5),
        folder("/opt/pkg", mode=0o2750, uid=2000, gid=3000, mtime=7),
        file("/opt/pkg/norm.py", mtime=2000),
        folder("/opt/pkg/__pycache__", mtime=9),
        file("/opt/pkg/__pycache__/norm.pyc"),
        (Entry("/opt/lib64", "symlink", 0o777, 0, 0, target="pkg"), b""),
    )


def members(layer):
    with tarfile.open(fileobj=io.BytesIO(layer.tar)) as archive:
        return {info.name: info for info in archive}


def test_the_layer_holds_the_file_its_parents_and_nothing_else():
    layer = build_layer(tree(), [Change("/opt/pkg/norm.py", b"new", 0o640, 2000, 3000)])
    found = members(layer)
    assert list(found) == ["opt", "opt/pkg", "opt/pkg/norm.py"]
    assert (found["opt/pkg"].mode, found["opt/pkg"].uid, found["opt/pkg"].gid, found["opt/pkg"].mtime) == (
        0o2750,
        2000,
        3000,
        7,
    )
    assert (found["opt/pkg/norm.py"].mode, found["opt/pkg/norm.py"].uid) == (0o640, 2000)
    assert found["opt/pkg/norm.py"].uname == ""


@pytest.mark.parametrize("wished", [0, 2000])
def test_a_patched_file_never_keeps_the_time_of_the_original(wished):
    layer = build_layer(tree(), [Change("/opt/pkg/norm.py", b"new\n", mtime=wished)])
    assert members(layer)["opt/pkg/norm.py"].mtime == 2001
    assert layer.changes[0].mtime == 2001


def test_a_wished_time_that_differs_is_kept():
    layer = build_layer(tree(), [Change("/opt/pkg/norm.py", b"new\n", mtime=1234)])
    assert members(layer)["opt/pkg/norm.py"].mtime == 1234


def test_a_removed_file_becomes_a_whiteout_and_a_file_that_is_not_there_nothing():
    layer = build_layer(
        tree(), [Change("/opt/pkg/__pycache__/norm.pyc", None), Change("/opt/pkg/__pycache__/other.pyc", None)]
    )
    assert list(members(layer)) == ["opt", "opt/pkg", "opt/pkg/__pycache__", "opt/pkg/__pycache__/.wh.norm.pyc"]


def test_a_folder_that_the_image_lacks_is_made_for_the_files_owner():
    layer = build_layer(tree(), [Change("/opt/new/deep/x.py", b"", uid=7, gid=8)])
    found = members(layer)
    assert (found["opt/new/deep"].mode, found["opt/new/deep"].uid, found["opt/new/deep"].mtime) == (0o755, 7, 5)
    assert found["opt/new/deep/x.py"].mtime == 5


def test_the_order_of_the_changes_does_not_matter():
    changes = [Change("/opt/pkg/norm.py", b"n"), Change("/opt/pkg/a.py", b"a"), Change("/opt/x", b"")]
    assert build_layer(tree(), changes) == build_layer(tree(), changes[::-1])


def test_the_bytes_are_the_same_on_every_machine():
    layer = build_layer(tree(), [Change("/opt/pkg/norm.py", b"new", 0o640, 2000, 3000)])
    assert layer.diff_id == "sha256:52c6462d8bbcf571320480c98353edc44ed9294cd1df506a25b29f21b41e2b38"
    assert layer.digest == "sha256:f375b7f445bef7fbf3706b991a5dcd69bd4c5b1bbedc2a9479f6c3f8ab94ebf7"


def test_the_blob_is_the_tar_in_gzip():
    layer = build_layer(tree(), [Change("/opt/pkg/norm.py", b"n" * 200_000)])
    assert gzip.decompress(layer.blob) == layer.tar
    assert (sha256(layer.tar), sha256(layer.blob)) == (layer.diff_id, layer.digest)


@pytest.mark.parametrize("size", [0, 1, 65535, 65536, 131070, 131071])
def test_stored_gzip_reads_back_at_the_edges_of_its_blocks(size):
    data = bytes(range(256)) * (size // 256) + bytes(size % 256)
    assert gzip.decompress(stored_gzip(data)) == data


def test_a_parent_that_is_a_symlink_is_refused():
    with pytest.raises(Refused) as refused:
        build_layer(tree(), [Change("/opt/lib64/norm.py", b"")])
    assert refused.value.code == "path-not-real"


@pytest.mark.parametrize(
    "path", ["opt/x", "/opt/../x", "/opt//x", "/opt/", "/", "", "/opt/./x", "/opt/.wh.x", "/a\0b", "/.wh.d/x"]
)
def test_a_path_that_is_not_plain_is_refused(path):
    with pytest.raises(Refused) as refused:
        build_layer(tree(), [Change(path, b"")])
    assert refused.value.code == "unsafe-path"


def test_two_changes_to_one_path_are_refused():
    with pytest.raises(Refused):
        build_layer(tree(), [Change("/opt/x", b"1"), Change("/opt/x", b"2")])


def test_a_folder_is_not_replaced_by_a_file():
    with pytest.raises(Refused) as refused:
        build_layer(tree(), [Change("/opt/pkg", b"")])
    assert refused.value.code == "not-a-file"


names = st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=120).filter(
    lambda name: name not in (".", "..") and not name.startswith(".wh.")
)


@given(
    name=names,
    data=st.binary(max_size=2000),
    uid=st.integers(0, 2**32 - 2),
    mtime=st.integers(-(2**31), 2**40),
    xattr=st.binary(max_size=50),
)
def test_any_name_owner_time_and_attribute_reads_back(name, data, uid, mtime, xattr):
    change = Change(f"/opt/{name}", data, 0o4755, uid, uid, mtime or 1, {"user.x": xattr})
    layer = build_layer(tree(), [change])
    with tarfile.open(fileobj=io.BytesIO(layer.tar), errors="surrogateescape") as archive:
        info = archive.getmember(f"opt/{name}") if not name.endswith("/") else None
        assert info is not None
        assert archive.extractfile(info).read() == data
        assert (info.uid, info.gid, info.mtime, info.mode) == (uid, uid, mtime or 1, 0o4755)
        raw = info.pax_headers["SCHILY.xattr.user.x"].encode("utf-8", "surrogateescape")
    assert raw == xattr
    assert replace(change) == layer.changes[0]
