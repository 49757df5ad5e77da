"""Package indexes: which releases there are, and single files of a wheel without downloading the wheel.

The Simple Repository API is read as JSON (PEP 691) and, from older servers, as HTML (PEP 503). Indexes are those that
pip is configured to use. Files of a wheel are read by ranged requests, checked against the wheel's RECORD, and cached
by the wheel's hash; a server without ranged requests costs one whole download, checked against the index's sha256.
"""

from __future__ import annotations

import atexit
import base64
import binascii
import configparser
import contextlib
import csv
import functools
import hashlib
import io
import os
import shutil
import sys
import tarfile
import tempfile
import urllib.parse
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Literal

import requests
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version
from remotezip import RemoteZip, RemoteZipError
from requests.adapters import HTTPAdapter
from urllib3.exceptions import HTTPError
from urllib3.util.retry import Retry

from patchkit import cache
from patchkit.errors import BadInput, Refused, Unreachable

#: No file that patchkit reads out of a wheel or sdist is larger; RECORD of the largest wheels is about 1 MB.
MAX_READ = 64 * 1024 * 1024
_TIMEOUT = (10, 60)  # seconds to connect, seconds between two bytes
_PYPI = "https://pypi.org/simple"
_SYSTEM_PIP_CONFIG = "/etc/pip.conf"
# https://packaging.python.org/specifications/simple-repository-api/ names these content types.
_JSON = "application/vnd.pypi.simple.v1+json"
_HTML = ("application/vnd.pypi.simple.v1+html", "text/html")
_ACCEPT = f"{_JSON}, {_HTML[0]};q=0.2, {_HTML[1]};q=0.1"


@dataclass(frozen=True, slots=True)
class DistFile:
    """One file of a release as the index lists it. ``sha256`` is hex, empty where the index gives none; ``size`` is in
    bytes, 0 where unknown; ``yanked`` is whether the maintainers took it back (PEP 592); ``platforms`` are a wheel's
    platform tags (``manylinux_2_28_x86_64``, ``any``), empty for an sdist."""

    package: str
    version: Version
    filename: str
    url: str
    kind: Literal["wheel", "sdist"]
    sha256: str = ""
    size: int = 0
    yanked: bool = False
    platforms: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Recorded:
    """One line of RECORD: the hash as hex with its algorithm, and the size in bytes; empty and None where RECORD gives
    none (as for RECORD itself)."""

    algorithm: str = ""
    digest: str = ""
    size: int | None = None


def configured() -> Indexes:
    """The indexes that pip is configured to use here: its files and environment, ``file:`` ones skipped.

    Precedence as in pip (https://pip.pypa.io/en/stable/topics/configuration/): environment over PIP_CONFIG_FILE over
    site over user over global; within a file ``[install]`` over ``[global]``.
    """
    settings: dict[str, str] = {}
    for path in _pip_config_files():
        parser = configparser.RawConfigParser()
        with contextlib.suppress(configparser.Error, UnicodeDecodeError):  # pip itself will tell the person
            parser.read(path, encoding="utf-8")
        for section in ("global", "install"):
            if parser.has_section(section):
                settings.update({name.replace("_", "-"): value for name, value in parser.items(section)})
    for name in ("index-url", "extra-index-url", "cert"):
        settings[name] = os.environ.get("PIP_" + name.upper().replace("-", "_")) or settings.get(name, "")
    urls = [settings["index-url"] or _PYPI, *settings["extra-index-url"].split()]
    return Indexes(tuple(dict.fromkeys(url for url in urls if not url.startswith("file:"))), settings["cert"])


