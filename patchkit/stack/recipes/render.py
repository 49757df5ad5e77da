"""A recipe's choice, checked, and what it comes to: commands, a compose file, figures to expect."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from patchkit.errors import BadInput
from patchkit.stack import yamltext
from patchkit.stack.recipes.memory import KvPlan, plan_kv
from patchkit.stack.recipes.model import Hardware, Platform, Recipe, Variant

PORT = 8000
_GIB = 2**30


@dataclass(frozen=True, slots=True)
class Choice:
    """One configuration of a recipe; every name in it exists and goes with the others. ``notes`` tells what was
    replaced by a default."""

    recipe: Recipe
    hardware_name: str
    variant_name: str
    strategy_name: str
    features: tuple[str, ...]
    nodes: int = 1
    image: str = ""
    notes: tuple[str, ...] = ()

    @property
    def hardware(self) -> Hardware:
        return self.recipe.hardware[self.hardware_name]

    @property
    def variant(self) -> Variant:
        return self.recipe.variants[self.variant_name]

    @property
    def platform(self) -> Platform:
        return self.recipe.platforms[self.hardware.platform]

    @property
    def options(self) -> tuple[str, ...]:
        """What follows ``vllm serve MODEL``, one option with its value an entry."""
        features = [flag for name in self.features for flag in self.recipe.features[name].flags]
        parallel = f"--tensor-parallel-size {self.hardware.tensor_parallel}"
        return (*self.recipe.server, *self.variant.flags, parallel, *self.platform.flags, *features)

    @property
    def image_name(self) -> str:
        return self.image or self.platform.image


@dataclass(frozen=True, slots=True)
class Rendered:
    """What a choice comes to, in each form that a person may want."""

    choice: Choice
    install: tuple[str, ...]
    serve: str
    run: str
    client: str
    compose: str
    kv: tuple[tuple[str, KvPlan], ...]
    notes: tuple[str, ...]


def choose(
    recipe: Recipe,
    *,
    hardware: str | None = None,
    variant: str | None = None,
    strategy: str | None = None,
    features: Sequence[str] | None = None,
    nodes: int | None = None,
    image: str = "",
    lenient: bool = False,
) -> Choice:
    """Check a configuration; what is None takes the recipe's default.

    ``lenient`` replaces what is unknown or does not go together by the default and says so in the notes.

    Raises:
        patchkit.errors.BadInput: ``unknown-value`` or ``incompatible`` with the values that are valid.
    """
    notes: list[str] = []

    def pick(what: str, value: str | None, known: Iterable[str], default: str) -> str:
        valid = list(known)
        if value is None or value in valid:
            return value or default
        if not lenient:
            said = f"{recipe.title} has no {what} {value}; valid are {', '.join(valid)}"
            close = get_close_matches(value, valid, n=1)
            meant = f"did you mean --{what} {close[0]}?" if close else f"--{what} {default}"
            raise BadInput("unknown-value", said, remedy=meant)
        notes.append(f"{what} {value} is unknown; {default} is used")
        return default

    hardware_name = pick("hardware", hardware, recipe.hardware, recipe.default_hardware)
    variant_name = pick("variant", variant, recipe.variants, next(iter(recipe.variants)))
    strategy_name = pick("strategy", strategy, recipe.strategies, next(iter(recipe.strategies)))
    wanted = list(recipe.features) if features is None else [each for each in features if each]
    unknown = [each for each in wanted if each not in recipe.features]
    if unknown and not lenient:
        said = f"{recipe.title} has no feature {unknown[0]}; valid are {', '.join(recipe.features)}"
        raise BadInput("unknown-value", said, remedy=f"--features {','.join(recipe.features)}")
    notes.extend(f"feature {each} is unknown and was left out" for each in unknown)

    chosen = recipe.variants[variant_name]
    platform = recipe.hardware[hardware_name].platform
    if platform not in chosen.platforms:
        fitting = [name for name, each in recipe.variants.items() if platform in each.platforms]
        what = f"{chosen.title} does not run on {recipe.hardware[hardware_name].title}: {chosen.why}"
        if not lenient:
            said = f"{what}; valid there are {', '.join(fitting)}"
            raise BadInput("incompatible", said, remedy=f"--variant {fitting[0]}")
        notes.append(f"{what}; {fitting[0]} is used")
        variant_name = fitting[0]
    multi = recipe.strategies[strategy_name].multi_node
    if multi != (nodes is not None and nodes > 1):
        what = f"strategy {strategy_name} {'spans several nodes' if multi else 'runs on one node'}"
        if not lenient:
            raise BadInput("incompatible", what, remedy="--nodes 2" if multi else "--nodes 1")
        nodes = 2 if multi else 1
        notes.append(f"{what}; {nodes} is used")
    return Choice(
        recipe,
        hardware_name,
        variant_name,
        strategy_name,
        tuple(name for name in recipe.features if name in wanted),
        nodes or 1,
        image,
        tuple(notes),
    )


def render(choice: Choice) -> Rendered:
    """Everything that a choice comes to."""
    install = (*choice.platform.install, *(f"uv pip install {shlex.quote(each)}" for each in choice.variant.pip))
    return Rendered(
        choice,
        install,
        _lines(["vllm serve " + choice.variant.repository, *choice.options]),
        _run(choice),
        _client(choice),
        compose_text(choice),
        tuple(_kv(choice)),
        tuple(_notes(choice)),
    )


def as_json(rendered: Rendered) -> dict[str, Any]:
    """The rendered choice for programs."""
    choice = rendered.choice
    return {
        "recipe": choice.recipe.name,
        "configuration": {
            "hardware": choice.hardware_name,
            "variant": choice.variant_name,
            "strategy": choice.strategy_name,
            "features": list(choice.features),
            "nodes": choice.nodes,
        },
        "requires": choice.recipe.requires,
        "image": choice.image_name,
        "patches": choice.hardware.patches,
        "install": list(rendered.install),
        "serve": {"model": choice.variant.repository, "options": list(choice.options), "command": rendered.serve},
        "run": rendered.run,
        "compose": rendered.compose,
        "client": rendered.client,
        "sampling": dict(choice.recipe.sampling),
        "weights": {"gb": choice.variant.weights_gb, "cards": choice.hardware.tensor_parallel},
        "kv_cache": [
            {
                "gib_per_card": gib,
                "tokens_in_flight": choice.hardware.tokens_in_flight,
                "groups": list(plan.groups),
                "tokens": plan.tokens,
                "concurrency": round(plan.concurrency, 2),
            }
            for gib, plan in rendered.kv
        ],
        "figures": [
            {"name": each.name, "on": each.on, "unit": each.unit, "value": each.values[choice.variant_name]}
            for each in choice.recipe.figures
            if choice.variant_name in each.values
        ],
        "notes": list(rendered.notes),
    }


def as_markdown(rendered: Rendered) -> str:
    """The rendered choice as a page."""
    choice = rendered.choice
    recipe = choice.recipe
    figures = [
        (each, each.values[choice.variant_name]) for each in recipe.figures if choice.variant_name in each.values
    ]
    other = [
        f"- `--hardware`: {', '.join(recipe.hardware)}",
        f"- `--variant`: {', '.join(recipe.variants)}",
        f"- `--strategy`: {', '.join(recipe.strategies)}",
        f"- `--features`: {', '.join(recipe.features)}",
    ]
    kv = [
        f"- KV cache of {gib} GiB a card: about {plan.tokens // 1000}k tokens, {plan.concurrency:.1f} requests of "
        f"{recipe.model.context} tokens at once ({len(plan.groups)} groups: {', '.join(plan.groups)})"
        for gib, plan in rendered.kv
    ]
    parts = [
        f"# {recipe.title} {choice.variant.title} on {choice.hardware.title}",
        f"Configuration: hardware `{choice.hardware_name}`, variant `{choice.variant_name}`, strategy "
        f"`{choice.strategy_name}`, features {', '.join(f'`{each}`' for each in choice.features) or 'none'}. "
        f"Needs {recipe.requires}.",
        "## Other configurations\n\n" + "\n".join(other),
        f"## Install\n\n{_fence(chr(10).join(rendered.install))}\n\nImage: `{choice.image_name}`",
        f"## Patches\n\n{_patches(choice)}",
        f"## Serve\n\n{_fence(rendered.serve)}",
        f"## Container\n\n{_fence(rendered.run)}",
        f"## Client check\n\n{_fence(rendered.client)}\n\n" + "\n".join(f"- {each}" for each in recipe.client),
        "## Memory\n\n" + "\n".join([_weights(choice), *kv]),
        "## Notes\n\n" + "\n".join(f"- {each}" for each in rendered.notes),
    ]
    if figures:
        rows = [f"| {each.name} | {each.on} | {value} {each.unit} |" for each, value in figures]
        parts.append("## Recorded figures\n\n| what | where | value |\n|---|---|---|\n" + "\n".join(rows))
    return "\n\n".join(parts) + "\n"


def image_variable(recipe: str) -> str:
    """The variable by which a ready stack takes another image (``FLINT_IMAGE``)."""
    return f"{_variable(recipe)}_IMAGE"


def _variable(recipe: str) -> str:
    return re.sub(r"\W", "_", recipe).upper()


def compose_text(choice: Choice) -> str:
    """A compose file that serves the choice."""
    name = choice.recipe.name
    variable = _variable(name)
    words = [choice.variant.repository, *(option.replace(" ", "=", 1) for option in choice.options)]
    service: dict[str, tuple[str, yamltext.Node]] = {
        "image": (
            "The overlay of `patchkit compose` pins it by digest.",
            f"${{{image_variable(name)}:-{choice.image_name}}}",
        ),
        "entrypoint": ("The server itself, whatever the image would start.", ["vllm", "serve"]),
        "command": (
            "One option an item, and no shell: nothing here can be lost behind a comment or a missing backslash.",
            [word.replace("$", "$$") for word in words],
        ),
        "environment": ("Taken over from the shell; the weights need no token.", {"HF_TOKEN": None}),
        "ports": (
            "vLLM's API has no access control of its own.",
            [f"${{{variable}_LISTEN:-127.0.0.1:{PORT}}}:{PORT}"],
        ),
        "volumes": (
            "Weights and compiled kernels outlive the container.",
            ["huggingface:/root/.cache/huggingface", "vllm:/root/.cache/vllm"],
        ),
        **_devices(choice),
        "ipc": ("Workers share memory; shm_size counts where an engine does not give the host's.", "host"),
        "shm_size": ("", "16gb"),
        **({"ulimits": ("", _limits(choice.platform))} if choice.platform.ulimits else {}),
        "stop_grace_period": ("Above the 5 s that vLLM takes to let go of the devices.", "30s"),
        "healthcheck": ("Healthy once the model serves; loading may take long.", _healthcheck()),
    }
    head = [
        f"{choice.recipe.title} {choice.variant.title} on {choice.hardware.title}.",
        f"Written by: patchkit recipe {name} {arguments_of(choice)} --format compose",
        "",
        *(["Patches: " + line for line in _patches(choice).splitlines()]),
    ]
    text = yamltext.comment("\n".join(head)) + f"services:\n  {yamltext.key(name)}:\n"
    for field, (comment, value) in service.items():
        text += "".join(f"    {line}\n" for line in yamltext.comment(comment).splitlines()) if comment else ""
        text += yamltext.block({field: value}, 4)
    return text + yamltext.block({"volumes": {"huggingface": {}, "vllm": {}}})


def _devices(choice: Choice) -> dict[str, tuple[str, yamltext.Node]]:
    platform = choice.platform
    if platform.gpus:
        reserved: yamltext.Node = {
            "driver": "nvidia",
            "count": choice.hardware.tensor_parallel,
            "capabilities": ["gpu"],
        }
        return {"deploy": ("", {"resources": {"reservations": {"devices": [reserved]}}})}
    return {
        "devices": ("", [f"{each}:{each}" for each in platform.devices]),
        "group_add": ("The group of /dev/dri/renderD128 on the host: stat -c %g tells it.", list(platform.groups)),
    }


def _limits(platform: Platform) -> yamltext.Node:
    return {name: int(value) for name, value in platform.ulimits.items()}


def _healthcheck() -> yamltext.Node:
    probe = f"import urllib.request as r; r.urlopen('http://127.0.0.1:{PORT}/health', timeout=4)"
    return {
        "test": ["CMD", "python3", "-c", probe],
        "interval": "10s",
        "timeout": "5s",
        "retries": 3,
        "start_period": "30m",
    }


def arguments_of(choice: Choice) -> str:
    """The options of ``patchkit recipe`` that give this choice."""
    words = [f"--hardware {choice.hardware_name}"]
    if choice.variant_name != next(iter(choice.recipe.variants)):
        words.append(f"--variant {choice.variant_name}")
    if choice.features != tuple(choice.recipe.features):
        words.append(f"--features {','.join(choice.features) or shlex.quote('')}")
    if choice.image:
        words.append(f"--image {shlex.quote(choice.image)}")
    return " ".join(words)


def _run(choice: Choice) -> str:
    platform = choice.platform
    devices = ["--gpus all"] if platform.gpus else [f"--device {each}" for each in platform.devices]
    groups = [f'--group-add "{each}"' if "$" in each else f"--group-add {each}" for each in platform.groups]
    start = "--entrypoint vllm " if platform.own_start else ""
    server = f"{choice.image_name} {'serve ' if platform.own_start else ''}{choice.variant.repository}"
    return _lines(
        [
            " ".join(["docker run --rm", *devices, *groups]),
            f"{start}--ipc=host -p {PORT}:{PORT}",
            "-v ~/.cache/huggingface:/root/.cache/huggingface",
            server,
            *choice.options,
        ]
    )


def _client(choice: Choice) -> str:
    served = next((flag.split()[1] for flag in choice.recipe.server if flag.startswith("--served-model-name ")), "")
    body = {
        "model": served or choice.variant.repository,
        "messages": [{"role": "user", "content": "What is 17*23? Answer briefly."}],
        "max_tokens": 1024,
    }
    return (
        f"curl localhost:{PORT}/v1/chat/completions -H 'Content-Type: application/json' "
        f"-d {shlex.quote(json.dumps(body))}"
    )


def _kv(choice: Choice) -> Iterable[tuple[str, KvPlan]]:
    hardware = choice.hardware
    for gib in hardware.kv_gib:
        plan = plan_kv(
            choice.recipe.model,
            int(float(gib) * _GIB),
            tensor_parallel=hardware.tensor_parallel,
            tokens_in_flight=hardware.tokens_in_flight,
        )
        yield gib, plan


def _weights(choice: Choice) -> str:
    cards = choice.hardware.tensor_parallel
    if not choice.variant.weights_gb:
        return "- Weights: size not recorded"
    return f"- Weights: {choice.variant.weights_gb} GB over {cards} card{'s' if cards > 1 else ''}"


def _notes(choice: Choice) -> Iterable[str]:
    hardware = choice.hardware
    yield from choice.notes
    if hardware.tested:
        yield f"Tested: {hardware.tested}."
    else:
        yield f"Not tested on {hardware.title} by anyone that is known here."
    if hardware.tensor_parallel > 1:
        yield f"Tensor parallel size {hardware.tensor_parallel}: not validated upstream."
    if choice.variant.note:
        yield f"{choice.variant.title}: {choice.variant.note}."
    yield from (
        f"{choice.recipe.features[name].title}: {choice.recipe.features[name].note}." for name in choice.features
    )
    yield from choice.platform.notes
    yield from choice.recipe.notes


def _patches(choice: Choice) -> str:
    if not choice.hardware.patches:
        return "none needed."
    return (
        f"patchkit compose --image {shlex.quote(choice.image_name)} --manifest {choice.hardware.patches} "
        "-f THIS -o compose.patchkit.yaml\n"
        "docker compose -f THIS -f compose.patchkit.yaml up -d"
    )


def _lines(parts: Sequence[str]) -> str:
    return " \\\n  ".join(parts)


def _fence(text: str) -> str:
    return f"```bash\n{text}\n```"
