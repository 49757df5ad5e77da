"""Releases on a package index as if they were images: pristine files by ranged reads, plans without any container."""

from __future__ import annotations

import posixpath
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Protocol

from packaging.version import InvalidVersion, Version

from patchkit.catalog.model import Manifest, Match, PatchEntry
from patchkit.catalog.variants import choose, groups
from patchkit.errors import Refused
from patchkit.images.model import Entry, Identity, Reference
from patchkit.index import DistFile, Indexes, Sdist, Wheel, configured
from patchkit.plan import ABSENT, Plan, Series, digest_of, make_plan
from patchkit.site.model import Copy, FileFact, Launch, Site

#: The Python whose grammar counts where no image tells one.
PYTHON = (sys.version_info.major, sys.version_info.minor)
_BASE = "/site-packages"
_LAUNCH = Launch("unknown", "", "", "/", {}, source="a release on a package index")


class Release(Protocol):
    """The files of one release as shipped."""

    @property
    def version(self) -> str: ...

    @property
    def label(self) -> str:
        """How people call it: ``vllm 0.33.0``."""

    def hash_of(self, path: str) -> str:
        """``sha256:<hex>``, ``absent``, or empty where only reading the file would tell."""

    def read(self, path: str) -> bytes | None:
        """The file's bytes, None where the release has no such file."""

    def paths(self) -> frozenset[str]:
        """Every file that an installation has; empty where that is not known."""


@dataclass(frozen=True)
class WheelRelease:
    """A release with a wheel: its RECORD holds the hash of every file."""

    wheel: Wheel

    @property
    def version(self) -> str:
        return str(self.wheel.version)

    @property
    def label(self) -> str:
        return f"{self.wheel.file.package} {self.version}"

    def hash_of(self, path: str) -> str:
        line = self.wheel.record().get(path)
        if line is None:
            return ABSENT
        return f"sha256:{line.digest}" if line.algorithm == "sha256" else ""

    def read(self, path: str) -> bytes | None:
        try:
            return self.wheel.read(path)
        except FileNotFoundError:
            return None

    def paths(self) -> frozenset[str]:
        return frozenset(self.wheel.record())


@dataclass(frozen=True)
class SdistRelease:
    """A release with a source distribution only. Where the package lies in it is a custom, not a rule: at the top, in
    ``src``, or in ``python``."""

    sdist: Sdist

    @property
    def version(self) -> str:
        return str(self.sdist.file.version)

    @property
    def label(self) -> str:
        return f"{self.sdist.file.package} {self.version} (source)"

    def hash_of(self, path: str) -> str:
        return ""

    def read(self, path: str) -> bytes | None:
        for folder in ("", "src/", "python/"):
            try:
                return self.sdist.read(folder + path)
            except FileNotFoundError:
                continue
        return None

    def paths(self) -> frozenset[str]:
        return frozenset()


@dataclass(frozen=True)
class SiteRelease:
    """The package as it lies in an image. ``record`` holds the names in its RECORD, empty where it has none."""

    site: Site
    label: str
    record: frozenset[str] = frozenset()

    @property
    def version(self) -> str:
        return self.site.version

    def hash_of(self, path: str) -> str:
        if path not in self.site.files:
            return ""
        fact = self.site.files[path]
        return digest_of(fact.data if fact else None)

    def read(self, path: str) -> bytes | None:
        fact = self.site.files[path]
        return fact.data if fact else None

    def paths(self) -> frozenset[str]:
        return self.record


@dataclass(frozen=True)
class Remembering(Indexes):
    """Indexes that are asked for a package's list of files once in a run, however many releases are looked at."""

    _known: dict[str, tuple[DistFile, ...]] = field(default_factory=dict, repr=False, compare=False)

    def files(self, package: str) -> tuple[DistFile, ...]:
        if package not in self._known:
            self._known[package] = Indexes.files(self, package)
        return self._known[package]


def indexes(url: str | None = None) -> Indexes:
    """The index at ``url``, else those that pip is configured to use."""
    if url:
        return Remembering((url,))
    found = configured()
    return Remembering(found.urls, found.ca_bundle)


def distribution(manifest: Manifest) -> str:
    """What the package is called on an index."""
    return manifest.distribution or manifest.package.partition(".")[0]