@dataclass(frozen=True, slots=True)
class Indexes:
    """Package indexes to ask, in order, and the CA bundle to trust (empty: the default one)."""

    urls: tuple[str, ...]
    ca_bundle: str = ""
    _session: requests.Session = field(default_factory=lambda: _new_session(), repr=False, compare=False)

    def files(self, package: str) -> tuple[DistFile, ...]:
        """All wheels and sdists of ``package``, oldest version first, as all indexes together list them.

        Files whose names do not follow the rules (eggs, legacy versions) are left out; of two files with one name the
        first index's counts.

        Raises:
            patchkit.errors.Refused: ``package-unknown``, no index knows the package.
            patchkit.errors.Unreachable: ``index-unreachable``; one index that does not answer is enough, since a
                release list with holes would pass for a whole one.
        """
        name = canonicalize_name(package)
        found: dict[str, DistFile] = {}
        known = False
        for url in self.urls:
            page = self._project_page(f"{url.rstrip('/')}/{name}/")
            known = known or page is not None
            for file in page or ():
                found.setdefault(file.filename, file)
        if not known:
            raise Refused(
                "package-unknown",
                f"no package index knows {name}",
                where=", ".join(map(_public, self.urls)) or "no index is configured",
                remedy="pip config list  # shows the indexes that are asked; PIP_EXTRA_INDEX_URL adds one",
            )
        return tuple(sorted(found.values(), key=lambda file: (file.version, file.filename)))

    def versions(self, package: str) -> tuple[Version, ...]:
        """The versions of ``package`` with at least one file that is not yanked, oldest first. Raises as ``files``."""
        return tuple(dict.fromkeys(file.version for file in self.files(package) if not file.yanked))

    def wheel(self, package: str, version: str, machine: str = "x86_64") -> Wheel:
        """The wheel of ``package`` at ``version``: one for ``machine`` (as ``uname -m`` spells it), else a pure one,
        else any, since their Python sources seldom differ.

        Raises:
            patchkit.errors.BadInput: ``no-version``.
            patchkit.errors.Refused: ``package-unknown``, or ``release-unknown``: there is no such release, or it has
                no wheel.
            patchkit.errors.Unreachable: as ``files``.
        """
        wanted = asked_version(version)
        wheels = [file for file in self.files(package) if file.version == wanted and file.kind == "wheel"]
        if not wheels:
            raise Refused(
                "release-unknown",
                f"no package index has a wheel of {package} {version}",
                where=", ".join(map(_public, self.urls)),
                remedy=f"pip index versions {package}",
            )

        def rank(file: DistFile) -> tuple[int, str]:
            fits = any(tag.endswith(machine) for tag in file.platforms)
            return (0 if fits else 1 if "any" in file.platforms else 2, file.filename)

        return Wheel(min(wheels, key=rank), self)

    def sdist(self, package: str, version: str) -> Sdist:
        """The source distribution of ``package`` at ``version``. Raises as ``wheel``."""
        wanted = asked_version(version)
        for file in self.files(package):
            if file.version == wanted and file.kind == "sdist":
                return Sdist(file, self)
        raise Refused(
            "release-unknown",
            f"no package index has a source distribution of {package} {version}",
            where=", ".join(map(_public, self.urls)),
            remedy=f"pip index versions {package}",
        )

    def download(self, file: DistFile) -> Path:
        """The whole file in the cache, fetched if it is not there yet and checked against the index's sha256; where the
        cache cannot be used, in a folder that goes when this process ends.

        Raises:
            patchkit.errors.Refused: ``hash-differs``.
            patchkit.errors.Unreachable: the server does not give it.
        """
        path = _cache_folder(file) / file.filename
        if cache.holds(path):
            return path
        digest = hashlib.sha256()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, part = tempfile.mkstemp(dir=path.parent, prefix=".part-")
        except OSError:
            path = _spare_folder() / path.parent.name / file.filename
            if path.exists():
                return path
            path.parent.mkdir(exist_ok=True)
            handle, part = tempfile.mkstemp(dir=path.parent, prefix=".part-")
        try:
            with os.fdopen(handle, "wb") as stream, _reaching(file.url):
                response = self._get(file.url, stream=True)
                response.raise_for_status()
                for chunk in response.iter_content(1 << 20):
                    digest.update(chunk)
                    stream.write(chunk)
            if file.sha256 and digest.hexdigest() != file.sha256:
                raise _altered(file, file.filename, file.sha256, digest.hexdigest())
            Path(part).replace(path)
        finally:
            Path(part).unlink(missing_ok=True)
        return path

    def _get(self, url: str, **options: Any) -> requests.Response:
        return self._session.get(url, timeout=_TIMEOUT, verify=self.ca_bundle or None, **options)

    def _project_page(self, url: str) -> list[DistFile] | None:
        with _reaching(url):
            response = self._get(url, headers={"Accept": _ACCEPT})
            if response.status_code in (404, 410):
                return None
            response.raise_for_status()
        kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        base = response.url
        if kind == _JSON:
            try:
                links = [_json_link(item) for item in response.json()["files"]]
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise _no_page(url, f"its JSON is no project page (PEP 691): {error!r}") from None
        elif kind in _HTML:
            parser = _Anchors()
            parser.feed(response.text)
            links = parser.links
            base = urllib.parse.urljoin(base, parser.base)
        else:
            raise _no_page(url, f"it answers with {kind or 'no content type'}, no project page")
        return [file for link in links if (file := _dist_file(link, base)) is not None]


