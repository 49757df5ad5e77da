"""The page about serving tells every finding, scenario and machine that there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from patchkit.bench.model import SCENARIOS
from patchkit.stack.lint import composefile, image, run, shape
from patchkit.stack.recipes.load import general_rules, load_recipe

REPOSITORY = Path(__file__).parents[2]
PAGE = (REPOSITORY / "docs" / "serving.md").read_text()


def finding_ids() -> set[str]:
    rules = {rule.id for rule in (*general_rules().rules, *load_recipe("flint").rules)}
    shapes = {name for name, _, _ in shape._CAUSES.values()}
    written = {
        name
        for module in (shape, composefile, run, image)
        for name in re.findall(
            r'(?:issue|_fault|Finding)\(\s*"([a-z]+(?:-[a-z]+)+)"', Path(str(module.__file__)).read_text()
        )
    }
    return rules | shapes | written


@pytest.mark.parametrize("name", sorted(finding_ids()))
def test_every_finding_of_lint_is_told(name: str) -> None:
    assert f"`{name}`" in PAGE


def test_the_scenarios_are_told_with_their_lengths() -> None:
    for each in SCENARIOS.values():
        assert f"| `{each.name}` | {each.input_tokens} | {each.output_tokens} |" in PAGE


def test_the_facts_of_the_model_are_told_as_the_recipe_has_them() -> None:
    model = load_recipe("flint").model
    for number in (model.layers, model.experts, model.sliding_window, model.full_layers, model.sliding_layers):
        assert re.search(rf"\b{number}\b", PAGE)
    assert f"{model.context:,}".replace(",", " ") in PAGE
