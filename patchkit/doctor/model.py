"""A check: one thing to look for, how bad it is, and why."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Self

from patchkit.doctor.world import World
from patchkit.errors import PatchkitError
from patchkit.findings import Finding, Severity


@dataclass(frozen=True, slots=True)
class Report:
    """One sighting of what a check looks for; the check adds its id and, where there is none, its severity."""

    what: str
    where: str = ""
    evidence: str = ""
    remedy: str = ""
    severity: Severity | None = None

    @classmethod
    def of(cls, told: Finding | PatchkitError, where: str = "") -> Self:
        """What another part of patchkit told, as it told it; ``where`` for a place that the person knows better."""
        evidence, severity = (told.evidence, told.severity) if isinstance(told, Finding) else ("", None)
        return cls(told.what, where or told.where or "", evidence, told.remedy or "", severity)


@dataclass(frozen=True, slots=True)
class Unseen(Report):
    """Something that the check could not look at, and why. It is told once for all checks that want to see it, and
    without a severity of its own as severe as the worst that they look for."""


Look = Callable[[World], Iterable[Report | Finding]]


@dataclass(frozen=True, slots=True)
class Check:
    """``id`` is stable kebab-case, ``title`` what is wrong in a few words, ``why`` how it hurts and what helps (told by
    ``patchkit doctor --explain ID``)."""

    id: str
    severity: Severity
    title: str
    why: str
    look: Look

    def run(self, world: World) -> Iterator[Finding | Unseen]:
        """What the check finds, and what it could not look at."""
        for told in self.look(world):
            if isinstance(told, Unseen):
                yield told
            elif isinstance(told, Report):
                severity = told.severity or self.severity
                yield Finding(self.id, severity, told.what, told.where, told.evidence, told.remedy)
            elif told.id == self.id:
                yield told


def elsewhere(world: World) -> Unseen | None:
    """Why nothing on this machine tells of the engine's containers; None where it runs here."""
    if world.engine is None or not world.engine.is_remote:
        return None
    what = "the engine runs on another machine, and this is to be seen there"
    return Unseen(what, world.engine.host, remedy="run patchkit doctor on that machine", severity="note")


CHECKS: dict[str, Check] = {}


def check(id: str, severity: Severity, title: str, why: str) -> Callable[[Look], Look]:  # noqa: A002 - the field's name
    """Register the function below as a check. It yields reports, and findings that another part of patchkit told: of
    those the check takes the ones of its own id, so that one function may stand for several checks."""

    def register(look: Look) -> Look:
        if id in CHECKS:
            raise ValueError(f"two checks are called {id}")
        CHECKS[id] = Check(id, severity, title, " ".join(why.split()), look)
        return look

    return register
