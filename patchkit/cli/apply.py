"""``patchkit apply``: patch, prove, and write overlay and receipt."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import click

from patchkit import api
from patchkit.cli import options, show
from patchkit.cli.options import given_again, refuse_beside
from patchkit.cli.render import clean, document, print_json
from patchkit.cli.verify import tell_verdict
from patchkit.deliver.receipt import level_json
from patchkit.findings import counted, worst

#: What is about a derived image, an overlay or a proof in a container of its own.
_FOR_IMAGES = ("mode", "tag", "services", "force", "in_place", "guard", "shared_caches", "devices", "gpus")


@click.command("apply")
@click.option("--image", metavar="REF", help="The image, as skopeo spells it; a bare name is docker's.")
@click.option("--container", metavar="NAME", help="Patch the files of this running container instead.")
@click.option("--restart", is_flag=True, help="Restart the container, so that its processes import the patched files.")
@options.mode
@click.option("--tag", metavar="NAME", help="Name of the derived image. Default: the image's own with -patchkit added.")
@options.output
@click.option(
    "--service", "services", multiple=True, metavar="NAME", help="Compose service of the overlay (repeatable)."
)
@click.option("--force", is_flag=True, help="Take a target tag that holds somebody else's image.")
@click.option("--in-place", is_flag=True, help="Let the derived image take the source's own name.")
@click.option(
    "--guard", is_flag=True, help="Put the boot guard in front of the server: it starts only what was proven."
)
@options.shared_caches
@click.option("--locked", is_flag=True, help="Refuse what the catalog's lock does not hold (CI=true does so unasked).")
@click.option("--dry-run", is_flag=True, help="Stop at the plan; write nothing.")
@options.looking
@options.require
@options.devices
@options.gpus
@options.json_output
def command(
    image: str | None,
    container: str | None,
    restart: bool,
    mode: Literal["image", "bind"],
    tag: str | None,
    output: Path,
    services: tuple[str, ...],
    force: bool,
    in_place: bool,
    guard: bool,
    shared_caches: bool,
    locked: bool,
    dry_run: bool,
    options: api.Options,
    require: tuple[str, ...],
    devices: tuple[str, ...],
    gpus: str | None,
    as_json: bool,
) -> int:
    """Patch an image, prove that the patched files are what runs, and write a compose overlay and a receipt.

    The default mode builds a derived image with one small layer; running it again gives the same image. Mode bind
    writes the patched files to the output folder and mounts them.

    \b
    patchkit apply --image vllm-xpu:nightly
    patchkit apply --image vllm-xpu:nightly --mode bind
    patchkit apply --image oci:./layout:nightly --tag patched
    patchkit apply --container vllm --restart
    """
    if (image is None) == (container is None):
        raise click.UsageError("give either --image or --container")
    if container is not None:
        refuse_beside("--container", *_FOR_IMAGES)
    else:
        refuse_beside("--image", "restart")
    if dry_run:
        plan = api.status(image, options) if image else api.container_status(str(container), options)
        parts = show.plan_parts(plan)
        if as_json:
            print_json(document("apply", **parts))
        else:
            show.print_plan(parts)
            show.print_findings(parts["findings"])
        api.refuse_unless_deliverable(plan, options)
        return 0
    delivery = api.Delivery(
        mode, tag, output, services, force, in_place, guard, locked, not shared_caches, devices, gpus
    )
    if container is not None:
        done = api.apply_to_container(container, options, delivery, restart=restart, step=_told(as_json))
    else:
        done = api.apply(str(image), options, delivery, step=_told(as_json))
    platforms = [{**show.plan_parts(one.plan), "levels": level_json(one.proof)} for one in done.platforms]
    findings = show.finding_parts(done.findings)
    if as_json:
        first = platforms[0]
        findings = [*first["findings"], *findings]
        print_json(
            document(
                "apply",
                **{**first, "findings": findings},
                delivery=_delivery_part(done),
                platforms=platforms[1:],
            )
        )
    else:
        for parts in platforms:
            show.print_plan(parts)
            show.print_levels(parts["levels"])
            show.print_findings(parts["findings"])
        show.print_findings(findings)
        _print_delivery(done, str(image), bool(services))
    proven = max(tell_verdict(one.proof.levels, require) for one in done.platforms)
    return 1 if worst(done.findings) == "error" else proven


def _told(as_json: bool) -> api.Step:
    return (lambda _: None) if as_json else (lambda step: click.echo(clean(f"{step} ..."), err=True))


def _delivery_part(done: api.Applied) -> dict[str, Any]:
    receipt = done.platforms[0].receipt
    return {
        "kind": receipt.kind,
        "reference": str(done.delivered),
        "identity": show.image_part(done.delivered, receipt.delivered_identity),
        "existed": done.existed,
        "road": done.platforms[0].road,
        "receipt": str(done.receipt_path),
        "overlay": str(done.overlay_path) if done.overlay_path else None,
        "mounts": [{"source": mount.source, "target": mount.target} for mount in receipt.mounts],
    }


def _print_delivery(done: api.Applied, image: str, named: bool) -> None:
    click.echo()
    receipt = done.platforms[0].receipt
    if receipt.kind == "none":
        click.echo(f"nothing to do: {done.delivered} holds every patch already")
    elif receipt.kind == "image":
        word = "was there already" if done.existed else "written"
        click.echo(f"{done.delivered} {word}: {receipt.delivered_identity.config}")
        click.echo(f"  by {done.platforms[0].road}")
    elif receipt.kind == "container":
        click.echo(f"{done.delivered} {'holds them already' if done.existed else 'patched'}; recreating it drops them")
    else:
        click.echo(f"{counted(len(receipt.mounts), 'file')} to mount over {done.delivered}")
    click.echo(f"fingerprint {receipt.fingerprint}")
    click.echo(f"receipt     {done.receipt_path}")
    if done.overlay_path:
        click.echo(f"overlay     {done.overlay_path} (service {', '.join(done.services)})")
    if receipt.kind != "container":
        click.echo(clean(f"next: {_next(done, image, named)}"))


def _next(done: api.Applied, image: str, named: bool) -> str:
    """What starts the server with the patches. The overlay is only right where its service is the person's own."""
    loaded = done.delivered.transport in ("docker-daemon", "docker")
    load = "" if loaded else f"load it: skopeo copy {done.delivered} docker-daemon:NAME:TAG; then "
    if named and done.overlay_path:
        return f"{load}docker compose -f compose.yaml -f {done.overlay_path} up -d"
    from patchkit.cli.compose import command as compose

    given = given_again(compose, "image", "as_json")
    fitted = f"{load}fit the overlay to your services: patchkit compose --image {image} -f compose.yaml{given}"
    if done.overlay_path:
        return f"{fitted}; where the service is called {done.services[0]} the overlay above will do"
    return fitted
