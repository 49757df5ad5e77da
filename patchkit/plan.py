"""Catalog and facts make a plan: for each file its path in the image, pre- and post-image, state and new bytes.

A plan is pure data, made whole in memory before anything is written.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from patchkit import diff
from patchkit.catalog import condition
from patchkit.catalog.model import Catalog, Manifest, Match, PatchEntry
from patchkit.catalog.refused import setting_findings
from patchkit.catalog.variants import choose, groups, in_range
from patchkit.errors import BadInput
from patchkit.findings import Finding
from patchkit.images.model import Entry, Identity, Reference
from patchkit.site.findings import disagreements, other_copies
from patchkit.site.launch import runs_before
from patchkit.site.model import Copy, Site, module_of

State = Literal[
    "applies",
    "offset",
    "applied",
    "upstream",
    "partial",
    "ambiguous",
    "fuzzy",
    "conflict",
    "target-missing",
    "not-applicable",
]

#: With only these a plan can be delivered, and ``status`` exits 0.
DELIVERABLE: frozenset[str] = frozenset({"applies", "offset", "applied", "upstream"})

#: What stands in place of a hash for a file that is not there.
ABSENT = "absent"

NOT_LISTED = "pre-image not listed"


@dataclass(frozen=True, slots=True)
class Row:
    """One file patch of the plan. ``pre`` and ``post`` are ``sha256:<hex>`` or ``absent``; ``post`` is empty where the
    patch cannot be applied. ``detail`` tells the state in words: the offset, every candidate's line, the nearest place.
    ``done`` of ``total`` hunks are there already."""

    patch: str
    path: str
    image_path: str
    state: State
    detail: str
    pre: str
    post: str
    notes: tuple[str, ...] = ()
    hunks: tuple[diff.HunkResult, ...] = ()
    done: int = 0
    total: int = 0

    @property
    def deliverable(self) -> bool:
        """Whether this row may be delivered."""
        return self.state in DELIVERABLE

    @property
    def told_state(self) -> str:
        """The state as people read it: ``partial`` with its count."""
        return f"partial {self.done}/{self.total}" if self.state == "partial" else self.state


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """One file of the package as it must be after delivery.

    ``data`` is None where the series removes the file; ``before`` is the file's entry in the image, None for a new one.
    ``pre`` and ``post`` are ``sha256:<hex>`` or ``absent``; ``mode`` holds the permission bits it must have; ``lines``
    are the numbers (1-based) of the lines that the series puts there.
    """

    path: str
    image_path: str
    data: bytes | None
    before: Entry | None
    pre: str
    post: str
    mode: int = 0o644
    lines: frozenset[int] = frozenset()

    @property
    def changed(self) -> bool:
        """Whether the image's file must be written (or removed) at all."""
        return self.pre != self.post or (self.before is not None and self.mode != self.before.mode)

    @property
    def module(self) -> str:
        """The dotted module name, empty for a file that is no Python module."""
        return module_of(self.path)


@dataclass(frozen=True, slots=True)
class PlannedPatch:
    """One patch of the chosen series and the hash of its diff (hex), header included."""

    entry: PatchEntry
    sha256: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What one delivery will do to one image."""

    reference: Reference
    identity: Identity
    match: Match
    site: Site
    copy: Copy
    patches: tuple[PlannedPatch, ...]
    rows: tuple[Row, ...]
    files: tuple[PlannedFile, ...]
    fingerprint: str
    findings: tuple[Finding, ...] = ()

    @property
    def changed(self) -> tuple[PlannedFile, ...]:
        """The files that delivery must write or remove."""
        return tuple(file for file in self.files if file.changed)

    @property
    def refused(self) -> tuple[Row, ...]:
        """The rows that stop a delivery."""
        return tuple(row for row in self.rows if not row.deliverable)


def digest_of(data: bytes | None) -> str:
    """``sha256:<hex>`` of a file's bytes, ``absent`` for no file."""
    return ABSENT if data is None else f"sha256:{hashlib.sha256(data).hexdigest()}"


def fingerprint_of(posts: Mapping[str, str]) -> str:
    """One sha256 (hex) over the ordered (package-relative path, post-image) pairs."""
    text = "".join(f"{path}\0{post}\n" for path, post in sorted(posts.items()))
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Series:
    """A manifest's patches, parsed: what there is to choose from before an image's files are known."""

    manifest: Manifest
    patches: Mapping[str, diff.Patch]
    hashes: Mapping[str, str]

    @property
    def paths(self) -> tuple[str, ...]:
        """Every package-relative path that any variant reads or writes, and that a drop condition looks at."""
        found: set[str] = set()
        for patch in self.patches.values():
            for section in patch.files:
                found.update(name for name in section.names() if name)
        for entry in self.manifest.patches:
            if entry.drop_when:
                found.update(condition.paths(entry.drop_when))
        return tuple(sorted(found))


