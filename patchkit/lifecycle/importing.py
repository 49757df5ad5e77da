"""Other people's changes as patches of the catalog: diffs, mails, quilt series, full-file overlays.

Whatever comes in is applied in memory to a release and leaves as the smallest diff against that release's own files:
what was prose, noise or another project layout on the way is not carried along.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from patchkit import diff
from patchkit.catalog import header
from patchkit.catalog.header import Header
from patchkit.errors import BadInput, Refused
from patchkit.findings import counted
from patchkit.lifecycle.releases import Release
from patchkit.lifecycle.save import Changes
from patchkit.plan import ABSENT

_MAIL = re.compile(rb"^From [0-9a-f]{40} ", re.MULTILINE)
_MAX_STRIP = 8
_JUNK = ("__pycache__", ".git", ".DS_Store")

Reader = Callable[[str], bytes | None]


@dataclass(frozen=True, slots=True)
class Piece:
    """One patch as it came: a name made from its file or subject, its bytes, and how many leading parts its names have
    too many, None where that must be found."""

    name: str
    data: bytes
    strip: int | None = None


@dataclass(frozen=True, slots=True)
class Fit:
    """How a diff's names lie in an installation: the parts to strip, the sections for files that it has (or that the
    patch creates in the package), and the names of those that no installation has."""

    strip: int
    patch: diff.Patch
    missing: tuple[str, ...]


def pieces(name: str, data: bytes, strip: int | None = None) -> list[Piece]:
    """A file's patches: one a mail where ``git format-patch`` wrote several into it, else the whole."""
    starts = [match.start() for match in _MAIL.finditer(data)]
    if len(starts) < 2:
        return [Piece(slug(Path(name).name), data, strip)]
    mails = [data[start:end] for start, end in zip(starts, [*starts[1:], len(data)], strict=True)]
    return [
        Piece(slug(header.parse(mail).title) or f"{slug(name)}-{n}", mail, strip) for n, mail in enumerate(mails, 1)
    ]


def quilt(folder: Path) -> list[Piece]:
    """The patches that a quilt ``series`` file lists, in its order (quilt(1), "series")."""
    found = []
    for line in (folder / "series").read_text("utf-8", "replace").splitlines():
        words = line.partition("#")[0].split()
        if not words:
            continue
        strip = next((int(word[2:]) for word in words[1:] if re.fullmatch(r"-p\d", word)), 1)
        file = folder / words[0]
        if not file.is_file() or not file.resolve().is_relative_to(folder.resolve()):
            raise BadInput("no-such-patch", "the series lists a file that is not there", where=str(file))
        # A quilt series strips in its own tree; where that tree's folder is no part of the package it is found anew.
        found.append(Piece(slug(Path(words[0]).name), file.read_bytes(), strip if strip != 1 else None))
    return found


def slug(text: str) -> str:
    """A patch's id made from a file name or subject: lower case, words joined by dashes."""
    stem = re.sub(r"\.(patch|diff|txt|mbox|eml)$", "", text.lower())
    return re.sub("[^a-z0-9]+", "-", stem).strip("-")[:60].strip("-")


def fit(piece: Piece, release: Release, package: str) -> Fit:
    """Find the strip level by the files that the release has.

    Raises:
        patchkit.errors.BadInput: ``malformed-patch``, or ``strip-unclear``: no level fits, or several fit alike.
    """
    patch = diff.parse(piece.data, piece.name)
    levels = range(_MAX_STRIP + 1) if piece.strip is None else (piece.strip,)
    counts = {level: sum(_lies(section, level, release, package) for section in patch.files) for level in levels}
    best = max(counts.values())
    fitting = [level for level, count in counts.items() if count == best]
    if not best or len(fitting) > 1:
        names = ", ".join(dict.fromkeys(_name(section) for section in patch.files))
        why = "none of its files is in" if not best else f"with -p {' or '.join(map(str, fitting))} its files are in"
        raise BadInput(
            "strip-unclear",
            f"{why} {release.label}: {names}",
            where=piece.name,
            remedy="name another release or image, or the parts to strip with -p",
        )
    inside = [section for section in patch.files if _lies(section, fitting[0], release, package)]
    outside = [_name(section) for section in patch.files if section not in inside]
    return Fit(fitting[0], replace(patch, files=tuple(inside)), tuple(outside))


def _lies(section: diff.FilePatch, strip: int, release: Release, package: str) -> bool:
    """Whether the section's file is one of the installation, or a new one beside those."""
    try:
        old, new = section.names(strip)
    except BadInput as error:
        if error.code == "strip-too-deep":
            return False
        raise
    if section.kind == "create":
        assert new is not None
        folder = new.rpartition("/")[0]
        return new.startswith(f"{package.replace('.', '/')}/") and (
            not release.paths() or any(path.startswith(f"{folder}/") for path in release.paths())
        )
    return any(name is not None and release.hash_of(name) != ABSENT for name in (old, new))


def _name(section: diff.FilePatch) -> str:
    return section.new_name if section.new_name != "/dev/null" else section.old_name


