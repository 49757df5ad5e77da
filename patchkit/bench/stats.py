"""The statistics of a comparison: percentiles, spread, a bootstrap interval. Deterministic: the seed is fixed."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Literal

#: Enough that the interval's ends move by less than a tenth of its width from seed to seed.
RESAMPLES = 1000
CONFIDENCE = 0.95

Statistic = Literal["value", "median", "p99"]


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which ``share`` (0 to 1) of the values lie, between neighbours by straight line (as numpy)."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def median(values: Sequence[float]) -> float:
    """The middle value."""
    return percentile(values, 0.5)


def of_run(samples: Sequence[float], statistic: Statistic) -> float:
    """One run's figure."""
    return percentile(samples, 0.99 if statistic == "p99" else 0.5)


def spread(values: Sequence[float]) -> float:
    """Run-to-run spread: largest less smallest, as a share of the median; 0 for a single run."""
    middle = median(values)
    return (max(values) - min(values)) / abs(middle) if middle else 0.0


def change_interval(
    before: Sequence[Sequence[float]], after: Sequence[Sequence[float]], statistic: Statistic
) -> tuple[float, float]:
    """The 95 % interval of the relative change of the median run, by bootstrap over runs and, inside each run drawn,
    over its requests (https://doi.org/10.1201/9780429246593, chapter 8: the units are drawn as they were sampled)."""
    chance = random.Random(0)  # noqa: S311 - equal input must give equal verdicts; nothing here is secret
    figure = _figure(statistic)
    changes = []
    for _ in range(RESAMPLES):
        old = _draw(before, figure, chance)
        new = _draw(after, figure, chance)
        changes.append(new / old - 1 if old else 0.0)
    tail = (1 - CONFIDENCE) / 2
    return percentile(changes, tail), percentile(changes, 1 - tail)


def _draw(runs: Sequence[Sequence[float]], figure: Callable[[Sequence[float]], float], chance: random.Random) -> float:
    drawn = [figure(chance.choices(run, k=len(run))) for run in chance.choices(runs, k=len(runs))]
    return median(drawn)


def _figure(statistic: Statistic) -> Callable[[Sequence[float]], float]:
    return lambda samples: of_run(samples, statistic)


def separated(before: Sequence[float], after: Sequence[float]) -> bool:
    """Whether every run of one side lies beyond every run of the other."""
    return max(before) < min(after) or max(after) < min(before)


def chance_of_separation(one: int, other: int) -> float:
    """How often so many runs a side lie apart by luck alone, in either direction, where nothing changed."""
    ways = 1
    for step in range(1, other + 1):
        ways = ways * (one + step) // step
    return 2 / ways
