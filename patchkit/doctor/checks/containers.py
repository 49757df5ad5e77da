"""Running containers: do they run what was patched?"""

from __future__ import annotations

import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from patchkit.api.prove import Verified
from patchkit.catalog.model import Manifest, RefusedEnv
from patchkit.catalog.refused import setting_findings
from patchkit.deliver.receipt import Receipt
from patchkit.doctor.asking import or_why
from patchkit.doctor.model import CHECKS, Look, Report, Unseen, check, elsewhere
from patchkit.doctor.world import Container, PatchedImage, Seen, World, open_bytecode
from patchkit.errors import PatchkitError
from patchkit.findings import Finding, counted
from patchkit.plan import ABSENT, Plan
from patchkit.proof.processes import judge
from patchkit.site.environment import decides_imports
from patchkit.stack.compose_model import Model, Service, plain_name
from patchkit.stack.log import known_lines
from patchkit.stack.recipes.load import general_rules

_NOT_WRITTEN = re.compile("Read-only file system|[Rr]esource busy|EROFS|EBUSY")


def _inside(look: Callable[[World, Container, Verified, Seen], Iterable[Report | Finding]]) -> Look:
    """A look into each container that could be held against its receipt; one that could not be looked into is told."""

    def over_all(world: World) -> Iterator[Report | Finding]:
        for container, done in world.proven:
            seen = world.looks[container.id]
            if isinstance(seen, PatchkitError):
                yield Unseen.of(seen, container.name)
            else:
                yield from look(world, container, done, seen)

    return over_all


@check(
    "container-unpatched",
    "error",
    "a container runs the image as it was before the patches",
    """A derived image with the patches is on this engine, and this container was started from its origin: the patches
    are declared and do nothing. A container started before apply keeps the old image until it is recreated.""",
)
def unpatched(world: World) -> Iterator[Report]:
    named = sorted(world.patched_images, key=lambda image: bool(image.tags))
    by_origin: dict[str | tuple[str, str], PatchedImage] = {image.origin_digest: image for image in named}
    by_origin |= {(image.origin_digest, image.origin_name): image for image in named}
    for container in world.containers:
        if world.patched_in_place(container):
            continue
        targets = {str(mount.get("Destination")) for mount in container.mounts}
        own = by_origin.get((container.image_id, container.image_name))
        patched = own or by_origin.get(container.image_id)
        bound = next(
            (
                receipt
                for receipt in world.readable
                if receipt.kind == "bind" and container.image_id in receipt.delivered_identity.digests
            ),
            None,
        )
        if bound is not None and not {mount.target for mount in bound.mounts} <= targets:
            missing = sorted({mount.target for mount in bound.mounts} - targets)
            yield Report(
                f"{len(missing)} of the patched files are not mounted, first {missing[0]}",
                where=container.name,
                remedy="start it with the overlay: docker compose -f compose.yaml -f OVERLAY up -d",
            )
        elif bound is None and patched is not None:
            tag = patched.tags[0] if patched.tags else patched.id[:19]
            yield Report(
                f"it runs {container.image_name}, which {tag} was made from",
                where=container.name,
                remedy=f"recreate it from {tag}",
            )


@check(
    "container-undelivered",
    "warning",
    "a container runs an image that patches are for, and none were delivered",
    """A manifest claims this image, and neither a derived image nor mounts of it are known here: the patches lie in the
    catalog and do nothing. Where the image itself holds the fix by now, status says upstream.""",
)
def undelivered(world: World) -> Iterator[Report]:
    origins = {image.origin_digest for image in world.patched_images}
    for container in world.containers:
        delivered = container.image_id in origins or world.expects_patches(container)
        manifest = world.manifests.get(container.id)
        if isinstance(manifest, Manifest) and not delivered:  # where several claim it, claimed-twice tells
            yield Report(
                f"manifest {manifest.name} is for {container.image_name}, and nothing of it was delivered",
                where=container.name,
                remedy=f"patchkit status --container {container.name}",
            )


@check(
    "container-older",
    "error",
    "a container runs an older patched image than its tag names",
    "The tag was patched again after this container started. A restart keeps the old image: recreate the container.",
)
def older(world: World) -> Iterator[Report]:
    tags = {tag: image for image in world.patched_images for tag in image.tags}
    for container in world.containers:
        image = tags.get(container.image_name)
        if image is not None and image.id != container.image_id:
            yield Report(
                f"it runs {container.image_id[:19]}, {container.image_name} is {image.id[:19]} now",
                where=container.name,
                remedy="recreate it: docker compose up -d --force-recreate",
            )


