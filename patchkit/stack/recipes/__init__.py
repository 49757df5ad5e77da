"""Recipes: how to serve one model on known hardware, as data under ``manifests/recipes/``."""

from patchkit.stack.recipes.load import general_rules, load_recipe, load_recipes
from patchkit.stack.recipes.memory import KvPlan, plan_kv
from patchkit.stack.recipes.render import Choice, Rendered, choose, render

__all__ = [
    "Choice",
    "KvPlan",
    "Rendered",
    "choose",
    "general_rules",
    "load_recipe",
    "load_recipes",
    "plan_kv",
    "render",
]
