"""A comparison as one HTML file that needs nothing else: no script, no font, no network."""

from __future__ import annotations

from html import escape

from patchkit.bench.view import COLUMNS, Bar, Chart, View

_WIDTH, _HEIGHT = 340, 210
_LEFT, _TOP, _BOTTOM = 52, 14, 30

_STYLE = """
:root { --ink: #1b1f24; --paper: #ffffff; --line: #d0d7de; --before: #5b7fa6; --after: #c2570c; --good: #1a7f37;
  --bad: #b42318; --dim: #57606a; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --paper: #0d1117; --line: #30363d; --before: #7aa2d0;
  --after: #f0883e; --good: #56d364; --bad: #ff7b72; --dim: #9198a1; } }
body { margin: 2rem auto; max-width: 75rem; padding: 0 1rem; font: 15px/1.5 system-ui, sans-serif; color: var(--ink);
  background: var(--paper); }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.key span { margin-right: 1.5rem; } .key i { display: inline-block; width: .8em; height: .8em; margin-right: .4em; }
.charts { display: flex; flex-wrap: wrap; gap: 1rem; }
figure { margin: 0; border: 1px solid var(--line); border-radius: 6px; padding: .5rem; }
figcaption { font-weight: 600; font-size: .9rem; max-width: 340px; }
svg text { font: 11px system-ui, sans-serif; fill: var(--dim); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .88rem; }
th, td { border-bottom: 1px solid var(--line); padding: .3rem .5rem; text-align: right; white-space: nowrap; }
th:nth-child(1), td:nth-child(1), th:nth-child(3), td:nth-child(3), th:nth-child(n+9), td:nth-child(n+9) {
  text-align: left; }
td:last-child { white-space: normal; color: var(--dim); min-width: 16rem; }
.BETTER { color: var(--good); font-weight: 600; } .WORSE { color: var(--bad); font-weight: 600; }
"""


def page(view: View) -> str:
    """The whole page; the same view gives the same bytes."""
    before, after = (escape(name) for name in view.names)
    head = "".join(f"<th>{escape(column)}</th>" for column in COLUMNS)
    rows = "\n".join(f"<tr>{''.join(_cell(index, cell) for index, cell in enumerate(row))}</tr>" for row in view.rows)
    notes = "\n".join(f"<li>{escape(note)}</li>" for note in view.notes)
    charts = "\n".join(_chart(chart) for chart in view.charts)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{before} and {after}</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>{before} and {after}</h1>
<p class="key"><span><i style="background: var(--before)"></i>before: {before}</span>
<span><i style="background: var(--after)"></i>after: {after}</span>
<span>whiskers: smallest and largest run</span></p>
<h2>Verdicts</h2>
<div class="scroll"><table>
<thead><tr>{head}</tr></thead>
<tbody>
{rows}
</tbody>
</table></div>
<ul>
{notes}
</ul>
<h2>Figures by number of users</h2>
<div class="charts">
{charts}
</div>
</body>
</html>
"""


def _cell(index: int, text: str) -> str:
    mark = f' class="{escape(text)}"' if COLUMNS[index] == "verdict" else ""
    return f"<td{mark}>{escape(text)}</td>"


def _chart(chart: Chart) -> str:
    top = max(bar.high for _, *bars in chart.pairs for bar in bars) or 1.0
    step = (_WIDTH - _LEFT) / len(chart.pairs)
    width = min(34.0, step * 0.36)
    parts = [_axis(top)]
    for number, (label, before, after) in enumerate(chart.pairs):
        middle = _LEFT + step * (number + 0.5)
        parts.append(_bar(middle - width - 1, width, before, top, "before"))
        parts.append(_bar(middle + 1, width, after, top, "after"))
        parts.append(f'<text x="{middle:.1f}" y="{_HEIGHT - 12}" text-anchor="middle">{escape(label)}</text>')
    said = escape(chart.title + (f", {chart.unit}" if chart.unit else ""))
    return (
        f"<figure><figcaption>{said}</figcaption>\n"
        f'<svg role="img" aria-label="{said}" width="{_WIDTH}" height="{_HEIGHT}" '
        f'viewBox="0 0 {_WIDTH} {_HEIGHT}">\n{chr(10).join(parts)}\n</svg></figure>'
    )


def _axis(top: float) -> str:
    parts = []
    for tenth in (0, 5, 10):
        y = _y(top * tenth / 10, top)
        parts.append(f'<line x1="{_LEFT}" x2="{_WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="var(--line)"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{_tick(top * tenth / 10)}</text>')
    return "".join(parts)


def _bar(x: float, width: float, bar: Bar, top: float, side: str) -> str:
    y = _y(bar.value, top)
    floor = _y(0, top)
    middle = x + width / 2
    said = f"{side}: {bar.value:.2f}"
    whisker = (
        f'<line x1="{middle:.1f}" x2="{middle:.1f}" y1="{_y(bar.low, top):.1f}" y2="{_y(bar.high, top):.1f}" '
        'stroke="var(--ink)"/>'
        if bar.high > bar.low
        else ""
    )
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{max(floor - y, 0):.1f}" fill="var(--{side})">'
        f"<title>{said}</title></rect>{whisker}"
    )


def _y(value: float, top: float) -> float:
    return _TOP + (_HEIGHT - _TOP - _BOTTOM) * (1 - max(value, 0.0) / top)


def _tick(value: float) -> str:
    return f"{value:.0f}" if value >= 10 or value == 0 else f"{value:.1f}"