@dataclass(frozen=True)
class Wheel:
    """One wheel on an index. Files come from the cache, else by ranged requests; what is read is checked against
    RECORD, so that a truncated or altered answer never passes for the shipped file. (RECORD itself is as trustworthy
    as the connection; where the whole wheel was downloaded, the index's sha256 vouches for it.)

    Context manager: leaving it closes the connection's state; it opens again when needed.
    """

    file: DistFile
    indexes: Indexes

    def __enter__(self) -> Wheel:
        return self

    def __exit__(self, *exc: object) -> None:
        archive: zipfile.ZipFile | None = self.__dict__.pop("_archive", None)
        if archive is not None:
            archive.close()

    @property
    def version(self) -> Version:
        return self.file.version

    @property
    def dist_info(self) -> str:
        """The wheel's ``.dist-info`` folder; its name is the file name's first two parts."""
        return "-".join(self.file.filename.split("-")[:2]) + ".dist-info"

    def read(self, path: str, limit: int = MAX_READ) -> bytes:
        """The bytes of one file, by its path inside the wheel (``vllm/models/flint/model.py``); at most ``limit``.

        Raises:
            FileNotFoundError: the wheel has no such file.
            patchkit.errors.Refused: ``hash-differs`` from RECORD, ``not-in-record``, or ``file-too-large``.
            patchkit.errors.Unreachable: the server does not give it.
        """
        if path == f"{self.dist_info}/RECORD":
            return self._record
        line = self.record().get(path)
        if line is None:
            raise FileNotFoundError(f"{path} is not in {self.file.filename}")
        if not line.algorithm:
            raise Refused("not-in-record", "RECORD holds no hash for this file", where=self._place(path))
        data = self._cached(path, limit)
        actual = hashlib.new(line.algorithm, data).hexdigest()
        if actual != line.digest:
            self._cache_path(path).unlink(missing_ok=True)
            raise _altered(self.file, path, line.digest, actual)
        return data

    def record(self) -> Mapping[str, Recorded]:
        """RECORD as a mapping from path inside the wheel to hash and size: the pre-images of all files in one read.
        Raises as ``read``."""
        return self._lines

    @cached_property
    def _record(self) -> bytes:
        return self._cached(f"{self.dist_info}/RECORD")

    @cached_property
    def _lines(self) -> Mapping[str, Recorded]:
        try:
            return parse_record(self._record)
        except ValueError as error:
            raise Refused("bad-record", str(error), where=self._place(f"{self.dist_info}/RECORD")) from None

    @cached_property
    def _archive(self) -> zipfile.ZipFile:
        try:
            ranged: zipfile.ZipFile = RemoteZip(
                self.file.url,
                session=self.indexes._session,
                timeout=_TIMEOUT,
                verify=self.indexes.ca_bundle or None,
                # Ranges must count the file's own bytes, not those of a transfer encoding.
                headers={"Accept-Encoding": "identity"},
            )
        except RemoteZipError:  # the server knows no ranges, or not those that are asked for
            whole = self.indexes.download(self.file)
        except zipfile.BadZipFile as error:
            raise self._damaged(error) from None
        else:
            return ranged
        try:
            return zipfile.ZipFile(whole)
        except zipfile.BadZipFile as error:
            raise self._damaged(error) from None

    def _cached(self, path: str, limit: int = MAX_READ) -> bytes:
        place = self._cache_path(path)
        data = cache.read(place)
        if data is None:
            data = self._fetch(path, limit)
            cache.write(place, data)
        return data

    def _fetch(self, path: str, limit: int) -> bytes:
        try:
            info = self._archive.getinfo(path)
        except KeyError:
            raise FileNotFoundError(f"{path} is not in {self.file.filename}") from None
        if info.file_size > limit:
            raise Refused("file-too-large", f"it has {info.file_size} bytes", where=self._place(path))
        with _reaching(self.file.url):
            try:
                with self._archive.open(info) as stream:
                    return stream.read(info.file_size)
            # EOFError: cut short; NotImplementedError: an unknown compression; RuntimeError: encrypted.
            except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
                raise self._damaged(error) from None

    def _cache_path(self, path: str) -> Path:
        # By the path's hash: a name inside a wheel is hostile input and must not become a path on the host.
        return _cache_folder(self.file) / "files" / hashlib.sha256(path.encode()).hexdigest()

    def _damaged(self, error: Exception) -> Refused:
        return Refused(
            "bad-wheel",
            f"the wheel is damaged: {str(error) or 'its data ends early'}",
            where=_public(self.file.url),
            remedy="run the command again; if it stays, the index or a proxy in between changes files",
        )

    def _place(self, path: str) -> str:
        return f"{_public(self.file.url)}#{path}"