@check(
    "mount-source-missing",
    "error",
    "a patched file that is mounted is gone on the host",
    """Where a bind mount's source is missing the engine makes an empty folder in its place (moby#13121): the module is
    hidden and the error surfaces far away.""",
)
def source_missing(world: World) -> Iterator[Report]:
    if away := elsewhere(world):
        yield away
        return
    for container in world.containers:
        for mount in _ours(world, container):
            source, place = Path(str(mount.get("Source", ""))), f"{container.name}:{mount.get('Destination')}"
            mode = or_why(partial(_mode, source))
            if isinstance(mode, PatchkitError):
                yield Unseen.of(mode, place)
            elif mode is None or not stat.S_ISREG(mode):
                yield Report(
                    f"{source} {'is missing' if mode is None else 'is no file'}",
                    where=place,
                    remedy="write it again with patchkit apply --mode bind, then recreate the container",
                )


def _ours(world: World, container: Container) -> list[Mapping[str, Any]]:
    """The container's bind mounts at the places of patched files."""
    receipt = world.receipt_of(container)
    targets = {mount.target for mount in receipt.mounts} if receipt else set()
    return [each for each in container.mounts if each.get("Type") == "bind" and each.get("Destination") in targets]


def _mode(path: Path) -> int | None:
    try:
        return path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None


@check(
    "mount-empty",
    "error",
    "an empty folder is mounted where files are expected",
    """Where a bind mount's source does not exist the engine makes an empty folder of it and starts the container
    (moby#13121). A module that has become a folder is hidden; a patch folder that is empty runs no patch at all
    (club-3090#13).""",
)
def mount_empty(world: World) -> Iterator[Report]:
    if away := elsewhere(world):
        yield away
        return
    for container in world.containers:
        known = _ours(world, container)  # mount-source-missing looks at those
        for mount in container.mounts if world.concerns(container) else ():
            source, target = Path(str(mount.get("Source", ""))), str(mount.get("Destination"))
            # A folder that can be written to may be a cache that fills up later.
            expected = not mount.get("RW") or target.endswith(".py")
            if mount.get("Type") != "bind" or not expected or mount in known:
                continue
            empty = or_why(partial(_is_empty, source))
            if isinstance(empty, PatchkitError):
                yield Unseen.of(empty, f"{container.name}:{target}")
            elif empty:
                yield Report(
                    f"{source} is an empty folder",
                    where=f"{container.name}:{target}",
                    remedy="put the files there, or take the mount out; then recreate the container",
                )


def _is_empty(source: Path) -> bool:
    """Whether it is a folder with nothing in it."""
    try:
        return not any(source.iterdir())
    except NotADirectoryError:
        return False


@check(
    "receipt-unreadable",
    "error",
    "a container's label names a receipt that cannot be read",
    "Without its receipt nobody can tell what a container should run.",
)
def receipt_unreadable(world: World) -> Iterator[Report]:
    for place, receipt in world.receipts.items():
        if not isinstance(receipt, Receipt):
            yield Report(receipt.what, where=str(place), remedy=receipt.remedy or "")


@check(
    "container-not-proven",
    "error",
    "a container does not run the files that were delivered",
    """The receipt says which bytes must lie where; read from outside, the container has others, or its launch would
    find other files. A newer image under the mounts, a second patcher, a shadowing folder and a changed PYTHONPATH all
    end here.""",
)
def not_proven(world: World) -> Iterator[Report]:
    for container in world.containers:
        done = world.verified.get(container.id)
        remedy = f"see all levels: patchkit verify --container {container.name}"
        if isinstance(done, PatchkitError):
            yield Report.of(done, container.name)
        elif done is not None:
            for level in done.proof.levels:
                for file in level.files:
                    if file.state == "failed":
                        what, where = f"{level.name}: {file.detail or file.cause}", f"{container.name}:{file.name}"
                        yield Report(what, where, remedy=remedy)
                # Files of the right bytes compile as they did when they were proven, bytecode-stale asks on, and what
                # imports needs a run.
                if level.name == "resolves" and level.state == "not run":
                    yield Unseen(f"{level.name}: {level.detail}", container.name, remedy=remedy)
            # What else was found, where no check of its own tells.
            yield from [Report.of(each) for each in done.findings if each.severity == "error" and each.id not in CHECKS]


@check(
    "bytecode-stale",
    "error",
    "a compiled file runs instead of the patched source",
    """Python takes a .pyc whose stated time and size fit the source, or that is marked as never to be checked, without
    looking at the source (cpython#121376): the file is patched, and the old code runs. The container's own interpreter
    says which it would take; nothing of the package is imported for that.""",
)
def bytecode_stale(world: World) -> Iterator[Report]:
    for container, done in world.proven:
        remedy = f"recreate the container; see all levels: patchkit verify --container {container.name}"
        for file in open_bytecode(done):
            answer = world.answer(container)
            if isinstance(answer, PatchkitError):
                yield Unseen.of(answer, container.name)
                continue
            told, place = answer.table("bytecode").get(file.image_path), f"{container.name}:{file.image_path}"
            if not isinstance(told, Mapping):
                what = "its interpreter did not tell whether a compiled file runs instead"
                yield Unseen(what, place, remedy=f"patchkit verify --container {container.name}")
            elif told.get("runs") and told.get("same") is not True:
                yield Report(f"{told.get('pyc')} would run instead", place, remedy=remedy)


