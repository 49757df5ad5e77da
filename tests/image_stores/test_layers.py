from __future__ import annotations

import gzip
import hashlib
import io
import os
import subprocess
import tarfile
import zlib

import pytest
import zstandard

from patchkit import cache
from patchkit.errors import Refused, Unreachable
from patchkit.images.layer import sha256
from patchkit.images.layerindex import LayerIndex
from patchkit.images.layers import LayeredFilesystem
from patchkit.images.paths import realpath
from patchkit.images.stream import LayerStream
from patchkit.images.toc import Toc

from .trees import NORM, SITE, base_layers, layer_tar


class MemoryBlob:
    """A layer in memory that counts what is read of it."""

    def __init__(self, data: bytes, digest: str | None = None, toc: Toc | None = None) -> None:
        self.toc, self.asked = toc, 0
        self.data, self.digest, self.size, self.opened = data, digest or sha256(data), len(data), 0

    def open(self, offset: int = 0, size: int | None = None):
        self.opened += 1
        part = self.data[offset:] if size is None else self.data[offset : offset + size]
        self.asked += len(part)
        return io.BytesIO(part)


def filesystem(*layers: bytes, pack=lambda data: data) -> LayeredFilesystem:
    return LayeredFilesystem([MemoryBlob(pack(layer)) for layer in layers], [sha256(layer) for layer in layers])


def zstd(data: bytes) -> bytes:
    return zstandard.compress(data)


def many_members(data: bytes) -> bytes:
    """gzip as eStargz writes it: a member each few bytes."""
    return b"".join(gzip.compress(data[n : n + 700]) for n in range(0, len(data), 700))


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstd, many_members])
def test_files_are_read_through_layers_of_any_compression(pack):
    fs = filesystem(*base_layers(), pack=pack)
    assert fs.read(NORM) == b"x = 1\n"
    assert fs.read("/etc/passwd") == b"root:x:0:0::/root:/bin/sh\n"
    entry = fs.lstat(NORM)
    assert (entry.mode, entry.uid, entry.gid, entry.size, entry.mtime) == (0o640, 2000, 2000, 6, 1700000001)
    assert fs.lstat(f"/{SITE}").mode == 0o750
    assert fs.lstat("/nowhere") is None
    assert fs.listdir("/") == ["etc", "opt"]


def test_symlinks_are_followed_inside_the_image():
    fs = filesystem(*base_layers())
    assert fs.lstat("/opt/venv/lib64").target == "lib"
    assert realpath(fs, NORM.replace("/lib/", "/lib64/")) == NORM


def test_a_whiteout_removes_a_file_and_a_whole_folder():
    fs = filesystem(
        layer_tar(("a/", {}), ("a/x", {"data": b"1"}), ("a/b/", {}), ("a/b/y", {"data": b"2"})),
        layer_tar(("a/.wh.x", {}), ("a/.wh.b", {})),
    )
    assert fs.lstat("/a/x") is None
    assert fs.lstat("/a/b/y") is None
    assert fs.listdir("/a") == []
    assert fs.listdir("/a/b") == []


def test_an_opaque_folder_shows_only_its_own_layer_and_those_above():
    fs = filesystem(
        layer_tar(("a/", {}), ("a/old", {"data": b"1"})),
        layer_tar(("a/", {"mode": 0o700}), ("a/.wh..wh..opq", {}), ("a/mid", {"data": b"2"})),
        layer_tar(("a/new", {"data": b"3"})),
    )
    assert fs.listdir("/a") == ["mid", "new"]
    assert fs.lstat("/a/old") is None
    assert fs.lstat("/a").mode == 0o700


def test_a_folder_removed_and_made_again_in_one_layer_holds_only_the_new():
    fs = filesystem(
        layer_tar(("a/", {}), ("a/old", {"data": b"1"})),
        layer_tar((".wh.a", {}), ("a/", {}), ("a/new", {"data": b"2"})),
    )
    assert fs.listdir("/a") == ["new"]
    assert fs.lstat("/a/old") is None


def test_a_file_in_place_of_a_folder_hides_what_was_below():
    fs = filesystem(
        layer_tar(("a/", {}), ("a/x", {"data": b"1"})), layer_tar(("a", {"data": b"f"})), layer_tar(("a/", {}))
    )
    assert fs.lstat("/a").kind == "dir"
    assert fs.lstat("/a/x") is None
    assert fs.listdir("/a") == []