@dataclass(frozen=True)
class Sdist:
    """One source distribution on an index: downloaded whole, checked against the index's sha256, and cached."""

    file: DistFile
    indexes: Indexes

    def read(self, path: str) -> bytes:
        """The bytes of one file, by its path below the sdist's top folder (``src/pkg/x.py``).

        Raises:
            FileNotFoundError: the sdist has no such file.
            patchkit.errors.Refused: ``hash-differs``, ``bad-sdist`` or ``file-too-large``.
            patchkit.errors.Unreachable: the server does not give it.
        """
        whole = self.indexes.download(self.file)
        try:
            with tarfile.open(whole, "r:gz") as archive:
                for member in archive:
                    if member.isfile() and member.name.partition("/")[2] == path:
                        if member.size > MAX_READ:
                            raise Refused("file-too-large", f"it has {member.size} bytes", where=str(whole))
                        stream = archive.extractfile(member)
                        assert stream is not None  # it is a regular file
                        return stream.read()
        except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
            raise Refused("bad-sdist", f"it is no readable tar.gz: {error}", where=_public(self.file.url)) from None
        raise FileNotFoundError(f"{path} is not in {self.file.filename}")


def asked_version(text: str) -> Version:
    """The version that a person wrote.

    Raises:
        patchkit.errors.BadInput: ``no-version``.
    """
    try:
        return Version(text)
    except InvalidVersion:
        raise BadInput(
            "no-version",
            f"{text!r} is no version (PEP 440)",
            remedy="write one release, as 0.33.0, or latest for the newest",
        ) from None


def asked_range(text: str) -> SpecifierSet:
    """The range of versions that a person wrote; a version alone stands for just that one.

    Raises:
        patchkit.errors.BadInput: ``no-range``.
    """
    parts = [part.strip() for part in text.split(",")]
    try:
        return SpecifierSet(",".join(f"=={part}" if part[:1].isdigit() else part for part in parts))
    except InvalidSpecifier:
        raise BadInput(
            "no-range",
            f"{text!r} is no range of versions (PEP 440)",
            remedy="write one release, as 0.33.0, or a range in quotes, as '>=0.33,<0.34'",
        ) from None


def parse_record(data: bytes) -> dict[str, Recorded]:
    """The lines of a RECORD file (https://packaging.python.org/specifications/recording-installed-packages/).

    Raises:
        ValueError: it is no UTF-8 CSV of up to three columns, or a hash is malformed.
    """
    lines: dict[str, Recorded] = {}
    try:
        rows = list(csv.reader(io.StringIO(data.decode("utf-8"), newline="")))
    except csv.Error as error:
        raise ValueError(f"RECORD is no CSV: {error}") from None
    for number, row in enumerate(rows, start=1):
        if not row:
            continue
        path, hashed, size, *_ = [*row, "", ""]
        algorithm, _, encoded = hashed.partition("=")
        try:
            digest = base64.b64decode(encoded + "=" * (-len(encoded) % 4), altchars=b"-_", validate=True).hex()
            lines[path] = Recorded(algorithm, digest, int(size) if size else None)
        except (ValueError, binascii.Error):
            raise ValueError(f"RECORD line {number} is malformed") from None
        if algorithm and algorithm not in hashlib.algorithms_guaranteed:
            raise ValueError(f"RECORD line {number} has the unknown hash {algorithm}")
    return lines


@dataclass(frozen=True, slots=True)
class _Link:
    filename: str
    url: str
    sha256: str = ""
    size: int = 0
    yanked: bool = False


