"""Reads what was measured: our own reports, results of ``vllm bench serve`` and of ``vllm bench forward``."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from patchkit.bench.model import SCHEMA, Report, Run
from patchkit.errors import BadInput

#: What the scenario of a result is called that does not tell it.
UNTOLD = "requests"
_EXPECTED = (
    f"patchkit's own: an object with schema {SCHEMA}, name, about and runs",
    "vllm bench serve: an object with max_concurrency, output_throughput, ttfts, itls and output_lens",
    "vllm bench forward: a list of objects with case, requests and ranks",
)
_MAX_BYTES = 512 * 1024 * 1024


def read_report(path: Path, *, scenario: str | None = None) -> Report:
    """The report in a file. Several results of ``vllm bench serve --append-result``, one a line, are repetitions.

    Args:
        path: the file.
        scenario: what to call the scenario of results that do not tell it: one name for all of them, so that two such
            files can be compared.

    Raises:
        patchkit.errors.BadInput: ``no-report``, ``not-json`` or ``not-a-report``.
    """
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise BadInput("not-a-report", f"larger than {_MAX_BYTES} bytes", where=str(path), remedy="name a report")
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput("no-report", f"cannot be read: {error}", where=str(path), remedy="name a report") from None
    documents = _documents(path, text)
    try:
        report = _report(path.stem, documents, scenario or UNTOLD)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        lacks = f"it has no {error}" if isinstance(error, KeyError) else f"its values are others: {error}"
        said = f"no benchmark's result that is known here: {lacks}"
        remedy = "write one with: patchkit bench run -o FILE, or vllm bench serve --save-result --save-detailed"
        raise BadInput("not-a-report", said, where=str(path), remedy=remedy, details=_EXPECTED) from None
    if not report.runs:
        raise BadInput("not-a-report", "it holds no runs", where=str(path), remedy="patchkit bench run -o FILE")
    return report


def serve_run(result: Mapping[str, Any], scenario: str, repetition: int) -> Run:
    """One detailed result of ``vllm bench serve`` (0.33.0: seconds, one entry a request, failed ones with an error).

    Raises:
        KeyError: it was saved without ``--save-detailed``.
    """
    errors = result.get("errors") or [""] * len(result["ttfts"])
    ttft, decode = [], []
    for first, gaps, tokens, error in zip(result["ttfts"], result["itls"], result["output_lens"], errors, strict=True):
        if error or not tokens:
            continue
        ttft.append(float(first) * 1000)
        if tokens > 1:
            decode.append(sum(gaps) * 1000 / (tokens - 1))
    samples = {
        "output_tok_s": (float(result["output_throughput"]),),
        "ttft_ms": tuple(ttft),
        "decode_ms": tuple(decode),
    }
    # Without an error, but also without a word: vLLM does not count it as failed.
    failed = max(int(result.get("failed") or 0), len(result["ttfts"]) - len(ttft))
    return Run(scenario, int(result["max_concurrency"] or 0), repetition, samples, failed)


def _documents(path: Path, text: str) -> list[Any]:
    try:
        return [json.loads(text)]
    except ValueError:
        pass
    try:
        lines = [json.loads(line) for line in text.split("\n") if line.strip()]
        if not lines:
            raise ValueError("it is empty")
        return lines
    except (ValueError, RecursionError) as error:
        raise BadInput(
            "not-json", f"neither JSON nor JSON lines: {error}", where=str(path), remedy="name a report"
        ) from None


def _report(name: str, documents: Sequence[Any], scenario: str) -> Report:
    first = documents[0]
    if isinstance(first, dict) and first.get("schema") == SCHEMA:
        return Report(str(first["name"]), tuple(_own(first)), first["about"])
    if isinstance(first, list):
        return Report(name, tuple(_forward(first)), {"generator": "vllm bench forward"})
    runs = []
    seen: Counter[tuple[str, int]] = Counter()
    for result in documents:
        called = str(result.get("scenario") or scenario)
        key = (called, int(result["max_concurrency"] or 0))
        runs.append(serve_run(result, called, seen[key]))
        seen[key] += 1
    about = {"generator": "vllm bench serve", "model": first.get("model_id")}
    return Report(name, tuple(runs), about)


def _own(document: Mapping[str, Any]) -> Iterator[Run]:
    for run in document["runs"]:
        samples = {str(key): tuple(float(value) for value in values) for key, values in run["samples"].items()}
        yield Run(
            str(run["scenario"]), int(run["concurrency"]), int(run["repetition"]), samples, int(run.get("failed", 0))
        )


def _forward(cases: Sequence[Mapping[str, Any]]) -> Iterator[Run]:
    """Cases of ``vllm bench forward --output-json``: every replay is a sample of one run."""
    for case in cases:
        latency = case["ranks"][0]["latency_us"]
        samples = tuple(float(value) for value in latency.get("samples_us") or [latency["median"]])
        yield Run(str(case["case"]), len(case["requests"]), 0, {"forward_us": samples})
