"""The levels that the image's files alone decide, and that its interpreter must confirm: bytes and resolves."""

from __future__ import annotations

import hashlib
import posixpath

from patchkit.errors import Refused
from patchkit.plan import ABSENT
from patchkit.proof.evidence import Evidence
from patchkit.proof.model import Expectation, FileProof
from patchkit.site.entry import path_changes
from patchkit.site.facts import place, told_place
from patchkit.site.static import find_module


def bytes_level(evidence: Evidence) -> list[FileProof]:
    """The file at the real path has the post-image's hash, mode and owner, and a process inside sees the same."""
    return [_bytes(evidence, item) for item in evidence.expectations]


def _bytes(evidence: Evidence, item: Expectation) -> FileProof:
    def failed(cause: str, detail: str) -> FileProof:
        return FileProof(item.relative, "failed", cause, detail)

    real = evidence.view.real(item.path)
    if real != item.path:
        return failed("moved", f"{item.path} now leads to {real}")
    entry = evidence.view.lstat(item.path)
    inside = evidence.told("files", item.path)
    if item.sha256 == ABSENT:
        if entry is not None:
            return failed("present", f"{item.path} should have been removed and is there")
        if inside is not None:
            return failed("present inside", f"a process inside sees {item.path}, which should have been removed")
        return FileProof(item.relative, "passed")
    if entry is None:
        return failed("missing", f"{item.path} is not there")
    if entry.kind != "file":
        return failed("no file", f"{item.path} is no regular file ({entry.kind})")
    try:
        digest = hashlib.sha256(evidence.view.fs.read(item.path)).hexdigest()
    except (FileNotFoundError, Refused) as error:
        return failed("unreadable", f"{item.path} cannot be read: {error}")
    if digest != item.sha256:
        return failed("other bytes", f"{item.path} has sha256 {digest}, expected {item.sha256}")
    for name, wanted, found in (
        ("mode", item.mode, entry.mode),
        ("owner", item.uid, entry.uid),
        ("group", item.gid, entry.gid),
    ):
        if wanted is not None and wanted != found:
            shown = (f"{found:04o}", f"{wanted:04o}") if name == "mode" else (str(found), str(wanted))
            return failed(name, f"{item.path} has {name} {shown[0]}, expected {shown[1]}")
    if evidence.answer is not None and evidence.answer.spoke:
        if inside is None:
            return failed("missing inside", f"a process inside does not see {item.path}")
        if inside.get("kind") == "unreadable":
            return failed("unreadable", f"the launch's user cannot read {item.path}: {inside.get('error')}")
        if inside.get("sha256") != item.sha256:
            return failed("other bytes inside", f"a process inside sees other bytes at {item.path}")
    return FileProof(item.relative, "passed")


def resolves_level(evidence: Evidence) -> list[FileProof]:
    """The launch finds this file: not another, not a compiled module beside it, not bytecode without source."""
    return [_beyond_doubt(evidence, item, _resolves(evidence, item)) for item in evidence.expectations]


def _beyond_doubt(evidence: Evidence, item: Expectation, proof: FileProof) -> FileProof:
    """Where both ways agree something may still change what is imported while the server starts."""
    if proof.state != "passed":
        return proof
    if evidence.doubts:
        return FileProof(item.relative, "failed", "another copy", evidence.doubts[0])
    if evidence.answer is None and evidence.search is not None and evidence.search.notes:
        return FileProof(item.relative, "not run", "import hook", f"{evidence.search.notes[0]}; {evidence.why_not}")
    imported = evidence.told("imports", item.module)
    if item.module and item.sha256 != ABSENT and evidence.search is not None and not (imported and "real" in imported):
        changes = path_changes(evidence.view, evidence.search, item.module)
        if changes:
            detail = f"{changes[0]} changes where modules are looked for, and only importing it tells"
            return FileProof(item.relative, "not run", "__path__", detail)
    return proof


def _resolves(evidence: Evidence, item: Expectation) -> FileProof:
    search = evidence.search
    if search is None:
        return FileProof(item.relative, "not run", "launch unknown", evidence.why_not)
    name = item.module or evidence.package
    module = find_module(evidence.view, search, name)
    found = place(evidence.view, module)
    if not item.module:
        return _resolves_data(evidence, item)
    if item.sha256 == ABSENT:
        # Where ``x.py`` became ``x/__init__.py`` the name is still found, and should be.
        moved = found in [other.path for other in evidence.expectations if other.sha256 != ABSENT]
        if module is not None and module.kind != "namespace" and not moved:
            return FileProof(item.relative, "failed", "still found", f"import {name} still finds {found}")
    elif found != item.path:
        cause = "not found" if module is None else "another file"
        return FileProof(item.relative, "failed", cause, f"import {name} finds {found}, not {item.path}")
    elif module is not None and module.kind != "source":
        return FileProof(item.relative, "failed", module.kind, f"import {name} loads {module.kind} {found}")
    if evidence.refused:
        return evidence.untold(item.relative)
    if evidence.answer is None:
        return FileProof(item.relative, "passed", detail=f"by reading alone: {evidence.why_not}")
    if not evidence.answer.spoke:
        return evidence.untold(item.relative)
    inside = told_place(evidence.view, evidence.told("modules", name))
    if inside != found:
        detail = f"import {name} finds {found} by reading, and {inside} by asking the interpreter"
        return FileProof(item.relative, "failed", "two answers", detail)
    return FileProof(item.relative, "passed")


def _resolves_data(evidence: Evidence, item: Expectation) -> FileProof:
    """A file that no import names lies where the package that the launch finds would look for it."""
    assert evidence.search is not None
    module = find_module(evidence.view, evidence.search, evidence.package)
    top, _, rest = item.relative.partition("/")
    folders = module.locations if module is not None else ()
    if top != evidence.package:
        folders, rest = tuple(posixpath.dirname(folder) for folder in folders), item.relative
    if any(evidence.view.real(posixpath.join(folder, rest)) == item.path for folder in folders):
        return FileProof(item.relative, "passed")
    where = place(evidence.view, module)
    detail = f"the launch finds the package as {where}, so {item.path} is not the file that it uses"
    return FileProof(item.relative, "failed", "another copy", detail)
