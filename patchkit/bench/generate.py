"""Patchkit's own load generator: chat completions, streamed, so many users at once. For where there is no vLLM."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from patchkit.bench.model import Run, Scenario
from patchkit.errors import PatchkitError, Refused
from patchkit.stack.openai import Server, pieces

NAME = "patchkit"
_PATH = "/v1/chat/completions"
_WORDS = (
    *("river", "stone", "apple", "window", "garden", "paper", "silver", "winter", "letter", "bridge", "market"),
    *("number", "forest", "summer", "table", "engine", "music", "water", "story", "island", "yellow", "answer"),
)


@dataclass(frozen=True, slots=True)
class Timing:
    """One request: seconds to the first token and to the last, and the tokens that came."""

    begin: float
    first: float
    last: float
    tokens: int


def words_for(server: Server, model: str, tokens: int) -> int:
    """How many words make a prompt of ``tokens`` tokens here, asked from the server's own count of a prompt's tokens.

    Raises:
        patchkit.errors.Refused: ``no-usage``, the server does not count.
    """
    few, many = 32, 160
    one, other = (_prompt_tokens(server, model, count) for count in (few, many))
    if other <= one:
        raise Refused(
            "no-usage", "the server does not count a prompt's tokens", where=server.url, remedy="--generator vllm"
        )
    per_word = (other - one) / (many - few)
    fixed = one - few * per_word
    return max(1, round((tokens - fixed) / per_word))


def run(
    server: Server, model: str, scenario: Scenario, words: int, *, concurrency: int, requests: int, repetition: int
) -> Run:
    """One repetition: ``requests`` requests, ``concurrency`` at a time. Every prompt is another one, the same in each
    run, so that no cache serves it and runs can be compared.

    Raises:
        patchkit.errors.Refused: ``all-failed``, with the first failure's words.
    """
    chance = random.Random(f"{scenario.name} {concurrency} {repetition}")  # noqa: S311 - prompts, not secrets
    prompts = iter([_prompt(chance, words) for _ in range(requests)])
    lock = threading.Lock()
    failures: list[str] = []
    timings: list[Timing] = []

    def user() -> None:
        while True:
            with lock:
                prompt = next(prompts, None)
            if prompt is None:
                return
            try:
                timing = _ask(server, model, prompt, scenario.output_tokens)
            except PatchkitError as error:
                failures.append(error.what)
            else:
                timings.append(timing)

    with ThreadPoolExecutor(concurrency) as pool:
        for done in [pool.submit(user) for _ in range(concurrency)]:
            done.result()
    if not timings:
        what = f"all {requests} requests failed; the first: {failures[0] if failures else 'no answer'}"
        raise Refused("all-failed", what, where=server.url, remedy="patchkit smoke --url URL")
    seconds = max(each.last for each in timings) - min(each.begin for each in timings)
    samples = {
        "output_tok_s": (sum(each.tokens for each in timings) / seconds,),
        "ttft_ms": tuple((each.first - each.begin) * 1000 for each in timings),
        "decode_ms": tuple((each.last - each.first) * 1000 / (each.tokens - 1) for each in timings if each.tokens > 1),
    }
    return Run(scenario.name, concurrency, repetition, samples, len(failures))


def _ask(server: Server, model: str, prompt: str, tokens: int) -> Timing:
    body = {
        "model": model,
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": tokens,
        "ignore_eos": True,
        "stream_options": {"include_usage": True},
    }
    begin = time.perf_counter()
    first = last = 0.0
    count = chunks = 0
    for event in server.stream(_PATH, body):
        if any(pieces(event.data)):
            first = first or event.seconds
            last = event.seconds
            chunks += 1
        count = int((event.data.get("usage") or {}).get("completion_tokens") or count)
    if not chunks:
        raise Refused("no-tokens", "the stream held no token", where=server.url, remedy="patchkit smoke --url URL")
    return Timing(begin, begin + first, begin + last, count or chunks)


def _prompt_tokens(server: Server, model: str, words: int) -> int:
    chance = random.Random(words)  # noqa: S311 - prompts, not secrets
    body = {"model": model, "messages": [{"role": "user", "content": _prompt(chance, words)}], "max_tokens": 1}
    answer = server.post(_PATH, body)
    return int((answer.get("usage") or {}).get("prompt_tokens") or 0)


def _prompt(chance: random.Random, words: int) -> str:
    return " ".join(_pick(chance, words))


def _pick(chance: random.Random, words: int) -> Iterator[str]:
    for _ in range(words):
        yield chance.choice(_WORDS)
