"""A table of medians, as people publish it, recomputed and judged by what it holds.

A pipe table with the columns scenario, concurrency, metric, two of values, and, where it has them, change, noise and
verdict. Nothing is known but the medians and what the table calls noise, so a verdict rests on these two alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from patchkit.bench.compare import SESSION_DRIFT, Verdict, direction
from patchkit.errors import BadInput

_KEYS = ("scenario", "concurrency", "metric", "change", "noise", "verdict")
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?")


@dataclass(frozen=True, slots=True)
class MedianRow:
    """One row. ``printed`` is the change as the table prints it, ``change`` what its medians give; both are shares.
    ``within`` are the ends of the change that the rounding of the medians allows. ``said`` is the table's verdict."""

    scenario: str
    concurrency: int
    metric: str
    before: float
    after: float
    change: float
    within: tuple[float, float]
    printed: float | None
    agrees: str
    noise: float | None
    said: str
    verdict: Verdict
    why: str

    def as_json(self) -> dict[str, Any]:
        """The row for programs."""
        return {
            "scenario": self.scenario,
            "concurrency": self.concurrency,
            "metric": self.metric,
            "before": self.before,
            "after": self.after,
            "change": self.change,
            "within": list(self.within),
            "printed": self.printed,
            "agrees": self.agrees,
            "noise": self.noise,
            "said": self.said,
            "verdict": self.verdict,
            "why": self.why,
        }


@dataclass(frozen=True, slots=True)
class MedianTable:
    """All rows, and what the two columns of values are called."""

    names: tuple[str, str]
    rows: tuple[MedianRow, ...]


def read_table(path: Path) -> MedianTable:
    """The first pipe table of the file.

    Raises:
        patchkit.errors.BadInput: ``no-report``, or ``no-table`` with the line that is wrong.
    """
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput("no-report", f"cannot be read: {error}", where=str(path), remedy="name a table") from None
    numbered = [(number, _cells(line)) for number, line in enumerate(lines, 1) if line.lstrip().startswith("|")]
    if len(numbered) < 3:
        raise _bad(path, 1, "no pipe table in it")
    header = [cell.lower() for cell in numbered[0][1]]
    values = [index for index, name in enumerate(header) if name not in _KEYS]
    if len(values) != 2 or any(name not in header for name in _KEYS[:3]):
        raise _bad(path, numbered[0][0], "the columns must be scenario, concurrency, metric and two of values")
    rows = []
    for number, cells in numbered[2:]:
        if len(cells) != len(header):
            raise _bad(path, number, f"{len(cells)} cells under {len(header)} columns")
        try:
            rows.append(_row(dict(zip(header, cells, strict=True)), cells[values[0]], cells[values[1]]))
        except ValueError as error:
            raise _bad(path, number, str(error)) from None
    return MedianTable((numbered[0][1][values[0]], numbered[0][1][values[1]]), tuple(rows))


def _row(cells: Mapping[str, str], old: str, new: str) -> MedianRow:
    before, after = _number(old), _number(new)
    if before == 0:
        raise ValueError("a median of 0 has no relative change")
    change = after / before - 1
    within = tuple(sorted(_ends(old, new)))
    printed = _share(cells.get("change", ""))
    noise = _share(cells.get("noise", ""))
    metric = cells["metric"]
    concurrency = int(cells["concurrency"])
    verdict, why = judge_median(change, noise, higher_is_better="tok/s" in metric, concurrency=concurrency)
    return MedianRow(
        cells["scenario"],
        concurrency,
        metric,
        before,
        after,
        change,
        (within[0], within[-1]),
        printed,
        _agreement(change, within, printed, cells.get("change", "")),
        noise,
        cells.get("verdict", ""),
        verdict,
        why,
    )


def judge_median(
    change: float, noise: float | None, *, higher_is_better: bool, concurrency: int
) -> tuple[Verdict, str]:
    """The verdict that medians and a noise figure allow: no interval, so never SAME."""
    if noise is None:
        return "UNCLEAR", "medians alone tell nothing about noise"
    if abs(change) <= noise:
        return "UNCLEAR", "the noise is as large as the change"
    if concurrency == 1 and abs(change) <= SESSION_DRIFT:
        return "UNCLEAR", f"sessions alone drift by up to {SESSION_DRIFT:.0%} at one user"
    return direction(change, higher_is_better), "the change is larger than the noise"


def _agreement(change: float, within: Sequence[float], printed: float | None, text: str) -> str:
    if printed is None:
        return "not printed"
    digits = len(text.strip("+-% ").partition(".")[2])
    if round(change * 100, digits) == round(printed * 100, digits):
        return "to the digit"
    half = 0.5 * 10 ** -(digits + 2)
    inside = within[0] - half <= printed <= within[-1] + half
    return "within rounding" if inside else "differs"


def _ends(old: str, new: str) -> Iterator[float]:
    for one in _rounded(old):
        for other in _rounded(new):
            yield other / one - 1


def _rounded(text: str) -> tuple[float, float]:
    """The smallest and the largest number that is printed as ``text``."""
    value = _number(text)
    half = 0.5 * 10 ** -len(text.partition(".")[2])
    return value - half, value + half


def _number(text: str) -> float:
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"{text!r} is no number")
    return float(text)


def _share(text: str) -> float | None:
    return _number(text.removesuffix("%").strip()) / 100 if text else None


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def _bad(path: Path, line: int, what: str) -> BadInput:
    return BadInput("no-table", what, where=f"{path}:{line}:1", remedy="name a pipe table with those columns")
