"""The compose overlay: a second ``-f`` file that pins the image or mounts patched files, and touches nothing else.

``command`` and ``entrypoint`` are left alone, since Compose replaces them whole and an ``entrypoint`` in an overlay
also discards the image's CMD (Compose specification, "Merge"). Where a guard has to go in front, the caller gives the
effective command and it is repeated.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from patchkit.errors import BadInput
from patchkit.stack import yamltext


@dataclass(frozen=True, slots=True)
class PinnedImage:
    """The image that a service must run: ``name@sha256:...`` where a registry knows it, else ``sha256:<image ID>``.

    ``local`` says that no registry has it: Compose then must not try to pull it. ``instead_of_build`` takes the
    service's ``build:`` section away, which would build over the pinned image (``!reset``, Compose 2.24.4 or newer).
    """

    name: str
    local: bool
    instead_of_build: bool = False


@dataclass(frozen=True, slots=True)
class OverlayMount:
    """One host file shown read-only at ``target``. Both paths are absolute: Compose would take a relative source from
    the folder of the first ``-f`` file. ``selinux`` is ``z`` or ``Z`` where the engine enforces labels, else empty."""

    source: str
    target: str
    selinux: str = ""


@dataclass(frozen=True, slots=True)
class Start:
    """A start with the guard in front: the whole ``entrypoint``, and the ``command`` that Compose drops with it. None
    leaves the command to the service, which has one of its own."""

    entrypoint: tuple[str, ...]
    command: tuple[str, ...] | None


def overlay(
    services: Sequence[str],
    *,
    image: PinnedImage | None = None,
    mounts: Sequence[OverlayMount] = (),
    labels: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    start: Start | None = None,
    header: str = "",
) -> str:
    """The overlay's text; the same arguments give the same bytes.

    Args:
        services: the services that get it, each the same.
        image: what to run instead of the service's image; None leaves it.
        mounts: patched files, long syntax, never creating a missing source.
        labels: labels of the containers, such as ``dev.patchkit.receipt``.
        environment: variables to add or replace.
        start: only for a guard; None leaves the service's start alone.
        header: comment lines above.

    Every ``$`` of a value is doubled, since Compose would put a variable there.

    Raises:
        patchkit.errors.BadInput: ``relative-mount``, ``double-mount`` or ``no-service``.
    """
    if not services:
        raise BadInput("no-service", "an overlay needs at least one service", remedy="name it: --service NAME")
    _check(mounts)
    body = _service(image, mounts, labels or {}, environment or {}, start)
    top = yamltext.comment(header) if header else ""
    return f"{top}services:\n{yamltext.block(dict.fromkeys(services, body), 2)}"


def _service(
    image: PinnedImage | None,
    mounts: Sequence[OverlayMount],
    labels: Mapping[str, str],
    environment: Mapping[str, str],
    start: Start | None,
) -> dict[str, yamltext.Node]:
    body: dict[str, yamltext.Node] = {}
    if image is not None:
        body["image"] = _literal(image.name)
        if image.instead_of_build:
            body["build"] = yamltext.RESET
        if image.local or image.instead_of_build:
            body["pull_policy"] = "never" if image.local else "missing"
    if start is not None:
        body["entrypoint"] = [_literal(word) for word in start.entrypoint]
        if start.command is not None:
            body["command"] = [_literal(word) for word in start.command]
    if environment:
        body["environment"] = {name: _literal(value) for name, value in sorted(environment.items())}
    if labels:
        body["labels"] = {name: _literal(value) for name, value in sorted(labels.items())}
    if mounts:
        body["volumes"] = [_mount(mount) for mount in sorted(mounts, key=lambda mount: mount.target)]
    return body


def _mount(mount: OverlayMount) -> dict[str, yamltext.Node]:
    bind: dict[str, yamltext.Node] = {"create_host_path": False}
    if mount.selinux:
        bind["selinux"] = mount.selinux
    return {
        "type": "bind",
        "source": _literal(mount.source),
        "target": _literal(mount.target),
        "read_only": True,
        "bind": bind,
    }


def _literal(text: str) -> str:
    return text.replace("$", "$$")


def _check(mounts: Sequence[OverlayMount]) -> None:
    seen = set()
    for mount in mounts:
        for path in (mount.source, mount.target):
            if not posixpath.isabs(path):
                raise BadInput("relative-mount", "a mount's source and target must be absolute", where=path)
        target = posixpath.normpath(mount.target)
        if target in seen:
            raise BadInput("double-mount", "two mounts have the same target", where=target)
        seen.add(target)
