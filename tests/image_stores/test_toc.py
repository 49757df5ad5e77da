from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import subprocess
import tarfile
import zlib
from datetime import UTC, datetime

import pytest

from patchkit.errors import Unreachable
from patchkit.images import open_image, parse_reference
from patchkit.images.layer import sha256
from patchkit.images.layers import LayeredFilesystem
from patchkit.images.toc import Toc, toc_of

from .servers import Proxy, registry
from .test_layers import MemoryBlob, filesystem, incompressible
from .trees import NORM, SITE, base_layers, layer_tar, write_layout

FILLER = f"{SITE}/filler.bin"


@pytest.fixture(autouse=True)
def small_layers_count_too(monkeypatch):
    monkeypatch.setattr("patchkit.images.toc._WORTH", 0)


def big_layer() -> bytes:
    """A layer with a large file before and after the small ones, a link of each kind, and a whiteout."""
    return layer_tar(
        (f"{SITE}/", {"mode": 0o750, "uid": 2000}),
        (FILLER, {"data": incompressible(3_000_000)}),
        (f"{SITE}/pkg/norm.py", {"data": b"x = 1\n", "mode": 0o640, "mtime": 1700000001}),
        (
            f"{SITE}/pkg/empty.py",
            {"data": b"", "pax": {"SCHILY.xattr.user.a": "b", "SCHILY.xattr.security.selinux": "x"}},
        ),
        (f"{SITE}/pkg/hard.py", {"kind": tarfile.LNKTYPE, "link": f"{SITE}/pkg/norm.py"}),
        (f"{SITE}/pkg/soft.py", {"link": "norm.py"}),
        ("opt/.wh.gone", {}),
        (f"{SITE}/filler2.bin", {"data": incompressible(2_000_000)[::-1]}),
    )


