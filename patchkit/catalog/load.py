"""Reads a catalog from its folder and checks all that can be checked without an image; every fault is told at once."""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from packaging.specifiers import InvalidSpecifier, SpecifierSet

import patchkit
from patchkit import diff
from patchkit.catalog import nodes
from patchkit.catalog.decode import Decoder, Trail
from patchkit.catalog.faults import Faults, near
from patchkit.catalog.model import (
    Assert,
    Catalog,
    DropWhen,
    Gpus,
    ImagePattern,
    Manifest,
    PatchEntry,
    SyntaxCondition,
)
from patchkit.catalog.targets import TargetKind, targets_of
from patchkit.errors import BadInput, PatchkitError

_MAX_PATCH = 16 * 1024 * 1024


def load_catalog(root: Path | None = None) -> Catalog:
    """The catalog in ``root``; without one that of ``PATCHKIT_CATALOG``, else the built-in one.

    Raises:
        patchkit.errors.BadInput: ``no-catalog``, or ``bad-manifest`` with every fault of every file in its details.
    """
    root = catalog_root(root)
    faults = Faults()
    catalog = Catalog(root, tuple(_all(root, faults)))
    seen: dict[str, Path] = {}
    for each in catalog.manifests:
        if each.name in seen:
            faults.add(each.path, 1, 1, f"name {each.name} is taken by {seen[each.name]}")
        seen[each.name] = each.path
    faults.settle()
    return catalog


def catalog_root(root: Path | None = None) -> Path:
    """The catalog's folder: ``root`` where one is named, else that of ``PATCHKIT_CATALOG``, else the built-in one.

    Raises:
        patchkit.errors.BadInput: ``no-catalog``, there is none in that folder.
    """
    found = root or Path(os.environ.get("PATCHKIT_CATALOG") or built_in())
    if not any(file.is_file() for file in (found / "manifests").glob("*.yaml")):
        raise BadInput(
            "no-catalog",
            "there is no catalog: it would hold manifests/*.yaml",
            where=str(found),
            remedy=f"name another with --catalog DIR, or start one: patchkit init {found}",
        )
    return found


def built_in() -> Path:
    """The folder of the built-in catalog: the one inside the installed package, else the checkout's top level.

    Raises:
        patchkit.errors.BadInput: ``no-catalog``, the installation holds neither.
    """
    package = Path(patchkit.__file__).resolve().parent
    if (package / "_catalog").is_dir():
        return package / "_catalog"
    if (package.parent / "pyproject.toml").is_file() and (package.parent / "manifests").is_dir():
        return package.parent
    raise BadInput("no-catalog", "this installation holds no catalog", remedy="name one with --catalog DIR")


def load_manifest(path: Path) -> Manifest:
    """One manifest, its patches checked against the catalog folder that its ``manifests/`` folder lies in.

    Raises:
        patchkit.errors.BadInput: ``bad-manifest`` with every fault in its details, or ``no-manifest-file``.
    """
    return load_text(path, _bytes(path), path.resolve().parent.parent)


def load_text(path: Path, data: bytes, root: Path, pending: Mapping[str, bytes] = MappingProxyType({})) -> Manifest:
    """What ``load_manifest`` would give if ``path`` held ``data``: a changed manifest is checked before it is written.

    Args:
        pending: patches that are about to be written too, by their path below ``root``.

    Raises:
        patchkit.errors.BadInput: ``bad-manifest`` with every fault in its details.
    """
    faults = Faults()
    found = _load(path, data, root, faults, pending)
    faults.settle()
    assert found is not None
    return found


def _all(root: Path, faults: Faults) -> Iterator[Manifest]:
    for file in sorted((root / "manifests").iterdir()):
        if file.suffix == ".yaml" and file.is_file():
            found = _load(file, _bytes(file), root, faults)
            if found is not None:
                yield found
        elif file.suffix == ".yml":
            faults.add(file, 1, 1, "manifests end in .yaml; this one would be passed over in silence")


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadInput("no-manifest-file", f"cannot be read: {error.strerror}", where=str(path)) from error


def _load(
    path: Path, data: bytes, root: Path, faults: Faults, pending: Mapping[str, bytes] = MappingProxyType({})
) -> Manifest | None:
    node = nodes.compose(path, data, faults)
    if node is None:
        return None
    rules = _Rules(root, pending)
    decoder = Decoder(path, faults, rules.checks, {"path": path})
    rules.fault = decoder.fault
    found: Manifest | None = decoder.decode(node, Manifest)
    return found