def release(source: Indexes, package: str, version: str) -> Release:
    """One release: its wheel, else its source distribution.

    Raises:
        patchkit.errors.Refused: ``package-unknown`` or ``release-unknown``.
        patchkit.errors.Unreachable: an index does not answer.
    """
    try:
        return WheelRelease(source.wheel(package, version))
    except Refused as error:
        if error.code != "release-unknown":
            raise
    return SdistRelease(source.sdist(package, version))


def newest(source: Indexes, package: str) -> str:
    """The newest final release. Raises as ``release``."""
    versions = source.versions(package)
    final = [version for version in versions if not version.is_prerelease]
    return str(max(final or versions))


def made_on(source: Indexes, series: Series, entry: PatchEntry, near: Iterable[str]) -> Release | None:
    """A release whose files have the pre-images of ``entry``, told by RECORD alone; None where there is none.

    A file that an earlier patch of the series changes first has that patch's pre-image in the release. The versions in
    ``near`` are looked at first, then all from the newest down.
    """
    wanted = {path: {pre} | _earlier(series, entry, path) for path, pre in entry.pre.items()}
    if not wanted:
        return None
    package = distribution(series.manifest)
    known = source.versions(package)
    first = [version for text in near if (version := _version(text)) in known]
    for version in dict.fromkeys([*first, *reversed(known)]):
        try:
            found = WheelRelease(source.wheel(package, str(version)))
        except Refused:
            continue  # a release without a wheel tells no hashes
        if all(found.hash_of(path) in hashes for path, hashes in wanted.items()):
            return found
    return None


def _earlier(series: Series, entry: PatchEntry, path: str) -> set[str]:
    """The pre-images of ``path`` in the patches before this one."""
    ids = list(dict.fromkeys(each.id for each in series.manifest.patches))
    before = set(ids[: ids.index(entry.id)])
    return {each.pre[path] for each in series.manifest.patches if each.id in before and path in each.pre}


def _version(text: str) -> Version | None:
    try:
        return Version(text)
    except InvalidVersion:
        return None


def plan_for(source: Release, series: Series) -> Plan:
    """What the series would do to the release: the same plan that an image with it would get."""
    files = {path: _fact(path, source) for path in series.paths}
    copy = Copy(f"{_BASE}/{series.manifest.package}", _BASE, "wheel", source.version, serves=True)
    site = Site(
        launch=_LAUNCH,
        python=(*PYTHON, 0),
        search_path=(_BASE,),
        copies=(copy,),
        winner=copy,
        dist_info="",
        version=source.version,
        files=files,
    )
    platform = (series.manifest.platforms or ("",))[0]
    identity = Identity("", (), platform)
    match = Match(series.manifest, "name", series.manifest.name)
    return make_plan(Reference("release", source.label), identity, match, series, site, copy)


def _fact(path: str, source: Release) -> FileFact | None:
    data = source.read(path) if source.hash_of(path) != ABSENT else None
    if data is None:
        return None
    place = posixpath.join(_BASE, path)
    shipped = source.hash_of(path).removeprefix("sha256:")
    return FileFact(place, Entry(place, "file", 0o644, 0, 0, len(data)), data, shipped)


def answered_by_hash(source: Release, series: Series) -> dict[str, PatchEntry]:
    """The patches whose every pre-image the release has by its hashes alone, each with its variant: they apply, and no
    file need be read. Patches that share a file with another one are left to the plan."""
    users: dict[str, set[str]] = {}
    for entry in series.manifest.patches:
        for path in entry.pre:
            users.setdefault(path, set()).add(entry.id)
    platform = (series.manifest.platforms or ("",))[0]
    found = {}
    for variants in groups(series.manifest):
        if not all(entry.pre for entry in variants):
            continue
        if any(len(users[path]) > 1 for entry in variants for path in entry.pre):
            continue
        listed = [entry for entry in variants if all(source.hash_of(path) == pre for path, pre in entry.pre.items())]
        if listed:
            choice = choose(variants, source.hash_of, source.version, platform)
            if choice.entry is not None:
                found[choice.id] = choice.entry
    return found


def without(series: Series, ids: Iterable[str]) -> Series:
    """The series less some patches."""
    gone = set(ids)
    rest = tuple(entry for entry in series.manifest.patches if entry.id not in gone)
    files = {entry.file for entry in rest}
    return Series(
        replace(series.manifest, patches=rest),
        {file: patch for file, patch in series.patches.items() if file in files},
        {file: digest for file, digest in series.hashes.items() if file in files},
    )
