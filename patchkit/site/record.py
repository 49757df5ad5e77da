"""RECORD and dist-info: what a wheel's installer wrote down about the files it laid."""

from __future__ import annotations

from dataclasses import dataclass

from patchkit.images.model import Filesystem


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


def parse_record(data: bytes) -> dict[str, str]:
    """RECORD as path -> sha256 in hex; rows without a sha256 are left out.

    Source: "Recording installed projects", packaging.python.org: CSV rows ``path,algorithm=digest,size`` whose digest
    is urlsafe base64 without padding.
    """
    raise NotImplementedError


def find_dist(fs: Filesystem, base: str, package: str) -> Dist | None:
    """The distribution in ``base`` that installed the import package ``package``, or None."""
    raise NotImplementedError