def test_the_later_of_two_entries_in_one_layer_counts():
    fs = filesystem(layer_tar(("x", {"data": b"1"}), ("x", {"data": b"22"})))
    assert fs.read("/x") == b"22"


def test_hard_links_lead_to_the_bytes_in_their_own_or_a_lower_layer():
    link = {"kind": tarfile.LNKTYPE}
    fs = filesystem(
        layer_tar(("low", {"data": b"lower", "mode": 0o600})),
        layer_tar(("own", {"data": b"own"}), ("a", {**link, "link": "own"}), ("b", {**link, "link": "./low"})),
        layer_tar(("own", {"data": b"later"}), ("low", {"data": b"later"})),
    )
    assert fs.read("/a") == b"own"
    assert fs.read("/b") == b"lower"
    assert fs.lstat("/b").mode == 0o600


def test_a_folder_that_a_layer_only_mentions_keeps_the_metadata_of_below():
    fs = filesystem(layer_tar(("a/", {"mode": 0o750, "uid": 7})), layer_tar(("a/x", {"data": b""})))
    entry = fs.lstat("/a")
    assert (entry.mode, entry.uid) == (0o750, 7)
    assert fs.lstat("/a/x")


def test_a_later_layer_that_writes_below_a_link_is_not_guessed_about():
    fs = filesystem(
        layer_tar(("lib/", {}), ("lib/n.py", {"data": b"1"}), ("lib64", {"link": "lib"})),
        layer_tar(("lib64/n.py", {"data": b"2"})),
    )
    with pytest.raises(Refused) as refused:
        fs.lstat("/lib64")
    assert refused.value.code == "ambiguous-path"
    assert fs.read("/lib/n.py") == b"1"


def test_a_layer_that_writes_below_its_own_link_writes_where_the_link_leads():
    fs = filesystem(layer_tar(("usr/lib/", {}), ("lib", {"link": "usr/lib"}), ("lib/n.py", {"data": b"1"})))
    assert fs.read("/usr/lib/n.py") == b"1"
    assert fs.lstat("/lib").kind == "symlink"
    assert fs.lstat("/lib/n.py") is None


def test_a_link_in_place_of_a_folder_takes_what_was_below_with_it():
    fs = filesystem(layer_tar(("d/x", {"data": b"1"}), ("d", {"link": "/etc"}), ("d/y", {"data": b"2"})))
    assert fs.lstat("/d").kind == "symlink"
    assert fs.lstat("/d/x") is None
    assert fs.read("/etc/y") == b"2"


@pytest.mark.parametrize("name", ["../x", "a/../../x", "..", "./../x"])
def test_an_entry_that_leaves_the_image_is_refused(name):
    with pytest.raises(Refused) as refused:
        filesystem(layer_tar((name, {"data": b"1"}))).lstat("/x")
    assert refused.value.code == "hostile-layer"


def test_a_hard_link_out_of_the_image_is_refused():
    with pytest.raises(Refused):
        filesystem(layer_tar(("a", {"kind": tarfile.LNKTYPE, "link": "../../etc/shadow"}))).lstat("/a")


def test_absolute_names_and_dots_inside_mean_what_engines_take_them_for():
    fs = filesystem(layer_tar(("/abs", {"data": b"1"}), ("./d/../rel", {"data": b"2"})))
    assert (fs.read("/abs"), fs.read("/rel")) == (b"1", b"2")


def test_a_link_in_a_layer_never_leads_out_of_it():
    fs = filesystem(layer_tar(("up", {"link": "../../.."}), ("up/etc/x", {"data": b"1"})))
    assert fs.read("/etc/x") == b"1"


def test_links_in_a_circle_are_refused():
    with pytest.raises(Refused):
        filesystem(layer_tar(("a", {"link": "b"}), ("b", {"link": "a"}), ("a/x", {"data": b""}))).lstat("/a")


def test_devices_are_there_but_are_no_files():
    fs = filesystem(layer_tar(("null", {"kind": tarfile.CHRTYPE}), ("pipe", {"kind": tarfile.FIFOTYPE})))
    assert fs.lstat("/null").kind == "other"
    with pytest.raises(FileNotFoundError):
        fs.read("/null")


