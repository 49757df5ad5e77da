"""Where pristine files come from: an image, or a release on the package index."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from dataclasses import dataclass

from patchkit import api
from patchkit.catalog.load import load_catalog
from patchkit.catalog.match import match
from patchkit.catalog.model import Catalog, Manifest
from patchkit.errors import BadInput, Refused
from patchkit.images import paths
from patchkit.images.model import Image
from patchkit.index import parse_record
from patchkit.lifecycle import releases
from patchkit.lifecycle.releases import Release, SiteRelease
from patchkit.plan import Series, load_series


@dataclass(frozen=True, slots=True)
class Source:
    """A release with the manifest that is for it. ``image`` is its reference, empty for one from the index."""

    catalog: Catalog
    manifest: Manifest
    series: Series
    release: Release
    python: tuple[int, int]
    platform: str
    image: str = ""


def from_image(reference: str, files: Sequence[str], options: api.Options) -> Source:
    """The package as the image had it before any patch of ours.

    Raises:
        patchkit.errors.Refused: ``no-manifest``, ``package-absent``.
        patchkit.errors.Unreachable: the image cannot be read.
    """
    catalog = load_catalog(options.catalog)
    with api.opened(reference, options) as image:
        origin = image.origin()
        manifest = match(catalog, origin.identity.digests, origin.reference, options.manifest).manifest
        series = load_series(catalog, manifest)
        wanted = tuple(dict.fromkeys([*files, *series.paths]))
        return Source(
            catalog,
            manifest,
            series,
            *_release(origin, manifest, wanted, options),
            origin.identity.platform,
            reference,
        )


def _release(
    image: Image, manifest: Manifest, wanted: Sequence[str], options: api.Options
) -> tuple[Release, tuple[int, int]]:
    launch = api.launch_for(image, options)
    site = api.facts(image, launch, manifest.package, wanted, manifest.decoys, options)
    if site.winner is None:
        raise Refused(
            "package-absent",
            f"the launch imports no copy of {manifest.package}",
            where=str(image.reference),
            remedy="name another start with --launch, or a copy with --copy PATH",
        )
    data = paths.read(image.fs, posixpath.join(site.dist_info, "RECORD")) if site.dist_info else None
    record = frozenset(parse_record(data)) if data else frozenset()
    label = f"{manifest.package} {site.version} in {image.reference}"
    return SiteRelease(site, label, record), site.python[:2]


def from_index(version: str, package: str, options: api.Options, url: str | None) -> Source:
    """A release on the package index; the newest final one for ``latest``.

    Raises:
        patchkit.errors.Refused: ``package-unknown`` or ``release-unknown``.
        patchkit.errors.Unreachable: an index does not answer.
    """
    catalog = load_catalog(options.catalog)
    manifest = choose_manifest(catalog, options.manifest, package)
    series = load_series(catalog, manifest)
    indexes = releases.indexes(url)
    name = releases.distribution(manifest)
    chosen = releases.newest(indexes, name) if version == "latest" else version
    platform = (manifest.platforms or ("linux/amd64",))[0]
    return Source(catalog, manifest, series, releases.release(indexes, name, chosen), releases.PYTHON, platform)


def choose_manifest(catalog: Catalog, name: str | None, package: str = "") -> Manifest:
    """The manifest of that name, else the only one, else the only one for the package.

    Raises:
        patchkit.errors.BadInput: ``unknown-manifest`` or ``which-manifest``.
    """
    found = [each for each in catalog.manifests if name in (None, each.name)]
    if len(found) > 1 and package:
        found = [each for each in found if each.package == package]
    if len(found) == 1:
        return found[0]
    names = ", ".join(each.name for each in catalog.manifests)
    if name is not None:
        raise BadInput(
            "unknown-manifest", f"the catalog has no manifest {name}; it has {names}", where=str(catalog.root)
        )
    raise BadInput(
        "which-manifest", f"the catalog has {names}", where=str(catalog.root), remedy="name one: --manifest NAME"
    )
