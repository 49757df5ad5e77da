"""The values of a proof."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from patchkit.site.model import Disagreement

LevelName = Literal["bytes", "resolves", "compiles", "bytecode", "imports", "asserts"]
LevelState = Literal["passed", "failed", "blocked", "not run"]

#: In the order in which they are told; each rests on those before it.
LEVELS: tuple[LevelName, ...] = ("bytes", "resolves", "compiles", "bytecode", "imports", "asserts")

#: These must hold for exit status 0; the other two only must not have failed.
NEEDED: tuple[LevelName, ...] = ("bytes", "resolves", "compiles", "bytecode")


@dataclass(frozen=True, slots=True)
class Expectation:
    """How one file must be after delivery.

    ``path`` is its real path in the image, ``relative`` its path relative to the copy's base, ``sha256`` the hex hash
    of its post-image or ``absent``. ``mode``, ``uid`` and ``gid`` are None where the delivery cannot choose them.
    ``module`` is the dotted name, empty for a file that is no module. ``changed`` holds the 1-based numbers of the
    lines that the patches put there.
    """

    path: str
    relative: str
    sha256: str
    mode: int | None = None
    uid: int | None = None
    gid: int | None = None
    module: str = ""
    changed: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class FileProof:
    """One file (or assert) at one level. ``cause`` is short and stable (``torch``), ``detail`` a sentence. ``output``
    is what an assert printed and ``versions`` what it ran on: evidence that a person can share."""

    name: str
    state: LevelState
    cause: str = ""
    detail: str = ""
    output: str = ""
    versions: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Level:
    """One level over all files. ``cause`` says why it is not ``passed``; ``detail`` is for a person."""

    name: LevelName
    state: LevelState
    cause: str = ""
    detail: str = ""
    files: tuple[FileProof, ...] = ()


@dataclass(frozen=True, slots=True)
class Proof:
    """All six levels in order, where static reading and the interpreter differ, and the AMD GPUs that were there inside
    (render node and architecture; None where nobody told)."""

    levels: tuple[Level, ...]
    disagreements: tuple[Disagreement, ...] = ()
    gpus: tuple[tuple[str, str], ...] | None = None
