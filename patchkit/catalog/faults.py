"""Collects every fault of a catalog's files, so that a person mends them all in one go."""

from __future__ import annotations

from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path

from patchkit.errors import BadInput


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """One fault: the file, its line and column (from 1), and what is wrong there."""

    path: Path
    line: int
    column: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}: {self.text}"


@dataclass(slots=True)
class Faults:
    """The faults found so far."""

    found: list[Fault] = field(default_factory=list)

    def add(self, path: Path, line: int, column: int, text: str) -> None:
        """Note one fault."""
        self.found.append(Fault(path, line, column, text))

    def settle(self) -> None:
        """Return if nothing was found.

        Raises:
            patchkit.errors.BadInput: ``bad-manifest``; ``where`` is the first fault's place, ``details`` holds all.
        """
        if not self.found:
            return
        faults = sorted(set(self.found))
        first = faults[0]
        raise BadInput(
            "bad-manifest",
            first.text if len(faults) == 1 else f"{len(faults)} faults in the catalog",
            where=f"{first.path}:{first.line}:{first.column}",
            remedy="mend the lines named, then run: patchkit manifest check",
            details=[] if len(faults) == 1 else [str(fault) for fault in faults],
        )


def near(word: str, known: object) -> str:
    """``; did you mean X?`` where a known word is near ``word``, else the known words, else nothing."""
    words = [str(each) for each in known] if isinstance(known, (list, tuple, set, frozenset, dict)) else []
    close = get_close_matches(word, words, n=1, cutoff=0.6)
    if close:
        return f"; did you mean {close[0]}?"
    return f"; known are {', '.join(sorted(words))}" if words else ""
