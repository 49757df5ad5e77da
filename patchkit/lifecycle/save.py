"""A patch into the catalog: diff with header, hashes, its place in the series. All of it is checked before a byte is
written."""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from patchkit import diff
from patchkit.catalog import edit, header
from patchkit.catalog.header import Header
from patchkit.catalog.load import load_text
from patchkit.catalog.model import Catalog, Manifest, PatchEntry
from patchkit.catalog.variants import in_range
from patchkit.errors import BadInput, Refused
from patchkit.lifecycle.files import write_all
from patchkit.plan import digest_of

Changes = Mapping[str, tuple[bytes | None, bytes | None]]
_MARKER = re.compile(rb"^(<{7}|\|{7}|>{7})( |$)")


@dataclass(frozen=True, slots=True)
class Draft:
    """A patch about to be saved: what changes (path -> before and after, None for no file), its prose, and the release
    that it was made on. ``file`` is the diff to write over, empty for a new one."""

    id: str
    changes: Changes
    prose: Header
    version: str
    python: tuple[int, int]
    file: str = ""
    upstream: str = ""


@dataclass(frozen=True, slots=True)
class Saved:
    """A patch as it was written. ``changed`` is False where the catalog held exactly this already."""

    entry: PatchEntry
    diff: bytes
    path: Path
    changed: bool


def save(catalog: Catalog, manifest: Manifest, draft: Draft) -> Saved:
    """Write the patch and list it in the manifest.

    Raises:
        patchkit.errors.Refused: ``nothing-changed``, ``conflict-markers``, ``does-not-compile``.
        patchkit.errors.BadInput: ``no-description``, ``patch-exists``, or what the changed manifest would have wrong.
    """
    if not draft.changes:
        raise Refused(
            "nothing-changed", "no file differs from its pristine form", where=draft.id, remedy="change a file"
        )
    if not draft.prose.title:
        raise BadInput(
            "no-description",
            "the patch needs a reason: people who meet it in two years will ask",
            where=draft.id,
            remedy="give it with --description 'Short reason'",
        )
    check_result(draft.changes, draft.python)
    text, entry, body = listed(catalog, manifest, draft)
    path = catalog.root / entry.file
    files = {path: body, manifest.path: text.encode()}
    changed = {each: data for each, data in files.items() if not each.exists() or each.read_bytes() != data}
    _check(catalog, manifest, text, entry, body)
    write_all(changed)
    return Saved(entry, body, path, bool(changed))


def listed(catalog: Catalog, manifest: Manifest, draft: Draft) -> tuple[str, PatchEntry, bytes]:
    """The manifest's new text, the entry in it and the patch's bytes; nothing is written."""
    old = {path: before for path, (before, _) in draft.changes.items() if before is not None}
    new = {path: after for path, (_, after) in draft.changes.items() if after is not None}
    body = header.render(draft.prose) + diff.write(old, new)
    entry = PatchEntry(
        id=draft.id,
        file="",
        pre={path: digest_of(before) for path, (before, _) in draft.changes.items()},
        post={path: digest_of(after) for path, (_, after) in draft.changes.items()},
        upstream=draft.upstream,
    )
    text = manifest.path.read_bytes().decode("utf-8-sig")
    variants = [each for each in manifest.patches if each.id == draft.id]
    own = next((each for each in variants if each.file == draft.file), None)
    if own is not None and all(own.pre.get(path, digest) == digest for path, digest in entry.pre.items()):
        entry = replace(entry, file=own.file)
    elif not variants:
        entry = replace(entry, file=_new_file(manifest, draft.id))
        if manifest.versions and not in_range(manifest.versions, draft.version):
            entry = replace(entry, versions=f"=={draft.version}")
    elif not draft.file:
        raise BadInput(
            "patch-exists",
            f"manifest {manifest.name} has a patch {draft.id} already",
            where=variants[0].file,
            remedy=f"change it: patchkit edit --image X --patch {draft.id}; or save under another --name",
        )
    else:
        text, entry = _as_variant(text, manifest, entry, draft.version)
    return edit.with_patch(text, entry), entry, body


