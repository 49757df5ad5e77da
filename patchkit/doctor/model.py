"""A check: one thing to look for, how bad it is, and why."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from patchkit.doctor.world import World
from patchkit.errors import PatchkitError
from patchkit.findings import Finding, Severity


@dataclass(frozen=True, slots=True)
class Report:
    """One sighting of what a check looks for; the check adds its id and severity."""

    what: str
    where: str = ""
    evidence: str = ""
    remedy: str = ""

    @classmethod
    def of(cls, told: Finding | PatchkitError) -> Report:
        """What another part of patchkit told, as it told it."""
        evidence = told.evidence if isinstance(told, Finding) else ""
        return cls(told.what, told.where or "", evidence, told.remedy or "")


Look = Callable[[World], Iterable[Report]]


@dataclass(frozen=True, slots=True)
class Check:
    """``id`` is stable kebab-case, ``title`` what is wrong in a few words, ``why`` how it hurts and what helps (told by
    ``patchkit doctor --explain ID``)."""

    id: str
    severity: Severity
    title: str
    why: str
    look: Look

    def run(self, world: World) -> Iterator[Finding]:
        """What the check finds."""
        for report in self.look(world):
            yield Finding(self.id, self.severity, report.what, report.where, report.evidence, report.remedy)


CHECKS: dict[str, Check] = {}


def check(id: str, severity: Severity, title: str, why: str) -> Callable[[Look], Look]:  # noqa: A002 - the field's name
    """Register the function below as a check."""

    def register(look: Look) -> Look:
        if id in CHECKS:
            raise ValueError(f"two checks are called {id}")
        CHECKS[id] = Check(id, severity, title, " ".join(why.split()), look)
        return look

    return register
