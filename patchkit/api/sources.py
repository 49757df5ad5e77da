"""Where pristine files come from: an image, or a release on the package index."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from patchkit.api.look import Options, facts, launch_for, opened
from patchkit.catalog.load import load_catalog
from patchkit.catalog.match import match
from patchkit.catalog.model import Catalog, Manifest
from patchkit.errors import BadInput
from patchkit.images import paths
from patchkit.index import asked_version
from patchkit.lifecycle import releases
from patchkit.lifecycle.releases import Release, SiteRelease
from patchkit.plan import Series, load_series
from patchkit.site.facts import copy_of
from patchkit.site.shipped import parse_record


@dataclass(frozen=True, slots=True)
class Source:
    """A release with the manifest that is for it. ``image`` is its reference, empty for one from the index; ``shipped``
    maps the files in the image's RECORD to ``sha256:<hex>``."""

    catalog: Catalog
    manifest: Manifest
    series: Series
    release: Release
    python: tuple[int, int]
    platform: str
    image: str = ""
    shipped: Mapping[str, str] = field(default_factory=dict)


def of(image: str | None, version: str | None, files: Sequence[str], options: Options, url: str | None) -> Source:
    """The image, or the release: exactly one of both is given; see ``from_image`` and ``from_index``.

    Raises:
        patchkit.errors.BadInput: ``image-or-version``.
    """
    if bool(image) == bool(version):
        raise BadInput("image-or-version", "name either an image or a release", remedy="give --image or --version")
    if image:
        return from_image(image, files, options)
    return from_index(version or "", files[0].partition("/")[0] if files else "", options, url)


def from_image(reference: str, files: Sequence[str], options: Options) -> Source:
    """The package as the image had it before any patch of ours.

    Raises:
        patchkit.errors.Refused: ``no-manifest``, ``package-absent``.
        patchkit.errors.Unreachable: the image cannot be read.
    """
    catalog = load_catalog(options.catalog)
    with opened(reference, options) as image:
        origin = image.origin()
        manifest = match(catalog, origin.identity.digests, origin.reference, options.manifest).manifest
        series = load_series(catalog, manifest)
        site = facts(
            origin,
            launch_for(origin, options),
            manifest.package,
            tuple(dict.fromkeys([*files, *series.paths])),
            manifest.decoys,
            options,
        )
        copy_of(site, manifest.package)  # refused where there is none
        data = paths.read(origin.fs, posixpath.join(site.dist_info, "RECORD")) if site.dist_info else None
        record = parse_record(data) if data else {}
        release = SiteRelease(site, f"{manifest.package} {site.version} in {reference}", frozenset(record))
        shipped = {path: f"sha256:{digest}" for path, digest in record.items()}
        platform = origin.identity.platform
        return Source(catalog, manifest, series, release, site.python[:2], platform, reference, shipped)


def from_index(version: str, package: str, options: Options, url: str | None) -> Source:
    """A release on the package index; the newest final one for ``latest``.

    Raises:
        patchkit.errors.BadInput: ``no-version``.
        patchkit.errors.Refused: ``package-unknown`` or ``release-unknown``.
        patchkit.errors.Unreachable: an index does not answer.
    """
    if version != "latest":
        asked_version(version)  # told before any index is asked
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
