"""The way through lint: from starts to issues, and to the mended text."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from patchkit.findings import Finding
from patchkit.stack.lint import shape
from patchkit.stack.lint.model import Edit, Issue, Start, apply
from patchkit.stack.lint.rules import broken, facts_of
from patchkit.stack.recipes.model import Recipe, Rules


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What starts are held against. ``known`` is every option of the image's vLLM, None where that is not known;
    ``decoys`` are folders in the image that the server does not import; ``platform`` overrides what a start tells."""

    recipes: tuple[Recipe, ...]
    general: Rules
    platform: str = ""
    known: frozenset[str] | None = None
    decoys: tuple[str, ...] = ()


def issues_of(start: Start, knowledge: Knowledge) -> list[Issue]:
    """All issues of one start, those of its text's form first."""
    facts = facts_of(start, knowledge.recipes, knowledge.general, knowledge.platform)
    rules = [*knowledge.general.rules, *(facts.recipe.rules if facts.recipe else ())]
    found = [
        *start.faults,
        *shape.lost_flags(start),
        *shape.unquoted_variables(start),
        *shape.given_twice(start, facts.given, knowledge.general.repeatable),
        *(shape.unknown(start, facts.given, knowledge.known) if knowledge.known is not None else ()),
        *broken(start, facts, rules),
        *shape.decoy_mounts(start, knowledge.decoys),
        *shape.service_health(start),
        *shape.moving_image(start),
    ]
    if facts.recipe is not None and not facts.platform:
        found.append(
            start.issue(
                "accelerator-unknown",
                "note",
                "nothing tells the accelerator, so its rules were not looked at",
                remedy="name it: --accelerator xpu, rocm or cuda",
            )
        )
    return found


def findings(issues: Sequence[Issue]) -> list[Finding]:
    """The issues' findings, each told once, in the order of their places."""
    return list(dict.fromkeys(issue.finding for issue in issues))


def mend(text: str, issues: Collection[Issue]) -> str:
    """The file's text with every issue mended that has one right answer."""
    edits: list[Edit] = [edit for issue in dict.fromkeys(issues) for edit in issue.edits]
    return apply(text, edits)
