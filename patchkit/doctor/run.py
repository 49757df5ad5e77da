"""All checks over one world, several at a time; findings in the order of the checks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

import patchkit.doctor.checks  # noqa: F401 - registers the checks
from patchkit.doctor.asking import or_why
from patchkit.doctor.model import CHECKS, Check, Report, Unseen, check
from patchkit.doctor.world import World
from patchkit.errors import PatchkitError
from patchkit.findings import Finding, Severity

_SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")


@check(
    "unseen",
    "error",
    "something that checks depend on could not be looked at",
    """A check that cannot look says nothing, and silence would pass for health. Each thing is told once, with the
    checks that it leaves blind, and mostly as severe as the worst that they look for.""",
)
def unseen(world: World) -> Iterable[Report]:
    return ()  # ``examine`` tells: it alone knows what all the checks could not look at


def examine(world: World) -> tuple[Finding, ...]:
    """What all checks find. What a check cannot look at is itself a finding: nothing is passed over in silence.

    Raises:
        patchkit.errors.Unreachable: ``no-such-image``, ``no-such-container``: what is asked about is not there.
    """
    try:
        world.require()
        with ThreadPoolExecutor(4) as pool:
            told = list(pool.map(lambda check: _run(check, world), CHECKS.values()))
    finally:
        world.close()
    findings = [each for each_told in told for each in each_told if isinstance(each, Finding)]
    return (*findings, *_blind(zip(CHECKS.values(), told, strict=True)))


def _run(check: Check, world: World) -> list[Finding | Unseen]:
    found: list[Finding | Unseen] = []
    stopped = or_why(lambda: found.extend(check.run(world)))  # what was found before it stopped still counts
    return [*found, Unseen.of(stopped)] if isinstance(stopped, PatchkitError) else found


def _blind(told: Iterable[tuple[Check, list[Finding | Unseen]]]) -> Iterator[Finding]:
    """One finding for each thing that could not be looked at, whichever checks wanted to see it."""
    wanted: dict[Unseen, dict[str, Check]] = {}
    for one, found in told:
        for each in found:
            if isinstance(each, Unseen):
                wanted.setdefault(each, {})[one.id] = one
    for each, checks in wanted.items():
        worst = min((one.severity for one in checks.values()), key=_SEVERITIES.index)
        names = f"check{'' if len(checks) == 1 else 's'} {', '.join(checks)}"
        remedy = each.remedy or f"patchkit doctor --explain {next(iter(checks))}"
        what = f"{names} could not look: {each.what}"
        yield Finding("unseen", each.severity or worst, what, each.where, each.evidence, remedy)
