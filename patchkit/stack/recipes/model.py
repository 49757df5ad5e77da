"""The typed form of a recipe. One class a mapping of the YAML; field names are the YAML's keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from patchkit.catalog.model import EnvName, Form, Key, Slug, Text

Flag = Annotated[str, Form("a command line option", r"--?[A-Za-z][\w.+-]*")]
Decimal = Annotated[str, Form("a decimal number, in quotes", r"[0-9]+(\.[0-9]+)?")]
ImagePlatform = Literal["xpu", "rocm", "cuda"]


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing to look for in a start. It fires on ``flags`` (the option and its other spellings) or on ``env``: with
    a value in ``values``, with one that is not in ``allowed``, or at all where neither is given; with ``absent`` where
    none of the flags is set (for ``env``: where the variable is not set either). The other keys narrow where it
    holds."""

    id: Annotated[Slug, Key("The finding's id.")]
    severity: Annotated[Literal["error", "warning", "note"], Key("How grave it is.")]
    what: Annotated[Text, Key("One sentence: what is wrong and why. {value} is the value found.")]
    flags: Annotated[tuple[Flag, ...], Key("The option, and other ways to set the same thing.")] = ()
    env: Annotated[EnvName, Key("The environment variable.")] = ""
    values: Annotated[tuple[str, ...], Key("It fires with these values.")] = ()
    allowed: Annotated[tuple[str, ...], Key("It fires with every value but these.")] = ()
    absent: Annotated[bool, Key("It fires where none of them is set.")] = False
    platforms: Annotated[tuple[ImagePlatform, ...], Key("Only on these platforms.")] = ()
    variants: Annotated[tuple[Slug, ...], Key("Only for these variants of the model.")] = ()
    when_env: Annotated[
        Mapping[EnvName, tuple[str, ...]], Key("Only where each of these variables has one of these values.")
    ] = field(default_factory=dict)
    when_flags: Annotated[tuple[Flag, ...], Key("Only where one of these options is set.")] = ()
    remedy: Annotated[str, Key("What to do.")] = ""
    fix: Annotated[str, Key("The value that is right in every case.")] = ""


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of the server's log that means something: ``match`` is searched for in each line."""

    id: Annotated[Slug, Key("The finding's id.")]
    match: Annotated[Text, Key("Regular expression that is searched for in each line.")]
    what: Annotated[Text, Key("What it means.")]
    remedy: Annotated[Text, Key("What to do.")]


@dataclass(frozen=True, slots=True)
class Rules:
    """What holds for every model: ``spellings`` maps an option to its long form, ``repeatable`` may be given twice."""

    spellings: Annotated[Mapping[Flag, Flag], Key("Short options and their long form.")]
    repeatable: Annotated[tuple[Flag, ...], Key("Options that may be given more than once.")]
    rules: Annotated[tuple[Rule, ...], Key("What to look for.")]
    log: Annotated[tuple[LogLine, ...], Key("Lines of a server's log that tell why it will not serve.")]


@dataclass(frozen=True, slots=True)
class Model:
    """The model's facts, as far as rendering and memory need them; sizes in tokens, layers, heads."""

    parameters: Annotated[Text, Key("Total and active parameters, in words.")]
    layers: Annotated[int, Key("Layers in all.")]
    dense_layers: Annotated[int, Key("Layers with a dense MLP.")]
    moe_layers: Annotated[int, Key("Layers with experts.")]
    full_layers: Annotated[int, Key("Layers with full attention (no rotary embedding).")]
    sliding_layers: Annotated[int, Key("Layers with sliding-window attention (rotary embedding).")]
    sliding_window: Annotated[int, Key("The window, the current token counted.")]
    experts: Annotated[int, Key("Routed experts.")]
    experts_per_token: Annotated[int, Key("Experts that a token is routed to.")]
    shared_experts: Annotated[int, Key("Experts that every token passes.")]
    routing: Annotated[Text, Key("How the router scores.")]
    heads: Annotated[int, Key("Attention heads.")]
    kv_heads: Annotated[int, Key("Key and value heads.")]
    head_dim: Annotated[int, Key("Width of a head.")]
    context: Annotated[int, Key("Longest context in tokens.")]
    sinks: Annotated[bool, Key("Whether every head has a learned attention sink.")]