def candidates(piece: Piece) -> list[str]:
    """Every path that the diff might mean at any strip level: what must be read before ``fit`` can tell."""
    found = []
    for section in diff.parse(piece.data, piece.name).files:
        for level in range(_MAX_STRIP + 1):
            try:
                found += [name for name in section.names(level) if name]
            except BadInput as error:
                if error.code != "strip-too-deep":
                    raise
    return list(dict.fromkeys(found))


def holds(fitted: Fit, read: Reader) -> bool:
    """Whether the files that ``read`` gives have every hunk already."""
    return diff.evaluate(fitted.patch, read, strip=fitted.strip).state == "applied"


def drawn(fitted: Fit, read: Reader, where: str) -> Changes:
    """What the diff changes in the files that ``read`` gives.

    Raises:
        patchkit.errors.Refused: ``already-there`` or ``does-not-apply``, with every hunk's fate in its details.
    """
    result = diff.evaluate(fitted.patch, read, strip=fitted.strip)
    if result.state == "applied":
        raise Refused("already-there", "these files hold every hunk already", where=where, remedy="nothing to do")
    if not result.ok:
        raise Refused(
            "does-not-apply",
            f"the diff is {result.state} here",
            where=where,
            remedy="find the release that it was made for: patchkit survey PACKAGE --file FILE; then import it with "
            "--version V and carry it over: patchkit rebase",
            details=[
                f"{file.path}: hunk {hunk.number}: {hunk.state}: {hunk.why}" if hunk else f"{file.path}: {file.why}"
                for file in result.files
                if not file.ok
                for hunk in file.hunks or (None,)
            ],
        )
    return {path: (read(path), data) for path, data in result.changes.items()}


def overlays(folder: Path, known: Iterable[str]) -> tuple[dict[str, bytes], list[str]]:
    """Full-file overlays: path in the installation -> bytes, and the files that lie nowhere in it. A file belongs to
    the one installed path that ends as its own path does, by as many parts as fit.

    Raises:
        patchkit.errors.BadInput: ``overlay-unclear``, several installed files end alike.
    """
    installed = sorted(known)
    found: dict[str, bytes] = {}
    missing = []
    for file in sorted(folder.rglob("*")):
        inside = file.relative_to(folder)
        if (file.is_dir() and not file.is_symlink()) or any(part in _JUNK for part in inside.parts):
            continue
        if file.is_symlink() or not file.is_file():
            missing.append(inside.as_posix())  # it is told, and stops the import unless it is left out on purpose
            continue
        for start in range(len(inside.parts)):
            tail = "/".join(inside.parts[start:])
            fitting = [path for path in installed if path == tail or path.endswith(f"/{tail}")]
            if fitting:
                break
        if len(fitting) > 1:
            raise BadInput(
                "overlay-unclear",
                f"{len(fitting)} installed files end in {tail}",
                where=str(file),
                remedy="put the overlay below the folders that it has in site-packages",
                details=fitting[:5],
            )
        if fitting:
            found[fitting[0]] = file.read_bytes()
        else:
            missing.append(inside.as_posix())
    return found, missing


def touched_lines(before: bytes, after: bytes) -> int:
    """How many lines differ, counted on both sides."""
    matcher = difflib.SequenceMatcher(None, before.split(b"\n"), after.split(b"\n"), autojunk=False)
    return sum(
        (end - start) + (stop - begin) for tag, start, end, begin, stop in matcher.get_opcodes() if tag != "equal"
    )


def nearer(files: Mapping[str, bytes], chosen: Release, others: Iterable[Release]) -> tuple[Release, int, int] | None:
    """Another release whose files the overlays differ less from, with both counts of lines: an overlay that was made
    from an older file silently takes back all that upstream changed since. None where the chosen one is nearest."""
    seen: dict[tuple[str, ...], int] = {}

    def count(release: Release) -> int:
        key = tuple(release.hash_of(path) for path in files)
        if key not in seen:
            seen[key] = sum(touched_lines(release.read(path) or b"", data) for path, data in files.items())
        return seen[key]

    own = count(chosen)
    best = min(((count(release), index, release) for index, release in enumerate(others)), default=None)
    return (best[2], best[0], own) if best is not None and best[0] < own else None


def prose_of(piece: Piece, origin: str, description: str) -> Header:
    """The imported patch's header: its own, with where it comes from."""
    own = header.parse(piece.data)
    kept = [(name, value) for name, value in own.fields if name.lower() not in ("index", "diff")]
    prose = Header(tuple(kept))
    if description:
        prose = prose.with_field("Description", description)
    return prose if prose.get("Origin") else prose.with_field("Origin", origin)


def refuse_missing(missing: Sequence[str], drop: bool) -> None:
    """Raise for files that no installation has, unless the person said to leave them out.

    Raises:
        patchkit.errors.Refused: ``files-not-installed``.
    """
    if missing and not drop:
        raise Refused(
            "files-not-installed",
            f"{counted(len(missing), 'file of the change is', 'files of the change are')} in no installation: "
            "such hunks would have no effect",
            remedy="leave them out: --drop-missing",
            details=missing,
        )
