"""``patchkit import``: other people's changes as patches of the catalog."""

from __future__ import annotations

import posixpath
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from patchkit import api
from patchkit.catalog.header import Header
from patchkit.catalog.load import load_catalog
from patchkit.cli import options, render, source
from patchkit.errors import BadInput, Refused, Unreachable
from patchkit.lifecycle import container, edit, importing, releases
from patchkit.lifecycle.importing import Piece
from patchkit.lifecycle.save import Changes, Draft, Saved, save
from patchkit.plan import digest_of

_MAX_DIFF = 16 * 1024 * 1024
#: A pull request's or commit's page; the diff lies beside it.
_PAGE = re.compile(r"https://[^/]+/[^/]+/[^/]+/(pull/\d+|commit/[0-9a-f]{7,40})/?$")


@dataclass(frozen=True, slots=True)
class _Change:
    """One patch to be: what changes, and its prose."""

    id: str
    changes: Changes
    prose: Header


@click.command()
@click.argument("change", required=False)
@click.option("--container", "edited", metavar="NAME", help="What somebody changed by hand in this container instead.")
@click.option("--image", metavar="REF", help="The image that the change is for.")
@click.option("--version", "version", metavar="V", help="The release that it is for instead; latest is the newest.")
@click.option("--index", "url", metavar="URL", help="Another package index than pip's.")
@click.option("--name", metavar="ID", help="The patch's id.  [default: made from the file's name or subject]")
@click.option("--description", "-m", metavar="TEXT", help="Why it is there, where the change itself does not say.")
@click.option("-p", "strip", type=int, metavar="N", help="Leading parts to strip from its names.  [default: found]")
@click.option("--drop-missing", is_flag=True, help="Leave out hunks for files that no installation has.")
@click.option("--force", is_flag=True, help="Take an overlay although it was made from another release.")
@options.looking
@options.json_output
def command(
    change: str | None,
    edited: str | None,
    image: str | None,
    version: str | None,
    url: str | None,
    name: str | None,
    description: str | None,
    strip: int | None,
    drop_missing: bool,
    force: bool,
    options: api.Options,
    as_json: bool,
) -> None:
    """Make patches of CHANGE: a diff, a mail or mbox, a URL, `-`, a quilt series, or a folder of full files.

    The diff is applied to the image or release in memory and written anew, as small as it can be, against that one's
    own files; where it comes from stands in its header.

    \b
    patchkit import fix.patch --image vllm-xpu:nightly
    patchkit import https://github.com/vllm-project/vllm/pull/12345 --version latest --drop-missing
    patchkit import patches/series --version 0.33.0
    patchkit import overlays/ --version 0.27.1 --name my-overlays -m 'What they mend'
    patchkit import --container vllm-1 --name hand-made -m 'What it mends'
    """
    if bool(change) == bool(edited):
        raise click.UsageError("give either CHANGE or --container")
    if edited is not None:
        if image or version:
            raise click.UsageError("--container is compared with its own image")
        found, changes = _from_container(edited, name, description, options)
    else:
        if bool(image) == bool(version):
            raise click.UsageError("give either --image or --version: what the change is for")
        assert change is not None
        folder = Path(change).parent if Path(change).name == "series" else Path(change)
        if folder.is_dir() and not (folder / "series").is_file():
            found, changes = _from_overlays(
                folder, image, version, url, name, description, drop_missing, force, options
            )
        else:
            pieces, origin = _pieces(change, folder, strip)
            found, changes = _from_pieces(pieces, origin, image, version, url, name, description, drop_missing, options)
    _save(found, changes, as_json)


def _save(found: source.Source, changes: Sequence[_Change], as_json: bool) -> None:
    saved: list[Saved] = []
    for each in changes:
        catalog = load_catalog(found.catalog.root)
        manifest = source.choose_manifest(catalog, found.manifest.name)
        prose = each.prose.with_field("Applies-To", f"{manifest.package} {found.release.version}")
        saved.append(save(catalog, manifest, Draft(each.id, each.changes, prose, found.release.version, found.python)))
    if as_json:
        rows = [
            {"patch": each.entry.id, "path": str(each.path), "pre": dict(each.entry.pre), "changed": each.changed}
            for each in saved
        ]
        render.print_json(render.document("import", image={"release": found.release.label}, files=rows))
        return
    for one in saved:
        word = "written" if one.changed else "unchanged"
        click.echo(render.clean(f"{one.path}: {word}, listed in manifest {found.manifest.name} as {one.entry.id}"))
    target = f"status --image {found.image}" if found.image else f"survey {found.manifest.package}"
    click.echo(render.clean(f"next: patchkit {target}"), err=True)


def _open(
    image: str | None, version: str | None, url: str | None, files: Sequence[str], options: api.Options
) -> source.Source:
    if image:
        return source.from_image(image, files, options)
    return source.from_index(version or "", "", options, url)


