"""A delivery fitted to the compose files that it goes on top of, and other engines' forms of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from patchkit.api.deliver import Applied, Below, Delivery, Step, apply, silent
from patchkit.api.look import Options, look, opened, refuse_unless_deliverable
from patchkit.api.overlays import overlay_text, pinned, repository_of
from patchkit.catalog.refused import setting_findings
from patchkit.deliver.output import write_file
from patchkit.errors import BadInput, Refused
from patchkit.findings import Finding
from patchkit.images import parse_reference
from patchkit.images.model import Filesystem, Image, Mount
from patchkit.plan import Plan
from patchkit.proof.mounted import MountedFiles
from patchkit.proof.verdict import refuse_errors
from patchkit.site.copies import find_copies
from patchkit.site.entry import doubts
from patchkit.site.launch import launch_of, service_config
from patchkit.site.model import Copy
from patchkit.site.static import search_of
from patchkit.site.view import View
from patchkit.stack import compose_model, kustomize
from patchkit.stack.compose_model import Model, Service
from patchkit.stack.overlay import OverlayMount
from patchkit.stack.runline import run_line


@dataclass(frozen=True, slots=True)
class Composed:
    """A delivery and what goes on top of the compose files: ``overlay`` is YAML, ``run`` command lines. ``guarded`` is
    whether the boot guard stands before the server; ``findings`` tell what was noticed on the way."""

    applied: Applied
    services: tuple[str, ...]
    overlay: str
    run: str
    guarded: bool = False
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class Component:
    """A kustomize component as written: its ``files``, and in ``findings`` what it cannot look at."""

    files: tuple[Path, ...]
    findings: tuple[Finding, ...] = ()


def compose(
    reference: str,
    options: Options = Options(),
    delivery: Delivery = Delivery(),
    *,
    files: Sequence[Path] = (),
    engine_name: str = "docker",
    step: Step = silent,
) -> Composed:
    """Deliver an image's patches and write the overlay that fits the compose files.

    Args:
        reference: the image.
        options: how to look at it.
        delivery: how to deliver; without ``services`` those of ``files`` that run the image, else the manifest's.
        files: compose files, in the order of ``-f``. What they make together is looked at before anything is written.
        engine_name: ``docker`` or ``podman``, for ``run``.
        step: told what is being done.

    Raises:
        patchkit.errors.Refused: ``image-unused``, ``other-image``, ``target-mounted``, ``other-copy``,
            ``environment-refused``, ``guarded-service``, and what ``apply`` refuses.
        patchkit.errors.BadInput: ``compose-invalid``, ``no-such-service``, ``no-service``.
    """
    model = compose_model.read(files) if files else None
    with opened(reference, options) as image:
        origin = image.origin()
        plan = look(origin, options)
        refuse_unless_deliverable(plan, options)
        services = _services(model, plan, image, delivery)
        findings = _check(model, services, plan, origin, options, delivery) if model is not None else []
    names = tuple(service.name for service in services) or delivery.services
    if not names and plan.match.manifest.service:
        names = (plan.match.manifest.service,)
    if not names:
        raise BadInput(
            "no-service", "nothing tells which service the overlay is for", remedy="--service NAME, or -f FILE"
        )
    below = Below(
        settings=_settings(services),
        command=any(service.command for service in services),
        builds=any(service.builds for service in services),
    )
    done = apply(reference, options, replace(delivery, services=names), below=below, step=step)
    assert done.parts is not None  # an image was delivered
    parts = done.parts
    lines = []
    for service in services or (None,):
        line, left = run_line(
            engine_name,
            parts.image,
            mounts=parts.mounts,
            labels=parts.labels,
            environment=parts.environment,
            start=parts.start,
            service=service,
            model=model,
        )
        lines.append(line)
        if left and service is not None:
            said = f"a command line cannot carry {', '.join(left)}"
            findings.append(Finding("not-carried", "note", said, f"service {service.name}", remedy="use the overlay"))
    return Composed(done, names, overlay_text(names, parts), "\n\n".join(lines), delivery.guard, tuple(findings))


def component(composed: Composed, folder: Path) -> Component:
    """Write the delivery as a kustomize component into ``folder``.

    Raises:
        patchkit.errors.Refused: ``local-image``, ``too-large-for-configmap``, ``one-container``, ``guard-not-started``.
    """
    receipt = composed.applied.platforms[0].receipt
    if len(composed.services) != 1:
        raise Refused(
            "one-container",
            f"a component patches one container, not {', '.join(composed.services)}",
            remedy="choose it: --service NAME",
        )
    header = f"{receipt.delivered}, patched by manifest {receipt.manifest}; written by patchkit, do not edit."
    pin = pinned(receipt)
    if receipt.mounts and composed.guarded:
        raise Refused(
            "guard-not-started",
            "a component leaves the Deployment's start alone, and mounts alone start no guard",
            remedy="deliver an image that starts with it: --mode image --guard; or leave --guard out",
        )
    if receipt.mounts:
        mounts = [OverlayMount(each.source, each.target) for each in receipt.mounts]
        data = {each.source: Path(each.source).read_bytes() for each in receipt.mounts}
        written = kustomize.mount_component(mounts, data, receipt.fingerprint, composed.services[0], header)
    else:
        written = kustomize.image_component(repository_of(_plain(receipt.origin)), pin, receipt.fingerprint, header)
    paths = []
    for name, content in written.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, content)
        paths.append(path)
    return Component(tuple(paths), tuple(_unread(composed, folder)))


def _unread(composed: Composed, folder: Path) -> Iterator[Finding]:
    """What the series refuses is looked for in compose files, not in Deployments that a component goes on top of."""
    receipt = composed.applied.platforms[0].receipt
    refused = [one.name for one in receipt.refused_env] + (["GPUs other than its own"] if receipt.gpus else [])
    if refused:
        yield Finding(
            "deployment-unread",
            "note" if composed.guarded else "warning",
            f"the Deployments below it are not read for what the series refuses: {', '.join(refused)}"
            + ("; the guard looks, unless they have a command of their own" if composed.guarded else ""),
            where=str(folder),
            remedy="look at what they start with: kubectl kustomize FOLDER"
            + ("" if composed.guarded else "; or deliver an image that looks itself: --mode image --guard"),
        )


def _services(model: Model | None, plan: Plan, image: Image, delivery: Delivery) -> tuple[Service, ...]:
    """The services of the files that get the overlay."""
    if model is None:
        return ()
    names = {_plain(str(image.reference)), *image.identity.digests, *plan.identity.digests}
    if delivery.services:
        return tuple(chosen for name in delivery.services for chosen in compose_model.choose(model, names, name))
    return compose_model.choose(model, names)


def _check(
    model: Model, services: Sequence[Service], plan: Plan, origin: Image, options: Options, delivery: Delivery
) -> list[Finding]:
    image_files = View(origin.fs)
    compose_model.refuse_covered(model, services, [file.image_path for file in plan.files], image_files.real)
    inner = json.loads(origin.config).get("config") or {}
    others = [each for each in services if each.entrypoint or (each.command and not inner.get("Entrypoint"))]
    if delivery.guard and others:
        raise Refused(
            "guarded-service",
            "a guard stands before the image's own start, and these services have another",
            where=", ".join(service.name for service in others),
            remedy="leave --guard out, or give the start to the image",
        )
    findings = []
    manifest = plan.match.manifest
    for service in services:
        files = _files_of(service, origin, image_files)
        launch = launch_of(service_config(service.raw, json.loads(origin.config)), files, options.launch)
        where = f"service {service.name}"
        refuse_errors(setting_findings(manifest.refused_env, launch.env, where))
        if launch.form == "unknown":
            findings.append(
                Finding(
                    "service-launch-unknown",
                    "warning",
                    "reading does not tell which Python this service starts, so the patches are for the image's own",
                    where,
                    launch.source,
                    "name the start: --launch 'vllm serve', and prove the result: patchkit verify --container NAME",
                )
            )
            continue
        # Read only: variables that the service sets are not to be given to programs before somebody looked at them.
        copies = find_copies(files, launch, manifest.package, decoys=manifest.decoys)
        winner = next((copy for copy in copies if copy.serves), None)
        started = f"it starts {launch.source or launch.interpreter}"
        if winner is None or winner.root != plan.copy.root:
            imported = winner.root if winner else f"no copy of {manifest.package}"
            raise Refused(
                "other-copy",
                f"it imports {imported}, and the image's own start {plan.copy.root}",
                where=where,
                remedy=_other_copy_remedy(winner, plan, image_files),
                details=[started],
            )
        view = View(files)
        doubted = doubts(view, search_of(view, launch), launch, manifest.package)
        if doubted:
            remedy = "start it so that the patched copy comes first, or name the start that does: --launch"
            raise Refused("other-copy", doubted[0], where=where, remedy=remedy, details=[*doubted[1:], started])
    return findings


def _files_of(service: Service, origin: Image, image_files: View) -> Filesystem:
    """The image's files with those folders and files of this machine over them that the service mounts. What lies in
    a volume, or on the machine of another engine, only its container shows."""
    engine = getattr(origin, "engine", None)
    if engine is not None and engine.is_remote:
        return origin.fs
    bound = [each for each in service.mounts if each.kind == "bind" and Path(each.source).exists()]
    return MountedFiles(origin.fs, [Mount(each.source, image_files.real(each.target)) for each in bound])


def _other_copy_remedy(winner: Copy | None, plan: Plan, image_files: View) -> str:
    if winner is None:
        return f"look where it lies: patchkit resolve --image {plan.reference}"
    if not image_files.exists(winner.root):
        return f"take the mount that brings {winner.root} away, or patch what is mounted: patchkit patch apply"
    return f"patch the copy that it imports: --copy {winner.root}"


def _settings(services: Sequence[Service]) -> dict[str, str]:
    """What the services set of their environment."""
    return {name: value for each in services for name, value in each.environment.items() if value is not None}


def _plain(reference: str) -> str:
    """A reference as compose files and manifests write it."""
    parsed = parse_reference(reference)
    return parsed.name.removeprefix("//") if parsed.transport in ("docker", "docker-daemon") else str(parsed)
