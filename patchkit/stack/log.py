"""What a server's log says: lines that tell why it will not serve, and what it found out about its memory."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from patchkit.findings import Finding
from patchkit.stack.recipes.memory import plan_kv
from patchkit.stack.recipes.model import Hardware, LogLine, Model

# Printed by vLLM 0.33.0: update_kv_cache_capacity in v1/core/kv_cache_utils.py, and v1/worker/gpu_worker.py.
_CAPACITY = re.compile(
    r"KV cache size: ([\d,]+) tokens, Maximum concurrency for ([\d,]+) tokens per request: ([\d.]+)x"
)
_AVAILABLE = re.compile(r"Available KV cache memory: ([\d.]+) GiB")
#: The plan knows neither the block size nor the tokens in flight that a server was started with.
_NEAR = 0.15


@dataclass(frozen=True, slots=True)
class Capacity:
    """The KV cache as the server tells it; ``gib`` is a card's share, 0 where the log does not tell."""

    tokens: int
    max_model_len: int
    concurrency: float
    gib: float = 0.0


def known_lines(text: str, lines: Sequence[LogLine], where: str) -> list[Finding]:
    """A finding for each known line of the log, told once with the line itself."""
    found = []
    for known in lines:
        pattern = re.compile(known.match)
        line = next((line for line in text.splitlines() if pattern.search(line)), None)
        if line is not None:
            found.append(Finding(known.id, "warning", known.what, where, line.strip()[-300:], known.remedy))
    return found


def capacity(text: str) -> Capacity | None:
    """What the log says of the KV cache, None where it does not."""
    match = _CAPACITY.search(text)
    if match is None:
        return None
    available = [float(each) for each in _AVAILABLE.findall(text)]
    tokens, length = (int(match[group].replace(",", "")) for group in (1, 2))
    return Capacity(tokens, length, float(match[3]), min(available, default=0.0))


def against_plan(seen: Capacity, model: Model, hardware: Hardware, where: str) -> Finding:
    """The server's own figures beside those that the recipe plans: a note, a warning where they are far apart."""
    sizes = [seen.gib] if seen.gib else [float(each) for each in hardware.kv_gib]
    plans = [
        plan_kv(
            model,
            int(size * 2**30),
            tensor_parallel=hardware.tensor_parallel,
            tokens_in_flight=hardware.tokens_in_flight,
            max_model_len=seen.max_model_len,
        )
        for size in sizes
    ]
    told = f"{seen.tokens} tokens, {seen.concurrency:.2f} requests of {seen.max_model_len} tokens at once"
    if not plans:
        return Finding("kv-capacity", "note", f"KV cache: {told}; the recipe plans none for this machine", where)
    low, high = min(plan.tokens for plan in plans), max(plan.tokens for plan in plans)
    planned = f"{low}" if low == high else f"{low} to {high}"
    said = f"KV cache: {told}; the recipe plans {planned} tokens for {' to '.join(f'{size:g}' for size in sizes)} GiB"
    if low * (1 - _NEAR) <= seen.tokens <= high * (1 + _NEAR):
        return Finding("kv-capacity", "note", said, where)
    remedy = "look for another process on the cards, another --max-model-len, or a KV dtype that is not bfloat16"
    return Finding("kv-capacity", "warning", said, where, remedy=remedy)