def test_attributes_are_read_but_for_those_of_the_host():
    pax = {
        "SCHILY.xattr.user.a": "1\udcff",
        "SCHILY.xattr.security.selinux": "x",
        "SCHILY.xattr.trusted.overlay.o": "y",
    }
    assert filesystem(layer_tar(("x", {"data": b"", "pax": pax}))).lstat("/x").xattrs == {"user.a": b"1\xff"}


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_long_and_strange_names_are_read(form):
    names = ["d/" + "n" * 300, "d/ü\x1b[31m", "d/\udcff"]
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form, encoding="utf-8", errors="surrogateescape") as archive:
        for name in names:
            archive.addfile(tarfile.TarInfo(name))
    fs = filesystem(out.getvalue())
    assert fs.listdir("/d") == sorted(name[2:] for name in names)
    assert all(fs.lstat("/" + name) for name in names)


@pytest.mark.parametrize("form", ["gnu", "posix"])
def test_sparse_files_are_read_whole(tmp_path, form):
    path = tmp_path / "s"
    with path.open("wb") as stream:
        stream.write(b"head")
        stream.seek(5_000_000)
        stream.write(b"mid")
        stream.truncate(9_000_000)
    subprocess.run(["tar", "-S", f"--format={form}", "-cf", tmp_path / "t.tar", "-C", tmp_path, "s"], check=True)
    layer = (tmp_path / "t.tar").read_bytes()
    assert len(layer) < 1_000_000
    fs = filesystem(layer, pack=gzip.compress)
    assert fs.lstat("/s").size == 9_000_000
    assert fs.read("/s") == path.read_bytes()


def test_times_with_a_fraction_are_cut_to_whole_seconds():
    fs = filesystem(layer_tar(("a", {"data": b"", "pax": {"mtime": "1700000000.75"}})))
    assert fs.lstat("/a").mtime == 1700000000


def test_a_file_over_the_limit_is_not_read():
    fs = filesystem(layer_tar(("big", {"data": bytes(2000)})))
    with pytest.raises(Refused) as refused:
        fs.read("/big", limit=1999)
    assert refused.value.code == "too-large"
    assert len(fs.read("/big", limit=2000)) == 2000


def incompressible(size: int) -> bytes:
    return b"".join(hashlib.sha256(b"%d" % n).digest() for n in range(size // 32))


@pytest.mark.parametrize(
    "pack", [bytes, lambda data: gzip.compress(data, 1), zstd, lambda data: gzip.compress(data, 0)]
)
def test_a_file_deep_in_a_large_layer_is_read_from_a_place_near_it(pack):
    filler = incompressible(9 * 1024 * 1024)
    members = [(f"big{n}", {"data": filler}) for n in range(5)]
    layer = layer_tar(*members[:3], ("small", {"data": b"here"}), *members[3:], ("last", {"data": b"end"}))
    fs = filesystem(layer, pack=pack)
    assert (fs.read("/last"), fs.read("/small")) == (b"end", b"here")
    assert fs.read("/big3") == filler


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_layer_that_lies_about_its_diff_id_is_refused(pack):
    layer = base_layers()[0]
    blob = MemoryBlob(pack(layer))
    with pytest.raises(Unreachable) as error:
        LayerIndex(blob, sha256(b"other"))
    assert error.value.code == "bad-layer"
    assert "diff-id" in error.value.what
    assert not list(cache.folder("layers").glob("*"))


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[: len(data) // 2],
        lambda data: data[:-3],
        lambda data: data + b"tail",
        lambda data: data[:60] + bytes([data[60] ^ 0xFF]) + data[61:],
        lambda data: b"",
    ],
)
@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstd])
def test_a_damaged_layer_is_told_even_if_its_digest_was_made_to_fit(pack, damage):
    layer = base_layers()[0]
    with pytest.raises(Unreachable) as error:
        LayerIndex(MemoryBlob(damage(pack(layer))), sha256(layer))
    assert error.value.code == "bad-layer"


def test_a_layer_of_another_digest_or_size_is_told():
    layer = base_layers()[0]
    with pytest.raises(Unreachable):
        LayerIndex(MemoryBlob(layer, digest=sha256(b"x")), sha256(layer))
    blob = MemoryBlob(layer)
    blob.size -= 1
    with pytest.raises(Unreachable):
        LayerIndex(blob, sha256(layer))


