"""What the processes of a running container were really started as, and which copy of the package that imports.

A proof is made under one launch. Where a person named it, or a server was started beside it, the processes may be of
another: their own command lines, folders and environments tell.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from patchkit.errors import Refused
from patchkit.findings import Finding, hidden
from patchkit.images.model import Filesystem
from patchkit.plan import ABSENT
from patchkit.proof.model import Expectation
from patchkit.proof.processes import Inside, Process
from patchkit.site.entry import doubts
from patchkit.site.facts import place
from patchkit.site.launch import launch_of
from patchkit.site.model import Launch
from patchkit.site.static import find_module, search_of
from patchkit.site.view import View


def started_findings(
    files: Filesystem, inside: Inside, launch: Launch, expectations: Sequence[Expectation], where: str
) -> Iterator[Finding]:
    """An error where no process that can be looked at imports the patched files, a warning for each that imports other
    ones beside those that do. Processes of other users, and those that wrote over their command line, may be any."""
    wanted = next((item for item in expectations if item.module and item.sha256 != ABSENT), None)
    if wanted is None:
        return
    view = View(files)
    serves, unclear = False, bool(inside.hidden)
    others: list[tuple[Process, str]] = []
    for process in inside.processes:
        # A worker of multiprocessing takes over its parent's search path.
        if not process.is_python or any("multiprocessing" in word for word in process.argv):
            continue
        found = _imports(view, process, launch, wanted)
        if found is None:
            unclear = True
        elif not found:
            serves = True
        else:
            others.append((process, found))
    sure = not serves and not unclear
    if sure and not others:
        yield Finding(
            "not-serving",
            "error",
            "no Python runs in it, so nothing imports the patched files",
            where=where,
            remedy=f"see what it started: docker logs {where}",
        )
    for process, found in others:
        yield Finding(
            "process-other-copy",
            "error" if sure else "warning",
            found,
            where=f"{where} pid {process.pid}",
            evidence=hidden(" ".join(process.argv))[:120],
            remedy="patch what it imports: name its start with --launch",
        )


def _imports(view: View, process: Process, launch: Launch, wanted: Expectation) -> str | None:
    """What the process imports instead of the wanted file, empty where it is that; None where it cannot be told."""
    env = process.env if process.env is not None else launch.env
    config = {"Entrypoint": list(process.argv), "Env": [f"{name}={value}" for name, value in env.items()]}
    own = launch_of({**config, "WorkingDir": process.cwd}, view.fs)
    if own.form == "unknown":
        return None
    try:
        # A server may have changed its folder since it started, and the search path begins where it was then.
        said = [_place(view, each, wanted) for each in (own, replace(own, cwd=launch.cwd))]
    except Refused:
        return None
    return "" if "" in said else said[0]


def _place(view: View, launch: Launch, wanted: Expectation) -> str:
    search = search_of(view, launch)
    found = place(view, find_module(view, search, wanted.module))
    if found != wanted.path:
        return f"its import {wanted.module} finds {found}, not {wanted.path}"
    return next(iter(doubts(view, search, launch, wanted.module.partition(".")[0])), "")
