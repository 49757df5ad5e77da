"""The processes of a running container: did they start before the patched files were there, and under which Python?"""

from __future__ import annotations

import json
import posixpath
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import resources
from typing import Any

from patchkit.findings import Finding
from patchkit.images.model import Run, Runnable
from patchkit.proof.model import Expectation
from patchkit.site.model import Launch
from patchkit.site.probe import read_answers

#: Start times are told in clock ticks of 10 ms, file times by the same kernel's clock.
_TICK = 0.02
_PYTHON = re.compile(r"python(\d+(\.\d+)?)?")


def process_findings(
    target: Runnable, launch: Launch, expectations: Sequence[Expectation], where: str
) -> tuple[Finding, ...]:
    """What the processes of a running container tell against the patches: an error for each Python that started before
    a patched file was there, a warning for another interpreter or another environment than the launch's."""
    nonce = secrets.token_hex(16)
    script = resources.files("patchkit.proof").joinpath("_processes_script.py").read_text("utf-8")
    asked = json.dumps({"nonce": nonce, "files": [expectation.path for expectation in expectations]})
    argv = (launch.interpreter, "-I", "-S", "-c", script, asked)
    answer = read_answers(target.run(Run(argv=argv, env=dict(launch.env), timeout=60)).stdout, nonce)
    processes = answer.get("processes")
    if not isinstance(processes, list):
        return (
            Finding(
                "processes-unseen",
                "error",
                "the container's interpreter did not tell which processes run, so none can be vouched for",
                where=where,
                remedy="recreate the container, then verify again",
            ),
        )
    found = list(_judge(processes, answer.get("files") or {}, launch, where))
    hidden = answer.get("hidden") or []
    if hidden:
        found.append(
            Finding(
                "processes-hidden",
                "warning",
                f"{len(hidden)} processes belong to another user and cannot be looked at",
                where=where,
                evidence=", ".join(f"pid {pid}" for pid in hidden[:10]),
            )
        )
    return tuple(found)


def _judge(
    processes: Iterable[Mapping[str, Any]], changed: Mapping[str, float | None], launch: Launch, where: str
) -> Iterator[Finding]:
    last = max(((at, path) for path, at in changed.items() if at is not None), default=None)
    for process in processes:
        if not _PYTHON.fullmatch(posixpath.basename(str(process["exe"]))):
            continue
        here = f"{where} pid {process['pid']}"
        said = " ".join(process["argv"])[:120]
        if last is not None and process["started"] + _TICK < last[0]:
            yield Finding(
                "process-older",
                "error",
                f"it started before {last[1]} was there, and runs what it imported then",
                where=here,
                evidence=said,
                remedy=f"restart it: docker restart {where}",
            )
        for name in sorted({*launch.env, *process["env"]}):
            decides = name in ("VIRTUAL_ENV", "CONDA_PREFIX") or name.startswith("PYTHON")
            if decides and process["env"].get(name) != launch.env.get(name):
                yield Finding(
                    "environment-overridden",
                    "warning",
                    f"{name} is {process['env'].get(name, 'not set')}, the launch has {launch.env.get(name, 'none')}",
                    where=here,
                    evidence=said,
                )
