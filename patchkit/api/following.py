"""Following upstream: what patches do on other releases, carrying them over, letting them go."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from patchkit.api import sources
from patchkit.api.authoring import task_of
from patchkit.api.deliver import Delivery, apply
from patchkit.api.look import Options, look, opened
from patchkit.api.sources import Source
from patchkit.catalog import header
from patchkit.catalog.load import load_catalog
from patchkit.catalog.model import Catalog, Manifest, PatchEntry
from patchkit.errors import BadInput, Refused, Unreachable
from patchkit.findings import Finding
from patchkit.images import parse_reference
from patchkit.images.model import Identity, Reference
from patchkit.index import asked_range, asked_version
from patchkit.lifecycle import lock, releases, retired, update, work
from patchkit.lifecycle import rebase as rebasing
from patchkit.lifecycle import survey as surveying
from patchkit.lifecycle.files import changing
from patchkit.lifecycle.rebase import Rebased
from patchkit.lifecycle.releases import Release
from patchkit.lifecycle.save import Draft, check_result, save
from patchkit.lifecycle.survey import Survey
from patchkit.plan import Plan, Series, load_series
from patchkit.proof.model import Proof


@dataclass(frozen=True, slots=True)
class Settled:
    """One patch after a rebase: its outcome (see ``patchkit.lifecycle.rebase.MEANING``), what to say of it, the diff
    that was written, and the work folder with its conflicts; None where there is none."""

    id: str
    outcome: str
    detail: str
    path: Path | None = None
    work: Path | None = None


@dataclass(frozen=True, slots=True)
class Rebase:
    """A rebased series on ``release``. ``proof`` is that of the whole series on the image, None where it was not
    proven: without an image, or where a patch still needs a person."""

    release: str
    patches: tuple[Settled, ...]
    proof: Proof | None = None

    @property
    def good(self) -> bool:
        """Whether no patch needs a person."""
        return all(each.outcome in ("unchanged", "clean", "partial", "upstream") for each in self.patches)


def rebase(
    *,
    image: str | None = None,
    onto: str | None = None,
    patches: Sequence[str] = (),
    made_on: str | None = None,
    made_on_image: str | None = None,
    dry_run: bool = False,
    options: Options = Options(),
    index: str | None = None,
) -> Rebase:
    """Carry the series over to an image or release by a three-way merge: clean ones become the new version's variant,
    conflicts go to a work folder with labelled markers.

    Args:
        image: the image to carry the patches over to, or
        onto: the release (``latest``: the newest final one).
        patches: only these; the others count where they stand.
        made_on: the release that the patches were made on; found by their pre-images otherwise.
        made_on_image: the image that they were made on.
        dry_run: write nothing.

    Raises:
        patchkit.errors.Refused: ``old-release-unknown``, ``old-release-differs``, ``does-not-compile``.
        patchkit.errors.Unreachable: image or index cannot be read.
    """
    found = sources.of(image, onto, (), options, index)
    known = {entry.id for entry in found.manifest.patches}
    if not known.issuperset(patches):
        raise BadInput(
            "unknown-patch",
            f"manifest {found.manifest.name} has no {', '.join(sorted(set(patches) - known))}",
            where=str(found.manifest.path),
            remedy="see what there is: patchkit list",
        )
    finder = _finder(found, made_on, made_on_image, options, index)
    outcomes = rebasing.rebase(found.series, found.release, finder, found.platform, frozenset(patches))
    settled = tuple(_settled(each, found, dry_run) for each in outcomes)
    done = Rebase(found.release.label, settled)
    if not (image and done.good and options.run and any(each.path for each in settled)):
        return done
    # By mounts that are gone afterwards: compile, imports and asserts of the result.
    with tempfile.TemporaryDirectory(prefix="patchkit-") as folder:
        applied = apply(image, options, Delivery(mode="bind", output=Path(folder)))
    return Rebase(done.release, settled, applied.platforms[0].proof)


def _finder(
    found: Source, version: str | None, image: str | None, options: Options, index: str | None
) -> Callable[[PatchEntry], Release | None]:
    """What tells where a variant was made: the release or image that the person named, else the index."""
    if image:
        told = sources.from_image(image, (), options).release
        return lambda entry: told
    indexes = releases.indexes(index)
    if version:
        named = releases.release(indexes, releases.distribution(found.manifest), version)
        return lambda entry: named

    def by_hash(entry: PatchEntry) -> Release | None:
        applies_to = header.parse(found.catalog.patch_bytes(entry)).get("Applies-To").split()
        near = [*applies_to[-1:], *(digest.version for digest in found.manifest.digests.values())]
        return releases.made_on(indexes, found.series, entry, near)

    return by_hash


def _settled(each: Rebased, found: Source, dry_run: bool) -> Settled:
    """Write what is clean, lay out what is not."""
    done = Settled(each.id, each.outcome, each.detail)
    if dry_run or each.entry is None or not each.changes or each.outcome == "unchanged":
        return done
    if each.outcome == "conflict":
        base = {path: before for path, (before, _) in each.changes.items()}
        now = {path: after for path, (_, after) in each.changes.items()}
        task = task_of(found, each.id, each.entry.file)
        folder = work.create(work.home() / found.manifest.name / each.id, task, base, now).folder
        return Settled(each.id, each.outcome, each.detail, work=folder)
    check_result(each.changes, found.python)
    with changing(found.catalog.root):
        catalog = load_catalog(found.catalog.root)
        manifest = sources.choose_manifest(catalog, found.manifest.name)
        applies_to = f"{manifest.package} {found.release.version}"
        prose = header.parse(catalog.patch_bytes(each.entry)).with_field("Applies-To", applies_to)
        draft = Draft(each.id, each.changes, prose, found.release.version, found.python, each.entry.file)
        return Settled(each.id, each.outcome, each.detail, path=save(catalog, manifest, draft).path)


def survey(
    package: str,
    versions: str | None = None,
    *,
    everything: bool = False,
    newest: int | None = None,
    options: Options = Options(),
    files: Sequence[Path] = (),
    index: str | None = None,
    started: Callable[[int], Callable[[], None]] = lambda total: lambda: None,
) -> Survey | None:
    """What every patch would do to every release, by ranged reads of the wheels; None where the catalog has no patches
    for the package yet.

    Args:
        versions: the releases to look at (PEP 440); all final ones for None.
        everything: all releases, pre-releases too.
        newest: only so many of the newest.
        files: diffs that are in no catalog, relative to site-packages, instead of the catalog's.
        started: told how many releases there are; gives what is called once a release, from any thread.

    Raises:
        patchkit.errors.BadInput: ``no-patches``, ``no-range``, ``no-release``.
        patchkit.errors.Unreachable: an index does not answer.
    """
    series = surveying.loose(package, files) if files else _series(package, options)
    if not series:
        return None
    if versions:
        asked_range(versions)  # told before any index is asked
    indexes = releases.indexes(index)
    name = releases.distribution(series[0][1].manifest)
    known = indexes.versions(name)
    if everything:
        chosen = [str(each) for each in sorted(known, reverse=True)]
    else:
        chosen = surveying.choose_versions(known, versions)
    chosen = chosen[:newest]
    if not chosen:
        raise BadInput("no-release", f"no release of {name} is in {versions}", remedy=f"pip index versions {name}")
    return surveying.survey(indexes, name, series, chosen, started(len(chosen)))


def _series(package: str, options: Options) -> list[tuple[str, Series]]:
    whole = load_catalog(options.catalog)
    found = [
        each
        for each in whole.manifests
        if package in (each.package, each.distribution) and options.manifest in (None, each.name)
    ]
    if not found:
        packages = ", ".join(sorted({each.package for each in whole.manifests}))
        raise BadInput(
            "no-patches",
            f"no manifest is for {package}" + (f" and called {options.manifest}" if options.manifest else ""),
            where=str(whole.root),
            remedy=f"there are some for: {packages}; a loose diff: --file FILE",
        )
    chosen = [each for each in found if each.patches]
    return [(f"{each.name}/" if len(chosen) > 1 else "", load_series(whole, each, options.only)) for each in chosen]


@dataclass(frozen=True, slots=True)
class Retirement:
    """A patch that left the series (or would): why, and the diffs that were kept."""

    patch: str
    manifest: str
    reason: str
    kept: tuple[Path, ...] = ()


def retire(
    patches: Sequence[str] = (),
    *,
    version: str | None = None,
    reason: str = "",
    force: bool = False,
    dry_run: bool = False,
    options: Options = Options(),
    index: str | None = None,
) -> list[Retirement]:
    """Take patches out of the series, and keep them in ``patches/retired``.

    Args:
        patches: which; without any all those that no image in the lock needs.
        version: a release that proves it (``latest``: the newest final one) instead of the lock.
        reason: why; what proves it otherwise.
        force: retire ``patches`` although nothing proves that they are not needed.

    Raises:
        patchkit.errors.Refused: ``still-needed``.
        patchkit.errors.BadInput: ``unknown-patch``, ``no-reason`` with ``force``.
    """
    if force and not (patches and reason):
        raise BadInput("no-reason", "to force it takes the patches' names and a reason", remedy="give --reason WHY")
    whole = load_catalog(options.catalog)
    listed = {entry.id for each in whole.manifests for entry in each.patches}
    if not listed.issuperset(patches):
        missing = ", ".join(sorted(set(patches) - listed))
        raise BadInput("unknown-patch", f"no manifest lists {missing}", where=str(whole.root), remedy="patchkit list")
    done = []
    for name in [each.name for each in whole.manifests if options.manifest in (None, each.name)]:
        manifest = sources.choose_manifest(whole, name)
        proofs = _proofs(whole, manifest, version, index)
        ids = {entry.id for entry in manifest.patches}
        for patch in [patch for patch in patches if patch in ids] if patches else list(proofs):
            proof = proofs.get(patch)
            if proof is None and not force:
                raise Refused(
                    "still-needed",
                    f"nothing proves that patch {patch} is not needed any more",
                    where=str(manifest.path),
                    remedy="look at a release: --version V; or retire it all the same: --force --reason WHY",
                )
            why, upstream = reason or (proof[0] if proof else ""), proof[1] if proof else ""
            kept = [] if dry_run else _retired(whole.root, name, patch, why, upstream)
            done.append(Retirement(patch, name, why, tuple(kept)))
    return done


def _retired(root: Path, manifest: str, patch: str, why: str, upstream: str) -> list[Path]:
    with changing(root):
        catalog = load_catalog(root)
        return retired.retire(catalog, sources.choose_manifest(catalog, manifest), patch, why, upstream)


def _proofs(catalog: Catalog, manifest: Manifest, version: str | None, index: str | None) -> dict[str, tuple[str, str]]:
    """The patches that are proven not to be needed: id -> (why, the package and version that have the fix)."""
    if not manifest.patches:
        return {}
    if version is None:
        known = lock.load(catalog.root).values()
        return {
            each.patch: (f"not needed by {', '.join(each.done_in)}", f"{manifest.package} {each.version}")
            for each in retired.cases(manifest, known)
            if each.proven
        }
    indexes = releases.indexes(index)
    name = releases.distribution(manifest)
    chosen = releases.newest(indexes, name) if version == "latest" else str(asked_version(version))
    cells = surveying.survey(indexes, name, [("", load_series(catalog, manifest))], [chosen]).row(chosen)
    return {
        cell.patch: (
            f"{name} {chosen}: {'drop condition holds' if cell.droppable else cell.told}",
            f"{manifest.package} {chosen}",
        )
        for cell in cells
        if cell.state == "upstream" or cell.droppable
    }


@dataclass(frozen=True, slots=True)
class Update:
    """What the registry has under an image's name. ``findings`` tell what is to do, ``plan`` what the patches do to the
    new image; both are empty where there is nothing new."""

    called: str
    registry: Reference
    identity: Identity
    plan: Plan | None = None
    findings: tuple[Finding, ...] = ()


def check_update(image: str | None = None, options: Options = Options(), *, output: Path = Path(".patchkit")) -> Update:
    """Ask the registry whether the image's name stands for a new one; nothing is pulled.

    Args:
        image: the image; without one that which the receipt in ``output`` was made of.

    Raises:
        patchkit.errors.Refused: ``no-receipt`` and no image.
        patchkit.errors.BadInput: ``no-registry``.
        patchkit.errors.Unreachable: the registry does not answer.
    """
    catalog = load_catalog(options.catalog)
    reference, known = _known(image, output, catalog, options)
    called = reference.name if reference.transport == "docker-daemon" else str(reference)
    with opened(str(update.in_registry(reference)), options) as there:
        if set(there.identity.digests) & known:
            return Update(called, there.reference, there.identity)
        plan = look(there, options, catalog)
        return Update(called, there.reference, there.identity, plan, tuple(update.to_do(plan, there, called)))


def _known(image: str | None, folder: Path, catalog: Catalog, options: Options) -> tuple[Reference, set[str]]:
    """The image's name, and every digest under which it was seen: in the receipt, in the engine, in the lock."""
    from patchkit.deliver import receipt as receipts
    from patchkit.deliver.output import RECEIPT_NAME

    known = {digest for line in lock.load(catalog.root).values() for digest in (line.image, *line.digests)}
    try:
        receipt = receipts.load(folder / RECEIPT_NAME)
    except (Refused, BadInput) as error:
        if image is None:
            error.remedy = "name the image: patchkit check-update --image REF"
            raise
        receipt = None
    reference = parse_reference(image or (receipt.origin if receipt else ""))
    if receipt is not None and receipt.origin == str(reference):
        return reference, known | set(receipt.origin_identity.digests)
    if reference.transport == "docker-daemon":
        try:
            with opened(str(reference), options) as here, here.origin() as origin:
                known |= set(origin.identity.digests)
        except (Unreachable, Refused):
            pass  # it is not here yet: whatever the registry has is new
    return reference, known
