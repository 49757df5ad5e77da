"""Reads recipes and rules from a catalog's ``manifests/recipes/``; every fault is told at once, with its place."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from patchkit.catalog import nodes
from patchkit.catalog.decode import Decoder
from patchkit.catalog.faults import Faults
from patchkit.catalog.load import built_in
from patchkit.errors import BadInput
from patchkit.stack.recipes.model import Recipe, Rules

T = TypeVar("T")


def load_recipes(root: Path | None = None) -> dict[str, Recipe]:
    """All recipes of the catalog at ``root`` (the built-in one without), by name.

    Raises:
        patchkit.errors.BadInput: ``bad-manifest`` with every fault in its details.
    """
    faults = Faults()
    folder = (root or built_in()) / "manifests" / "recipes"
    found = [_load(path, Recipe, faults) for path in sorted(folder.glob("*.yaml"))]
    faults.settle()
    return {recipe.name: recipe for recipe in found if recipe is not None}


def load_recipe(name: str, root: Path | None = None) -> Recipe:
    """The recipe called ``name``.

    Raises:
        patchkit.errors.BadInput: ``no-recipe`` with the names there are, or as ``load_recipes``.
    """
    recipes = load_recipes(root)
    if name not in recipes:
        known = ", ".join(recipes) or "none"
        raise BadInput("no-recipe", f"there is no recipe {name}; known: {known}", remedy="patchkit recipe --list")
    return recipes[name]


def general_rules(root: Path | None = None) -> Rules:
    """The rules that hold for every model: those of the catalog at ``root``, the built-in ones where it has none."""
    path = (root or built_in()) / "manifests" / "recipes" / "rules" / "vllm.yaml"
    if not path.is_file():
        path = built_in() / "manifests" / "recipes" / "rules" / "vllm.yaml"
    faults = Faults()
    found = _load(path, Rules, faults)
    faults.settle()
    assert found is not None
    return found


def _load(path: Path, kind: type[T], faults: Faults) -> T | None:
    node = nodes.compose(path, path.read_bytes(), faults)
    if node is None:
        return None
    found: T | None = Decoder(path, faults, {}, {}).decode(node, kind)
    return found
