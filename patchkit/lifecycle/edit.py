"""Pristine files into a work folder: the base that a new or an edited patch stands on."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import get_args

from patchkit import diff
from patchkit.catalog.faults import near
from patchkit.catalog.model import Form, PatchEntry, Relative
from patchkit.catalog.targets import targets_of
from patchkit.catalog.variants import choose, groups
from patchkit.errors import BadInput, Refused
from patchkit.lifecycle import work
from patchkit.lifecycle.releases import Release
from patchkit.lifecycle.work import Task, Work
from patchkit.plan import Series, digest_of

_RELATIVE = next(note for note in get_args(Relative) if isinstance(note, Form))


Reader = Callable[[str], bytes | None]


@dataclass(frozen=True, slots=True)
class Ground:
    """What a patch stands on: the release's files with the earlier patches of the series applied. ``entry`` is the
    patch's own variant there, None for a new patch; ``notes`` tell what a person should know."""

    files: Mapping[str, bytes | None]
    entry: PatchEntry | None
    notes: tuple[str, ...] = ()


def check_paths(paths: Sequence[str], release: Release) -> None:
    """Raise for a path that is none or that the release does not have.

    Raises:
        patchkit.errors.BadInput: ``bad-path``, or ``no-such-file`` with near names.
    """
    known = release.paths()
    for path in paths:
        if not re.fullmatch(_RELATIVE.pattern, path):
            raise BadInput("bad-path", f"not {_RELATIVE.words}", where=path, remedy="name it from site-packages on")
        if release.read(path) is None:
            name = path.rpartition("/")[2]
            alike = (
                get_close_matches(path, known, n=3, cutoff=0.8)
                or sorted(each for each in known if each.endswith(f"/{name}"))[:3]
            )
            raise BadInput(
                "no-such-file",
                f"{release.label} has no such file",
                where=path,
                remedy=f"did you mean {' or '.join(alike)}?"
                if alike
                else "a new file is made in the work folder itself",
            )


def ground(release: Release, series: Series, patch: str, paths: Sequence[str], platform: str) -> Ground:
    """The files ``paths``, and those of the patch itself, as they are when the patch's turn in the series comes.

    Args:
        release: where the pristine files come from.
        series: the manifest's series.
        patch: the patch to edit; empty for a new one, which comes last.
        paths: further files.

    Raises:
        patchkit.errors.Refused: ``earlier-patch``: a patch before this one does not apply to a file of this one.
        patchkit.errors.BadInput: ``unknown-patch``, ``several-variants``.
    """
    changed: dict[str, bytes | None] = {}

    def read(path: str) -> bytes | None:
        return changed[path] if path in changed else release.read(path)

    stuck: dict[str, str] = {}
    notes: list[str] = []
    for variants in groups(series.manifest):
        choice = choose(variants, lambda path: digest_of(read(path)), release.version, platform)
        entry = choice.entry
        if variants[0].id == patch:
            shown = entry or variants[-1]
            wanted = [*targets_of(series.patches[shown.file]), *paths]
            _refuse_stuck(stuck, wanted)
            return Ground({path: read(path) for path in dict.fromkeys(wanted)}, shown, tuple(notes))
        if entry is None:
            continue
        parsed = series.patches[entry.file]
        result = diff.evaluate(parsed, read, pre=entry.pre, post=entry.post, fuzz=entry.fuzz)
        if result.ok:
            touched = sorted(result.changes.keys() & set(paths))
            if touched:
                notes.append(f"{', '.join(touched)}: with patch {entry.id} applied, which comes first in the series")
            changed.update(result.changes)
        else:
            stuck.update({file.path: f"{entry.id} is {file.state} there" for file in result.files})
    if patch:
        known = [entry.id for entry in series.manifest.patches]
        raise BadInput(
            "unknown-patch",
            f"manifest {series.manifest.name} has no patch {patch}{near(patch, known)}",
            where=str(series.manifest.path),
            remedy="see what there is: patchkit list",
        )
    _refuse_stuck(stuck, paths)
    return Ground({path: read(path) for path in paths}, None, tuple(notes))


def done_by(
    release: Release, series: Series, paths: Sequence[str], platform: str, holds: Callable[[Reader], bool]
) -> str:
    """The patch of the series with which the release's files come to be as ``holds`` finds them after the whole
    series; empty where they are so in the release itself."""
    for patch in reversed(list(dict.fromkeys(entry.id for entry in series.manifest.patches))):
        with contextlib.suppress(Refused):  # it does not apply here, so it is none that does it
            if not holds(ground(release, series, patch, paths, platform).files.get):
                return patch
    return ""


def _refuse_stuck(stuck: Mapping[str, str], paths: Sequence[str]) -> None:
    found = [f"{path}: {stuck[path]}" for path in paths if path in stuck]
    if found:
        raise Refused(
            "earlier-patch",
            "a patch that comes first in the series does not apply to the same file",
            remedy="carry it over first: patchkit rebase",
            details=found,
        )


def open_work(folder: Path, task: Task, base: Ground, series: Series) -> Work:
    """A work folder on that ground; where an existing patch is edited, with the patch applied.

    Raises:
        patchkit.errors.Refused: ``does-not-apply``: the patch does not fit this ground; and as ``work.create``.
    """
    now = dict(base.files)
    if base.entry is not None:
        entry = base.entry
        result = diff.evaluate(
            series.patches[entry.file], base.files.get, pre=entry.pre, post=entry.post, fuzz=entry.fuzz
        )
        if not result.ok or result.state == "applied":
            raise Refused(
                "does-not-apply",
                f"patch {entry.id} is {result.state} on {task.release}",
                where=entry.file,
                remedy="carry it over first: patchkit rebase",
                details=[f"{file.path}: {file.state}: {file.why}" for file in result.files],
            )
        now.update(result.changes)
        task = replace(task, patch=entry.id, entry_file=entry.file)
    return work.create(folder, task, {path: base.files.get(path) for path in now}, now)
