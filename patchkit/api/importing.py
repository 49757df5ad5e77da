"""Other people's changes as patches of the catalog: diffs, mails, quilt series, full files, a container."""

from __future__ import annotations

import posixpath
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from patchkit.api import sources
from patchkit.api.look import Options
from patchkit.api.sources import Source
from patchkit.catalog.header import Header
from patchkit.catalog.load import load_catalog
from patchkit.errors import BadInput, Refused, Unreachable
from patchkit.images.engine import Engine
from patchkit.lifecycle import container, edit, importing, releases
from patchkit.lifecycle.files import changing, write_all
from patchkit.lifecycle.importing import Piece
from patchkit.lifecycle.save import Changes, Draft, Saved, save
from patchkit.plan import digest_of
from patchkit.site.facts import copy_of

_MAX_DIFF = 16 * 1024 * 1024
#: A pull request's or commit's page; the diff lies beside it.
_PAGE = re.compile(r"https://[^/]+/[^/]+/[^/]+/(pull/\d+|commit/[0-9a-f]{7,40})/?$")


@dataclass(frozen=True, slots=True)
class Wanted:
    """How to take a change.

    ``name`` and ``description`` are for what the change does not say itself, ``strip`` counts the leading parts of its
    names to remove (None: found by the files that are installed), ``drop_missing`` leaves out hunks for files that no
    installation has, ``force`` takes full files although they were made from another release.
    """

    name: str = ""
    description: str = ""
    strip: int | None = None
    drop_missing: bool = False
    force: bool = False


@dataclass(frozen=True, slots=True)
class _Change:
    id: str
    changes: Changes
    prose: Header


def import_change(
    change: str,
    wanted: Wanted = Wanted(),
    *,
    image: str | None = None,
    version: str | None = None,
    options: Options = Options(),
    index: str | None = None,
) -> tuple[Source, list[Saved]]:
    """Make patches of a file, a URL, ``-`` (standard input), a quilt series, or a folder of full files.

    All of them are drawn against the image's or release's own files before the first is written, and written or not
    together.

    Raises:
        patchkit.errors.BadInput: ``no-such-change``, ``malformed-patch``, ``unsafe-path``, ``strip-unclear``,
            ``many-patches``, ``overlay-unclear``, and what ``save`` raises.
        patchkit.errors.Refused: ``files-not-installed``, ``does-not-apply``, ``already-there``,
            ``already-a-patch``, ``overlay-of-another-release``.
        patchkit.errors.Unreachable: the change, the image or the index cannot be read.
    """
    folder = Path(change).parent if Path(change).name == "series" else Path(change)
    if folder.is_dir() and not (folder / "series").is_file():
        found, changes = _overlays(folder, wanted, image, version, options, index)
    else:
        pieces, origin = _pieces(change, folder, wanted.strip)
        found, changes = _diffs(pieces, origin, wanted, image, version, options, index)
    return found, _save(found, changes)


def import_container(name: str, wanted: Wanted = Wanted(), options: Options = Options()) -> tuple[Source, list[Saved]]:
    """Make one patch of what somebody changed by hand in a container, running or not.

    Raises:
        patchkit.errors.Refused: ``nothing-changed``, ``other-copy-changed``: of one that the server does not import,
            ``already-a-patch``, ``no-record``: the copy has nothing to compare with.
        patchkit.errors.Unreachable: ``no-such-container``.
    """
    from patchkit.images.engine import engine

    reached = engine()
    origin = container.origin(reached, name)
    found = sources.from_image(origin.name, (), options)
    assert isinstance(found.release, releases.SiteRelease)
    site = found.release.site
    copy = copy_of(site, found.manifest.package)
    if not found.shipped:
        raise Refused("no-record", "the copy has no RECORD to compare with", where=copy.root, remedy="patchkit edit")
    # The container's names start at the package's folder, RECORD's at site-packages.
    above = posixpath.relpath(posixpath.dirname(copy.root), copy.base)
    files = container.files(reached, origin.container, copy.root)
    now = {posixpath.normpath(posixpath.join(above, path)): data for path, data in files.items()}
    changed, removed = container.edited(now, found.shipped, {path: digest_of(data) for path, data in now.items()})
    inside = f"{found.manifest.package.replace('.', '/')}/"
    removed = [path for path in removed if path.startswith(inside)]
    found = sources.from_image(origin.name, [*changed, *removed], options)
    files_now = {**{path: now[path] for path in changed}, **dict.fromkeys(removed)}
    changes = _against(found, files_now)
    if not files_now:
        others = [each.root for each in site.copies if copy == site.winner and each != copy]
        raise _nothing_changed(reached, origin.container, name, copy.root, others)
    if not changes:
        raise _done_already(found, files_now, name)
    prose = _prose(wanted, f"vendor, changed by hand in a container of {origin.name}")
    return found, _save(found, [_Change(wanted.name or "hand-made", changes, prose)])


