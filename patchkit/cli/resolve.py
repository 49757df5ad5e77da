"""``patchkit resolve``: where a package lies in an image, which copy the server imports, and why."""

from __future__ import annotations

import click

from patchkit import api
from patchkit.cli import options, show
from patchkit.cli.render import Document, clean, document, print_json
from patchkit.findings import Finding, worst
from patchkit.site.findings import site_findings
from patchkit.site.model import Site


@click.command("resolve")
@options.image
@options.launch
@options.platform
@options.no_run
@options.everything
@options.json_output
@click.argument("package")
def command(
    image: str,
    launch: str | None,
    platform: str | None,
    no_run: bool,
    everything: bool,
    as_json: bool,
    package: str,
) -> int:
    """Show where PACKAGE lies in an image, which copy the server imports, and for which launches another one would win.

    Read from the image's files, and asked of its interpreter too; where the two differ, both answers are shown and the
    exit status is 1, as it is when nothing is found.

    \b
    patchkit resolve --image vllm-xpu:nightly vllm
    patchkit resolve --image oci:./layout --no-run vllm
    """
    given = api.Options(launch=launch, platform=platform, run=not no_run, everything=everything)
    with api.opened(image, given) as opened:
        site = api.facts(opened, api.launch_for(opened, given), package, (), (), given)
        about = show.image_part(opened.reference, opened.identity)
    findings = [*site_findings(site), *_absent(site, package)]
    parts: Document = {
        "image": {
            **about,
            "package": package,
            "package_version": site.version,
            "python": ".".join(map(str, site.python)),
            "launch": site.launch.source,
            "launch_form": site.launch.form,
            "interpreter": site.launch.interpreter,
            "search_path": list(site.search_path),
            "how": site.how,
        },
        "copies": [show.copy_part(copy) for copy in site.copies],
        "findings": show.finding_parts(findings),
    }
    if as_json:
        print_json(document("resolve", **parts))
    else:
        _print(site, package)
        show.print_copies(parts["copies"])
        show.print_findings(parts["findings"])
    return 1 if worst(findings) == "error" else 0


def _print(site: Site, package: str) -> None:
    how = "read and asked" if site.how == "both" else "read only"
    click.echo(clean(f"launch: {site.launch.source}"))
    click.echo(clean(f"python: {'.'.join(map(str, site.python))} at {site.launch.interpreter} ({how})"))
    if site.winner is None:
        click.echo(clean(f"{package}: not found by this launch"))
    else:
        click.echo(clean(f"{package}: {site.winner.root}, {_why(site)}"))
    click.echo("search path:")
    for entry in site.search_path:
        mark = "*" if site.winner is not None and _gives(entry, site) else " "
        click.echo(clean(f"  {mark} {entry}"))


def _gives(entry: str, site: Site) -> bool:
    return site.winner is not None and site.winner.base == entry


def _why(site: Site) -> str:
    assert site.winner is not None
    if site.winner.note:
        return site.winner.note
    for number, entry in enumerate(site.search_path, 1):
        if _gives(entry, site):
            return f"by entry {number} of the search path"
    return "through a link on the search path"


def _absent(site: Site, package: str) -> list[Finding]:
    if site.winner is not None:
        return []
    others = ", ".join(copy.root for copy in site.copies)
    return [
        Finding(
            "package-absent",
            "error",
            f"the launch imports no copy of {package}",
            where=site.launch.interpreter,
            evidence=f"copies that it does not import: {others}" if others else "",
            remedy="name another start with --launch",
        )
    ]