class _Rules:
    """What the types alone do not hold, one method a class."""

    def __init__(self, root: Path, pending: Mapping[str, bytes]) -> None:
        self._root = root
        self._pending = pending
        self.fault: Callable[[Trail, str], None] = lambda trail, text: None
        self.checks: Mapping[type, Callable[..., None]] = {
            Manifest: self._manifest,
            ImagePattern: self._image,
            Gpus: self._gpus,
            PatchEntry: self._entry,
            DropWhen: self._drop_when,
            SyntaxCondition: self._syntax,
            Assert: self._assert,
        }

    def _manifest(self, manifest: Manifest, trail: Trail) -> None:
        self._range(manifest.versions, (*trail, "versions"))
        firsts: dict[tuple[object, ...], int] = {}
        for index, entry in enumerate(manifest.patches):
            key = (entry.id, tuple(sorted(entry.pre.items())), entry.versions, tuple(sorted(entry.platforms)))
            if key in firsts:
                self.fault(
                    (*trail, "patches", index, "id"),
                    f"{entry.id} stands twice (first as patches[{firsts[key]}]) with equal pre, versions "
                    "and platforms, so that nothing tells its variants apart",
                )
            firsts.setdefault(key, index)

    def _image(self, image: ImagePattern, trail: Trail) -> None:
        self._brackets(image.match, (*trail, "match"))

    def _gpus(self, gpus: Gpus, trail: Trail) -> None:
        if not gpus.only:
            self.fault((*trail, "only"), "only is empty, so that no GPU would do")
        for index, pattern in enumerate(gpus.only):
            self._brackets(pattern, (*trail, "only", index))

    def _brackets(self, pattern: str, trail: Trail) -> None:
        if pattern.count("[") != pattern.count("]"):
            self.fault(trail, f"{pattern}: an open bracket; in a shell pattern [ab] is one character")

    def _entry(self, entry: PatchEntry, trail: Trail) -> None:
        self._range(entry.versions, (*trail, "versions"))
        if entry.fuzz > 2:
            self.fault((*trail, "fuzz"), "fuzz is at most 2")
        targets = self._targets(entry, trail)
        if targets is None:
            return
        for name, listed in (("pre", entry.pre), ("post", entry.post)):
            for path in sorted(listed.keys() - targets.keys()):
                self.fault((*trail, name, path), f"{path} is no target of {entry.file}: {', '.join(sorted(targets))}")
            if listed:
                for path in sorted(targets.keys() - listed.keys()):
                    self.fault((*trail, name), f"{name} lacks {path}, a target of {entry.file}")
        if entry.fuzz and not entry.post:
            self.fault((*trail, "fuzz"), "fuzz above 0 needs post, the hash of every patched file")
        for path, kind in targets.items():
            self._presence(entry, path, kind, trail)
            # A condition that the pristine file fulfils would drop the patch at once.
            fixed = entry.drop_when.post.get(path) if entry.drop_when else None
            if fixed and fixed == entry.pre.get(path):
                self.fault(
                    (*trail, "drop_when", "post", path), f"holds already before the patch: {path} has this hash in pre"
                )

    def _presence(self, entry: PatchEntry, path: str, kind: str, trail: Trail) -> None:
        for name, listed, gone in (("pre", entry.pre, "create"), ("post", entry.post, "delete")):
            if path in listed and (listed[path] == "absent") != (kind == gone):
                word = "absent" if kind == gone else "a hash"
                self.fault((*trail, name, path), f"{entry.file} would {kind} {path}: its {name} must be {word}")
        if path in entry.pre and entry.pre[path] == entry.post.get(path):
            self.fault((*trail, "post", path), f"{path} has the same hash before and after")

    def _targets(self, entry: PatchEntry, trail: Trail) -> dict[str, TargetKind] | None:
        """The files that the entry's diff touches, path -> create, delete or modify; None after noting a fault."""
        place = (*trail, "file")
        data = self._pending.get(entry.file) or self._patch(entry.file, place)
        if data is None:
            return None
        try:
            return targets_of(diff.parse(data, entry.file))
        except PatchkitError as error:
            for said in (str(error), *error.details):
                self.fault(place, f"{entry.file}: {said}")
            return None

    def _patch(self, name: str, place: Trail) -> bytes | None:
        file = self._root / name
        if not file.is_file():
            self.fault(place, f"{name} is not there{_similar(file)}")
        elif not file.resolve().is_relative_to(self._root.resolve()):
            self.fault(place, f"{name} leads out of the catalog, to {file.resolve()}")
        elif file.stat().st_size > _MAX_PATCH:
            self.fault(place, f"{name} is larger than {_MAX_PATCH} bytes")
        else:
            return file.read_bytes()
        return None

    def _drop_when(self, condition: DropWhen, trail: Trail) -> None:
        if bool(condition.post) == (condition.syntax is not None):
            self.fault(trail, "drop_when takes either post or syntax")

    def _syntax(self, condition: SyntaxCondition, trail: Trail) -> None:
        if bool(condition.future) == bool(condition.function):
            self.fault(trail, "syntax takes either function with calls_no or calls_with, or future")
        elif condition.calls_no and condition.calls_with:
            self.fault((*trail, "calls_with"), "function takes either calls_no or calls_with")
        elif bool(condition.function) != bool(condition.calls_no or condition.calls_with):
            self.fault(trail, "function goes together with calls_no or calls_with")
        elif condition.except_under and not condition.calls_no:
            self.fault((*trail, "except_under"), "except_under goes together with calls_no")
        for callee, names in condition.calls_with.items():
            if not names:
                self.fault((*trail, "calls_with", callee), f"{callee} must name the parameters that are passed to it")

    def _assert(self, check: Assert, trail: Trail) -> None:
        for name, code in (("code", check.code), ("before", check.before)):
            try:
                ast.parse(code)
            except (SyntaxError, ValueError) as error:
                self.fault((*trail, name), f"not Python: {error}")

    def _range(self, text: str, trail: Trail) -> None:
        try:
            SpecifierSet(text)
        except InvalidSpecifier:
            self.fault(trail, f'{text!r} is no version range as ">=0.33,<0.34" is (PEP 440)')


def _similar(file: Path) -> str:
    beside = sorted(each.name for each in file.parent.iterdir()) if file.parent.is_dir() else []
    return near(file.name, beside)
