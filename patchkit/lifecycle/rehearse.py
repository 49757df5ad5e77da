"""A manifest held against the releases that it was made on: what it says of them must be so."""

from __future__ import annotations

from dataclasses import replace

from patchkit import diff
from patchkit.catalog import condition, header
from patchkit.catalog.model import Catalog, DropWhen, Manifest, PatchEntry
from patchkit.errors import PatchkitError, Refused
from patchkit.findings import Finding
from patchkit.index import Indexes
from patchkit.lifecycle import releases
from patchkit.lifecycle.edit import ground
from patchkit.plan import Series, digest_of, load_series


def rehearse(catalog: Catalog, manifest: Manifest, indexes: Indexes) -> list[Finding]:
    """Every entry applied to the release whose files have its pre-images.

    Errors: the diff does not apply there, its result is not ``post``, or its drop condition holds already (it would
    drop the patch at once). A pre-image that no release has is a note: nightlies are on no index.

    Raises:
        patchkit.errors.Unreachable: an index does not answer.
    """
    series = load_series(catalog, manifest)
    found: list[Finding] = []
    for entry in manifest.patches:
        told = header.parse(catalog.patch_bytes(entry)).get("Applies-To").split()[-1:]
        near = [*told, *(digest.version for digest in manifest.digests.values())]
        try:
            source = releases.made_on(indexes, series, entry, near)
        except Refused as error:
            if error.code != "package-unknown":
                raise
            said = f"{error.what}: a private package? Name its index"
            found.append(Finding("not-rehearsed", "note", said, entry.file, "", "--index URL"))
            break  # the others are of the same package
        if source is None:
            said = (
                f"no release has the pre-images of patch {entry.id}" if entry.pre else f"patch {entry.id} lists no pre"
            )
            found.append(Finding("not-rehearsed", "note", said, entry.file, "", "patchkit status --image X"))
        else:
            found += _held(series, entry, source)
    return [replace(each, where=f"{manifest.name}: {each.where}") for each in found]


def _held(series: Series, entry: PatchEntry, source: releases.Release) -> list[Finding]:
    platform = (entry.platforms or series.manifest.platforms or ("linux/amd64",))[0]
    try:
        files = dict(ground(source, series, entry.id, (), platform).files)
    except PatchkitError as error:
        return [Finding("earlier-patch", "error", str(error), entry.file, source.label, error.remedy or "")]
    result = diff.evaluate(series.patches[entry.file], files.get, fuzz=entry.fuzz)
    found = []
    if not result.ok or result.state == "applied":
        told = "; ".join(f"{file.path}: {file.state}: {file.why}" for file in result.files)
        found.append(
            Finding("does-not-apply", "error", f"the diff is {result.state} on {source.label}", entry.file, told)
        )
    for path, digest in entry.post.items():
        now = digest_of(result.changes.get(path, files.get(path)))
        if result.ok and now != digest:
            found.append(
                Finding("other-post-image", "error", f"{path} comes out as {now}", entry.file, f"post: {digest}")
            )
    if entry.drop_when is not None:
        pristine = {path: source.read(path) for path in condition.paths(entry.drop_when)}
        patched = {path: result.changes.get(path, data) for path, data in pristine.items()}
        if condition.holds(entry.drop_when, pristine):
            found.append(
                Finding(
                    "drops-at-once",
                    "error",
                    f"the drop condition of patch {entry.id} holds on {source.label}, which needs the patch",
                    entry.file,
                    "",
                    "state what only the fixed file has",
                )
            )
        elif entry.drop_when.syntax is not None and not condition.holds(_mended(entry.drop_when), patched):
            found.append(
                Finding(
                    "never-drops",
                    "note",
                    f"the drop condition of patch {entry.id} does not even hold on the patched file",
                    entry.file,
                    "",
                    "state what the fixed file has",
                )
            )
    return found


def _mended(stated: DropWhen) -> DropWhen:
    """What a patched file has to show of a condition. A patch may make up for an argument that is not passed on in
    another way than passing it on, so that of ``calls_with`` only the calls are looked for."""
    if stated.syntax is None or not stated.syntax.calls_with:
        return stated
    return replace(stated, syntax=replace(stated.syntax, calls_with=dict.fromkeys(stated.syntax.calls_with, ())))
