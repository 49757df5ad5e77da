"""A comparison as people read it: one table and its charts, the same for every format."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from patchkit.bench.compare import Comparison
from patchkit.bench.medians import MedianTable

COLUMNS = ("scenario", "users", "figure", "before", "after", "change", "95 % interval", "spread", "verdict", "because")


@dataclass(frozen=True, slots=True)
class Bar:
    """One value of a chart, with the smallest and largest run around it."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Chart:
    """One figure of one scenario over the concurrencies: a pair of bars (before, after) for each."""

    title: str
    unit: str
    pairs: tuple[tuple[str, Bar, Bar], ...]


@dataclass(frozen=True, slots=True)
class View:
    """What is shown: the names of the two sides, rows under ``COLUMNS``, notes, charts."""

    names: tuple[str, str]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]
    charts: tuple[Chart, ...]


def of_comparison(comparison: Comparison) -> View:
    """The view of two reports compared."""
    rows = [
        (
            row.scenario,
            str(row.concurrency),
            f"{row.metric.name} {row.metric.unit}",
            _figure(row.before.median),
            _figure(row.after.median),
            _percent(row.change),
            f"{_percent(row.interval[0])} to {_percent(row.interval[1])}" if row.interval else "unknown",
            f"{row.spread:.1%}",
            row.verdict,
            row.why,
        )
        for row in comparison.rows
    ]
    bars = [
        (
            (row.scenario, row.metric.name, row.metric.unit),
            str(row.concurrency),
            Bar(row.before.median, min(row.before.runs), max(row.before.runs)),
            Bar(row.after.median, min(row.after.runs), max(row.after.runs)),
        )
        for row in comparison.rows
    ]
    return View((comparison.before.name, comparison.after.name), tuple(rows), comparison.notes, _charts(bars))


def of_medians(table: MedianTable) -> View:
    """The view of a published table of medians."""
    rows = [
        (
            row.scenario,
            str(row.concurrency),
            row.metric,
            _figure(row.before),
            _figure(row.after),
            _percent(row.change),
            "unknown",
            "unknown" if row.noise is None else f"{row.noise:.1%}",
            row.verdict,
            row.why,
        )
        for row in table.rows
    ]
    bars = [
        (
            (row.scenario, row.metric, ""),
            str(row.concurrency),
            Bar(row.before, row.before, row.before),
            Bar(row.after, row.after, row.after),
        )
        for row in table.rows
    ]
    return View(table.names, tuple(rows), tuple(_median_notes(table)), _charts(bars))


def _median_notes(table: MedianTable) -> Iterable[str]:
    yield "Medians alone: no interval can be given, and spread is what the table calls noise."
    for row in table.rows:
        where = f"{row.scenario} {row.concurrency} {row.metric}"
        if row.said and row.said != row.verdict:
            yield f"{where}: the table says {row.said}, its own columns give {row.verdict}: {row.why}."
        if row.agrees == "differs" and row.printed is not None:
            yield f"{where}: the table prints {_percent(row.printed)}, its medians give {_percent(row.change)}."
    counts = [f"{sum(row.agrees == how for row in table.rows)} {how}" for how in ("to the digit", "within rounding")]
    yield f"Of {len(table.rows)} printed changes the medians give {' and '.join(counts)}."


def _charts(bars: Iterable[tuple[tuple[str, str, str], str, Bar, Bar]]) -> tuple[Chart, ...]:
    grouped: dict[tuple[str, str, str], list[tuple[str, Bar, Bar]]] = {}
    for key, label, before, after in bars:
        grouped.setdefault(key, []).append((label, before, after))
    return tuple(Chart(f"{scenario}: {name}", unit, tuple(pairs)) for (scenario, name, unit), pairs in grouped.items())


def markdown(view: View) -> str:
    """The view as a pipe table with its notes."""
    header = [*COLUMNS]
    header[3:5] = [f"before: {view.names[0]}", f"after: {view.names[1]}"]
    lines = [_pipes(header), _pipes(["---"] * len(header)), *(_pipes(row) for row in view.rows)]
    return "\n".join([*lines, "", *(f"- {_escaped(note)}" for note in view.notes)]).rstrip() + "\n"


def _pipes(cells: Iterable[str]) -> str:
    return "| " + " | ".join(_escaped(cell) for cell in cells) + " |"


def _escaped(text: str) -> str:
    return " ".join(text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").split())


def _figure(value: float) -> str:
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _percent(share: float) -> str:
    return f"{share:+.1%}"
