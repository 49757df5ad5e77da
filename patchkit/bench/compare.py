"""Two reports side by side, with a verdict for every figure that follows from the data.

A verdict is BETTER or WORSE only where the interval of the change excludes no change, every run of one side lies
beyond every run of the other, and the change is larger than the run-to-run spread. Decode of a single user drifts by 3
to 4 % from session to session (seen on GB200 and told in Flint's recipe), so a smaller change there is never one of
the two.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from patchkit.bench import stats
from patchkit.bench.model import METRICS, Metric, Report
from patchkit.errors import BadInput

Verdict = Literal["BETTER", "WORSE", "SAME", "UNCLEAR"]

#: A change within this share is no change that anybody would notice.
SAME_WITHIN = 0.03
#: What sessions drift by where one user is served.
SESSION_DRIFT = 0.04


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a row: the median over the runs, each run's figure, the spread between them, and requests in all."""

    median: float
    runs: tuple[float, ...]
    spread: float
    requests: int


@dataclass(frozen=True, slots=True)
class Row:
    """One figure compared. Shares are relative to ``before`` (0.1 is ten percent); ``interval`` is None where a single
    run gives none. ``why`` says what the verdict rests on."""

    scenario: str
    concurrency: int
    metric: Metric
    before: Side
    after: Side
    change: float
    interval: tuple[float, float] | None
    verdict: Verdict
    why: str

    @property
    def spread(self) -> float:
        """The larger spread of the two sides."""
        return max(self.before.spread, self.after.spread)


@dataclass(frozen=True, slots=True)
class Comparison:
    """All rows, and what holds for the whole."""

    before: Report
    after: Report
    rows: tuple[Row, ...]
    notes: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """The comparison for programs."""
        return {
            "before": {"name": self.before.name, "about": dict(self.before.about)},
            "after": {"name": self.after.name, "about": dict(self.after.about)},
            "confidence": stats.CONFIDENCE,
            "notes": list(self.notes),
            "rows": [
                {
                    "scenario": row.scenario,
                    "concurrency": row.concurrency,
                    "metric": row.metric.name,
                    "unit": row.metric.unit,
                    "before": {"median": row.before.median, "runs": list(row.before.runs), "spread": row.before.spread},
                    "after": {"median": row.after.median, "runs": list(row.after.runs), "spread": row.after.spread},
                    "change": row.change,
                    "interval": list(row.interval) if row.interval else None,
                    "verdict": row.verdict,
                    "why": row.why,
                }
                for row in self.rows
            ],
        }


def compare(before: Report, after: Report) -> Comparison:
    """Every figure that both reports have.

    Raises:
        patchkit.errors.BadInput: ``nothing-in-common``.
    """
    cells = sorted(
        {(run.scenario, run.concurrency) for run in before.runs}
        & {(run.scenario, run.concurrency) for run in after.runs}
    )
    rows = [row for cell in cells for metric in METRICS if (row := _row(before, after, *cell, metric)) is not None]
    if not rows:
        raise BadInput(
            "nothing-in-common",
            "the reports share no scenario at an equal concurrency",
            where=f"{before.name}, {after.name}",
            remedy="run both with the same --scenario and --concurrency",
            details=[f"{report.name} has {_cells(report)}" for report in (before, after)],
        )
    return Comparison(before, after, tuple(rows), tuple(_notes(before, after, rows)))


def _cells(report: Report) -> str:
    cells = sorted({(run.scenario, run.concurrency) for run in report.runs})
    return ", ".join(f"{name} at {users}" for name, users in cells)


def _row(before: Report, after: Report, scenario: str, concurrency: int, metric: Metric) -> Row | None:
    old = _samples(before, scenario, concurrency, metric.key)
    new = _samples(after, scenario, concurrency, metric.key)
    if not old or not new:
        return None
    one, other = _side(old, metric), _side(new, metric)
    change = other.median / one.median - 1 if one.median else 0.0
    several = len(old) > 1 and len(new) > 1
    interval = stats.change_interval(old, new, metric.statistic) if several else None
    verdict, why = judge(
        change,
        interval,
        max(one.spread, other.spread),
        higher_is_better=metric.higher_is_better,
        apart=stats.separated(one.runs, other.runs),
        drifts=_drifts(metric, concurrency),
    )
    return Row(scenario, concurrency, metric, one, other, change, interval, verdict, why)


def judge(
    change: float,
    interval: tuple[float, float] | None,
    spread: float,
    *,
    higher_is_better: bool,
    apart: bool,
    drifts: bool,
) -> tuple[Verdict, str]:
    """The verdict on one change and what it rests on; see the module for the rule."""
    if interval is None:
        return "UNCLEAR", "one run a side tells nothing about the spread between runs"
    low, high = interval
    if low >= -SAME_WITHIN and high <= SAME_WITHIN:
        return "SAME", f"the whole interval lies within {SAME_WITHIN:.0%}"
    if drifts and abs(change) <= SESSION_DRIFT:
        return "UNCLEAR", f"sessions alone drift by up to {SESSION_DRIFT:.0%} at one user"
    if low <= 0 <= high:
        return "UNCLEAR", "the interval holds no change as well"
    if not apart:
        return "UNCLEAR", "runs of the two sides overlap"
    if abs(change) <= spread:
        return "UNCLEAR", "the change is no larger than the spread between runs"
    return direction(change, higher_is_better), "the runs lie apart, and the interval on one side of no change"


def direction(change: float, higher_is_better: bool) -> Verdict:
    """BETTER or WORSE by the sign of the change."""
    return "BETTER" if (change > 0) == higher_is_better else "WORSE"


def _drifts(metric: Metric, concurrency: int) -> bool:
    return concurrency == 1 and metric.key != "ttft_ms"


def _samples(report: Report, scenario: str, concurrency: int, key: str) -> list[tuple[float, ...]]:
    return [
        run.samples[key]
        for run in report.runs
        if run.scenario == scenario and run.concurrency == concurrency and run.samples.get(key)
    ]


def _side(runs: Sequence[Sequence[float]], metric: Metric) -> Side:
    figures = tuple(stats.of_run(run, metric.statistic) for run in runs)
    return Side(stats.median(figures), figures, stats.spread(figures), sum(len(run) for run in runs))


def _notes(before: Report, after: Report, rows: Sequence[Row]) -> Iterator[str]:
    counts = {(len(row.before.runs), len(row.after.runs)) for row in rows}
    for one, other in sorted(counts):
        if one > 1 and other > 1:
            luck = stats.chance_of_separation(one, other)
            if luck > 1 - stats.CONFIDENCE:
                yield (
                    f"With {one} and {other} runs all of one side lie beyond all of the other by luck in {luck:.0%} of "
                    f"cases, so the runs alone cannot show anything at {stats.CONFIDENCE:.0%}; the interval leans on "
                    "the requests inside them. 4 runs a side can."
                )
        else:
            yield f"With {one} and {other} runs the spread is unknown on a side, and no verdict is possible."
    few = min(
        (min(row.before.requests, row.after.requests) for row in rows if row.metric.statistic == "p99"), default=0
    )
    if 0 < few < 100:
        yield f"p99 of as few as {few} requests is little more than the slowest one."
    for report in (before, after):
        failed = sum(run.failed for run in report.runs)
        if failed:
            yield f"{report.name}: {failed} requests failed; their times are in no figure."
    for key in ("scenarios", "generator", "model"):
        if before.about.get(key) != after.about.get(key):
            yield f"The reports differ in {key}: {before.about.get(key)} and {after.about.get(key)}."
