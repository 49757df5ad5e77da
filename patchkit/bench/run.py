"""A whole benchmark: scenarios, concurrencies, repetitions, with a warm-up, and who was measured."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from patchkit.bench import generate, serve
from patchkit.bench.model import SCENARIOS, Report, Run, Scenario
from patchkit.errors import BadInput, Unreachable
from patchkit.images import edit
from patchkit.images.engine import engine
from patchkit.stack.openai import Server, models

#: Label of a patched image or of a container with its overlay; equal on every machine that runs the same patched code.
_LABELS = (edit.FINGERPRINT, edit.RECEIPT)


@dataclass(frozen=True, slots=True)
class Order:
    """What to measure. ``requests`` is how many a repetition has; 0 takes four for each user, 16 at least."""

    scenarios: tuple[Scenario, ...]
    concurrency: tuple[int, ...]
    repetitions: int
    requests: int = 0

    def requests_at(self, users: int) -> int:
        """Requests of one repetition with so many users."""
        return self.requests or max(16, 4 * users)

    def steps(self) -> Iterator[tuple[Scenario, int, int]]:
        """Every repetition. Repetitions are the outermost, so that a machine that warms or slows down in the course of
        an hour spreads that over all figures instead of into one."""
        for repetition in range(self.repetitions):
            for scenario in self.scenarios:
                for users in self.concurrency:
                    yield scenario, users, repetition


def order(scenarios: Sequence[str], concurrency: Sequence[int], repetitions: int, requests: int = 0) -> Order:
    """A checked order.

    Raises:
        patchkit.errors.BadInput: ``unknown-scenario`` with the known ones.
    """
    unknown = [name for name in scenarios if name not in SCENARIOS]
    if unknown:
        known = ", ".join(SCENARIOS)
        raise BadInput("unknown-scenario", f"no scenario {unknown[0]}; known: {known}", remedy=f"--scenario {known}")
    return Order(tuple(SCENARIOS[name] for name in scenarios), tuple(concurrency), repetitions, requests)


def measure(
    name: str,
    server: Server,
    wanted: Order,
    *,
    container: str | None = None,
    generator: str = "vllm",
    model: str | None = None,
    tell: Callable[[Scenario, int, int], None] = lambda *_: None,
) -> Report:
    """Measure a server.

    Args:
        name: what the report is called.
        server: the server; with ``container`` its address as seen from inside.
        wanted: what to measure.
        container: the serving container, where its own ``vllm bench serve`` runs.
        generator: ``vllm`` or ``patchkit``.
        model: the model to ask for; the first one listed without.
        tell: called before each repetition.

    Raises:
        patchkit.errors.Unreachable: ``no-generator``, ``server-unreachable``.
        patchkit.errors.Refused: ``bench-failed``, ``all-failed``, ``no-usage``.
    """
    about: dict[str, Any] = {
        "scenarios": {
            each.name: {"input": each.input_tokens, "output": each.output_tokens} for each in wanted.scenarios
        },
        "repetitions": wanted.repetitions,
        "requests": {str(users): wanted.requests_at(users) for users in wanted.concurrency},
        "url": server.url,
    }
    one: Callable[[Scenario, int, int], Run]
    if generator == "patchkit":
        one, described = _own(server, wanted, model)
    else:
        one, described = _vllm(server, wanted, container, model)
    about.update(described)
    if container:
        about.update(_container(container))
    runs = []
    for scenario, users, repetition in wanted.steps():
        tell(scenario, users, repetition)
        runs.append(one(scenario, users, repetition))
    return Report(name, tuple(runs), about)


def _own(
    server: Server, wanted: Order, model: str | None
) -> tuple[Callable[[Scenario, int, int], Run], dict[str, Any]]:
    listed = models(server)
    asked = model or str(listed[0]["id"])
    words = {scenario.name: generate.words_for(server, asked, scenario.input_tokens) for scenario in wanted.scenarios}
    warm: set[tuple[str, int]] = set()

    def one(scenario: Scenario, users: int, repetition: int) -> Run:
        count = words[scenario.name]
        if (scenario.name, users) not in warm:
            warm.add((scenario.name, users))
            generate.run(server, asked, scenario, count, concurrency=users, requests=users, repetition=-1)
        requests = wanted.requests_at(users)
        return generate.run(server, asked, scenario, count, concurrency=users, requests=requests, repetition=repetition)

    return one, {"generator": generate.NAME, "model": asked, "server": _version(server)}


def _vllm(
    server: Server, wanted: Order, container: str | None, model: str | None
) -> tuple[Callable[[Scenario, int, int], Run], dict[str, Any]]:
    if container is None and not serve.Local.is_there():
        raise Unreachable(
            "no-generator",
            "there is no vllm on this machine to measure with",
            remedy="--container NAME uses the one in the serving container; --generator patchkit needs none",
        )
    place: serve.Place = serve.InContainer(container) if container else serve.Local()
    listed = _listed_inside(server, container) if container else models(server)
    names = {str(each["id"]): str(each.get("root") or each["id"]) for each in listed}
    asked = model or next(iter(names))
    tokenizer = names.get(asked, asked)

    def one(scenario: Scenario, users: int, repetition: int) -> Run:
        return serve.run(
            place,
            server.url,
            asked,
            tokenizer,
            scenario,
            concurrency=users,
            requests=wanted.requests_at(users),
            repetition=repetition,
        )

    described = {"generator": serve.NAME, "model": asked, "tokenizer": tokenizer}
    return one, described if container else {**described, "server": _version(server)}


def _listed_inside(server: Server, container: str) -> list[dict[str, Any]]:
    """The models, asked from inside the container: there the address counts, not the port that is published."""
    url = f"{server.url.rstrip('/').removesuffix('/v1')}/v1/models"
    program = f"import urllib.request as r; print(r.urlopen({url!r}, timeout=20).read().decode())"
    answer = json.loads(serve.InContainer(container).output_of(["python3", "-c", program]))
    listed: list[dict[str, Any]] = answer["data"]
    return listed


def _version(server: Server) -> str:
    status, body = server.get("/version")
    return body.decode("utf-8", "replace").strip()[:200] if status == 200 else "unknown"


def _container(name: str) -> dict[str, Any]:
    found = engine().inspect_container(name) or {}
    labels = (found.get("Config") or {}).get("Labels") or {}
    return {
        "container": name,
        "image": found.get("Image", ""),
        "patches": {label.rpartition(".")[2]: labels[label] for label in _LABELS if label in labels},
    }
