"""Reads recipes and rules from a catalog's ``manifests/recipes/``; every fault is told at once, with its place."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from patchkit.catalog import nodes
from patchkit.catalog.decode import Decoder
from patchkit.catalog.faults import Faults
from patchkit.catalog.load import built_in, catalog_root
from patchkit.errors import BadInput
from patchkit.stack.recipes.model import Recipe, Rules

T = TypeVar("T")


def load_recipes(root: Path | None = None) -> dict[str, Recipe]:
    """All recipes of the catalog that ``catalog_root`` gives, by name; the built-in ones where it has none.

    Raises:
        patchkit.errors.BadInput: ``no-catalog``, or ``bad-manifest`` with every fault in its details.
    """
    faults = Faults()
    found = [_load(path, Recipe, faults) for path in _files(root, "*.yaml")]
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
    """The rules that hold for every model: those of the catalog that ``catalog_root`` gives, the built-in ones where it
    has none. Raises as ``load_recipes``."""
    faults = Faults()
    (path,) = _files(root, "rules/vllm.yaml")
    found = _load(path, Rules, faults)
    faults.settle()
    assert found is not None
    return found


def _files(root: Path | None, pattern: str) -> list[Path]:
    """A catalog's files: one that holds patches alone goes with the recipes and rules that are built in."""
    folders = (each / "manifests" / "recipes" for each in (catalog_root(root), built_in()))
    return next((found for folder in folders if (found := sorted(folder.glob(pattern)))), [])


def _load(path: Path, kind: type[T], faults: Faults) -> T | None:
    node = nodes.compose(path, path.read_bytes(), faults)
    if node is None:
        return None
    found: T | None = Decoder(path, faults, {}, {}).decode(node, kind)
    return found
