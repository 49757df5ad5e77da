"""The typed form of a manifest. One class a mapping of the YAML; field names are the YAML's keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, slots=True)
class ImagePattern:
    """A shell pattern over ``name:tag`` (``vllm-xpu:*``, ``*/intel/vllm:*``); ``*`` crosses slashes."""

    match: str


@dataclass(frozen=True, slots=True)
class KnownDigest:
    """One image digest that somebody has looked at: which package version it holds, and when it was seen (ISO date)."""

    version: str
    seen: str = ""


@dataclass(frozen=True, slots=True)
class Assert:
    """A Python snippet that proves a patch at run time: run after ``import module`` in a fresh process under the
    launch; fails by raising. ``before`` runs before the import. ``needs`` declares what it needs."""

    module: str
    code: str
    before: str = ""
    needs: tuple[Literal["torch", "gpu"], ...] = ()


@dataclass(frozen=True, slots=True)
class DropWhen:
    """Machine-checked condition under which a patch is no longer needed. Exactly one is set: ``post`` (path -> sha256
    of a file as fixed upstream), or ``syntax``: a condition on a file's syntax tree."""

    post: Mapping[str, str] = field(default_factory=dict)
    syntax: SyntaxCondition | None = None


@dataclass(frozen=True, slots=True)
class SyntaxCondition:
    """Holds when function ``function`` (dotted for methods) in ``path`` calls none of ``calls_no`` (dotted names as
    written, matched on their last part too), or when the module has ``future`` imported from ``__future__``."""

    path: str
    function: str = ""
    calls_no: tuple[str, ...] = ()
    future: str = ""


@dataclass(frozen=True, slots=True)
class PatchEntry:
    """One patch of the series. ``pre`` and ``post`` map package-relative paths to ``sha256:<hex>`` of pre- and
    post-image. ``versions`` narrows the manifest's range, ``platforms`` lists ``linux/amd64`` and such (empty: all).
    ``fuzz`` above 0 is allowed only with ``post`` pinned. Entries that share an ``id`` are variants of one patch."""

    id: str
    file: str
    pre: Mapping[str, str] = field(default_factory=dict)
    post: Mapping[str, str] = field(default_factory=dict)
    versions: str = ""
    platforms: tuple[str, ...] = ()
    fuzz: int = 0
    upstream: str = ""
    drop_when: DropWhen | None = None
    asserts: tuple[Assert, ...] = ()


@dataclass(frozen=True, slots=True)
class RefusedEnv:
    """An environment setting of the image or service under which the series must not be used, and why."""

    name: str
    values: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """One image family, its package, and the ordered series of patches."""

    path: Path
    name: str
    package: str
    versions: str
    images: tuple[ImagePattern, ...]
    patches: tuple[PatchEntry, ...]
    digests: Mapping[str, KnownDigest] = field(default_factory=dict)
    service: str = ""
    decoys: tuple[str, ...] = ()
    platforms: tuple[str, ...] = ()
    strict: bool = False
    refused_env: tuple[RefusedEnv, ...] = ()


@dataclass(frozen=True, slots=True)
class Catalog:
    """A folder with ``manifests/`` and ``patches/``."""

    root: Path
    manifests: tuple[Manifest, ...]

    def patch_bytes(self, entry: PatchEntry) -> bytes:
        """The diff's bytes, header included. ``entry.file`` was checked to lie inside ``root`` at load."""
        return (self.root / entry.file).read_bytes()


@dataclass(frozen=True, slots=True)
class Match:
    """Why a manifest was chosen: a listed digest, an image pattern, or by name; with what is to be told about it."""

    manifest: Manifest
    by: Literal["digest", "pattern", "name"]
    detail: str
    notes: tuple[str, ...] = ()
