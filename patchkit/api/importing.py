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
from patchkit.lifecycle import container, edit, importing, releases
from patchkit.lifecycle.files import changing
from patchkit.lifecycle.importing import Piece
from patchkit.lifecycle.save import Changes, Draft, Saved, save
from patchkit.plan import digest_of

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

    All of them are drawn against the image's or release's own files before the first is written.

    Raises:
        patchkit.errors.BadInput: ``no-such-change``, ``malformed-patch``, ``unsafe-path``, ``strip-unclear``,
            ``many-patches``, ``overlay-unclear``, and what ``save`` raises.
        patchkit.errors.Refused: ``files-not-installed``, ``does-not-apply``, ``already-there``,
            ``overlay-of-another-release``.
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
        patchkit.errors.Refused: ``nothing-changed``, ``no-record``: the copy has nothing to compare with.
        patchkit.errors.Unreachable: ``no-such-container``.
    """
    from patchkit.images.engine import engine

    reached = engine()
    origin = container.origin(reached, name)
    found = sources.from_image(origin.name, (), options)
    assert isinstance(found.release, releases.SiteRelease)
    winner = found.release.site.winner
    assert winner is not None  # from_image refuses an image without one
    if not found.shipped:
        raise Refused("no-record", "the copy has no RECORD to compare with", where=winner.root, remedy="patchkit edit")
    # The container's names start at the package's folder, RECORD's at site-packages.
    above = posixpath.relpath(posixpath.dirname(winner.root), winner.base)
    files = container.files(reached, origin.container, winner.root)
    now = {posixpath.normpath(posixpath.join(above, path)): data for path, data in files.items()}
    changed, removed = container.edited(now, found.shipped, {path: digest_of(data) for path, data in now.items()})
    inside = f"{found.manifest.package.replace('.', '/')}/"
    removed = [path for path in removed if path.startswith(inside)]
    found = sources.from_image(origin.name, [*changed, *removed], options)
    changes = _against(found, {**{path: now[path] for path in changed}, **dict.fromkeys(removed)})
    if not changes:
        raise Refused(
            "nothing-changed", "the container's files are the image's", where=name, remedy="change a file in it"
        )
    prose = _prose(wanted, f"vendor, changed by hand in a container of {origin.name}")
    return found, _save(found, [_Change(wanted.name or "hand-made", changes, prose)])


def _save(found: Source, changes: Sequence[_Change]) -> list[Saved]:
    saved = []
    version = found.release.version
    with changing(found.catalog.root):
        for each in changes:
            catalog = load_catalog(found.catalog.root)
            manifest = sources.choose_manifest(catalog, found.manifest.name)
            prose = each.prose.with_field("Applies-To", f"{manifest.package} {version}")
            saved.append(save(catalog, manifest, Draft(each.id, each.changes, prose, version, found.python)))
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

    try:
        with requests.get(url, timeout=(10, 60), stream=True) as response:
            response.raise_for_status()
            data = response.raw.read(_MAX_DIFF + 1, decode_content=True)
    except requests.RequestException as error:
        raise Unreachable(
            "url-unreachable", f"cannot be read: {error}", where=url, remedy="save it to a file"
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
        drawn = importing.drawn(fitted, tree.get, piece.name)
        tree.update({path: after for path, (_, after) in drawn.items()})
        prose = importing.prose_of(piece, origin, wanted.description)
        changes.append(_Change(wanted.name or piece.name, drawn, prose))
    return found, changes


def _overlays(
    folder: Path, wanted: Wanted, image: str | None, version: str | None, options: Options, index: str | None
) -> tuple[Source, list[_Change]]:
    found = sources.of(image, version, (), options, index)
    files, missing = importing.overlays(folder, found.release.paths())
    importing.refuse_missing(missing, wanted.drop_missing)
    if image:
        found = sources.from_image(image, list(files), options)
    if not wanted.force:
        _refuse_older(files, found, index)
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
