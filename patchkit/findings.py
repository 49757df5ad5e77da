"""A finding: one thing that is not as it should be, with its evidence and what to do about it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning", "note"]

#: ``--api-key X``, ``HF_TOKEN=X``: what a start command calls a secret. How it starts is the same without the value.
_NAMED = r"[\w-]*(?:key|token|secret|password)"
_SECRETS = re.compile(
    rf"(?P<name>{_NAMED}=|--{_NAMED}\s+(?!-))(?:\\?\"[^\"]*\"|'[^']*'|[^\s'\"]+)",
    re.IGNORECASE,
)


def counted(number: int, one: str, many: str = "") -> str:
    """``1 file``, ``2 files``; ``many`` where the plural is more than an s: ``counted(n, "file is", "files are")``."""
    return f"{number} {one if number == 1 else many or one + 's'}"


@dataclass(frozen=True, slots=True)
class Finding:
    """``id`` is stable kebab-case (``decoy-mounted``), ``what`` one sentence, ``where`` a place (``file:line:col``, an
    image, a container), ``evidence`` what was seen, ``remedy`` the next command or the thing to do."""

    id: str
    severity: Severity
    what: str
    where: str = ""
    evidence: str = ""
    remedy: str = ""

    def as_json(self) -> dict[str, str]:
        """The finding as the ``findings`` list of every ``--json`` answer holds it."""
        return {
            "id": self.id,
            "severity": self.severity,
            "what": self.what,
            "where": self.where,
            "evidence": self.evidence,
            "remedy": self.remedy,
        }


def worst(findings: Iterable[Finding]) -> Severity | None:
    """The most severe of the findings, None where there is none."""
    order: tuple[Severity, ...] = ("error", "warning", "note")
    found = {finding.severity for finding in findings}
    return next((severity for severity in order if severity in found), None)


def hidden(command: str) -> str:
    """A start command without the values of its secrets."""
    return _SECRETS.sub(r"\g<name>HIDDEN", command)
