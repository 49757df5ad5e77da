"""RECORD and dist-info: what a wheel's installer wrote down about the files it laid."""

from __future__ import annotations

import json
import posixpath
import re
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from packaging.version import InvalidVersion, Version

from patchkit.images.model import Filesystem
from patchkit.site.view import View, as_view


@dataclass(frozen=True, slots=True)
class Dist:
    """One installed distribution. ``path`` is its dist-info (or egg-info) folder, ``name`` and ``version`` come from
    its METADATA, ``record`` is RECORD's path or empty, ``editable`` the source folder that ``direct_url.json`` names
    for an editable install, else empty."""

    path: str
    name: str
    version: str
    record: str = ""
    editable: str = ""


def dists_in(fs: Filesystem | View, base: str) -> list[Dist]:
    """The distributions that ``base`` holds metadata of, by name."""
    view = as_view(fs)
    return [
        _read_dist(view, posixpath.join(base, name))
        for name in view.sorted_names(base)
        if name.endswith((".dist-info", ".egg-info"))
    ]


def find_dist(fs: Filesystem | View, base: str, package: str) -> Dist | None:
    """The distribution in ``base`` that installed the import package ``package``, or None.

    A distribution of the same name is looked at first, then those whose RECORD or top_level.txt name the package. Of
    several (an upgrade that left the old metadata behind) the newest version is taken.
    """
    view = as_view(fs)
    folders = [n for n in view.sorted_names(base) if n.endswith((".dist-info", ".egg-info"))]
    named = [name for name in folders if _canonical(name.rpartition(".")[0].split("-")[0]) == _canonical(package)]
    for group in (named, [name for name in folders if name not in named]):
        found = [_read_dist(view, posixpath.join(base, name)) for name in group if _holds(view, base, name, package)]
        if found:
            return max(found, key=lambda dist: (_version(dist.version), dist.path))
    return None


def _canonical(name: str) -> str:
    """Source: packaging.python.org, "Names and normalization"."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _version(text: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion:
        return Version("0")


def _holds(view: View, base: str, name: str, package: str) -> bool:
    folder = posixpath.join(base, name)
    top = view.text(posixpath.join(folder, "top_level.txt"))
    if top is not None and package in top.split():
        return True
    record = b"\n" + (view.read(posixpath.join(folder, "RECORD")) or b"")
    marks = (f"\n{package}/", f"\n{package}.py,", f"\n./{package}/", f"\n__editable___{package}", f"\n{package}.")
    if any(mark.encode() in record for mark in marks):
        return True
    # An editable install, or metadata without a RECORD: its name is all there is.
    known = len(record) > 1 and b"__editable__" not in record and not _editable(view, folder)
    return not known and _canonical(name.rpartition(".")[0].split("-")[0]) == _canonical(package)


def _read_dist(view: View, path: str) -> Dist:
    headers: dict[str, str] = {}
    for name in ("METADATA", "PKG-INFO"):
        text = view.text(posixpath.join(path, name))
        if text is not None:
            for line in text.split("\n\n", 1)[0].splitlines():
                key, colon, value = line.partition(":")
                if colon and key not in headers:
                    headers[key] = value.strip()
            break
    stem = posixpath.basename(path).rpartition(".")[0]
    name, _, version = stem.partition("-")
    record = posixpath.join(path, "RECORD")
    return Dist(
        path,
        headers.get("Name", name),
        headers.get("Version", version.split("-")[0]),
        record if view.is_file(record) else "",
        _editable(view, path),
    )


def _editable(view: View, path: str) -> str:
    """The source folder of an editable install. Source: PEP 610."""
    text = view.text(posixpath.join(path, "direct_url.json"))
    if text is None:
        return ""
    try:
        data = json.loads(text)
        url = urlsplit(data["url"])
        editable = data.get("dir_info", {}).get("editable")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return ""
    return posixpath.normpath(unquote(url.path)) if url.scheme == "file" and editable is True else ""
