"""Which manifest an image belongs to: a listed digest says it, else an image pattern, else the person by name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from patchkit.catalog.faults import near
from patchkit.catalog.model import Catalog, Manifest, Match
from patchkit.errors import BadInput, Refused
from patchkit.images.model import Reference

NOT_LISTED = "digest not listed"

#: So many manifests are told with why they do not match: all of a small catalog, the nearest of a large one.
_TOLD = 8
_PATH_TRANSPORTS = ("oci", "oci-archive", "docker-archive", "rootfs")


def match(
    catalog: Catalog,
    digests: Sequence[str],
    reference: Reference,
    manifest: str | None = None,
    called: Sequence[Reference] = (),
) -> Match:
    """The manifest for an image.

    Args:
        catalog: where to look.
        digests: every digest of the image (``Identity.digests``).
        reference: how the person called it.
        manifest: a manifest's name; it decides whatever the image is called.
        called: the names to compare patterns with, where those are others than ``reference``.

    Raises:
        patchkit.errors.Refused: ``no-manifest``, with the nearest manifests and why they do not match.
        patchkit.errors.BadInput: ``several-manifests`` claim the image, or ``unknown-manifest``.
    """
    if manifest is not None:
        return _by_name(catalog, digests, reference, manifest, called)
    listed = [(each, digest) for each in catalog.manifests for digest in digests if digest in each.digests]
    if listed:
        _only_one(sorted({each.name for each, _ in listed}), f"list {listed[0][1]}", reference)
        chosen, digest = listed[0]
        return Match(chosen, "digest", digest)
    names = tuple(dict.fromkeys(name for each in called or [reference] for name in image_names(each)))
    fitting = [(each, pattern) for each in catalog.manifests if (pattern := _pattern(each, names))]
    if not fitting:
        raise Refused(
            "no-manifest",
            "no manifest is for this image",
            where=str(reference),
            remedy="name one with --manifest NAME, or add the image to a manifest's images or digests",
            details=[_why_not(each, names) for each in _nearest(catalog, names)],
        )
    _only_one([each.name for each, _ in fitting], "have an image pattern that fits it", reference)
    chosen, fitting_pattern = fitting[0]
    return Match(chosen, "pattern", fitting_pattern, (NOT_LISTED,))


def image_names(reference: Reference) -> tuple[str, ...]:
    """The spellings ``name:tag`` of an image that patterns are compared with: the full one and the familiar one
    (``docker.io/library/x:tag``, ``x:tag``). No tag means ``latest``; a reference by digest alone has an empty tag,
    which ``*`` fits. An image in a folder or archive is called by the name it has there and by that of the folder or
    file."""
    name = reference.name.removeprefix("//")
    if reference.transport not in _PATH_TRANSPORTS:
        return _spellings(name)
    path, _, inner = name.partition(":")
    stem = PurePosixPath(path).name.removesuffix(".tar")
    if reference.transport == "rootfs":
        return (f"{PurePosixPath(name).name}:latest",)
    named = _spellings(inner) if re.search("[:/]", inner) else ()
    return tuple(dict.fromkeys((*named, f"{stem}:{inner or 'latest'}")))


def _spellings(name: str) -> tuple[str, ...]:
    name, at, _ = name.partition("@")
    head, slash, last = name.rpartition("/")
    base, colon, tag = last.partition(":")
    tagged = f"{head}{slash}{base}:{tag if colon or at else 'latest'}"
    # The first part is a registry only if it looks like a host; else Docker Hub is meant:
    # https://github.com/distribution/reference, "splitDockerDomain".
    first, rest_slash, rest = tagged.partition("/")
    if not rest_slash or not (re.search("[.:]", first) or first == "localhost" or first != first.lower()):
        first, rest = "docker.io", tagged
    if first in ("docker.io", "index.docker.io"):
        path = rest if "/" in rest else f"library/{rest}"
        return (f"docker.io/{path}", path.removeprefix("library/"))
    return (tagged,)


def _pattern(manifest: Manifest, names: Sequence[str]) -> str:
    return next((each.match for each in manifest.images for name in names if fnmatchcase(name, each.match)), "")


def _by_name(
    catalog: Catalog, digests: Sequence[str], reference: Reference, name: str, called: Sequence[Reference]
) -> Match:
    chosen = next((each for each in catalog.manifests if each.name == name), None)
    if chosen is None:
        raise BadInput(
            "unknown-manifest",
            f"the catalog has no manifest {name}{near(name, [each.name for each in catalog.manifests])}",
            where=str(catalog.root),
            remedy="see what there is with: patchkit list",
        )
    notes = []
    if not any(digest in chosen.digests for digest in digests):
        notes.append(NOT_LISTED)
        if not any(_pattern(chosen, image_names(each)) for each in called or [reference]):
            notes.append(f"no image pattern of {name} fits {reference}")
    return Match(chosen, "name", name, tuple(notes))


def _only_one(names: Sequence[str], claim: str, reference: Reference) -> None:
    if len(names) > 1:
        raise BadInput(
            "several-manifests",
            f"manifests {' and '.join(names)} {claim}",
            where=str(reference),
            remedy=f"choose one with --manifest {names[0]}, or narrow their images",
        )


def _nearest(catalog: Catalog, names: Sequence[str]) -> list[Manifest]:
    """The manifests, those first whose name or patterns share most words with the image's."""
    words = {word for name in names for word in _words(name)}

    def shared(manifest: Manifest) -> int:
        own = {word for text in (manifest.name, *(each.match for each in manifest.images)) for word in _words(text)}
        return len(words & own)

    return sorted(catalog.manifests, key=lambda each: (-shared(each), each.name))[:_TOLD]


def _words(text: str) -> list[str]:
    return [
        word for word in re.split("[^a-z0-9]+", text.lower()) if word not in ("", "docker", "io", "library", "latest")
    ]


def _why_not(manifest: Manifest, names: Sequence[str]) -> str:
    patterns = ", ".join(each.match for each in manifest.images)
    fits = f"{names[-1]} does not fit {patterns}" if patterns else "it lists no image pattern"
    count = len(manifest.digests)
    digests = (
        f"{count} digest{'' if count == 1 else 's'} listed, none of them this image's" if count else "no digest listed"
    )
    return f"{manifest.name}: {fits}; {digests}"