def estargz(layer: bytes, chunk: int = 1 << 20) -> tuple[bytes, Toc]:
    """The layer as eStargz: a gzip member for each header and for each chunk of a file, the table, the footer."""
    out, entries = bytearray(), []
    kinds = {tarfile.DIRTYPE: "dir", tarfile.SYMTYPE: "symlink", tarfile.LNKTYPE: "hardlink", tarfile.REGTYPE: "reg"}
    with tarfile.open(fileobj=io.BytesIO(layer)) as archive:
        done = 0
        for info in archive:
            out += gzip.compress(layer[done : info.offset_data], mtime=0)
            entry: dict = {"name": info.name, "type": kinds[info.type], "mode": info.mode, "uid": info.uid}
            entry["gid"] = info.gid
            entry["modtime"] = datetime.fromtimestamp(info.mtime, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            if info.linkname:
                entry["linkName"] = info.linkname
            for key, value in info.pax_headers.items():
                name = key.removeprefix("SCHILY.xattr.")
                entry.setdefault("xattrs", {})[name] = base64.b64encode(value.encode()).decode()
            entries.append(entry)
            done = info.offset_data
            if info.isreg() and info.size:
                data = layer[done : done + info.size]
                entry |= {"size": info.size, "offset": len(out), "digest": sha256(data)}
                for start in range(0, info.size, chunk):
                    if start:
                        entries.append({"name": info.name, "type": "chunk", "offset": len(out), "chunkOffset": start})
                    out += gzip.compress(data[start : start + chunk], mtime=0)
                done += info.size
    out += gzip.compress(layer[done:], mtime=0)
    table = json.dumps({"version": 1, "entries": entries}).encode()
    start = len(out)
    out += gzip.compress(layer_tar(("stargz.index.json", {"data": table})), mtime=0)
    extra = b"SG" + (22).to_bytes(2, "little") + b"%016xSTARGZ" % start
    footer = b"\x1f\x8b\x08\x04" + bytes(4) + b"\0\xff" + len(extra).to_bytes(2, "little") + extra
    footer += b"\x01\x00\x00\xff\xff" + zlib.crc32(b"").to_bytes(4, "little") + bytes(4)
    assert len(footer) == 51
    return bytes(out + footer), Toc(sha256(table))


def looked(blob: MemoryBlob, diff_id: str) -> LayeredFilesystem:
    return LayeredFilesystem([blob], [diff_id])


def test_a_table_says_the_same_as_the_layer_itself(monkeypatch):
    layer = big_layer()
    data, toc = estargz(layer)
    blob = MemoryBlob(data, toc=toc)
    short, whole = looked(blob, sha256(b"never read")), filesystem(layer)
    assert short.listdir(f"/{SITE}/pkg") == whole.listdir(f"/{SITE}/pkg")
    for name in ("norm.py", "empty.py", "hard.py", "soft.py", ""):
        path = f"/{SITE}/pkg/{name}".rstrip("/")
        assert short.lstat(path) == whole.lstat(path)
    for name in ("norm.py", "empty.py", "hard.py"):
        assert short.read(f"/{SITE}/pkg/{name}") == whole.read(f"/{SITE}/pkg/{name}")
    assert blob.asked < 10_000
    assert short.read(f"/{FILLER}") == incompressible(3_000_000)
    below = LayeredFilesystem([MemoryBlob(base_layers()[0]), blob], [sha256(base_layers()[0]), sha256(b"never read")])
    assert below.lstat("/opt/gone") is None


@pytest.mark.parametrize("what", ["digest", "footer", "table", "names", "offsets", "digests", "times"])
def test_a_damaged_table_counts_as_none(what):
    layer = big_layer()
    data, toc = estargz(layer)
    if what == "digest":
        toc = Toc(sha256(b"other"))
    elif what == "footer":
        data = data[:-35] + b"f" * 16 + data[-19:]
    else:
        reg = {"type": "reg", "name": "x"}
        table = {"table": 3, "names": [{"type": "reg"}], "offsets": [{**reg, "offset": "y"}]}
        table |= {"digests": [{**reg, "size": 3}], "times": [{"type": "dir", "name": "x", "modtime": "soon"}]}
        text = json.dumps({"entries": table[what]}).encode()
        start = int(data[-51:][16:32], 16)
        data = data[:start] + gzip.compress(layer_tar(("stargz.index.json", {"data": text})), mtime=0) + data[-51:]
        toc = Toc(sha256(text))
    blob = MemoryBlob(data, toc=toc)
    plain = gzip.decompress(data[:-51])
    assert looked(blob, sha256(plain)).read(NORM) == b"x = 1\n"
    assert blob.asked > 5_000_000


def test_a_file_that_does_not_match_the_table_is_told():
    layer = big_layer()
    data, toc = estargz(layer)
    good = looked(MemoryBlob(data, toc=toc), "sha256:x")
    assert good.lstat(NORM)
    member = gzip.compress(b"x = 1\n", mtime=0)
    blob = MemoryBlob(data.replace(member, gzip.compress(b"x = 7\n", mtime=0)), digest=sha256(data), toc=toc)
    with pytest.raises(Unreachable) as error:
        looked(blob, "sha256:x").read(NORM)
    assert error.value.code == "bad-layer"


def test_a_layer_that_was_read_whole_needs_no_table():
    layer = big_layer()
    data, toc = estargz(layer)
    plain = sha256(gzip.decompress(data[:-51]))
    assert looked(MemoryBlob(data), plain).read(NORM) == b"x = 1\n"
    blob = MemoryBlob(data, toc=toc)
    assert looked(blob, plain).read(NORM) == b"x = 1\n"
    assert blob.opened == 0


@pytest.mark.parametrize(
    ("notes", "toc"),
    [
        ({}, None),
        ({"containerd.io/snapshot/stargz/toc.digest": "sha256:a"}, Toc("sha256:a")),
        (
            {
                "io.github.containers.zstd-chunked.manifest-position": "5:6:7:1",
                "io.github.containers.zstd-chunked.manifest-checksum": "sha256:b",
            },
            Toc("sha256:b", 5, 6),
        ),
        ({"io.github.containers.zstd-chunked.manifest-position": "5:6:7:2"}, None),
        ({"io.github.containers.zstd-chunked.manifest-position": "5:-6:7:1"}, None),
    ],
)
def test_tables_are_found_by_their_annotations(notes, toc):
    assert toc_of({"annotations": notes}) == toc


def test_one_file_of_a_zstd_chunked_image_in_a_registry_costs_a_fraction_of_the_layer(tmp_path, monkeypatch):
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    plain = {"compress": lambda data: data, "layer_type": "application/vnd.oci.image.layer.v1.tar"}
    layout = write_layout(tmp_path / "plain", layers=[base_layers()[0], big_layer()], **plain)
    with registry(tmp_path / "registry") as host:
        copy = ["skopeo", "copy", "-q", "--dest-tls-verify=false", "--dest-compress-format", "zstd:chunked"]
        subprocess.run([*copy, f"oci:{layout}:v1", f"docker://{host}/x:v1"], check=True)
        proxy = Proxy(host)
        with open_image(parse_reference(f"docker://{proxy.address}/x:v1")) as image:
            assert image.fs.read(NORM) == b"x = 1\n"
            assert image.fs.lstat(f"/{SITE}/pkg/norm.py").mode == 0o640
        assert proxy.sent < 20_000
        with open_image(parse_reference(f"docker://{proxy.address}/x:v1")) as image:
            data = image.fs.read(f"/{FILLER}")
        proxy.close()
    assert hashlib.sha256(data).digest() == hashlib.sha256(incompressible(3_000_000)).digest()