def load_series(catalog: Catalog, manifest: Manifest, only: Sequence[str] = ()) -> Series:
    """The manifest's series, narrowed to the patches in ``only`` where that is not empty.

    Raises:
        patchkit.errors.BadInput: ``unknown-patch`` for a name in ``only``, ``malformed-patch``.
    """
    known = {entry.id for entry in manifest.patches}
    for name in only:
        if name not in known:
            raise BadInput(
                "unknown-patch",
                f"manifest {manifest.name} has no patch {name}",
                where=str(manifest.path),
                remedy=f"choose from: {', '.join(sorted(known))}",
            )
    if only:
        manifest = replace(manifest, patches=tuple(entry for entry in manifest.patches if entry.id in only))
    data = {entry.file: catalog.patch_bytes(entry) for entry in manifest.patches}
    return Series(
        manifest,
        {file: diff.parse(content, file) for file, content in data.items()},
        {file: hashlib.sha256(content).hexdigest() for file, content in data.items()},
    )


def make_plan(reference: Reference, identity: Identity, match: Match, series: Series, site: Site, copy: Copy) -> Plan:
    """What the series does to this copy of the package.

    A listed pre-image decides, then the bytes: a version outside of the range is told, and stops nothing where every
    hunk has its exact or one unique place and the result compiles.
    """
    package = series.manifest.package
    before = {path: fact.data if fact else None for path, fact in site.files.items()}
    chosen, rows = _choose(series, site, before, identity.platform)
    result = diff.evaluate_series(
        [series.patches[entry.file] for entry in chosen],
        before.get,
        pre=[entry.pre for entry in chosen],
        post=[entry.post for entry in chosen],
        fuzz=[entry.fuzz for entry in chosen],
        mode=lambda path: fact.entry.mode if (fact := site.files.get(path)) else None,
    )
    after = {**before, **result.changes}
    broken = _broken(after, result.changes, site.python)
    for entry, patch_result in zip(chosen, result.patches, strict=True):
        rows += [_row(entry, file, site, copy.place_of(package, file.path), broken) for file in patch_result.files]
    # A rename has one row, for its new path; the old path is among the changes.
    touched = sorted({*(row.path for row in rows if row.state != "not-applicable"), *result.changes})
    files = tuple(
        _planned(path, copy.place_of(package, path), site, before.get(path), after.get(path), result.modes.get(path))
        for path in touched
    )
    order = {entry.id: index for index, entry in enumerate(series.manifest.patches)}
    return Plan(
        reference=reference,
        identity=identity,
        match=match,
        site=site,
        copy=copy,
        patches=tuple(PlannedPatch(entry, series.hashes[entry.file]) for entry in chosen),
        rows=tuple(sorted(rows, key=lambda row: order[row.patch])),
        files=files,
        fingerprint=fingerprint_of({file.path: file.post for file in files}),
        findings=tuple(_findings(series.manifest, match, site, copy, chosen, rows, before)),
    )


def _choose(
    series: Series, site: Site, before: Mapping[str, bytes | None], platform: str
) -> tuple[list[PatchEntry], list[Row]]:
    """The variants for this image in order, and rows for the patches that have none."""
    chosen: list[PatchEntry] = []
    rows: list[Row] = []
    tree = dict(before)
    for variants in groups(series.manifest):
        choice = choose(variants, lambda path: digest_of(tree.get(path)), site.version, platform)
        why_not = _why_not(series.manifest, choice.entry, site, tree, platform)
        if choice.entry is None or why_not:
            shown = choice.entry or variants[0]
            targets = [section.target() for section in series.patches[shown.file].files]
            reason = why_not or f"no variant is for version {site.version}"
            rows += [
                Row(shown.id, path, "", "not-applicable", reason, digest_of(tree.get(path)), "") for path in targets
            ]
            continue
        chosen.append(choice.entry)
        tree.update(diff.evaluate(series.patches[choice.entry.file], tree.get).changes)
    return chosen, rows


def _why_not(
    manifest: Manifest, entry: PatchEntry | None, site: Site, tree: Mapping[str, bytes | None], platform: str
) -> str:
    """Why this patch is outside of its range here; empty where it is not, or where the bytes can decide."""
    platforms = (entry.platforms if entry else ()) or manifest.platforms
    if (entry is None or platforms) and platforms and platform not in platforms:
        return f"for {', '.join(platforms)}, this image is {platform}"
    if entry is None:
        return ""
    versions = _range(manifest, entry)
    missing = all(tree.get(path) is None for path in entry.pre)
    if entry.pre and missing and not in_range(versions, site.version):
        return f"for {manifest.package} {versions}, this image has {site.version or 'no version'} without the file"
    return ""


def _range(manifest: Manifest, entry: PatchEntry) -> str:
    return ",".join(text for text in (manifest.versions, entry.versions) if text)


