"""Every patch against every release: a matrix of states, by ranged reads of the wheels; no image, no install."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

from patchkit import diff
from patchkit.catalog.model import Manifest, PatchEntry
from patchkit.errors import PatchkitError, Unreachable
from patchkit.index import Indexes, asked_range
from patchkit.lifecycle import releases
from patchkit.plan import DELIVERABLE, Row, Series

#: What each state means to a person who looks at the matrix.
LEGEND = {
    "applies": "every hunk at its stated place",
    "offset": "every hunk at one place, some elsewhere than stated",
    "applied": "the release holds every hunk",
    "upstream": "the release holds every hunk as shipped: the patch can go",
    "partial": "the release holds some hunks: rebase",
    "ambiguous": "a hunk fits several places: rebase",
    "fuzzy": "a hunk fits only with context dropped: rebase",
    "conflict": "a hunk fits nowhere: rebase",
    "target-missing": "the file is not in the release",
    "not-applicable": "the patch is not for this release",
    "unreadable": "the release's files could not be read",
}
_JOBS = 8


@dataclass(frozen=True, slots=True)
class Cell:
    """One patch on one release. ``told`` is the state as people read it (``partial 2/3``); ``droppable`` says that the
    release fulfils the patch's drop condition."""

    patch: str
    version: str
    state: str
    told: str
    detail: str
    droppable: bool = False

    @property
    def good(self) -> bool:
        """Whether a delivery on this release would go through."""
        return self.state in DELIVERABLE


@dataclass(frozen=True, slots=True)
class Survey:
    """The matrix. ``patches`` in the order of the series, ``versions`` from the newest down, ``cells`` row by row."""

    package: str
    patches: tuple[str, ...]
    versions: tuple[str, ...]
    cells: tuple[tuple[Cell, ...], ...]

    def row(self, version: str) -> tuple[Cell, ...]:
        """The states of every patch on one release."""
        return self.cells[self.versions.index(version)]


def choose_versions(known: Iterable[Version], wanted: str | None) -> list[str]:
    """The releases in a PEP 440 range, newest first, all final ones for None; pre-releases only where the range names
    one.

    Raises:
        patchkit.errors.BadInput: ``no-range``.
    """
    final = [version for version in known if not version.is_prerelease]
    chosen = list(asked_range(wanted).filter(known)) if wanted else final
    return [str(version) for version in sorted(chosen, reverse=True)]


def loose(package: str, files: Iterable[Path]) -> list[tuple[str, Series]]:
    """Diffs that are in no catalog, each as a series of its own. Raises as ``diff.parse``."""
    found = []
    for file in files:
        data = file.read_bytes()
        entry = PatchEntry(file.name.removesuffix(".patch").removesuffix(".diff"), str(file))
        manifest = Manifest(Path(), "loose", package, "", (), (entry,))
        parsed = {entry.file: diff.parse(data, entry.file)}
        found.append(("", Series(manifest, parsed, {entry.file: hashlib.sha256(data).hexdigest()})))
    return found


def survey(
    indexes: Indexes,
    package: str,
    series: Sequence[tuple[str, Series]],
    versions: Sequence[str],
    done: Callable[[], None] = lambda: None,
) -> Survey:
    """The matrix of ``series`` (each with the prefix that its patches get) over ``versions``.

    Args:
        done: called once a release, from any thread.

    Raises:
        patchkit.errors.Unreachable: the index stopped answering; a matrix with holes would pass for a whole one.
    """

    def look(version: str) -> tuple[Cell, ...]:
        try:
            # One release for all series: its RECORD is read and parsed once.
            source: releases.Release | PatchkitError = releases.release(indexes, package, version)
        except Unreachable:
            raise
        except PatchkitError as error:
            source = error
        cells = tuple(cell for prefix, each in series for cell in _cells(source, prefix, each, version))
        done()
        return cells

    with ThreadPoolExecutor(_JOBS) as pool:
        rows = tuple(pool.map(look, versions))
    names = tuple(prefix + name for prefix, each in series for name in _names(each))
    return Survey(package, names, tuple(versions), rows)


def _names(series: Series) -> list[str]:
    return list(dict.fromkeys(entry.id for entry in series.manifest.patches))


def _cells(source: releases.Release | PatchkitError, prefix: str, series: Series, version: str) -> list[Cell]:
    try:
        if isinstance(source, PatchkitError):
            raise source
        known = releases.answered_by_hash(source, series)
        rest = releases.without(series, known)
        plan = releases.plan_for(source, rest) if rest.manifest.patches else None
    except Unreachable:
        raise
    except PatchkitError as error:
        return [Cell(prefix + name, version, "unreadable", "unreadable", str(error)) for name in _names(series)]
    rows = plan.rows if plan else ()
    droppable = {found.where for found in plan.findings if found.id == "no-longer-needed"} if plan else set()
    cells = []
    for name in _names(series):
        if name in known:
            cells.append(Cell(prefix + name, version, "applies", "applies", "every pre-image is a listed one"))
        else:
            own = [row for row in rows if row.patch == name]
            cells.append(_cell(prefix + name, version, own, name in droppable))
    return cells


def _cell(name: str, version: str, rows: Sequence[Row], droppable: bool) -> Cell:
    """One patch's rows as one state: that of the worst file."""
    order = list(LEGEND)
    worst = max(rows, key=lambda row: order.index(row.state))
    states = {row.state for row in rows}
    if states <= {"applied", "upstream"}:
        worst = next((row for row in rows if row.state == "applied"), worst)
    elif "upstream" in states or "applied" in states:
        held = sum(row.total if row.state in ("applied", "upstream") else row.done for row in rows)
        total = sum(row.total for row in rows)
        if states <= DELIVERABLE | {"partial"}:
            return Cell(name, version, "partial", f"partial {held}/{total}", worst.detail, droppable)
    detail = "; ".join(f"{row.path}: {row.detail}" for row in rows if row.state == worst.state and row.detail)
    return Cell(name, version, worst.state, worst.told_state, detail, droppable)