def _as_variant(text: str, manifest: Manifest, entry: PatchEntry, version: str) -> tuple[str, PatchEntry]:
    """The entry as a further variant for ``version``, and the text in which the others make room for it."""
    variants = [each for each in manifest.patches if each.id == entry.id]
    same = next((each for each in variants if each.pre == entry.pre), None)
    if same is not None:
        return text, replace(entry, file=same.file)
    try:
        # Ranges take no local part (``+xpu``): PEP 440, "Inclusive ordered comparison".
        version = Version(version).public
    except InvalidVersion:
        raise Refused(
            "no-version",
            f"the package there calls itself {version!r}, which is no version (PEP 440): no range can tell a variant "
            "for it from the others",
            where=entry.id,
            remedy="save it as a patch of its own, under another --name",
        ) from None
    newest = all(_before(each.versions or manifest.versions, version) for each in variants)
    for each in variants:
        if in_range(each.versions, version):
            limit = f"<{version}" if newest else f"!={version}"
            text = edit.with_patch(text, PatchEntry(each.id, each.file, versions=_joined(each.versions, limit)))
    entry = replace(
        entry,
        file=_new_file(manifest, f"{entry.id}-{version}"),
        versions=f">={version}" if newest else f"=={version}",
    )
    if manifest.versions and not in_range(manifest.versions, version):
        text = edit.with_versions(text, _widened(manifest.versions, version))
    return text, entry


def _before(versions: str, version: str) -> bool:
    """Whether no exact release that the range names lies behind ``version``."""
    named = [Version(text) for operator, text in _bounds(versions) if operator != "<"]
    return all(each <= Version(version) for each in named)


def _bounds(versions: str) -> list[tuple[str, str]]:
    """The operator and version of each part of a range, less arbitrary equality, whose text need be no version."""
    return [
        (each.operator, each.version.removesuffix(".*")) for each in SpecifierSet(versions) if each.operator != "==="
    ]


def _joined(versions: str, limit: str) -> str:
    return ",".join(text for text in (versions, limit) if text)


def _widened(versions: str, version: str) -> str:
    """The range with ``version`` in it: the bound that kept it out is moved."""
    kept = [str(each) for each in SpecifierSet(versions) if each.contains(version, prereleases=True)]
    above = any(Version(text) <= Version(version) for _, text in _bounds(versions))
    return ",".join(sorted([*kept, f"<={version}" if above else f">={version}"], key=lambda text: text[0] != ">"))


def _new_file(manifest: Manifest, stem: str) -> str:
    """Beside the manifest's other patches."""
    folders = Counter(posixpath.dirname(each.file) for each in manifest.patches)
    folder = folders.most_common(1)[0][0] if folders else "patches"
    return f"{folder}/{stem}.patch"


def check_result(changes: Changes, python: tuple[int, int]) -> None:
    """Raise for what must not become a patch's result.

    Raises:
        patchkit.errors.Refused: ``conflict-markers`` or ``does-not-compile``, with every place in its details.
    """
    marked = [
        f"{path}:{number}"
        for path, (_, after) in changes.items()
        for number, line in enumerate((after or b"").split(b"\n"), 1)
        if _MARKER.match(line)
    ]
    if marked:
        raise Refused(
            "conflict-markers",
            f"{len(marked)} conflict markers are left",
            where=marked[0],
            remedy="settle each conflict, take its markers out, and save again",
            details=marked,
        )
    broken = []
    for path, (_, after) in changes.items():
        if after is not None and path.endswith(".py"):
            problem = diff.check_python(after, path, python)
            if problem is not None and problem.sure:
                broken.append(f"{path}:{problem.line}: {problem.what}")
    if broken:
        raise Refused(
            "does-not-compile",
            f"the result is not Python {python[0]}.{python[1]}",
            where=broken[0],
            remedy="mend it and save again",
            details=broken,
        )


def _check(catalog: Catalog, manifest: Manifest, text: str, entry: PatchEntry, body: bytes) -> None:
    """Read the new manifest as if it were written; its new diff is not on disk yet, so that it stands in as it is."""
    load_text(manifest.path, text.encode(), catalog.root, pending={entry.file: body})
