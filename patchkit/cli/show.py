"""Plans, proofs and findings as one object for programs and as tables for people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click

from patchkit.cli.render import clean, table
from patchkit.findings import Finding
from patchkit.images.model import Identity
from patchkit.plan import Plan, Row
from patchkit.site.model import Copy

_NAMES = 2  # of what one reason is told for, before it says how many more


def image_part(reference: object, identity: Identity) -> dict[str, Any]:
    """The ``image`` part of an answer."""
    return {
        "reference": str(reference),
        "config": identity.config,
        "manifest": identity.manifest,
        "index": identity.index,
        "repo_digests": list(identity.repo_digests),
        "platform": identity.platform,
    }


def plan_parts(plan: Plan) -> dict[str, Any]:
    """All parts of an answer that come from a plan."""
    return {
        "image": {
            **image_part(plan.reference, plan.identity),
            "manifest_name": plan.match.manifest.name,
            "matched_by": plan.match.by,
            "package": plan.match.manifest.package,
            "package_version": plan.site.version,
            "python": ".".join(map(str, plan.site.python)),
            "launch": launch_text(plan),
            "fingerprint": plan.fingerprint,
        },
        "files": [_row_part(row) for row in plan.rows],
        "copies": [copy_part(copy) for copy in plan.site.copies],
        "findings": [finding.as_json() for finding in plan.findings],
    }


def copy_part(copy: Copy) -> dict[str, Any]:
    """One copy of the package."""
    return {
        "root": copy.root,
        "kind": copy.kind,
        "version": copy.version,
        "serves": copy.serves,
        "decoy": copy.decoy,
        "wins_for": list(copy.wins_for),
        "note": copy.note,
    }


def launch_text(plan: Plan) -> str:
    """The launch in words."""
    launch = plan.site.launch
    return launch.source or f"{launch.interpreter} {launch.argument}"


def _row_part(row: Row) -> dict[str, Any]:
    return {
        "patch": row.patch,
        "path": row.path,
        "image_path": row.image_path,
        "state": row.state,
        "detail": row.detail,
        "pre": row.pre,
        "post": row.post,
        "done": row.done,
        "total": row.total,
        "notes": list(row.notes),
        "hunks": [
            {
                "number": hunk.number,
                "state": hunk.state,
                "stated": hunk.stated,
                "found": hunk.found,
                "offset": hunk.offset,
                "candidates": list(hunk.candidates),
                "why": hunk.why,
            }
            for hunk in row.hunks
        ],
    }


def print_plan(parts: Mapping[str, Any]) -> None:
    """Image, files and copies for a person."""
    image = parts["image"]
    click.echo(
        clean(
            f"{image['reference']} ({image['platform']}): {image['package']} {image['package_version'] or '?'}, "
            f"Python {image['python']}, manifest {image['manifest_name']} by {image['matched_by']}"
        )
    )
    click.echo(clean(f"launch: {image['launch']}"))
    click.echo()
    rows = [(file["patch"], file["path"], _state(file), _detail(file)) for file in parts["files"]]
    click.echo(table(rows, ("PATCH", "FILE", "STATE", "DETAIL")))
    for file in parts["files"]:
        if file["state"] not in ("applies", "applied", "upstream"):
            for hunk in file["hunks"]:
                click.echo(clean(f"  {file['path']} hunk {hunk['number']}: {hunk['state']}: {hunk['why']}"))
    print_copies(parts["copies"])


def print_copies(copies: Sequence[Mapping[str, Any]]) -> None:
    """The copies of the package, the one that serves first."""
    click.echo()
    rows = [
        (
            "serves" if copy["serves"] else "decoy" if copy["decoy"] else "other",
            copy["root"],
            copy["kind"],
            copy["version"] or "-",
            ", ".join(copy["wins_for"]) or "-",
        )
        for copy in copies
    ]
    click.echo(table(rows, ("COPY", "PATH", "KIND", "VERSION", "IMPORTED BY")))


def print_levels(levels: Iterable[Mapping[str, Any]]) -> None:
    """The proof, a line a level; what did not pass is told file by file."""
    click.echo()
    # Where a level did not pass its files tell why, below.
    rows = [
        (
            level["name"],
            _level_state(level),
            level["detail"] if level["state"] == "passed" or not level["files"] else "",
        )
        for level in levels
    ]
    click.echo(table(rows, ("PROOF", "STATE", "DETAIL")))
    for level in levels:
        if level["state"] != "passed":
            for detail, names in _by_detail(level["files"]).items():
                more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
                click.echo(clean(f"  {level['name']}: {', '.join(names[:_NAMES])}{more}: {detail}"))


def _by_detail(files: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    """What did not pass, by what is told of it: one missing module blocks every import alike."""
    told: dict[str, list[str]] = {}
    for file in files:
        if file["state"] != "passed" and file["detail"]:
            told.setdefault(file["detail"], []).append(file["name"])
    return told


def print_findings(findings: Iterable[Mapping[str, Any]]) -> None:
    """Findings, the worst first, each with its remedy."""
    order = {"error": 0, "warning": 1, "note": 2}
    shown = sorted(findings, key=lambda finding: order[finding["severity"]])
    if shown:
        click.echo()
    for finding in shown:
        where = f"{finding['where']}: " if finding["where"] else ""
        click.echo(clean(f"{finding['severity']}: {where}{finding['what']} [{finding['id']}]"))
        if finding["evidence"]:
            click.echo(clean(f"  seen: {finding['evidence']}"))
        if finding["remedy"]:
            click.echo(clean(f"  next: {finding['remedy']}"))


def finding_parts(findings: Iterable[Finding]) -> list[dict[str, str]]:
    """Findings as the ``findings`` part of an answer."""
    return [finding.as_json() for finding in findings]


def _state(file: Mapping[str, Any]) -> str:
    return f"partial {file['done']}/{file['total']}" if file["state"] == "partial" else str(file["state"])


def _detail(file: Mapping[str, Any]) -> str:
    return "; ".join(text for text in (file["detail"], *file["notes"]) if text)


def _level_state(level: Mapping[str, Any]) -> str:
    cause = level["cause"]
    return f"{level['state']} ({cause})" if cause and cause != level["state"] else str(level["state"])
