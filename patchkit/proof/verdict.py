"""From the levels to an exit status, and from findings to a refusal. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from patchkit.errors import Refused
from patchkit.findings import Finding
from patchkit.proof.model import NEEDED, Level


def verdict(levels: Sequence[Level], require: Collection[str] = ()) -> int:
    """0 when the needed levels and those in ``require`` passed and none failed, else 1.

    ``blocked`` and ``not run`` at ``imports`` and ``asserts`` are 0 unless required. A level of ``require`` that is not
    told at all counts as not passed.
    """
    states = {level.name: level.state for level in levels}
    if "failed" in states.values():
        return 1
    must = {*NEEDED, *require}
    return 0 if all(states.get(name) == "passed" for name in must) else 1  # type: ignore[call-overload]


def refuse_errors(findings: Sequence[Finding]) -> None:
    """Raise the first error among the findings, under its own id; the others are its details.

    Raises:
        patchkit.errors.Refused: ``gpu-refused``, ``environment-refused``.
    """
    errors = [finding for finding in findings if finding.severity == "error"]
    if errors:
        first, others = errors[0], [finding.what for finding in errors[1:]]
        raise Refused(first.id, first.what, where=first.where, remedy=first.remedy, details=others)
