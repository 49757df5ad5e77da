"""Package indexes, asked over real HTTP: a small index in this process, and once the real one."""

from __future__ import annotations

import base64
import hashlib
import http.server
import io
import json
import re
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.version import Version

from patchkit import index
from patchkit.errors import Refused, Unreachable

MODULE = b"def answer():\n    return 42\n"


class SmallIndex:
    """An index and file server. ``pages`` and ``blobs`` map URL paths to what is served; ``asked`` records requests."""

    def __init__(self) -> None:
        self.pages: dict[str, tuple[str, bytes]] = {}
        self.blobs: dict[str, bytes] = {}
        self.ranges = True
        self.status: dict[str, int] = {}
        self.cut = ""  # "connection": announce all bytes and close half-way; "range": send half the range as if whole
        self.asked: list[tuple[str, str]] = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                wanted = self.headers.get("Range", "")
                outer.asked.append((self.path, wanted))
                if self.path in outer.status:
                    self.answer(outer.status[self.path], "text/plain", b"no")
                elif self.path in outer.pages:
                    self.answer(200, *outer.pages[self.path])
                elif self.path in outer.blobs:
                    self.blob(outer.blobs[self.path], wanted)
                else:
                    self.answer(404, "text/plain", b"no such page")

            def blob(self, data: bytes, wanted: str) -> None:
                match = re.fullmatch(r"bytes=(\d*)-(\d*)", wanted)
                if not match or not outer.ranges:
                    self.answer(200, "application/octet-stream", data)
                    return
                if match[1]:
                    first, last = int(match[1]), min(int(match[2] or len(data)), len(data) - 1)
                else:
                    first, last = max(0, len(data) - int(match[2])), len(data) - 1
                part = data[first : last + 1]
                extra = {"Content-Range": f"bytes {first}-{last}/{len(data)}"}
                if outer.cut == "connection" and match[1]:
                    self.answer(206, "application/octet-stream", part[: len(part) // 2], extra, announced=len(part))
                    self.close_connection = True
                elif outer.cut == "range" and match[1]:
                    self.answer(206, "application/octet-stream", part[: len(part) // 2], extra)
                else:
                    self.answer(206, "application/octet-stream", part, extra)

            def answer(
                self, status: int, kind: str, data: bytes, extra: dict[str, str] | None = None, announced: int = 0
            ) -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(announced or len(data)))
                for name, value in (extra or {}).items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/simple"

    def publish(self, project: str, files: dict[str, bytes], *, form: str = "json", **extra: object) -> None:
        """Serve a project page with these files."""
        for name, data in files.items():
            self.blobs[f"/files/{name}"] = data
        hashes = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
        if form == "json":
            entries = [
                {"filename": name, "url": f"../../files/{name}", "hashes": {"sha256": hashes[name]}, **extra}
                for name in files
            ]
            page = json.dumps({"meta": {"api-version": "1.1"}, "name": project, "files": entries}).encode()
            self.pages[f"/simple/{project}/"] = ("application/vnd.pypi.simple.v1+json", page)
        else:
            links = "".join(f'<a href="../../files/{name}#sha256={hashes[name]}">{name}</a><br>\n' for name in files)
            self.pages[f"/simple/{project}/"] = ("text/html; charset=utf-8", f"<html>{links}</html>".encode())

    def indexes(self) -> index.Indexes:
        return index.Indexes((self.url,))


@pytest.fixture
def small() -> Iterator[SmallIndex]:
    served = SmallIndex()
    yield served
    served.server.shutdown()
    served.server.server_close()


@pytest.fixture(autouse=True)
def _fresh_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATCHKIT_CACHE", str(tmp_path / "cache"))


def make_wheel(files: dict[str, bytes], version: str = "1.0", *, record: bytes | None = None) -> bytes:
    info = f"pkg-{version}.dist-info"
    content = {**files, f"{info}/METADATA": f"Metadata-Version: 2.1\nName: pkg\nVersion: {version}\n".encode()}
    lines = [
        f"{path},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}"
        for path, data in content.items()
    ]
    content[f"{info}/RECORD"] = "\n".join([*lines, f"{info}/RECORD,,", ""]).encode() if record is None else record
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in content.items():
            archive.writestr(path, data)
    return stream.getvalue()


WHEEL = "pkg-1.0-py3-none-any.whl"


def test_the_release_list_of_a_json_page_is_sorted_by_version(small: SmallIndex) -> None:
    small.publish("pkg", {f"pkg-{v}-py3-none-any.whl": b"" for v in ("1.10", "1.9", "1.10rc1")})
    assert [str(version) for version in small.indexes().versions("pkg")] == ["1.9", "1.10rc1", "1.10"]


def test_an_html_page_gives_the_same_files_as_a_json_page(small: SmallIndex) -> None:
    files = {WHEEL: make_wheel({"pkg.py": MODULE}), "pkg-1.0.tar.gz": b"x"}
    small.publish("pkg", files)
    as_json = small.indexes().files("pkg")
    small.publish("pkg", files, form="html")
    assert small.indexes().files("pkg") == as_json
    assert {file.kind for file in as_json} == {"wheel", "sdist"}


def test_a_project_name_is_normalised_before_it_is_asked_for(small: SmallIndex) -> None:
    small.publish("my-pkg", {"my_pkg-1.0-py3-none-any.whl": b""})
    assert small.indexes().versions("My.Pkg") == (Version("1.0"),)


def test_a_release_whose_files_are_all_yanked_is_no_version(small: SmallIndex) -> None:
    small.publish("pkg", {WHEEL: b""}, yanked="broken")
    assert small.indexes().files("pkg")[0].yanked
    assert small.indexes().versions("pkg") == ()


def test_files_with_names_outside_the_rules_are_left_out(small: SmallIndex) -> None:
    small.publish("pkg", {WHEEL: b"", "pkg-1.0-py2.7.egg": b"", "pkg-dev.tar.gz": b"", "pkg-1.0.whl": b""})
    assert [file.filename for file in small.indexes().files("pkg")] == [WHEEL]


def test_several_indexes_are_merged_and_the_first_one_wins_a_name(small: SmallIndex) -> None:
    other = SmallIndex()
    small.publish("pkg", {WHEEL: b"first"})
    other.publish("pkg", {WHEEL: b"second", "pkg-2.0-py3-none-any.whl": b""})
    files = index.Indexes((small.url, other.url)).files("pkg")
    assert [str(file.version) for file in files] == ["1.0", "2.0"]
    assert files[0].sha256 == hashlib.sha256(b"first").hexdigest()


def test_an_unknown_package_is_refused_with_the_indexes_asked(small: SmallIndex) -> None:
    with pytest.raises(Refused) as caught:
        small.indexes().files("nothing")
    assert caught.value.code == "package-unknown"
    assert small.url in str(caught.value.where)


def test_one_index_out_of_reach_is_enough_to_stop(small: SmallIndex) -> None:
    small.publish("pkg", {WHEEL: b""})
    gone = SmallIndex()
    gone.server.server_close()
    with pytest.raises(Unreachable) as caught:
        index.Indexes((small.url, f"http://user:secret@127.0.0.1:{gone.server.server_port}/simple")).files("pkg")
    assert caught.value.code == "index-unreachable"
    assert caught.value.remedy
    assert "secret" not in str(caught.value)


def test_an_index_that_answers_403_is_out_of_reach_and_not_empty(small: SmallIndex) -> None:
    small.status["/simple/pkg/"] = 403
    with pytest.raises(Unreachable, match="403"):
        small.indexes().files("pkg")


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("application/vnd.pypi.simple.v1+json", b"{}"),
        ("application/vnd.pypi.simple.v1+json", b"<html>"),
        ("application/vnd.pypi.simple.v1+json", b'{"files": [{"filename": "x"}]}'),
        ("image/png", b"\x89PNG"),
    ],
)
def test_a_page_that_is_no_project_page_is_told_as_such(small: SmallIndex, kind: str, body: bytes) -> None:
    small.pages["/simple/pkg/"] = (kind, body)
    with pytest.raises(Unreachable, match="no project page"):
        small.indexes().files("pkg")


def test_one_file_is_read_without_the_rest_of_the_wheel(small: SmallIndex) -> None:
    filler = hashlib.shake_256(b"").digest(4_000_000)
    wheel = make_wheel({"pkg/a.py": MODULE, "pkg/big.bin": filler, "pkg/b.py": b"x = 1\n"})
    small.publish("pkg", {WHEEL: wheel})
    with small.indexes().wheel("pkg", "1.0") as found:
        assert found.read("pkg/a.py") == MODULE
        assert b"\nName: pkg\n" in found.read(f"{found.dist_info}/METADATA")
        assert found.record()["pkg/a.py"].digest == hashlib.sha256(MODULE).hexdigest()
    assert all(ranged for path, ranged in small.asked if path.startswith("/files/"))


def test_what_was_read_once_comes_from_the_cache(small: SmallIndex) -> None:
    small.publish("pkg", {WHEEL: make_wheel({"pkg.py": MODULE})})
    small.indexes().wheel("pkg", "1.0").read("pkg.py")
    del small.blobs[f"/files/{WHEEL}"]
    assert small.indexes().wheel("pkg", "1.0").read("pkg.py") == MODULE


def test_a_server_without_ranges_costs_one_whole_download(small: SmallIndex) -> None:
    small.ranges = False
    small.publish("pkg", {WHEEL: make_wheel({"pkg.py": MODULE, "b.py": b""})})
    found = small.indexes().wheel("pkg", "1.0")
    assert found.read("pkg.py") == MODULE
    assert found.read("b.py") == b""
    small.asked.clear()
    assert small.indexes().wheel("pkg", "1.0").read("pkg-1.0.dist-info/METADATA").startswith(b"Metadata-Version")
    # One probe for ranges at most; the file itself lies in the cache.
    assert len([path for path, _ in small.asked if path.startswith("/files/")]) <= 1


def test_a_whole_download_with_another_hash_is_refused_and_not_kept(small: SmallIndex, tmp_path: Path) -> None:
    small.ranges = False
    small.publish("pkg", {WHEEL: make_wheel({"pkg.py": MODULE})})
    small.blobs[f"/files/{WHEEL}"] = make_wheel({"pkg.py": b"evil()\n"})
    with pytest.raises(Refused) as caught:
        small.indexes().wheel("pkg", "1.0").read("pkg.py")
    assert caught.value.code == "hash-differs"
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


def test_a_file_that_differs_from_record_is_refused(small: SmallIndex) -> None:
    info = "pkg-1.0.dist-info"
    wrong = f"pkg.py,sha256={'A' * 43},1\n{info}/RECORD,,\n".encode()
    small.publish("pkg", {WHEEL: make_wheel({"pkg.py": MODULE}, record=wrong)})
    with pytest.raises(Refused) as caught:
        small.indexes().wheel("pkg", "1.0").read("pkg.py")
    assert caught.value.code == "hash-differs"


def test_a_damaged_cache_is_refused_once_and_then_read_anew(small: SmallIndex, tmp_path: Path) -> None:
    small.publish("pkg", {WHEEL: make_wheel({"pkg.py": MODULE})})
    small.indexes().wheel("pkg", "1.0").read("pkg.py")
    damaged = [path for path in (tmp_path / "cache").rglob("*") if path.is_file() and path.read_bytes() == MODULE]
    damaged[0].write_bytes(MODULE[:-1])
    with pytest.raises(Refused):
        small.indexes().wheel("pkg", "1.0").read("pkg.py")
    assert small.indexes().wheel("pkg", "1.0").read("pkg.py") == MODULE


def test_a_file_that_the_wheel_does_not_have_is_not_found(small: SmallIndex) -> None:
    small.publish("pkg", {WHEEL: make_wheel({"pkg.py": MODULE})})
    with pytest.raises(FileNotFoundError):
        small.indexes().wheel("pkg", "1.0").read("other.py")


def test_something_that_is_no_zip_is_a_bad_wheel(small: SmallIndex) -> None:
    small.publish("pkg", {WHEEL: b"not a zip at all" * 100})
    with pytest.raises(Refused) as caught:
        small.indexes().wheel("pkg", "1.0").record()
    assert caught.value.code == "bad-wheel"


def test_a_wheel_that_vanished_is_out_of_reach(small: SmallIndex) -> None:
    small.publish("pkg", {WHEEL: b""})
    small.status[f"/files/{WHEEL}"] = 403
    with pytest.raises(Unreachable, match="403"):
        small.indexes().wheel("pkg", "1.0").record()


@pytest.mark.parametrize("cut", ["connection", "range"])
def test_an_answer_that_is_cut_short_is_an_error_and_nothing_of_it_is_kept(
    small: SmallIndex, tmp_path: Path, cut: str
) -> None:
    big = hashlib.shake_256(b"").digest(300_000)
    small.publish("pkg", {WHEEL: make_wheel({"pkg/a.bin": big, "pkg/b.bin": big[::-1]})})
    found = small.indexes().wheel("pkg", "1.0")
    found.record()
    small.cut = cut
    with pytest.raises((Unreachable, Refused)):
        found.read("pkg/a.bin")
    small.cut = ""
    assert small.indexes().wheel("pkg", "1.0").read("pkg/a.bin") == big


def test_the_wheel_for_the_machine_is_taken_before_a_pure_one_and_that_before_any(small: SmallIndex) -> None:
    names = [f"pkg-1.0-py3-none-{tag}.whl" for tag in ("manylinux_2_28_aarch64", "any", "manylinux_2_28_x86_64")]
    small.publish("pkg", dict.fromkeys(names, b""))
    small.publish("other", dict.fromkeys([name.replace("pkg", "other") for name in names[:1]], b""))
    assert small.indexes().wheel("pkg", "1.0").file.filename == names[2]
    assert small.indexes().wheel("pkg", "1.0", "riscv64").file.filename == names[1]
    assert small.indexes().wheel("other", "1.0").file.platforms == ("manylinux_2_28_aarch64",)


def test_a_release_without_a_wheel_is_refused(small: SmallIndex) -> None:
    small.publish("pkg", {"pkg-1.0.tar.gz": b""})
    with pytest.raises(Refused) as caught:
        small.indexes().wheel("pkg", "1.0")
    assert caught.value.code == "release-unknown"


def test_a_source_distribution_is_read_by_path_below_its_top_folder(small: SmallIndex) -> None:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        info = tarfile.TarInfo("pkg-1.0/src/pkg.py")
        info.size = len(MODULE)
        archive.addfile(info, io.BytesIO(MODULE))
    small.publish("pkg", {"pkg-1.0.tar.gz": stream.getvalue()})
    sdist = small.indexes().sdist("pkg", "1.0")
    assert sdist.read("src/pkg.py") == MODULE
    with pytest.raises(FileNotFoundError):
        sdist.read("pkg.py")


@pytest.mark.parametrize(
    "data", [b"\xff\n", b"a.py,sha256=!,1\n", b"a.py,sha256=AA,x\n", b"a.py,rot13=AA,1\n", b"a" * 2_000_000]
)
def test_a_malformed_record_is_told_by_its_line(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"line 1|utf-8|no CSV"):
        index.parse_record(data)


def test_record_lines_may_hold_commas_and_quotes() -> None:
    assert list(index.parse_record(b'"a,b.json",sha256=AA,1\n"q""q",,\n')) == ["a,b.json", 'q"q']


@pytest.fixture
def pip_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without any pip configuration."""
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_CERT", "PIP_CONFIG_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_CONFIG_DIRS", str(tmp_path / "xdg"))
    monkeypatch.setattr(index, "_SYSTEM_PIP_CONFIG", str(tmp_path / "etc-pip.conf"))
    return tmp_path


def test_without_configuration_the_index_is_pypi(pip_home: Path) -> None:
    assert index.configured().urls == ("https://pypi.org/simple",)


def test_pips_files_are_honoured_and_the_user_goes_before_the_machine(pip_home: Path) -> None:
    for folder, url in (("xdg/pip", "https://machine/simple"), ("config/pip", "https://user/simple")):
        (pip_home / folder).mkdir(parents=True)
        (pip_home / folder / "pip.conf").write_text(f"[global]\nindex-url = {url}\n")
    assert index.configured().urls == ("https://user/simple",)


def test_the_environment_goes_before_pips_files(pip_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (pip_home / "named.conf").write_text(
        "[install]\nindex-url = https://file/simple\nextra_index_url =\n  https://b/s\n"
    )
    monkeypatch.setenv("PIP_CONFIG_FILE", str(pip_home / "named.conf"))
    assert index.configured().urls == ("https://file/simple", "https://b/s")
    monkeypatch.setenv("PIP_INDEX_URL", "https://environment/simple")
    assert index.configured().urls == ("https://environment/simple", "https://b/s")


def test_indexes_on_this_machines_disk_are_skipped(pip_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "file:///opt/simple https://extra/simple")
    assert index.configured().urls == ("https://pypi.org/simple", "https://extra/simple")


def test_pips_switch_for_no_configuration_is_honoured(pip_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (pip_home / "config/pip").mkdir(parents=True)
    (pip_home / "config/pip/pip.conf").write_text("[global]\nindex-url = https://user/simple\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    assert index.configured().urls == ("https://pypi.org/simple",)


def test_the_real_index_gives_single_files_of_a_real_wheel() -> None:
    indexes = index.configured()
    assert Version("0.33.0") in indexes.versions("vllm")
    with indexes.wheel("vllm", "0.33.0") as wheel:
        assert b"_rsqrt" in wheel.read("vllm/models/flint/ops/norm.py")
        assert b"\nVersion: 0.33.0\n" in wheel.read(f"{wheel.dist_info}/METADATA")


def test_without_a_cache_a_whole_file_is_fetched_once_and_gone_in_the_end(
    small: SmallIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "taken").write_bytes(b"no folder")
    monkeypatch.setenv("PATCHKIT_CACHE", str(tmp_path / "taken"))
    small.publish("pkg", {"pkg-1.0.tar.gz": b"whatever"})
    (file,) = small.indexes().files("pkg")
    small.asked.clear()
    whole = small.indexes().download(file)
    assert whole.read_bytes() == b"whatever"
    assert small.indexes().download(file) == whole
    assert len(small.asked) == 1