def test_a_layer_that_unpacks_without_end_is_refused():
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    data = b"".join(packer.compress(bytes(1 << 20)) for _ in range(64)) + packer.flush()
    with pytest.raises(Refused) as refused, LayerStream(MemoryBlob(data), "x", [], limit=32 << 20) as stream:
        stream.finish()
    assert refused.value.code == "hostile-layer"


@pytest.mark.parametrize("kind", [b"x", b"L", b"g"])
def test_a_tar_header_without_end_is_refused_before_it_fills_the_memory(kind):
    info = tarfile.TarInfo("h")
    info.type, info.size = kind, 1 << 33
    layer = info.tobuf(tarfile.GNU_FORMAT) + bytes(1 << 20)
    with pytest.raises(Refused) as refused:
        filesystem(layer).lstat("/h")
    assert refused.value.code == "hostile-layer"


@pytest.mark.parametrize("field", ["size", "uid", "mtime"])
def test_senseless_numbers_in_a_header_are_told(field):
    info = tarfile.TarInfo("h")
    raw = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    start, length = {"uid": (108, 8), "size": (124, 12), "mtime": (136, 12)}[field]
    raw[start : start + length] = b"\xff" + b"\x80" * (length - 1)
    raw[148:156] = b"        "
    raw[148:156] = b"%06o\0 " % sum(raw)
    with pytest.raises((Refused, Unreachable)):
        filesystem(bytes(raw) + bytes(1024)).lstat("/h")


def test_a_second_look_reads_nothing_of_a_layer():
    blobs = [MemoryBlob(gzip.compress(layer)) for layer in base_layers()]
    diff_ids = [sha256(layer) for layer in base_layers()]
    first = LayeredFilesystem(blobs, diff_ids)
    wanted = first.read(NORM), first.read("/etc/passwd"), first.listdir("/opt")
    for blob in blobs:
        blob.opened = 0
    second = LayeredFilesystem(blobs, diff_ids)
    assert (second.read(NORM), second.read("/etc/passwd"), second.listdir("/opt")) == wanted
    assert [blob.opened for blob in blobs] == [0, 0]


def test_layers_below_are_not_read_when_one_above_answers():
    layers = [MemoryBlob(layer) for layer in base_layers()]
    fs = LayeredFilesystem(layers, [sha256(layer) for layer in base_layers()])
    assert fs.read(realpath(fs, NORM)) == b"x = 1\n"
    assert layers[0].opened == 0


@pytest.mark.parametrize("damage", [lambda data: b"", lambda data: data[:5000], lambda data: b"x" * len(data)])
def test_a_damaged_cache_is_made_again(damage):
    assert filesystem(*base_layers()).read(NORM) == b"x = 1\n"
    kept = [path for kind in ("layers", "files") for path in cache.folder(kind).iterdir()]
    assert len(kept) == 2
    for path in kept:
        path.write_bytes(damage(path.read_bytes()))
    assert filesystem(*base_layers()).read(NORM) == b"x = 1\n"
    assert filesystem(*base_layers()).lstat("/etc/passwd").kind == "file"


def test_a_cache_that_cannot_be_written_does_not_matter(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PATCHKIT_CACHE", str(tmp_path / "file"))
    assert filesystem(*base_layers()).read(NORM) == b"x = 1\n"


def test_reading_agrees_with_what_tar_unpacks(tmp_path):
    """The same layer unpacked by GNU tar gives the same tree."""
    layer = base_layers()[1]
    (tmp_path / "l.tar").write_bytes(layer)
    out = tmp_path / "out"
    out.mkdir()
    subprocess.run(["tar", "-xpf", tmp_path / "l.tar", "-C", out, "--exclude=.wh.*"], check=True)
    fs = filesystem(layer)
    count = 0
    for folder, names, files in os.walk(out):
        inside = "/" + os.path.relpath(folder, out) if folder != str(out) else "/"
        assert fs.listdir(inside) == sorted(names + files)
        for name in names + files:
            real, entry = os.lstat(f"{folder}/{name}"), fs.lstat(f"{inside.rstrip('/')}/{name}")
            assert (entry.mode, entry.uid, entry.gid, entry.mtime) == (
                real.st_mode & 0o7777,
                real.st_uid,
                real.st_gid,
                int(real.st_mtime),
            )
            count += 1
    assert count > 8