def _nothing_changed(engine: Engine, container_id: str, name: str, looked: str, others: Sequence[str]) -> Refused:
    """Why there is nothing to import: no file was changed, or those of ``others``, which the server does not import."""
    elsewhere = [path for root in others for path in container.changed_below(engine, container_id, root)]
    if not elsewhere:
        return Refused(
            "nothing-changed",
            "the files of this copy are the image's",
            where=f"{name}:{looked}",
            remedy="change a file there",
        )
    return Refused(
        "other-copy-changed",
        f"{', '.join(elsewhere[:3])}{' and more' if elsewhere[3:] else ''}: changed, and the server does not import "
        f"{'it' if len(elsewhere) == 1 else 'them'}: it imports {looked}",
        where=name,
        remedy=f"make the change in {looked}, see that it helps, and import it again",
    )


def _done_already(found: Source, files: Mapping[str, bytes | None], name: str) -> Refused:
    """The files are as the series makes them: which patch does it."""
    by: dict[str, str] = {}
    for path, data in files.items():

        def holds(read: edit.Reader, path: str = path, data: bytes | None = data) -> bool:
            return read(path) == data

        by[path] = edit.done_by(found.release, found.series, [path], found.platform, holds)
    patches = list(dict.fromkeys(patch for patch in by.values() if patch))
    return Refused(
        "already-a-patch",
        f"what differs from {found.release.label} is what {_called(patches)} of the series makes of it",
        where=name,
        remedy=_change(found, patches),
        details=[f"{path}: {patch}" for path, patch in by.items()],
    )


def _called(patches: Sequence[str]) -> str:
    return f"patch{'es' if len(patches) > 1 else ''} {', '.join(patches)}"


def _change(found: Source, patches: Sequence[str]) -> str:
    place = f"--image {found.image}" if found.image else f"--version {found.release.version}"
    return f"to change it: patchkit edit --patch {patches[-1]} {place}" if patches else "change a file in it"


def _save(found: Source, changes: Sequence[_Change]) -> list[Saved]:
    """All of them or none: what was written before one failed is taken back."""
    saved: list[Saved] = []
    version = found.release.version
    with changing(found.catalog.root):
        before = {found.manifest.path: found.manifest.path.read_bytes()}
        try:
            for each in changes:
                catalog = load_catalog(found.catalog.root)
                manifest = sources.choose_manifest(catalog, found.manifest.name)
                prose = each.prose.with_field("Applies-To", f"{manifest.package} {version}")
                saved.append(save(catalog, manifest, Draft(each.id, each.changes, prose, version, found.python)))
        except BaseException:
            write_all({**before, **{each.path: None for each in saved if each.changed}})
            raise
    return saved


def _pieces(change: str, folder: Path, strip: int | None) -> tuple[list[Piece], str]:
    """The patches, and where they come from in the words of a DEP-3 Origin field."""
    if folder.is_dir():
        return importing.quilt(folder), f"other, quilt series {folder.absolute().name}"
    if change == "-":
        return importing.pieces("stdin", sys.stdin.buffer.read(_MAX_DIFF), strip), "other"
    if re.match("https?://", change):
        url = f"{change.rstrip('/')}.diff" if _PAGE.match(change) else change
        return importing.pieces(url, _fetched(url), strip), f"upstream, {change}"
    try:
        data = Path(change).read_bytes()
    except OSError as error:
        raise BadInput(
            "no-such-change", f"cannot be read: {error.strerror}", where=change, remedy="name a file, a folder or a URL"
        ) from error
    return importing.pieces(change, data, strip), f"other, {Path(change).name}"


def _fetched(url: str) -> bytes:
    import requests

    from patchkit.images.client import reason

    try:
        with requests.get(url, timeout=(10, 60), stream=True) as response:
            response.raise_for_status()
            data = response.raw.read(_MAX_DIFF + 1, decode_content=True)
    except requests.RequestException as error:
        raise Unreachable(
            "url-unreachable", f"cannot be read: {reason(error)}", where=url, remedy="save it to a file"
        ) from error
    if len(data) > _MAX_DIFF:
        raise Refused("too-large", f"larger than {_MAX_DIFF} bytes", where=url, remedy="is this a diff?")
    return bytes(data)


