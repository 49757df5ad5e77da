"""Running containers: do they run what was patched?"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from patchkit.api.prove import Verified
from patchkit.catalog.model import RefusedEnv
from patchkit.catalog.refused import setting_findings
from patchkit.deliver.receipt import Receipt
from patchkit.doctor.model import Report, check
from patchkit.doctor.world import Container, PatchedImage, World
from patchkit.errors import PatchkitError
from patchkit.findings import Finding
from patchkit.proof.processes import judge
from patchkit.site.environment import decides_imports
from patchkit.stack.compose_model import Model, Service, plain_name
from patchkit.stack.log import known_lines
from patchkit.stack.recipes.load import general_rules

_NOT_WRITTEN = re.compile("Read-only file system|[Rr]esource busy|EROFS|EBUSY")


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
        name = world.manifest_for(container.image_name, container.image_id)
        if name and container.image_id not in origins and not world.expects_patches(container):
            yield Report(
                f"manifest {name} is for {container.image_name}, and nothing of it was delivered",
                where=container.name,
                remedy=f"patchkit status --image {container.image_name}",
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
    if world.engine is None or world.engine.is_remote:
        return
    for container in world.containers:
        if world.receipt_of(container) is None:
            continue
        for mount in container.mounts:
            source = Path(str(mount.get("Source", "")))
            if mount.get("Type") == "bind" and "/files/" in str(source) and not source.is_file():
                word = "is a folder" if source.is_dir() else "is missing"
                yield Report(
                    f"{source} {word}",
                    where=f"{container.name}:{mount.get('Destination')}",
                    remedy="write it again with patchkit apply --mode bind, then recreate the container",
                )


@check(
    "mount-empty",
    "error",
    "an empty folder is mounted where files are expected",
    """Where a bind mount's source does not exist the engine makes an empty folder of it and starts the container
    (moby#13121). A module that has become a folder is hidden; a patch folder that is empty runs no patch at all
    (club-3090#13).""",
)
def mount_empty(world: World) -> Iterator[Report]:
    if world.engine is None or world.engine.is_remote:
        return
    for container in world.containers:
        for mount in container.mounts if world.concerns(container) else ():
            source, target = Path(str(mount.get("Source", ""))), str(mount.get("Destination"))
            # A folder that can be written to may be a cache that fills up later.
            expected = not mount.get("RW") or target.endswith(".py")
            if mount.get("Type") == "bind" and expected and source.is_dir() and not any(source.iterdir()):
                yield Report(
                    f"{source} is an empty folder",
                    where=f"{container.name}:{target}",
                    remedy="put the files there, or take the mount out; then recreate the container",
                )


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
        if isinstance(done, Verified):
            for level in done.proof.levels:
                for file in level.files:
                    if file.state == "failed":
                        yield Report(
                            f"{level.name}: {file.detail or file.cause}",
                            where=f"{container.name}:{file.name}",
                            remedy=f"see all levels: patchkit verify --container {container.name}",
                        )
        elif done is not None:
            yield Report(done.what, where=container.name, remedy=done.remedy or "")


@check(
    "bytecode-stale",
    "error",
    "a compiled file runs instead of the patched source",
    """Python takes a .pyc whose stated time and size fit the source, or that is marked as never to be checked, without
    looking at the source (cpython#121376): the file is patched, and the old code runs. The container's own interpreter
    says which it would take; nothing of the package is imported for that.""",
)
def bytecode_stale(world: World) -> Iterator[Report]:
    for container in world.containers:
        for path, told in world.bytecode.get(container.id, {}).items():
            if isinstance(told, Mapping) and told.get("runs") and told.get("same") is not True:
                yield Report(
                    f"{told.get('pyc')} would run instead",
                    where=f"{container.name}:{path}",
                    remedy=f"recreate the container; see all levels: patchkit verify --container {container.name}",
                )


@check(
    "mount-wrong",
    "error",
    "a patched file is not mounted as it was delivered",
    """A mount may be missing, lie under another one, show another file, or hold an inode that was replaced on the host
    since (moby#15793): the container then reads something else than the file that was proven. Recreate it with the
    overlay; a restart keeps the old inode.""",
)
def mount_wrong(world: World) -> Iterator[Report]:
    for _, done in world.proven:
        yield from _reports([finding for finding in done.findings if finding.id == "mount-wrong"])


@check(
    "mount-writable",
    "warning",
    "a patched file is mounted writable",
    "A program in the container could change the patched file on the host. The overlay mounts read-only.",
)
def mount_writable(world: World) -> Iterator[Report]:
    for container in world.containers:
        receipt = world.receipt_of(container)
        ours = {mount.target for mount in receipt.mounts} if receipt else set()
        for mount in container.mounts:
            if mount.get("Destination") in ours and mount.get("RW"):
                yield Report("it can be written to", f"{container.name}:{mount['Destination']}", remedy="mount it :ro")


@check(
    "mount-hides-other",
    "error",
    "a mount hides a file that is not the one it was made for",
    """The image under the mounts is a newer one: its RECORD tells another hash for the file than the pre-image of the
    patch, so the mount silently reverts everything that upstream changed there since. RECORD is read, so this is found
    although the file itself cannot be seen under the mount.""",
)
def hides_other(world: World) -> Iterator[Report]:
    for container, done in world.proven:
        if done.receipt.kind != "bind":
            continue
        for file in done.receipt.files:
            shipped = world.shipped(container, file.image_path.removesuffix(file.path).rstrip("/")).get(file.path)
            if shipped and f"sha256:{shipped}" != file.pre:
                yield Report(
                    f"the image ships sha256:{shipped[:12]}, the patch was made for {file.pre[:19]}",
                    where=f"{container.name}:{file.image_path}",
                    remedy=f"patch what is there now: patchkit apply --image {container.image_name} --mode bind",
                )


@check(
    "process-older",
    "error",
    "a process started before the patched files were there",
    "Python keeps the modules that it imported. Restart the container, or recreate it where the files are mounted.",
)
def process_older(world: World) -> Iterator[Report]:
    yield from _of_processes(world, "process-older")


@check(
    "environment-overridden",
    "warning",
    "a container or process has another environment than its image",
    """PATH, PYTHONPATH, VIRTUAL_ENV and the like decide which copy is imported. A container or process that was started
    with others may import another copy than the one that was proven.""",
)
def environment(world: World) -> Iterator[Report]:
    yield from _of_processes(world, "environment-overridden")
    for container in world.containers:
        if world.engine is None or not world.expects_patches(container):
            continue
        image = world.engine.inspect_image(container.image_id) or {}
        own, theirs = _deciding(image.get("Config")), _deciding(container.inspect.get("Config"))
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


@check(
    "environment-refused",
    "error",
    "a server's environment has a setting under which its patches must not be used",
    """The manifest names settings under which the patched code fails or answers wrongly, without a word. Each container
    is looked at as it was started, and its Python processes as they were; with --compose the services as Compose
    resolves them, with --image the image and its start script.""",
)
def environment_refused(world: World) -> Iterator[Report]:
    for container in world.containers:
        look = world.inside.get(container.id)
        if look is not None:
            yield from _reports(setting_findings(_refused_env(world, container), look[0].env, container.name))
    yield from _of_processes(world, "environment-refused")
    if isinstance(world.compose, Model):
        for service in world.compose.services:
            env = {name: value for name, value in service.environment.items() if value is not None}
            refused = world.refused_env(_manifest_of(world, service))
            yield from _reports(setting_findings(refused, env, f"service {service.name}"))
    if world.plan is not None and not isinstance(world.plan, PatchkitError):
        yield from _reports([finding for finding in world.plan.findings if finding.id == "environment-refused"])


def _refused_env(world: World, container: Container) -> tuple[RefusedEnv, ...]:
    done = world.verified.get(container.id)
    return world.refused_env(done.receipt.manifest) if isinstance(done, Verified) else ()


def _manifest_of(world: World, service: Service) -> str:
    """The name of the manifest that a service's image was patched by, or that is for it; empty where there is none."""
    for receipt in world.readable:
        names = [plain_name(each.partition(":")[2]) for each in (receipt.origin, receipt.delivered)]
        pinned = service.image.rpartition("@")[2] in receipt.delivered_identity.digests
        if pinned or plain_name(service.image) in names:
            return receipt.manifest
    return world.manifest_for(service.image) if service.image else ""


@check(
    "processes-unseen",
    "error",
    "a container's processes could not be looked at, or its interpreter not asked",
    """Without an answer nobody can say whether its processes started before the patched files were there, under which
    environment, whether a compiled file runs instead of the source, or which GPUs it is given.""",
)
def unseen(world: World) -> Iterator[Report]:
    for container in world.containers:
        error = world.unseen.get(container.id)
        if error is not None:
            yield Report(error.what, where=container.name, remedy=error.remedy or "")
        else:
            yield from _of_one(world, container, "processes-unseen")


def _of_processes(world: World, name: str) -> Iterator[Report]:
    for container in world.containers:
        yield from _of_one(world, container, name)


def _of_one(world: World, container: Container, name: str) -> Iterator[Report]:
    look = world.inside.get(container.id)
    if look is not None:
        found = judge(look[1], look[0], container.name, _refused_env(world, container))
        yield from _reports([finding for finding in found if finding.id == name])


def _reports(findings: Iterable[Finding]) -> Iterator[Report]:
    yield from map(Report.of, findings)


@check(
    "file-shared",
    "warning",
    "a patched file has more than one name",
    """The file is hard-linked, as package caches and several virtual environments do (uv#15700). Whoever edits it in
    place changes every environment; patchkit replaces files, so that the other name keeps the old bytes.""",
)
def shared(world: World) -> Iterator[Report]:
    for container, done in world.proven:
        look = world.inside.get(container.id)
        mounted = {mount.target for mount in done.receipt.mounts}
        for path, links in (look[1].links if look and look[1] else {}).items():
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
def cache_older(world: World) -> Iterator[Report]:
    for container in world.containers:
        look = world.inside.get(container.id)
        if look is None or look[1] is None:
            continue
        started = min((process.started for process in look[1].processes if process.is_python), default=None)
        for folder, oldest in look[1].oldest.items():
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
def known_bad(world: World) -> Iterator[Report]:
    lines = general_rules(world.question.catalog).log
    for container in world.containers:
        text = "\n".join(world.logs.get(container.id, ()))
        yield from _reports(known_lines(text, lines, container.name))


@check(
    "second-patcher",
    "warning",
    "something in a container tried to change a patched file",
    """A start script with its own sed or patch meets the read-only mount (club-3090#120): it fails, or goes on without
    what it was for. One mechanism a file: take the edit out of the script, or make it a patch of the series.""",
)
def second_patcher(world: World) -> Iterator[Report]:
    for container, done in world.proven:
        targets = [file.image_path for file in done.receipt.files]
        for line in world.logs.get(container.id, ()):
            hit = next((target for target in targets if target in line), None)
            if hit and _NOT_WRITTEN.search(line):
                yield Report(
                    "it could not be written to",
                    where=f"{container.name}:{hit}",
                    evidence=line[:200],
                    remedy="make the edit a patch: patchkit import, or patchkit edit",
                )
                break