@check(
    "mount-wrong",
    "error",
    "a patched file is not mounted as it was delivered",
    """A mount may be missing, lie under another one, show another file, or hold an inode that was replaced on the host
    since (moby#15793): the container then reads something else than the file that was proven. Recreate it with the
    overlay; a restart keeps the old inode.""",
)
@check(
    "mount-writable",
    "warning",
    "a patched file is mounted writable",
    "A program in the container could change the patched file on the host. The overlay mounts read-only.",
)
def told_by_proof(world: World) -> Iterator[Finding]:
    for _, done in world.proven:
        yield from done.findings


@check(
    "mount-hides-other",
    "error",
    "a mount hides a file that is not the one it was made for",
    """The image under the mounts is a newer one: its RECORD tells another hash for the file than the pre-image of the
    patch, so the mount silently reverts everything that upstream changed there since. RECORD is read, so this is found
    although the file itself cannot be seen under the mount.""",
)
def hides_other(world: World) -> Iterator[Report]:
    for container in world.containers:
        receipt = world.receipt_of(container)
        # Over the very image that they were made for mounts hide what they should.
        if receipt is None or receipt.kind != "bind" or container.image_id in receipt.delivered_identity.digests:
            continue
        mounted = {(mount.get("Source"), mount.get("Destination")) for mount in container.mounts}
        if not {(mount.source, mount.target) for mount in receipt.mounts} <= mounted:
            continue  # mounts of another delivery, or none: container-not-proven tells
        shipped = or_why(partial(world.shipped, container, receipt))
        if isinstance(shipped, PatchkitError):
            yield Unseen.of(shipped, container.name)
            continue
        remedy = f"patch what is there now: patchkit apply --image {container.image_name} --mode bind"
        for file in receipt.files:
            theirs, place = shipped.get(file.path), f"{container.name}:{file.image_path}"
            if theirs is None and file.pre != ABSENT:
                what = "its image is not the one that was patched, and no RECORD tells which file lies under the mount"
                yield Unseen(what, place, remedy=remedy)
            elif theirs is not None and f"sha256:{theirs}" != file.pre:
                what = f"the image ships sha256:{theirs[:12]}, the patch was made for {file.pre[:19]}"
                yield Report(what, place, remedy=remedy)


@check(
    "process-older",
    "error",
    "a process started before the patched files were there",
    "Python keeps the modules that it imported. Restart the container, or recreate it where the files are mounted.",
)
@_inside
def of_processes(world: World, container: Container, done: Verified, seen: Seen) -> Iterator[Report | Finding]:
    for finding in judge(seen.inside, seen.launch, container.name, world.promises(done.receipt).refused_env):
        yield Unseen.of(finding) if finding.id == "processes-hidden" else finding


@check(
    "environment-overridden",
    "warning",
    "a container or process has another environment than its image",
    """PATH, PYTHONPATH, VIRTUAL_ENV and the like decide which copy is imported. A container or process that was started
    with others may import another copy than the one that was proven.""",
)
def environment(world: World) -> Iterator[Report | Finding]:
    yield from of_processes(world)
    yield from _titled(world)
    for container in world.containers:
        image = world.images.get(container.image_id)
        if image is None or not world.expects_patches(container):
            continue
        if isinstance(image, PatchkitError):
            yield Unseen.of(image, container.name)
            continue
        own, theirs = _deciding(image.inspected.get("Config")), _deciding(container.inspect.get("Config"))
        for name in sorted(own.keys() | theirs.keys()):
            if own.get(name) != theirs.get(name):
                yield Report(
                    f"{name} is {theirs.get(name, 'not set')}, the image has {own.get(name, 'none')}",
                    where=container.name,
                    remedy="take it out of the service, unless it is meant",
                )


def _deciding(config: Mapping[str, Any] | None) -> dict[str, str]:
    """What of a config's environment decides which copy is imported."""
    env = dict(str(item).partition("=")[::2] for item in (config or {}).get("Env") or [])
    return {name: value for name, value in env.items() if decides_imports(name)}


