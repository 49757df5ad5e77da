"""Measures several ways of doing a thing side by side: interleaved, medians, ratios.

Each round runs every case once, so that a busy machine slows all of them alike; single times mean little, ratios of
medians from one run mean something. Results are printed as a table and written to ``.build/bench/<name>.json``.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

RESULTS = Path(__file__).parents[1] / ".build/bench"


@dataclass(frozen=True, slots=True)
class Case:
    """One way of doing it: what is timed, and what puts the world back before each round, untimed."""

    name: str
    run: Callable[[], object]
    before: Callable[[], object] = lambda: None


@dataclass(frozen=True, slots=True)
class Aim:
    """What a ratio should be at most: median of ``case`` over median of ``base``."""

    case: str
    base: str
    at_most: float


@dataclass(frozen=True, slots=True)
class Result:
    """Seconds of each round, by case."""

    name: str
    seconds: dict[str, list[float]] = field(default_factory=dict)

    def median(self, case: str) -> float:
        return statistics.median(self.seconds[case])

    def ratio(self, case: str, base: str) -> float:
        return self.median(case) / self.median(base)


def measure(name: str, cases: Sequence[Case], *, rounds: int = 7, warm: int = 1) -> Result:
    """Run every case ``rounds`` times, interleaved, after ``warm`` rounds that do not count."""
    result = Result(name, {case.name: [] for case in cases})
    for number in range(warm + rounds):
        for case in cases:
            case.before()
            started = time.perf_counter()
            case.run()
            if number >= warm:
                result.seconds[case.name].append(time.perf_counter() - started)
    return result


def report(result: Result, aims: Sequence[Aim] = (), facts: dict[str, object] | None = None) -> None:
    """Print the table and write the JSON. An aim that is missed is told, and is no failure: machines differ."""
    width = max(map(len, result.seconds))
    print(f"\n{result.name} ({len(next(iter(result.seconds.values())))} rounds, interleaved)")
    for case, seconds in result.seconds.items():
        low, high = min(seconds), max(seconds)
        print(f"  {case:{width}}  {result.median(case) * 1000:9.1f} ms   ({low * 1000:.1f} to {high * 1000:.1f})")
    told = []
    for aim in aims:
        ratio = result.ratio(aim.case, aim.base)
        verdict = "met" if ratio <= aim.at_most else "MISSED"
        print(f"  {aim.case} / {aim.base} = {ratio:.3g} (aim: at most {aim.at_most:g}: {verdict})")
        told.append({"case": aim.case, "base": aim.base, "ratio": ratio, "at_most": aim.at_most})
    for fact, value in (facts or {}).items():
        print(f"  {fact}: {value}")
    RESULTS.mkdir(parents=True, exist_ok=True)
    document = {"name": result.name, "seconds": result.seconds, "aims": told, "facts": facts or {}}
    (RESULTS / f"{result.name}.json").write_text(json.dumps(document, indent=2, sort_keys=True) + "\n")


def run(*command: str | Path, cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    """Run a program, give its output, and fail with what it said."""
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout
