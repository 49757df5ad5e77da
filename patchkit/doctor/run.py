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
        patchkit.errors.Refused: ``not-there``, the image or container asked about does not exist.
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
        return [
            Finding(
                "check-failed",
                "error",
                f"check {check.id} could not look: {error.what}",
                where=error.where or "",
                remedy=error.remedy or "",
            )
        ]