@_inside
def _titled(world: World, container: Container, done: Verified, seen: Seen) -> Iterator[Unseen]:
    """A note of the processes that wrote over their environment: every vLLM has some."""
    pids = [f"pid {each.pid}" for each in seen.inside.processes if each.is_python and each.env is None]
    if pids:
        what = f"{counted(len(pids), 'process', 'processes')} wrote over the environment given at the start"
        yield Unseen(what, container.name, ", ".join(pids[:10]), severity="note")


@check(
    "environment-refused",
    "error",
    "a server's environment has a setting under which its patches must not be used",
    """The manifest names settings under which the patched code fails or answers wrongly, without a word. Each container
    is looked at as it was started, and its Python processes as they were; with --compose the services as Compose
    resolves them, with --image the image and its start script.""",
)
def environment_refused(world: World) -> Iterator[Report | Finding]:
    for container, done in world.proven:
        yield from [replace(each, where=container.name) for each in done.findings if each.id == "environment-refused"]
    yield from of_processes(world)
    yield from _titled(world)
    if isinstance(world.compose, Model):
        for service in world.compose.services:
            env = {name: value for name, value in service.environment.items() if value is not None}
            yield from setting_findings(_refused_of(world, service), env, f"service {service.name}")
    if isinstance(world.plan, Plan):
        yield from world.plan.findings


def _refused_of(world: World, service: Service) -> tuple[RefusedEnv, ...]:
    """What is refused of a service's environment by what its image was patched with, or by the manifest for it."""
    for receipt in world.readable:
        names = [plain_name(each.partition(":")[2]) for each in (receipt.origin, receipt.delivered)]
        pinned = service.image.rpartition("@")[2] in receipt.delivered_identity.digests
        if pinned or plain_name(service.image) in names:
            return world.promises(receipt).refused_env
    manifest = world.manifest_for(service.image) if service.image else None
    return manifest.refused_env if isinstance(manifest, Manifest) else ()  # several claim it: claimed-twice tells


@check(
    "file-shared",
    "warning",
    "a patched file has more than one name",
    """The file is hard-linked, as package caches and several virtual environments do (uv#15700). Whoever edits it in
    place changes every environment; patchkit replaces files, so that the other name keeps the old bytes.""",
)
@_inside
def shared(world: World, container: Container, done: Verified, seen: Seen) -> Iterator[Report]:
    mounted = {mount.target for mount in done.receipt.mounts}
    for path, links in seen.inside.links.items():
        if links > 1 and path not in mounted:
            yield Report(f"it has {links} names", where=f"{container.name}:{path}")


@check(
    "compile-cache-older",
    "warning",
    "a cache of compiled kernels is older than the patched server",
    """vLLM, torch inductor and Triton keep what they compiled. A cache on a volume that was filled before this server
    started may hold kernels of the unpatched code (vllm-ascend#15188). The overlay gives such caches the fingerprint as
    part of their name.""",
)
@_inside
def cache_older(world: World, container: Container, done: Verified, seen: Seen) -> Iterator[Report]:
    started = min((process.started for process in seen.inside.processes if process.is_python), default=None)
    for folder, oldest in seen.inside.oldest.items():
        keyed = container.fingerprint and container.fingerprint[:12] in folder
        if started is not None and oldest is not None and oldest < started and not keyed:
            yield Report(
                "it holds files from before this server started",
                where=f"{container.name}:{folder}",
                remedy="empty it once, or name it after the fingerprint",
            )


@check(
    "log-known-bad",
    "warning",
    "a line in a container's log is known to mean trouble",
    "The log of a server tells of a missing kernel or a slow way round long before anybody measures it.",
)
def known_bad(world: World) -> Iterator[Report | Finding]:
    lines = general_rules(world.question.catalog).log
    for container in world.containers:
        log = world.logs.get(container.id, [])
        if isinstance(log, PatchkitError):
            yield Unseen.of(log, container.name)
        else:
            yield from map(Report.of, known_lines("\n".join(log), lines, container.name))


@check(
    "second-patcher",
    "warning",
    "something in a container tried to change a patched file",
    """A start script with its own sed or patch meets the read-only mount (club-3090#120): it fails, or goes on without
    what it was for. One mechanism a file: take the edit out of the script, or make it a patch of the series.""",
)
def second_patcher(world: World) -> Iterator[Report]:
    for container, done in world.proven:
        targets, log = [file.image_path for file in done.receipt.files], world.logs.get(container.id, [])
        if isinstance(log, PatchkitError):
            yield Unseen.of(log, container.name)
            continue
        for line in log:
            hit = next((target for target in targets if target in line), None)
            if hit and _NOT_WRITTEN.search(line):
                yield Report(
                    "it could not be written to",
                    where=f"{container.name}:{hit}",
                    evidence=line[:200],
                    remedy="make the edit a patch: patchkit import, or patchkit edit",
                )
                break
