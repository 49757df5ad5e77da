"""What a benchmark leaves behind: runs with their raw samples, and who was measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

SCHEMA = "patchkit.bench-run"


@dataclass(frozen=True, slots=True)
class Scenario:
    """What one request looks like: so many tokens in and out."""

    name: str
    input_tokens: int
    output_tokens: int
    about: str


#: Nobody wrote down the lengths behind names such as "chat"; here they are fixed, and recorded with every run.
SCENARIOS = {
    each.name: each
    for each in (
        Scenario("chat", 512, 256, "a turn of a conversation: a short prompt, an answer of some paragraphs"),
        Scenario("prefill", 4096, 128, "a long document in, a short answer out"),
        Scenario("page", 1000, 1000, "the lengths of Flint's recorded serving figures"),
    )
}


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure of a run: which samples it is drawn from, and how. ``value`` is the run's one sample."""

    name: str
    unit: str
    key: str
    statistic: Literal["value", "median", "p99"]
    higher_is_better: bool


METRICS = (
    Metric("Total output", "tok/s", "output_tok_s", "value", True),
    Metric("Per-user decode", "ms/token", "decode_ms", "median", False),
    Metric("Median time to first token", "ms", "ttft_ms", "median", False),
    Metric("p99 time to first token", "ms", "ttft_ms", "p99", False),
    Metric("Forward", "us", "forward_us", "median", False),
)


@dataclass(frozen=True, slots=True)
class Run:
    """One repetition of one scenario at one concurrency. ``samples`` maps a key of ``Metric`` to its raw values: one a
    request, or one for the whole run; ``failed`` counts requests without an answer."""

    scenario: str
    concurrency: int
    repetition: int
    samples: Mapping[str, tuple[float, ...]]
    failed: int = 0


@dataclass(frozen=True, slots=True)
class Report:
    """All runs of one server. ``about`` tells what was measured and how: generator, server, model, image, the patch
    set's fingerprint, the scenarios' lengths."""

    name: str
    runs: tuple[Run, ...]
    about: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The report as the file that ``bench run`` writes."""
        return {
            "schema": SCHEMA,
            "version": 1,
            "name": self.name,
            "about": dict(self.about),
            "runs": [
                {
                    "scenario": run.scenario,
                    "concurrency": run.concurrency,
                    "repetition": run.repetition,
                    "failed": run.failed,
                    "samples": {key: list(values) for key, values in run.samples.items()},
                }
                for run in self.runs
            ],
        }
