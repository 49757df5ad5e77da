"""All checks over one world, several at a time; findings in the order of the checks."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import patchkit.doctor.checks  # noqa: F401 - registers the checks
from patchkit.doctor.model import CHECKS, Check
from patchkit.doctor.world import World
from patchkit.errors import PatchkitError
from patchkit.findings import Finding


def examine(world: World) -> tuple[Finding, ...]:
    """What all checks find. A check that cannot look is itself a finding: nothing is passed over in silence.

    Raises:
        patchkit.errors.Unreachable: ``no-such-image``, ``no-such-container``: what is asked about is not there.
    """
    try:
        world.require()
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda check: _run(check, world), CHECKS.values()))
    finally:
        world.close()
    return tuple(finding for findings in found for finding in findings)


def _run(check: Check, world: World) -> list[Finding]:
    try:
        return list(check.run(world))
    except PatchkitError as error:
        return [_failed(check, error.what, error.where or "", error.remedy or "")]
    except OSError as error:  # a folder of another user, a disk that fails: the other checks' findings still count
        return [_failed(check, error.strerror or str(error), str(error.filename or ""))]


def _failed(check: Check, why: str, where: str, remedy: str = "") -> Finding:
    what = f"check {check.id} could not look: {why}"
    return Finding("check-failed", "error", what, where=where, remedy=remedy or f"patchkit doctor --explain {check.id}")
