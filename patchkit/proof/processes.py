"""The processes of a running container: did they start before the patched files were there, and under which Python?"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from patchkit.catalog.model import RefusedEnv
from patchkit.catalog.refused import setting_findings
from patchkit.errors import Unreachable
from patchkit.findings import Finding, hidden
from patchkit.images.model import Run, Runnable
from patchkit.proof.model import Expectation
from patchkit.site.environment import decides_imports
from patchkit.site.launch import is_python
from patchkit.site.model import Launch
from patchkit.site.probe import read_answers
from patchkit.site.program import program_text

#: Start times are told in clock ticks of 10 ms, file times by the same kernel's clock.
_TICK = 0.02
_DELETED = " (deleted)"  # what the kernel adds to the name of a program whose file was replaced since (proc(5))


@dataclass(frozen=True, slots=True)
class Process:
    """One process. ``started`` is in seconds since the epoch; ``env`` holds what it was started with of that which
    decides imports, and the variables asked for: None where it wrote over them, as one that changes its title does."""

    pid: int
    exe: str
    argv: tuple[str, ...]
    cwd: str
    started: float
    env: Mapping[str, str] | None

    @property
    def is_python(self) -> bool:
        """Whether its program is called as Python interpreters are, even where the file is another by now."""
        return is_python(self.exe.removesuffix(_DELETED))


@dataclass(frozen=True, slots=True)
class Inside:
    """A look into a running container. ``hidden`` are the processes of other users; ``changed`` and ``links`` tell when
    a file's inode last changed (seconds since the epoch) and how many names it has, for those that are there;
    ``oldest`` is the time of the oldest file below a folder, None for an empty or missing one."""

    processes: tuple[Process, ...]
    hidden: tuple[int, ...] = ()
    changed: Mapping[str, float] = field(default_factory=dict)
    links: Mapping[str, int] = field(default_factory=dict)
    oldest: Mapping[str, float | None] = field(default_factory=dict)


def look_inside(
    target: Runnable, launch: Launch, files: Sequence[str], folders: Sequence[str] = (), names: Sequence[str] = ()
) -> Inside | None:
    """Ask the container's own interpreter, as the container's user; None where it gives no answer that counts. Of the
    processes' environment it is told what decides imports and the variables ``names``, and nothing else."""
    nonce = secrets.token_hex(16)
    script = program_text("patchkit.proof", "_processes_script")
    asked = json.dumps({"nonce": nonce, "files": list(files), "folders": list(folders), "names": list(names)})
    argv = (launch.interpreter, "-I", "-S", "-c", script, asked)
    try:
        output = target.run(Run(argv=argv, env=dict(launch.env), timeout=60)).stdout
    except Unreachable:
        return None
    try:
        return _inside(read_answers(output, nonce))
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _inside(answer: Mapping[str, Any]) -> Inside:
    there = {path: told for path, told in answer["files"].items() if told is not None}
    return Inside(
        processes=tuple(
            Process(
                int(one["pid"]),
                str(one["exe"]),
                tuple(map(str, one["argv"])),
                str(one["cwd"]),
                float(one["started"]),
                None if one["env"] is None else {str(name): str(value) for name, value in one["env"].items()},
            )
            for one in answer["processes"]
        ),
        hidden=tuple(int(pid) for pid in answer["hidden"]),
        changed={path: float(told["changed"]) for path, told in there.items()},
        links={path: int(told["links"]) for path, told in there.items()},
        oldest={path: None if at is None else float(at) for path, at in answer["folders"].items()},
    )


def process_findings(
    target: Runnable,
    launch: Launch,
    expectations: Sequence[Expectation],
    where: str,
    refused: Sequence[RefusedEnv] = (),
) -> tuple[Finding, ...]:
    """What the processes of a running container tell against the patches: an error for each Python that started before
    a patched file was there, or with a refused setting that is not the launch's, which stands for all; a warning for
    another environment than the launch's in what decides imports."""
    return tuple(judge(look_for(target, launch, expectations, refused), launch, where, refused))


def look_for(
    target: Runnable, launch: Launch, expectations: Sequence[Expectation], refused: Sequence[RefusedEnv] = ()
) -> Inside | None:
    """The look that ``judge`` needs."""
    return look_inside(target, launch, [item.path for item in expectations], names=[one.name for one in refused])


def judge(inside: Inside | None, launch: Launch, where: str, refused: Sequence[RefusedEnv] = ()) -> Iterator[Finding]:
    """The findings of one look; see ``process_findings``."""
    if inside is None:
        yield Finding(
            "processes-unseen",
            "error",
            "the container's interpreter did not tell which processes run, so none can be vouched for",
            where=where,
            remedy="recreate the container, then verify again",
        )
        return
    last = max(((at, path) for path, at in inside.changed.items()), default=None)
    for process in inside.processes:
        if process.is_python:
            here, said = f"{where} pid {process.pid}", hidden(" ".join(process.argv))[:120]
            if last is not None and process.started + _TICK < last[0]:
                yield Finding(
                    "process-older",
                    "error",
                    f"it started before {last[1]} was there, and runs what it imported then",
                    where=here,
                    evidence=said,
                    remedy=f"restart it: docker restart {where}",
                )
            if process.env is not None:
                own = {name: value for name, value in process.env.items() if launch.env.get(name) != value}
                yield from setting_findings(refused, own, here)
                yield from _environment(process, process.env, launch, here, said)
    if inside.hidden:
        yield Finding(
            "processes-hidden",
            "warning",
            f"{len(inside.hidden)} processes belong to another user and cannot be looked at",
            where=where,
            evidence=", ".join(f"pid {pid}" for pid in inside.hidden[:10]),
        )


def _environment(process: Process, env: Mapping[str, str], launch: Launch, here: str, said: str) -> Iterator[Finding]:
    # A Python that was started by a path has no use for PATH: CPython, Modules/getpath.py.
    unused = "PATH" if process.argv and "/" in process.argv[0] else ""
    for name in sorted({*launch.env, *env}):
        if decides_imports(name) and name != unused and env.get(name) != launch.env.get(name):
            yield Finding(
                "environment-overridden",
                "warning",
                f"{name} is {env.get(name, 'not set')}, the launch has {launch.env.get(name, 'none')}",
                where=here,
                evidence=said,
            )
