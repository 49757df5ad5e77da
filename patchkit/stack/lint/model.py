"""What lint looks at: one start of a model server as it is written, and edits to the file that holds it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from patchkit.findings import Finding, Severity
from patchkit.stack.lint.words import Word

#: Why the flags after it do not belong to the command any more.
Cause = Literal["comment", "comment-at-end", "blank-line", "space-after-backslash", "no-backslash", "eaten-backslash"]


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace the file's characters ``start`` to ``end`` (offsets) by ``text``."""

    start: int
    end: int
    text: str


@dataclass(frozen=True)
class Source:
    """A file as read. ``path`` is what findings call it."""

    path: str
    text: str

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *(index + 1 for index, char in enumerate(self.text) if char == "\n")]

    def place(self, offset: int) -> str:
        """``path:line:col``, both from 1; only the path for what stands in no file."""
        if offset < 0:
            return self.path
        line = next(number for number in range(len(self._starts), 0, -1) if self._starts[number - 1] <= offset)
        return f"{self.path}:{line}:{offset - self._starts[line - 1] + 1}"

    def line_start(self, offset: int) -> int:
        """The offset of the first character of the line that holds ``offset``."""
        return self.text.rfind("\n", 0, offset) + 1


@dataclass(frozen=True, slots=True)
class Lost:
    """Flags that stand below the command and are no part of it any more; ``at`` is where it breaks off."""

    words: tuple[Word, ...]
    cause: Cause
    at: int
    edits: tuple[Edit, ...] = ()


@dataclass(frozen=True, slots=True)
class Setting:
    """The value of an environment variable, and where it is set."""

    value: str
    at: int = -1


@dataclass(frozen=True, slots=True)
class Issue:
    """One fault and, where there is one right answer, the edits that mend it."""

    finding: Finding
    edits: tuple[Edit, ...] = ()


@dataclass(frozen=True, slots=True)
class Start:
    """One start of a model server.

    ``args`` is what the server gets after ``vllm serve``, ``lost`` what was written for it and never arrives.
    ``service`` is the compose service's name, empty elsewhere; ``at`` the start's place. ``faults`` are faults of the
    text's form, found while it was read.
    """

    source: Source
    at: int
    args: tuple[Word, ...]
    lost: tuple[Lost, ...] = ()
    env: Mapping[str, Setting] = field(default_factory=dict)
    image: Word | None = None
    service: str = ""
    mounts: tuple[Word, ...] = ()
    devices: tuple[str, ...] = ()
    has_healthcheck: bool | None = None
    faults: tuple[Issue, ...] = ()

    @property
    def written(self) -> tuple[Word, ...]:
        """All arguments that were written for the server, those that are lost too."""
        return self.args + tuple(word for lost in self.lost for word in lost.words)

    def issue(
        self,
        name: str,
        severity: Severity,
        what: str,
        at: int = -1,
        *,
        evidence: str = "",
        remedy: str = "",
        edits: Sequence[Edit] = (),
    ) -> Issue:
        """An issue of this start at the offset ``at``, or at the start itself."""
        where = self.source.place(at if at >= 0 else self.at)
        if self.service:
            what = f"service {self.service}: {what}"
        return Issue(Finding(name, severity, what, where, evidence, remedy), tuple(edits))


def apply(text: str, edits: Sequence[Edit]) -> str:
    """The text after all edits; of two that overlap the first in the list wins."""
    taken: list[Edit] = []
    for edit in edits:
        if all(edit.end <= other.start or other.end <= edit.start for other in taken):
            taken.append(edit)
    for _, edit in sorted(enumerate(taken), key=lambda pair: (pair[1].start, pair[1].end, pair[0]), reverse=True):
        text = text[: edit.start] + edit.text + text[edit.end :]
    return text
