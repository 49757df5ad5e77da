"""Lines of a serving log that are known to mean trouble, kept as data beside this module."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources

import yaml

from patchkit.findings import Severity


@dataclass(frozen=True, slots=True)
class KnownLine:
    """One kind of line: ``pattern`` is looked for anywhere in it."""

    id: str
    pattern: re.Pattern[str]
    severity: Severity
    what: str
    remedy: str


@cache
def known() -> tuple[KnownLine, ...]:
    """All kinds, in the order of the file."""
    text = resources.files("patchkit.stack").joinpath("loglines.yaml").read_text("utf-8")
    return tuple(
        KnownLine(item["id"], re.compile(item["match"]), item["severity"], item["what"], item["remedy"])
        for item in yaml.safe_load(text)
    )


def known_lines(lines: Iterable[str]) -> Iterator[tuple[str, KnownLine]]:
    """The first line of each kind, in the log's order, with what is known of it."""
    seen: set[str] = set()
    for line in lines:
        for kind in known():
            if kind.id not in seen and kind.pattern.search(line):
                seen.add(kind.id)
                yield line.strip(), kind