class _Anchors(HTMLParser):
    """The links of a PEP 503 page: hash in the fragment, ``data-yanked`` from PEP 592."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[_Link] = []
        self.base = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        href = attributes.get("href") or ""
        if tag == "base":
            self.base = href
        elif tag == "a" and href:
            url, _, fragment = href.partition("#")
            name, _, digest = fragment.partition("=")
            filename = urllib.parse.unquote(urllib.parse.urlsplit(url).path.rpartition("/")[2])
            self.links.append(
                _Link(filename, url, digest if name == "sha256" else "", yanked="data-yanked" in attributes)
            )


def _json_link(item: Mapping[str, Any]) -> _Link:
    return _Link(
        filename=str(item["filename"]),
        url=str(item["url"]).partition("#")[0],
        sha256=str(item["hashes"].get("sha256", "")),
        size=int(item.get("size") or 0),
        yanked=bool(item.get("yanked", False)),
    )


def _dist_file(link: _Link, base: str) -> DistFile | None:
    url = urllib.parse.urljoin(base, link.url)
    try:
        if link.filename.endswith(".whl"):
            name, version, _, tags = parse_wheel_filename(link.filename)
            platforms = tuple(sorted({tag.platform for tag in tags}))
            return DistFile(name, version, link.filename, url, "wheel", link.sha256, link.size, link.yanked, platforms)
        if link.filename.endswith(".tar.gz"):
            name, version = parse_sdist_filename(link.filename)
            return DistFile(name, version, link.filename, url, "sdist", link.sha256, link.size, link.yanked)
    except (InvalidWheelFilename, InvalidSdistFilename):
        pass
    return None


def _pip_config_files() -> list[str]:
    """pip's own list, least important first; PIP_CONFIG_FILE=/dev/null turns all of them off, as in pip."""
    named = os.environ.get("PIP_CONFIG_FILE", "")
    if named == os.devnull:
        return []
    home = cache.home()
    shared = [folder for folder in os.environ.get("XDG_CONFIG_DIRS", "").split(":") if folder] or ["/etc/xdg"]
    user = os.environ.get("XDG_CONFIG_HOME") or str(home / ".config")
    return [
        *(f"{folder}/pip/pip.conf" for folder in reversed(shared)),
        _SYSTEM_PIP_CONFIG,
        str(home / ".pip/pip.conf"),
        f"{user}/pip/pip.conf",
        f"{sys.prefix}/pip.conf",
        *([named] if named else []),
    ]


def _new_session() -> requests.Session:
    session = requests.Session()
    retries = Retry(total=3, backoff_factor=0.3, status_forcelist=(429, 500, 502, 503, 504), raise_on_status=False)
    for scheme in ("http://", "https://"):
        session.mount(scheme, HTTPAdapter(max_retries=retries))
    return session


@contextlib.contextmanager
def _reaching(url: str) -> Iterator[None]:
    """Turn whatever the network does wrong into Unreachable."""
    try:
        yield
    except (requests.RequestException, HTTPError, RemoteZipError, ConnectionError, TimeoutError) as error:
        raise Unreachable(
            "index-unreachable",
            f"the package index does not answer: {_reason(error)}",
            where=_public(url),
            remedy="pip config list  # shows the indexes that are asked; PIP_INDEX_URL sets another",
        ) from None


def _reason(error: Exception) -> str:
    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"HTTP status {error.response.status_code}"
    return type(error).__name__


def _no_page(url: str, what: str) -> Unreachable:
    return Unreachable(
        "index-unreachable", what, where=_public(url), remedy="pip config list  # is this URL a package index?"
    )


def _altered(file: DistFile, path: str, wanted: str, actual: str) -> Refused:
    return Refused(
        "hash-differs",
        f"what was read has the hash {actual[:12]}, not {wanted[:12]} as recorded: altered or cut on the way",
        where=f"{_public(file.url)}#{path}",
        remedy="run the command again; if it stays, the index or a proxy in between changes files",
    )


def _public(url: str) -> str:
    """The URL without the name and password that it may hold."""
    parts = urllib.parse.urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


@functools.cache
def _spare_folder() -> Path:
    folder = tempfile.mkdtemp(prefix="patchkit-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def _cache_folder(file: DistFile) -> Path:
    key = file.sha256 or hashlib.sha256(file.url.encode()).hexdigest()
    return cache.folder("wheels") / key
