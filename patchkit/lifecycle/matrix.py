"""A survey as text: table, Markdown, HTML, JSON parts. The same survey gives the same bytes."""

from __future__ import annotations

from html import escape
from itertools import groupby
from typing import Any

from patchkit.findings import counted
from patchkit.lifecycle.survey import LEGEND, Cell, Survey

_COLOURS = {"good": "#d7f0d9", "done": "#d3e4f8", "work": "#fbe3b6", "bad": "#f8cfcc", "none": "#ececec"}
_KIND = {
    "applies": "good",
    "offset": "good",
    "applied": "done",
    "upstream": "done",
    "partial": "work",
    "fuzzy": "work",
    "ambiguous": "work",
    "conflict": "bad",
    "target-missing": "none",
    "not-applicable": "none",
    "unreadable": "bad",
}


def cell_text(cell: Cell) -> str:
    """The state as a person reads it; a met drop condition is marked."""
    return f"{cell.told}, can be dropped" if cell.droppable else cell.told


def rows(survey: Survey) -> list[list[str]]:
    """A line a release: the version, then a state a patch."""
    return [[version, *(cell_text(cell) for cell in survey.row(version))] for version in survey.versions]


def short_rows(survey: Survey) -> list[list[str]]:
    """As ``rows``, with neighbours that are alike told in one line: from the newest to the oldest of them."""
    out: list[list[str]] = []
    for _, group in groupby(rows(survey), key=lambda row: row[1:]):
        alike = list(group)
        name = alike[0][0] if len(alike) == 1 else f"{alike[0][0]} to {alike[-1][0]} ({len(alike)})"
        out.append([name, *alike[0][1:]])
    return out


def header(survey: Survey) -> list[str]:
    """The columns' names."""
    return ["RELEASE", *survey.patches]


def used_states(survey: Survey) -> list[str]:
    """The states that the survey holds, in the legend's order."""
    used = {cell.state for row in survey.cells for cell in row}
    return [state for state in LEGEND if state in used]


def _size(survey: Survey) -> str:
    return f"{counted(len(survey.patches), 'patch', 'patches')} on {counted(len(survey.versions), 'release')}"


def markdown(survey: Survey) -> str:
    """A table and its legend."""
    lines = [
        f"## {survey.package}: {_size(survey)}",
        "",
        f"| {' | '.join(header(survey))} |",
        f"|{'---|' * (len(survey.patches) + 1)}",
        *(f"| {' | '.join(text.replace('|', chr(92) + '|') for text in row)} |" for row in rows(survey)),
        "",
        *(f"- **{state}**: {LEGEND[state]}" for state in used_states(survey)),
    ]
    return "\n".join(lines) + "\n"


def html(survey: Survey) -> str:
    """One page that needs nothing else; the detail of a state shows when the pointer rests on it."""
    title = escape(f"{survey.package}: {_size(survey)}")
    kinds = "\n".join(f"    .{kind} {{ background: {colour}; }}" for kind, colour in _COLOURS.items())
    columns = "".join(f"<th>{escape(name)}</th>" for name in header(survey))
    body = "\n".join(
        f"      <tr><th>{escape(version)}</th>{''.join(map(_html_cell, survey.row(version)))}</tr>"
        for version in survey.versions
    )
    legend = "\n".join(
        f'      <li><span class="{_KIND[state]}">{escape(state)}</span> {escape(LEGEND[state])}</li>'
        for state in used_states(survey)
    )
    return f"""<!doctype html>
<html lang="en">
<head>
  <meta charset="utf-8">
  <title>{title}</title>
  <style>
    body {{ font: 15px/1.4 system-ui, sans-serif; margin: 2rem; color: #222; }}
    table {{ border-collapse: collapse; }}
    th, td {{ padding: .3rem .7rem; border: 1px solid #ccc; text-align: left; }}
    thead th {{ position: sticky; top: 0; background: #fff; }}
    li span {{ display: inline-block; min-width: 8rem; padding: 0 .4rem; }}
    ul {{ list-style: none; padding: 0; }}
{kinds}
  </style>
</head>
<body>
  <h1>{title}</h1>
  <table>
    <thead><tr>{columns}</tr></thead>
    <tbody>
{body}
    </tbody>
  </table>
  <ul>
{legend}
  </ul>
</body>
</html>
"""


def _html_cell(cell: Cell) -> str:
    return f'<td class="{_KIND[cell.state]}" title="{escape(cell.detail)}">{escape(cell_text(cell))}</td>'


def parts(survey: Survey) -> list[dict[str, Any]]:
    """The ``files`` part of the JSON answer: an object a cell."""
    return [
        {
            "patch": cell.patch,
            "version": cell.version,
            "state": cell.state,
            "told": cell.told,
            "detail": cell.detail,
            "droppable": cell.droppable,
        }
        for row in survey.cells
        for cell in row
    ]