@dataclass(frozen=True, slots=True)
class Variant:
    """One checkpoint of the model."""

    title: Annotated[Text, Key("What it is called.")]
    repository: Annotated[Text, Key("Where its weights are.")]
    match: Annotated[tuple[Text, ...], Key("Shell patterns over the model argument that name this variant.")]
    platforms: Annotated[tuple[ImagePlatform, ...], Key("Where it runs.")]
    weights_gb: Annotated[Decimal, Key("Size of the weights in 10^9 bytes.")] = ""
    why: Annotated[str, Key("Why it runs nowhere else.")] = ""
    flags: Annotated[tuple[str, ...], Key("Its options, one `--name value` an entry.")] = ()
    pip: Annotated[tuple[str, ...], Key("Python packages that it needs beside vLLM.")] = ()
    note: Annotated[str, Key("What else to know.")] = ""


@dataclass(frozen=True, slots=True)
class Platform:
    """What one kind of accelerator needs, whatever the model of the card."""

    image: Annotated[Text, Key("The vendor image.")]
    install: Annotated[tuple[Text, ...], Key("Commands that install the server without an image.")]
    flags: Annotated[tuple[str, ...], Key("Options that it needs.")] = ()
    devices: Annotated[tuple[str, ...], Key("Device nodes to pass into the container.")] = ()
    groups: Annotated[tuple[str, ...], Key("Groups that may use them, as names or numbers in the container.")] = ()
    gpus: Annotated[bool, Key("Whether the engine passes all GPUs (NVIDIA's runtime).")] = False
    ulimits: Annotated[Mapping[str, str], Key("Resource limits of the container.")] = field(default_factory=dict)
    own_start: Annotated[bool, Key("Whether the image's entrypoint is something else than the server.")] = False
    notes: Annotated[tuple[Text, ...], Key("What else to know.")] = ()


@dataclass(frozen=True, slots=True)
class Hardware:
    """One machine: so many cards of a kind."""

    title: Annotated[Text, Key("What it is called.")]
    platform: Annotated[ImagePlatform, Key("Its platform.")]
    memory_gb: Annotated[int, Key("Nominal memory of one card.")]
    cards: Annotated[int, Key("Cards in the machine.")]
    tensor_parallel: Annotated[int, Key("Cards that one server uses.")]
    tested: Annotated[str, Key("What was tested on it, by whom.")] = ""
    patches: Annotated[str, Key("The manifest of the patches that it needs.")] = ""
    kv_gib: Annotated[tuple[Decimal, ...], Key("KV cache a card that was seen, in GiB.")] = ()
    tokens_in_flight: Annotated[int, Key("Tokens scheduled and not settled, for the KV plan.")] = 8192


@dataclass(frozen=True, slots=True)
class Feature:
    """Something that a person may leave out."""

    title: Annotated[Text, Key("What it is called.")]
    flags: Annotated[tuple[str, ...], Key("Its options.")]
    note: Annotated[str, Key("What to know.")] = ""


@dataclass(frozen=True, slots=True)
class Strategy:
    """How the model is spread."""

    title: Annotated[Text, Key("What it is called.")]
    multi_node: Annotated[bool, Key("Whether it spans machines and so needs a number of nodes.")] = False


@dataclass(frozen=True, slots=True)
class Figure:
    """One recorded figure: of what, on what, with each variant's value."""

    name: Annotated[Text, Key("What was measured.")]
    on: Annotated[Text, Key("Where and how.")]
    unit: Annotated[str, Key("The unit.")]
    values: Annotated[Mapping[str, str], Key("Variant -> value as printed.")]


@dataclass(frozen=True, slots=True)
class Recipe:
    """How one model is served."""

    name: Annotated[Slug, Key("What the recipe is called on the command line.")]
    title: Annotated[Text, Key("The model's name.")]
    requires: Annotated[Text, Key("The server and its version.")]
    server: Annotated[tuple[str, ...], Key("Options in every case.")]
    model: Annotated[Model, Key("The model's facts.")]
    variants: Annotated[Mapping[Slug, Variant], Key("The checkpoints; the first is the default.")]
    platforms: Annotated[Mapping[Slug, Platform], Key("What each platform needs.")]
    hardware: Annotated[Mapping[Slug, Hardware], Key("The machines.")]
    default_hardware: Annotated[Slug, Key("The machine where none is named.")]
    strategies: Annotated[Mapping[Slug, Strategy], Key("How the model is spread; the first is the default.")]
    features: Annotated[Mapping[Slug, Feature], Key("What may be left out; all are on by default.")]
    client: Annotated[tuple[Text, ...], Key("What a client must know.")]
    sampling: Annotated[Mapping[str, str], Key("Sampling defaults.")]
    figures: Annotated[tuple[Figure, ...], Key("Recorded figures.")]
    notes: Annotated[tuple[Text, ...], Key("Caveats.")]
    rules: Annotated[tuple[Rule, ...], Key("What lint looks for in a start of this model.")]