def _diffs(
    pieces: Sequence[Piece],
    origin: str,
    wanted: Wanted,
    image: str | None,
    version: str | None,
    options: Options,
    index: str | None,
) -> tuple[Source, list[_Change]]:
    if wanted.name and len(pieces) > 1:
        raise BadInput("many-patches", f"a name is for one patch; there are {len(pieces)}", remedy="leave --name out")
    candidates = dict.fromkeys(path for piece in pieces for path in importing.candidates(piece))
    found = sources.of(image, version, list(candidates) if image else (), options, index)
    fits = [importing.fit(piece, found.release, found.manifest.package) for piece in pieces]
    importing.refuse_missing([path for each in fits for path in each.missing], wanted.drop_missing)
    targets = dict.fromkeys(
        path for each in fits for section in each.patch.files for path in section.names(each.strip) if path
    )
    tree = dict(edit.ground(found.release, found.series, "", list(targets), found.platform).files)
    changes = []
    for piece, fitted in zip(pieces, fits, strict=True):
        try:
            drawn = importing.drawn(fitted, tree.get, piece.name)
        except Refused as error:
            raise (
                _in_series(found, fitted, list(targets), error) if error.code == "already-there" else error
            ) from None
        tree.update({path: after for path, (_, after) in drawn.items()})
        prose = importing.prose_of(piece, origin, wanted.description)
        changes.append(_Change(wanted.name or piece.name, drawn, prose))
    return found, changes


def _in_series(found: Source, fitted: importing.Fit, targets: Sequence[str], told: Refused) -> Refused:
    """What was told, or where it is the series that has the diff already, and not the release: which patch."""
    if told.code != "already-there":
        return told
    patch = edit.done_by(
        found.release, found.series, targets, found.platform, lambda read: importing.holds(fitted, read)
    )
    if not patch:
        return Refused(
            told.code, f"{found.release.label} holds every hunk already", where=told.where, remedy=told.remedy
        )
    return Refused(
        "already-a-patch",
        f"patch {patch} of the series does this already",
        where=told.where,
        remedy=_change(found, [patch]),
    )


def _overlays(
    folder: Path, wanted: Wanted, image: str | None, version: str | None, options: Options, index: str | None
) -> tuple[Source, list[_Change]]:
    found = sources.of(image, version, (), options, index)
    files, missing = importing.overlays(folder, found.release.paths())
    importing.refuse_missing(missing, wanted.drop_missing)
    if image:
        found = sources.from_image(image, list(files), options)
    if not wanted.force:
        try:
            _refuse_older(files, found, index)
        except (Refused, Unreachable) as error:
            if error.code != "overlay-of-another-release":
                error.remedy = f"{error.remedy}; or, where they were made from {found.release.label} for sure: --force"
            raise
    name = folder.absolute().name
    change = _Change(
        wanted.name or importing.slug(name), _against(found, files), _prose(wanted, f"other, full files from {name}")
    )
    return found, [change]


def _refuse_older(files: Mapping[str, bytes], found: Source, index: str | None) -> None:
    """An overlay that was made from another release would take back what changed in between."""
    indexes = releases.indexes(index)
    package = releases.distribution(found.manifest)
    others = [
        releases.release(indexes, package, str(version))
        for version in reversed(indexes.versions(package))
        if not version.is_prerelease and str(version) != found.release.version
    ][:30]
    near = importing.nearer(files, found.release, others)
    if near is not None:
        release, lines, own = near
        raise Refused(
            "overlay-of-another-release",
            f"the files differ in {own} lines from {found.release.label}, in {lines} from {release.label}: "
            "they were made from that one, and would take back what changed since",
            remedy=f"import them with --version {release.version}, then carry them over: patchkit rebase; "
            "or take them as they are: --force",
        )


def _against(found: Source, files: Mapping[str, bytes | None]) -> Changes:
    """What the files change in the release with the series applied."""
    before = edit.ground(found.release, found.series, "", list(files), found.platform).files
    return {path: (before[path], data) for path, data in files.items() if before[path] != data}


def _prose(wanted: Wanted, origin: str) -> Header:
    fields = [("Description", wanted.description)] if wanted.description else []
    return Header((*fields, ("Origin", origin), ("Forwarded", "no")))