def _pieces(change: str, folder: Path, strip: int | None) -> tuple[list[Piece], str]:
    """The patches, and where they come from in the words of a DEP-3 Origin field."""
    if folder.is_dir():
        return importing.quilt(folder), f"other, quilt series {folder.absolute().name}"
    if change == "-":
        return importing.pieces("stdin", sys.stdin.buffer.read(_MAX_DIFF + 1)[:_MAX_DIFF], strip), "other"
    if re.match("https?://", change):
        url = f"{change.rstrip('/')}.diff" if _PAGE.match(change) else change
        return importing.pieces(url, _fetched(url), strip), f"upstream, {change}"
    try:
        data = Path(change).read_bytes()
    except OSError as error:
        raise BadInput("no-such-change", f"cannot be read: {error.strerror}", where=change) from error
    return importing.pieces(change, data, strip), f"other, {Path(change).name}"


def _fetched(url: str) -> bytes:
    import requests

    try:
        with requests.get(url, timeout=(10, 60), stream=True) as response:
            response.raise_for_status()
            data = response.raw.read(_MAX_DIFF + 1, decode_content=True)
    except requests.RequestException as error:
        raise Unreachable("url-unreachable", f"cannot be read: {error}", where=url) from error
    if len(data) > _MAX_DIFF:
        raise Refused("too-large", f"larger than {_MAX_DIFF} bytes", where=url)
    return bytes(data)


def _from_pieces(
    pieces: Sequence[Piece],
    origin: str,
    image: str | None,
    version: str | None,
    url: str | None,
    name: str | None,
    description: str | None,
    drop_missing: bool,
    options: api.Options,
) -> tuple[source.Source, list[_Change]]:
    if name and len(pieces) > 1:
        raise BadInput("many-patches", f"--name is for one patch; there are {len(pieces)}")
    wanted = dict.fromkeys(path for piece in pieces for path in importing.candidates(piece))
    found = _open(image, version, url, list(wanted), options)
    fits = [importing.fit(piece, found.release, found.manifest.package) for piece in pieces]
    importing.refuse_missing([path for each in fits for path in each.missing], drop_missing)
    targets = dict.fromkeys(
        path for each in fits for section in each.patch.files for path in section.names(each.strip) if path
    )
    tree = dict(edit.ground(found.release, found.series, "", list(targets), found.platform).files)
    changes = []
    for piece, fitted in zip(pieces, fits, strict=True):
        drawn = importing.drawn(fitted, tree.get, piece.name)
        tree.update({path: after for path, (_, after) in drawn.items()})
        changes.append(_Change(name or piece.name, drawn, importing.prose_of(piece, origin, description)))
    return found, changes


def _from_overlays(
    folder: Path,
    image: str | None,
    version: str | None,
    url: str | None,
    name: str | None,
    description: str | None,
    drop_missing: bool,
    force: bool,
    options: api.Options,
) -> tuple[source.Source, list[_Change]]:
    found = _open(image, version, url, (), options)
    files, missing = importing.overlays(folder, found.release.paths())
    importing.refuse_missing(missing, drop_missing)
    if image:
        found = _open(image, version, url, list(files), options)
    if not force:
        _refuse_older(files, found, url)
    changes = _against(found, files)
    prose = _prose(description, f"other, full files from {folder.absolute().name}")
    return found, [_Change(name or importing.slug(folder.absolute().name), changes, prose)]


def _refuse_older(files: dict[str, bytes], found: source.Source, url: str | None) -> None:
    """An overlay that was made from another release would take back what changed in between."""
    indexes = releases.indexes(url)
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


def _against(found: source.Source, files: dict[str, bytes | None] | dict[str, bytes]) -> Changes:
    """What the files change in the release with the series applied."""
    before = edit.ground(found.release, found.series, "", list(files), found.platform).files
    return {path: (before[path], data) for path, data in files.items() if before[path] != data}


def _prose(description: str | None, origin: str) -> Header:
    fields = [("Description", description)] if description else []
    return Header((*fields, ("Origin", origin), ("Forwarded", "no")))


def _from_container(
    name: str, patch: str | None, description: str | None, options: api.Options
) -> tuple[source.Source, list[_Change]]:
    from patchkit.images.engine import engine

    reached = engine()
    origin = container.origin(reached, name)
    found = source.from_image(origin.name, (), options)
    assert isinstance(found.release, releases.SiteRelease)
    winner = found.release.site.winner
    assert winner is not None  # from_image refuses an image without one
    now = container.files(reached, origin.container, winner.root)
    # The container's names start at the package's folder, RECORD's at site-packages; they differ for a subpackage.
    above = posixpath.relpath(posixpath.dirname(winner.root), winner.base)
    now = {posixpath.normpath(posixpath.join(above, path)): data for path, data in now.items()}
    shipped = found.shipped
    if not shipped:
        raise Refused("no-record", "the copy has no RECORD to compare with", where=winner.root)
    changed, removed = container.edited(now, shipped, {path: digest_of(data) for path, data in now.items()})
    removed = [path for path in removed if path.startswith(f"{found.manifest.package.replace('.', '/')}/")]
    found = source.from_image(origin.name, [*changed, *removed], options)
    files: dict[str, bytes | None] = {path: now[path] for path in changed}
    files |= dict.fromkeys(removed)
    changes = _against(found, files)
    if not changes:
        raise Refused("nothing-changed", "the container's files are the image's", where=name)
    prose = _prose(description, f"vendor, changed by hand in a container of {origin.name}")
    return found, [_Change(patch or "hand-made", changes, prose)]
