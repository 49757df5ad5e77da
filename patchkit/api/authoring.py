"""Making patches: pristine files into a work folder, and the work into the catalog."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from patchkit.api import sources
from patchkit.api.look import Options, status
from patchkit.catalog import header
from patchkit.catalog.header import Header
from patchkit.catalog.load import catalog_root, load_catalog
from patchkit.errors import BadInput, Refused
from patchkit.lifecycle import edit as editing
from patchkit.lifecycle import releases, work
from patchkit.lifecycle import save as saving
from patchkit.lifecycle.files import changing, refuse_installed
from patchkit.lifecycle.save import Draft, Saved
from patchkit.lifecycle.work import Task, Work
from patchkit.plan import Plan, load_series


@dataclass(frozen=True, slots=True)
class Prose:
    """What a person says of a patch; empty parts are left as they are. ``description`` starts with one short line,
    ``origin`` is DEP-3's, ``upstream`` the address where upstream has or discusses it."""

    description: str = ""
    author: str = ""
    origin: str = ""
    upstream: str = ""


def edit(
    files: Sequence[str] = (),
    *,
    image: str | None = None,
    version: str | None = None,
    patch: str = "",
    folder: Path | None = None,
    options: Options = Options(),
    index: str | None = None,
) -> tuple[Work, tuple[str, ...]]:
    """Put pristine files into a work folder; with ``patch`` those of this patch, with it applied.

    Args:
        files: paths from site-packages on.
        image: the image whose files are wanted, or
        version: a release on the package index (``latest``: the newest final one).
        folder: where to work; by default below ``work.home()``.
        index: another package index than pip's.

    Returns:
        The work folder, and what a person should know about it.

    Raises:
        patchkit.errors.BadInput: ``nothing-to-edit``, ``no-such-file``, ``bad-path``, ``unknown-patch``.
        patchkit.errors.Refused: ``earlier-patch``, ``does-not-apply``, ``work-in-folder``, ``inside-repository``,
            ``installed-catalog``.
        patchkit.errors.Unreachable: image or index cannot be read.
    """
    if not files and not patch:
        raise BadInput("nothing-to-edit", "no file is named", remedy="name files, or a patch with --patch ID")
    refuse_installed(catalog_root(options.catalog))  # save would: the work would be for nothing
    found = sources.of(image, version, files, options, index)
    editing.check_paths(files, found.release)
    base = editing.ground(found.release, found.series, patch, files, found.platform)
    place = folder or work.home() / found.manifest.name / (patch or work.NEW)
    return editing.open_work(place, task_of(found), base, found.series), base.notes


def task_of(found: sources.Source, patch: str = "", entry_file: str = "") -> Task:
    """A work folder's task for a source, and for a patch with the diff of its variant."""
    return Task(
        manifest=found.manifest.name,
        catalog=str(found.catalog.root.absolute()),
        package=found.manifest.package,
        release=found.release.label,
        version=found.release.version,
        python=found.python,
        patch=patch,
        entry_file=entry_file,
        image=found.image,
    )


def save(
    name: str, prose: Prose = Prose(), *, folder: Path | None = None, index: str | None = None
) -> tuple[Saved, Plan, Task]:
    """Make a patch of a work folder: the smallest diff, its header, its hashes, its place in the series.

    Args:
        name: the patch's id.
        folder: the work folder; by default the patch's own, else that of the new patch.
        index: another package index than pip's.

    Returns:
        The patch as written, what the series does now to what the files came from, and the work's task.

    Raises:
        patchkit.errors.Refused: ``nothing-changed``, ``conflict-markers``, ``does-not-compile``, or ``other-catalog``:
            ``PATCHKIT_CATALOG`` names another one than that of the work.
        patchkit.errors.BadInput: ``no-work``, ``no-description``, ``patch-exists``, or a fault of the new manifest.
    """
    opened = work.load(folder or work.find(name, os.environ.get("PATCHKIT_CATALOG", "")))
    task = opened.task
    _refuse_other_catalog(opened, name)
    with changing(Path(task.catalog)):
        saved = _saved(opened, name, prose)
    work.settle(opened, name, saved.entry.file)
    return saved, _plan(task, index), task


def _refuse_other_catalog(opened: Work, name: str) -> None:
    """The work belongs to the catalog that it was made with; where the environment names another one, nobody can tell
    which of both is meant."""
    named = os.environ.get("PATCHKIT_CATALOG", "")
    if named and Path(named).resolve() != Path(opened.task.catalog).resolve():
        raise Refused(
            "other-catalog",
            f"the work is for the catalog {opened.task.catalog}, and PATCHKIT_CATALOG names {named}",
            where=str(opened.folder),
            remedy=f"save it there: PATCHKIT_CATALOG= patchkit save --name {name} --work {opened.folder}; or begin the "
            "work with the other catalog: patchkit edit",
        )


def _saved(opened: Work, name: str, prose: Prose) -> Saved:
    task = opened.task
    catalog = load_catalog(Path(task.catalog))
    manifest = sources.choose_manifest(catalog, task.manifest)
    old = next((each for each in manifest.patches if each.id == name and each.file == task.entry_file), None)
    told = header.parse(catalog.patch_bytes(old)) if old else Header((("Origin", "vendor"), ("Forwarded", "no")))
    fields = {"Description": prose.description, "Author": prose.author, "Origin": prose.origin, "Bug": prose.upstream}
    for field, value in {**fields, "Applies-To": f"{task.package} {task.version}"}.items():
        told = told.with_field(field, value) if value else told
    draft = Draft(
        id=name,
        changes=work.changes(opened),
        prose=told,
        version=task.version,
        python=task.python,
        file=task.entry_file if name == task.patch else "",
        upstream=prose.upstream,
    )
    return saving.save(catalog, manifest, draft)


def _plan(task: Task, index: str | None) -> Plan:
    """What the series does to what the files came from."""
    catalog = load_catalog(Path(task.catalog))
    if task.image:
        return status(task.image, Options(catalog=catalog.root, manifest=task.manifest))
    manifest = sources.choose_manifest(catalog, task.manifest)
    release = releases.release(releases.indexes(index), releases.distribution(manifest), task.version)
    return releases.plan_for(release, load_series(catalog, manifest))
