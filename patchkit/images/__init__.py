"""Images wherever they are: one module a transport behind the protocol in ``model``."""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from patchkit.errors import BadInput
from patchkit.images.model import Derivation, Derived, DerivedIndex, Image, Reference

#: Transport -> the module that opens it; loaded when such a reference is opened, not before.
_MODULES = {
    "docker-daemon": "daemon",
    "docker": "registry",
    "oci": "oci",
    "oci-archive": "archive",
    "docker-archive": "archive",
    "rootfs": "rootfs",
}
TRANSPORTS = tuple(_MODULES)
_SPELLED = "docker-daemon:NAME, docker://NAME, oci:PATH[:REF], oci-archive:PATH, docker-archive:PATH, rootfs:PATH"

# distribution/reference grammar, shortened: domain and path in one, then tag, then digest
_COMPONENT = r"[a-zA-Z0-9](?:[a-zA-Z0-9._-]*[a-zA-Z0-9])?"
_NAME = re.compile(
    rf"{_COMPONENT}(?::[0-9]+(?=/))?(?:/{_COMPONENT})*(?::[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}})?(?:@sha256:[0-9a-f]{{64}})?"
)


@dataclass(frozen=True, slots=True)
class Access:
    """How to reach a registry beyond what docker's and podman's own files say. ``plain_http`` allows HTTP (a registry
    on loopback needs no leave), ``ca_file`` is a further PEM bundle to trust, ``auth_file`` is looked into first.
    ``run`` False rules out that anything of the image is executed, however much faster reading would be with it."""

    plain_http: bool = False
    ca_file: str | None = None
    auth_file: str | None = None
    run: bool = True


def parse_reference(text: str) -> Reference:
    """The image reference that ``text`` spells; a bare name means ``docker-daemon:``.

    Raises:
        patchkit.errors.BadInput: ``unknown-transport`` or ``bad-reference``.
    """
    head, colon, rest = text.partition(":")
    if head == "docker" and not rest.startswith("//"):
        head = ""  # docker:24 is a name on Docker Hub; the registry transport has two slashes
    if colon and head in _MODULES:
        return _checked(Reference(head, rest), text)
    if _NAME.fullmatch(text):
        return Reference("docker-daemon", text)
    if colon and re.fullmatch(r"[a-z][a-z0-9-]*", head) and not re.search(r"\s", text):
        raise BadInput(
            "unknown-transport", f"{head!r} is no transport of images", where=text, remedy=f"write one of {_SPELLED}"
        )
    raise BadInput("bad-reference", "this is no image name", where=text, remedy=f"write NAME:TAG or one of {_SPELLED}")


def split_path(reference: Reference) -> tuple[str, str]:
    """``PATH[:REF]`` of a transport that lies in a file or folder, split at the first colon; REF may be empty."""
    path, _, ref = reference.name.partition(":")
    return path, ref


def open_image(reference: Reference, *, platform: str | None = None, access: Access | None = None) -> Image:
    """The image of one platform at ``reference``: the only one, the one that ``platform`` (``os/arch[/variant]``)
    names, or of several the host's own.

    Raises:
        patchkit.errors.Unreachable: it is not there, cannot be read, or has no such platform.
    """
    image: Image = _module(reference).open_image(reference, platform=platform, access=access or Access())
    return image


def open_all(reference: Reference, *, platform: str | None = None, access: Access | None = None) -> tuple[Image, ...]:
    """The images of all platforms at ``reference`` in the index's order; one where there is no index, or where
    ``platform`` narrows to it.

    Raises:
        patchkit.errors.Unreachable: as ``open_image``.
    """
    module = _module(reference)
    if not hasattr(module, "open_all"):
        return (open_image(reference, platform=platform, access=access),)
    images: tuple[Image, ...] = module.open_all(reference, platform=platform, access=access or Access())
    return images


def derive_index(
    images: Sequence[Image],
    derivations: Sequence[Derivation | None],
    target: Reference,
    *,
    force: bool = False,
    in_place: bool = False,
) -> DerivedIndex:
    """Derive all platforms of one ``open_all`` at once: the images with a derivation are replaced in the index, those
    with None and everything else in it stay. All or nothing, as ``Image.derive``.

    Raises:
        patchkit.errors.PatchkitError: as ``Image.derive``.
    """
    reference = images[0].reference
    module = _module(reference)
    if hasattr(module, "derive_index"):
        answer: DerivedIndex = module.derive_index(images, derivations, target, force=force, in_place=in_place)
        return answer
    if len(images) != 1 or derivations[0] is None:
        raise BadInput("no-index", f"{reference.transport} holds one platform at a time", where=str(reference))
    one: Derived = images[0].derive(derivations[0], target, force=force, in_place=in_place)
    return DerivedIndex(one.reference, (one,))


def _module(reference: Reference) -> Any:
    return importlib.import_module(f"patchkit.images.{_MODULES[reference.transport]}")


def _checked(reference: Reference, text: str) -> Reference:
    name = reference.name
    if reference.transport in ("docker-daemon", "docker"):
        bare = name[2:] if reference.transport == "docker" else name
        if not _NAME.fullmatch(bare):
            raise BadInput("bad-reference", f"{bare!r} is no image name", where=text, remedy="write NAME[:TAG]")
    elif not split_path(reference)[0]:
        raise BadInput("bad-reference", "the path is missing", where=text, remedy=f"write {reference.transport}:PATH")
    return reference
