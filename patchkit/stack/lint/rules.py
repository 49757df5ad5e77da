"""The rules that are data (``manifests/recipes/``), held against one start."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from patchkit.stack.lint.flags import Given, model_of, options
from patchkit.stack.lint.model import Edit, Issue, Setting, Start
from patchkit.stack.recipes.model import Recipe, Rule, Rules


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known about a start beyond its words: the recipe of its model and the variant, both empty where none
    fits, and the platform (``xpu``, ``rocm``, ``cuda``, or empty where nothing tells it)."""

    recipe: Recipe | None
    variant: str
    platform: str
    given: tuple[Given, ...]


def facts_of(start: Start, recipes: Sequence[Recipe], general: Rules, platform: str = "") -> Facts:
    """The facts about one start. ``platform`` overrides what image, devices and environment tell."""
    given = tuple(options(start.written, general.spellings))
    model = model_of(start.args, given).lower()
    for recipe in recipes:
        fitting = [
            (max(len(pattern) for pattern in variant.match if fnmatchcase(model, pattern)), name)
            for name, variant in recipe.variants.items()
            if any(fnmatchcase(model, pattern) for pattern in variant.match)
        ]
        if fitting:
            return Facts(recipe, max(fitting)[1], platform or platform_of(start), given)
    return Facts(None, "", platform or platform_of(start), given)


def platform_of(start: Start) -> str:
    """The platform that the image's name, the devices or the environment tell, empty where they do not."""
    image = start.image.text.lower() if start.image is not None else ""
    devices = " ".join(start.devices)
    if "rocm" in image or "/dev/kfd" in devices or "HIP_VISIBLE_DEVICES" in start.env:
        return "rocm"
    if re.search(r"xpu|intel|ipex", image) or "ZE_AFFINITY_MASK" in start.env:
        return "xpu"
    if re.search(r"cuda|nvidia|vllm-openai", image) or "gpu" in start.devices or "CUDA_VISIBLE_DEVICES" in start.env:
        return "cuda"
    return "xpu" if "/dev/dri" in devices else ""


def broken(start: Start, facts: Facts, rules: Sequence[Rule]) -> Iterator[Issue]:
    """One issue for each place where a rule fires."""
    for rule in rules:
        if _holds(rule, start, facts):
            yield from _on_variable(rule, start) if rule.env else _on_options(rule, start, facts)


def _holds(rule: Rule, start: Start, facts: Facts) -> bool:
    if rule.platforms and facts.platform not in rule.platforms:
        return False
    if rule.variants and facts.variant not in rule.variants:
        return False
    if any(start.env.get(name, Setting("")).value not in values for name, values in rule.when_env.items()):
        return False
    return not rule.when_flags or any(given.name in rule.when_flags for given in facts.given)


def _on_variable(rule: Rule, start: Start) -> Iterator[Issue]:
    setting = start.env.get(rule.env)
    if setting is None:
        if rule.absent:
            yield start.issue(rule.id, rule.severity, rule.what, remedy=rule.remedy)
    elif _fires(rule, setting.value):
        yield start.issue(
            rule.id,
            rule.severity,
            rule.what.replace("{value}", setting.value),
            setting.at,
            evidence=f"{rule.env}={setting.value}",
            remedy=rule.remedy.replace("{value}", setting.value),
        )


def _on_options(rule: Rule, start: Start, facts: Facts) -> Iterator[Issue]:
    found = [given for given in facts.given if given.name in rule.flags]
    if rule.absent:
        if not found:
            yield start.issue(rule.id, rule.severity, rule.what, remedy=rule.remedy)
        return
    for given in found:
        value = given.value or ""
        if _fires(rule, value):
            word = given.value_word
            fixable = rule.fix and word is not None and word.exact and word.start >= 0
            yield start.issue(
                rule.id,
                rule.severity,
                rule.what.replace("{value}", value or given.name),
                given.word.start,
                evidence=f"{given.name} {value}".rstrip(),
                remedy=rule.remedy.replace("{value}", value),
                edits=[Edit(word.start, word.end, given.prefix + rule.fix)] if fixable and word else (),
            )


def _fires(rule: Rule, value: str) -> bool:
    if rule.values:
        return value in rule.values
    return not rule.allowed or value not in rule.allowed