def _row(entry: PatchEntry, file: diff.FileResult, site: Site, place: str, broken: Mapping[str, diff.Problem]) -> Row:
    state: State = file.state
    detail = file.why
    # What the engine noticed beside the hunks is no news in a file that was looked at when its hash was listed.
    notes = [] if file.known in ("pre-image", "post-image") else list(file.notes)
    fact = site.files.get(file.path)
    if state == "applied" and fact and fact.shipped and digest_of(fact.data) == f"sha256:{fact.shipped}":
        state, detail = "upstream", "the image as shipped holds every hunk"
    if state == "fuzzy" and file.ok:
        state = "offset"
    problem = broken.get(file.path)
    if file.ok and problem:
        place = f"line {problem.line}: " if problem.line else ""
        state, detail = "conflict", f"the result does not compile: {place}{problem.what}"
    # A file that is not there yet is listed as absent; no hash can vouch for it.
    if entry.pre and state in ("applies", "offset") and entry.pre.get(file.path) != digest_of(file.before):
        notes.append(NOT_LISTED)
    post = digest_of(file.after) if file.ok and not problem else ""
    return Row(
        patch=entry.id,
        path=file.path,
        image_path=place,
        state=state,
        detail=detail,
        pre=digest_of(file.before),
        post=post,
        notes=tuple(notes),
        hunks=file.hunks,
        done=file.done,
        total=file.total,
    )


def _broken(
    after: Mapping[str, bytes | None], changes: Mapping[str, bytes | None], python: tuple[int, int, int]
) -> dict[str, diff.Problem]:
    """The changed Python files that are not Python under the image's grammar, as far as that can be told here; the
    level ``compiles`` asks the image's own interpreter."""
    found = {}
    for path in changes:
        data = after[path]
        if data is not None and path.endswith(".py"):
            problem = diff.check_python(data, path, python[:2])
            if problem and problem.sure:
                found[path] = problem
    return found


def _planned(
    path: str, place: str, site: Site, before: bytes | None, after: bytes | None, git_mode: str | None
) -> PlannedFile:
    fact = site.files.get(path)
    mode = fact.entry.mode if fact else 0o644
    if git_mode:  # git knows only whether a file is executable
        mode = mode | 0o111 if git_mode.endswith("755") else mode & ~0o111
    return PlannedFile(
        path=path,
        image_path=fact.entry.path if fact else place,
        data=after,
        before=fact.entry if fact else None,
        pre=digest_of(before),
        post=digest_of(after),
        mode=mode,
        lines=_changed_lines(before or b"", after or b""),
    )


def _changed_lines(before: bytes, after: bytes) -> frozenset[int]:
    matcher = difflib.SequenceMatcher(None, before.split(b"\n"), after.split(b"\n"), autojunk=False)
    return frozenset(
        line
        for tag, _, _, start, end in matcher.get_opcodes()
        if tag in ("replace", "insert")
        for line in range(start + 1, end + 1)
    )


def _findings(
    manifest: Manifest,
    match: Match,
    site: Site,
    copy: Copy,
    chosen: Sequence[PatchEntry],
    rows: Sequence[Row],
    before: Mapping[str, bytes | None],
) -> Iterator[Finding]:
    for note in match.notes:
        yield Finding("match-note", "note", note, where=match.manifest.name)
    # Where RECORD tells what was shipped, `applied` is what was put there since, by us too: no fix of upstream.
    recorded = any(fact and fact.shipped for fact in site.files.values())
    carried = {row.patch for row in rows if recorded and row.state == "applied"}
    for entry in chosen:
        versions = _range(manifest, entry)
        if not in_range(versions, site.version):
            yield Finding(
                "version-outside-range",
                "note",
                f"{manifest.package} {site.version or '(no version)'} is outside of {versions}; the bytes decide",
                where=entry.id,
            )
        if entry.drop_when and entry.id not in carried and condition.holds(entry.drop_when, before):
            yield Finding(
                "no-longer-needed",
                "note",
                "the image already fulfils this patch's drop condition",
                where=entry.id,
                remedy=f"retire it: patchkit retire {entry.id}",
            )
    if manifest.strict:
        for row in rows:
            if NOT_LISTED in row.notes:
                yield Finding(
                    "pre-image-not-listed",
                    "error",
                    f"the manifest is strict and does not list {row.pre}",
                    where=row.path,
                    remedy=f"look at the file, then add its hash to pre in {manifest.path}",
                )
    yield from setting_findings(manifest.refused_env, site.launch.env, "the environment that it starts with")
    yield from other_copies(site, copy)
    for note in runs_before(site.launch):
        yield Finding(
            "start-changes-files",
            "warning",
            f"{note}: the patched ones too, after any proof and behind any guard",
            where=site.launch.interpreter,
            remedy="prove what came of it: patchkit verify --container NAME",
        )
    for finding in disagreements(site):  # the proof asks the interpreter itself, so that they stop no delivery
        yield replace(finding, severity="warning")
