"""Looking: catalog and image make a plan. Nothing is written."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from patchkit.catalog.load import load_catalog
from patchkit.catalog.match import match
from patchkit.catalog.model import Catalog
from patchkit.errors import Refused
from patchkit.images import Access, open_image, parse_reference
from patchkit.images.model import Image, Reference, Subject
from patchkit.plan import Plan, Row, load_series, make_plan
from patchkit.site.facts import copy_of, site_facts
from patchkit.site.launch import launch_of, require_known
from patchkit.site.model import Launch, Site


@dataclass(frozen=True, slots=True)
class Options:
    """What to look at and how.

    ``catalog`` is a folder (None: ``PATCHKIT_CATALOG``, else the built-in one), ``manifest`` a name that decides
    whatever the image is called, ``only`` patch ids to narrow the series to, ``copy`` the root of another copy of the
    package than the one that serves, ``launch`` a command line that stands for the image's own start, ``platform``
    ``os/arch`` for an image of several, ``run`` whether programs of the image may be executed, ``everything`` whether
    the whole image is walked for copies. ``plain_http``, ``ca_file`` and ``auth_file`` are for registries, beyond what
    docker's and podman's own files say.
    """

    catalog: Path | None = None
    manifest: str | None = None
    only: tuple[str, ...] = ()
    copy: str = ""
    launch: str | None = None
    platform: str | None = None
    run: bool = True
    everything: bool = False
    plain_http: bool = False
    ca_file: str | None = None
    auth_file: str | None = None

    @property
    def access(self) -> Access:
        """How images may be reached."""
        return Access(plain_http=self.plain_http, ca_file=self.ca_file, auth_file=self.auth_file, run=self.run)


@contextmanager
def opened(reference: str, options: Options = Options()) -> Iterator[Image]:
    """The image that the person named, opened for reading."""
    with open_image(parse_reference(reference), platform=options.platform, access=options.access) as image:
        yield image


def look(
    image: Subject, options: Options = Options(), catalog: Catalog | None = None, *, called: Sequence[Reference] = ()
) -> Plan:
    """The plan for this image as it is: match, facts, plan. Nothing is written. ``catalog`` is the one that the options
    name, where the caller has loaded it already; ``called`` the names to match by, where those are not the image's own.

    Raises:
        patchkit.errors.Refused: ``no-manifest``, ``package-absent``, ``copy-unknown``, ``launch-unknown``.
        patchkit.errors.BadInput: the catalog or a name is wrong.
        patchkit.errors.Unreachable: the image cannot be read.
    """
    catalog = catalog or load_catalog(options.catalog)
    found = match(catalog, image.identity.digests, image.reference, options.manifest, called)
    series = load_series(catalog, found.manifest, options.only)
    launch = launch_for(image, options)
    site = facts(image, launch, found.manifest.package, series.paths, found.manifest.decoys, options)
    return make_plan(image.reference, image.identity, found, series, site, copy_of(site, found.manifest.package))


def launch_for(image: Subject, options: Options = Options()) -> Launch:
    """The launch that serves: the image's own, or the one that the person gave."""
    return require_known(launch_of(json.loads(image.config), image.fs, options.launch))


def facts(
    image: Subject, launch: Launch, package: str, files: Sequence[str], decoys: Sequence[str], options: Options
) -> Site:
    """The facts about a package in this image; see ``patchkit.site.facts.site_facts``."""
    return site_facts(
        image,
        launch,
        package,
        files,
        decoys=decoys,
        everything=options.everything,
        run=options.run,
        copy=options.copy,
    )


def status(reference: str, options: Options = Options()) -> Plan:
    """What the patches would do to this image, or have done to it."""
    catalog = load_catalog(options.catalog)
    with opened(reference, options) as image:
        return look(image, options, catalog)


def refuse_unless_deliverable(plan: Plan, options: Options = Options()) -> None:
    """Raise ``does-not-apply`` where a row or a finding stops the delivery. ``options`` are repeated in the remedy."""
    stops = [_line(row) for row in plan.refused]
    stops += [f"{finding.where}: {finding.what}" for finding in plan.findings if finding.severity == "error"]
    if not plan.rows:
        stops.append(f"manifest {plan.match.manifest.name} has no patches")
    if stops:
        raise Refused(
            "does-not-apply",
            f"{len(stops)} of {max(len(plan.rows), len(stops))} cannot be delivered; nothing was written",
            where=str(plan.reference),
            remedy=remedy_for(plan, options),
            details=stops,
        )


def remedy_for(plan: Plan, options: Options = Options()) -> str:
    """What to do about a plan that cannot be delivered: carry the series over, look closer, or leave patches out."""
    place, name = (
        ("--container", plan.reference.name)
        if plan.reference.transport == "container"
        else (
            "--image",
            str(plan.reference),
        )
    )
    target = f"{place} {name}{again(options)}"
    if not plan.rows:
        package = plan.match.manifest.package
        return (
            f"make one: patchkit edit {target} {package}/FILE.py; patchkit save --name NAME -m WHY"
            if place == "--image"
            else f"make one of what was changed in it: patchkit import {target} --name NAME -m WHY"
        )
    states = {row.state for row in plan.refused}
    steps = [f"see each hunk: patchkit status {target}"]
    steps[:0] = dict.fromkeys(each.remedy for each in plan.findings if each.severity == "error" and each.remedy)
    if states & {"conflict", "partial", "ambiguous", "fuzzy"} and place == "--image":
        steps.insert(0, f"carry the series over to it: patchkit rebase {target}")
    bad = {row.patch for row in plan.refused}
    rest = [patch for patch in dict.fromkeys(row.patch for row in plan.rows) if patch not in bad]
    if rest and bad:
        steps.append(f"or leave it out: --only {' --only '.join(rest)}")
    return "; ".join(steps)


def again(options: Options) -> str:
    """The options as they must be given again for the next command to look at the same thing."""
    given = [("--catalog", options.catalog), ("--manifest", options.manifest), ("--launch", options.launch)]
    return "".join(f" {name} {shlex.quote(str(value))}" for name, value in given if value)


def _line(row: Row) -> str:
    return f"{row.patch}: {row.path}: {row.told_state}: {row.detail}"
