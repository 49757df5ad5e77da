"""The container engine itself."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from patchkit.api.containers import connect
from patchkit.deliver.image import LABEL_FINGERPRINT
from patchkit.doctor.asking import or_why
from patchkit.doctor.model import Report, Unseen, check, elsewhere
from patchkit.doctor.world import World
from patchkit.errors import PatchkitError

_LITTLE = 5 * 2**30  # bytes: less than one image of a serving stack


@check(
    "engine-unreachable",
    "error",
    "no container engine answers",
    """Without an engine no image can be patched there, no mount reaches a container and no proof can run. Images in
    folders, archives and registries can still be patched: name them oci:PATH, docker-archive:FILE or docker://NAME.""",
)
def unreachable(world: World) -> Iterator[Report]:
    error = world.engine_error
    if error is not None:
        yield Report.of(error)


@check(
    "engine",
    "note",
    "which engine answers",
    """Tells version, API and image store of the engine. On the containerd store an image ID names a manifest or index,
    on the classic store a config: the same image has two IDs.""",
)
def which(world: World) -> Iterator[Report]:
    engine = world.engine
    if engine is not None:
        api = ".".join(map(str, engine.api_version))
        version = engine.version.get("Version", "?")
        yield Report(f"{engine.kind} {version}, API {api}, {engine.store} store", where=engine.host)


@check(
    "engine-gap",
    "note",
    "something that this engine cannot do",
    """Engines differ: one on another machine shows that machine's files in bind mounts, so that only derived images
    (--mode image) reach it, and the Docker API of podman leaves parts out. What is missing is said, never guessed.""",
)
def gaps(world: World) -> Iterator[Report]:
    if world.engine is not None:
        for each in world.engine.shortcomings:
            yield Report(each, where=world.engine.host)


@check(
    "leftover-containers",
    "warning",
    "a killed run left temporary containers",
    "patchkit removes what it creates; a run that was killed cannot. The next run sweeps them away.",
)
def leftovers(world: World) -> Iterator[Report]:
    if world.engine is not None:
        for item in world.engine.leftovers():
            yield Report(
                "a temporary container of a run that is over", item["Id"][:12], remedy=f"docker rm -f {item['Id'][:12]}"
            )


@check(
    "engine-rootless",
    "note",
    "owners inside containers are shifted",
    """A rootless engine, or one with user namespaces, maps the container's users to others on the host: files that are
    mounted must be readable by everybody, which patchkit's are.""",
)
def rootless(world: World) -> Iterator[Report]:
    if world.engine is not None and world.engine.is_rootless:
        yield Report("this engine is rootless or maps users", where=world.engine.host)


@check(
    "selinux-label",
    "warning",
    "a mounted file lacks its SELinux label",
    """Where SELinux is enforced a container may not read a bind-mounted file that is not labelled for it (podman#5059).
    The overlay labels the files that patchkit wrote; a command line needs :z.""",
)
def selinux(world: World) -> Iterator[Report]:
    if world.engine is None or "name=selinux" not in " ".join(map(str, world.engine.info.get("SecurityOptions") or [])):
        return
    for container in world.containers:
        receipt = world.receipt_of(container)
        ours = {mount.target for mount in receipt.mounts} if receipt else set()
        for mount in container.mounts:
            if mount.get("Destination") in ours and "z" not in str(mount.get("Mode", "")).lower():
                yield Report("mounted without z", f"{container.name}:{mount['Destination']}", remedy="mount it with :z")


@check(
    "disk-low",
    "warning",
    "the engine's disk is nearly full",
    "An image that does not fit is not written, and a server that cannot write its compile cache starts slowly or not.",
)
def disk(world: World) -> Iterator[Report]:
    if world.engine is None:
        return
    if away := elsewhere(world):
        yield away
        return
    root = str(world.engine.info.get("DockerRootDir") or "a folder that it does not tell")
    if not Path(root).is_dir():  # an engine in a virtual machine of its own
        what = f"the engine keeps its files in {root}, which is not on this machine"
        yield Unseen(what, world.engine.host, remedy="docker system df", severity="note")
        return
    usage = shutil.disk_usage(root)
    if usage.free < _LITTLE:
        yield Report(f"{usage.free // 2**20} MiB are left", where=root, remedy="make room: docker system df")


@check(
    "nodes-differ",
    "error",
    "engines hold different patched code under one name",
    """A model that runs on several hosts must run the same patched code on each. Fingerprints are compared name by
    name, or of the one image asked about.""",
)
def nodes(world: World) -> Iterator[Report]:
    prints: dict[str, dict[str, str]] = {}
    asked, hosts = _tagged(world.question.image), world.question.hosts if len(world.question.hosts) > 1 else ()
    listed = {host: or_why(partial(_patched, host)) for host in hosts}
    for host, images in listed.items():
        if isinstance(images, PatchkitError):
            yield Unseen.of(images, host)
            continue
        for item in images:
            for tag in [tag for tag in item.get("RepoTags") or () if asked in (None, tag)]:
                prints.setdefault(str(tag), {})[host] = str(item["Labels"][LABEL_FINGERPRINT])
    for tag, by_host in sorted(prints.items()):
        told = {host: by_host.get(host, "not there") for host, images in listed.items() if isinstance(images, list)}
        if len(set(told.values())) > 1:
            evidence = ", ".join(f"{host}: {fingerprint[:16]}" for host, fingerprint in told.items())
            yield Report("not the same on every host", where=tag, evidence=evidence, remedy="patchkit apply on each")


def _patched(host: str) -> list[dict[str, Any]]:
    return connect(host).images(LABEL_FINGERPRINT)


def _tagged(name: str | None) -> str | None:
    """An image's name as engines list it, with its tag."""
    return name if name is None or ":" in name.rpartition("/")[2] else f"{name}:latest"
