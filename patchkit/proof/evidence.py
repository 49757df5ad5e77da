"""All that a proof rests on: the files as read from outside, and what the interpreter answered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from patchkit.catalog.model import Assert
from patchkit.plan import ABSENT
from patchkit.proof.model import Expectation, FileProof
from patchkit.site.model import Launch
from patchkit.site.probe import Answer
from patchkit.site.static import Search
from patchkit.site.view import View


@dataclass(frozen=True, slots=True)
class Evidence:
    """``search`` is None where the launch cannot be read; ``answer`` where nothing was run: ``why_not`` says why, and
    ``refused`` that it was tried and the interpreter did not start. ``doubts`` say why the program that serves may
    import another copy than either way finds."""

    view: View
    launch: Launch
    package: str
    expectations: tuple[Expectation, ...]
    asserts: tuple[Assert, ...]
    search: Search | None
    answer: Answer | None
    why_not: str = ""
    cause_not: str = "not asked"
    refused: bool = False
    doubts: tuple[str, ...] = ()

    @property
    def modules(self) -> list[Expectation]:
        """The files that an import can name."""
        return [item for item in self.expectations if item.module]

    @property
    def sources(self) -> list[Expectation]:
        """The Python files that must be there."""
        return [item for item in self.expectations if item.relative.endswith(".py") and item.sha256 != ABSENT]

    @property
    def importable(self) -> list[Expectation]:
        """The modules to import. A ``__main__`` is a program: to import it is to run it."""
        return [item for item in self.sources if item.module and item.module.rpartition(".")[2] != "__main__"]

    def without(self, cause: str, why: str, *, refused: bool = False) -> Evidence:
        return replace(self, cause_not=cause, why_not=why, refused=refused)

    def answered(self, answer: Answer) -> Evidence:
        return replace(self, answer=answer)

    def told(self, part: str, name: str) -> Mapping[str, Any] | None:
        """What the interpreter told about ``name`` in one part of its answer; None where it told nothing."""
        value = self.answer.table(part).get(name) if self.answer is not None else None
        return value if isinstance(value, Mapping) else None

    def untold(self, name: str) -> FileProof:
        """The state of a check that needs the interpreter and has no word of it: ``not run`` where it was not asked,
        ``failed`` where it was and did not start or answer."""
        if self.refused:
            return FileProof(name, "failed", "cannot start", self.why_not)
        if self.answer is None:
            return FileProof(name, "not run", self.cause_not, self.why_not)
        return FileProof(name, "failed", "no answer", f"the interpreter gave no answer: {self.answer.how_it_ended}")
