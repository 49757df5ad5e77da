"""How an interpreter of the image would look for a module, worked out by reading files only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from patchkit.images.model import Filesystem
from patchkit.site.model import Launch

ModuleKind = Literal["source", "extension", "sourceless", "namespace", "zip", "builtin"]


@dataclass(frozen=True, slots=True)
class Python:
    """One interpreter as the image holds it. ``version`` is (major, minor, micro), micro 0 where only running tells."""

    interpreter: str
    real: str
    version: tuple[int, int, int]
    prefix: str
    base_prefix: str
    stdlib: str


@dataclass(frozen=True, slots=True)
class Module:
    """Where an import of ``name`` ends. ``origin`` is the file that is executed (empty for a namespace package) as the
    interpreter names it, ``locations`` the folders its submodules are looked for in, ``entry`` the search path entry
    (or finder) that gave the first segment."""

    name: str
    kind: ModuleKind
    origin: str
    locations: tuple[str, ...]
    entry: str


@dataclass(frozen=True, slots=True)
class Finder:
    """An import hook that a ``.pth`` file installs: module name -> the path it is taken from (a folder of a package,
    or a file). ``first`` says that it is asked before the search path. ``source`` is the ``.pth`` file."""

    source: str
    mapping: tuple[tuple[str, str], ...]
    first: bool = False


@dataclass(frozen=True, slots=True)
class Search:
    """All that decides an import: the interpreter, its search path in order, the finders that ``.pth`` files install,
    the packages that they make namespaces of, and ``notes`` about what reading alone cannot tell."""

    python: Python
    path: tuple[str, ...]
    finders: tuple[Finder, ...] = ()
    namespaces: tuple[tuple[str, tuple[str, ...]], ...] = ()
    notes: tuple[str, ...] = ()


def search_of(fs: Filesystem, launch: Launch) -> Search:
    """The search that a process started by ``launch`` makes.

    Raises:
        patchkit.errors.Refused: ``launch-unknown``, or ``interpreter-unknown`` where it is no CPython that can be read.
    """
    raise NotImplementedError


def find_module(fs: Filesystem, search: Search, name: str) -> Module | None:
    """What ``import name`` (dotted) would execute, None where nothing is found. Walks segment by segment."""
    raise NotImplementedError


def resolve_static(fs: Filesystem, launch: Launch, package: str) -> tuple[Search, Module | None]:
    """The search of the launch, and where it finds ``package``. Raises as ``search_of``."""
    search = search_of(fs, launch)
    return search, find_module(fs, search, package)
