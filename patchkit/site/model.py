"""The values that describe Python inside an image."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from patchkit.images.model import Entry

LaunchForm = Literal["console-script", "module", "command", "script", "unknown"]
CopyKind = Literal["wheel", "editable", "checkout", "vendored", "shadow", "namespace"]


@dataclass(frozen=True, slots=True)
class Launch:
    """How the serving process starts.

    ``interpreter`` is the path as started (often a symlink in a venv, which is what makes the venv count), ``flags``
    its own options that change the search path or the bytecode (``-I``, ``-P``, ``-E``, ``-s``, ``-O``), ``argument``
    the console script's or script's path, the module of ``-m``, or the text of ``-c``. ``source`` tells in words how it
    was found. An ``unknown`` launch has its reason there and asks for ``--launch``.
    """

    form: LaunchForm
    interpreter: str
    argument: str
    cwd: str
    env: Mapping[str, str]
    user: str = ""
    flags: tuple[str, ...] = ()
    source: str = ""

    @property
    def heeded(self) -> Mapping[str, str]:
        """Where Python looks for the variables that options switch off: nowhere under ``-E`` and ``-I``."""
        return {} if {"-E", "-I"} & set(self.flags) else self.env


@dataclass(frozen=True, slots=True)
class Copy:
    """One place where the package lies. ``root`` is the package's own real folder (``.../site-packages/vllm``),
    ``base`` the folder that is or would be on the search path. ``wins_for`` names the launches that import this copy:
    ``serving`` and the alternatives ``-m``, ``-c``, ``console-script``, ``cwd=/``. ``record`` is the RECORD file's path
    or empty. ``serves`` marks the winner; ``decoy`` a place that the manifest lists as known decoy."""

    root: str
    base: str
    kind: CopyKind
    version: str
    record: str = ""
    wins_for: tuple[str, ...] = ()
    serves: bool = False
    decoy: bool = False
    note: str = ""

    def place_of(self, package: str, file: str) -> str:
        """Where a file of the package (``vllm/models/x.py``) lies here, whatever this copy's folder is called."""
        top, _, rest = file.partition("/")
        return posixpath.join(self.root, rest) if top == package and rest else posixpath.join(self.base, file)


@dataclass(frozen=True, slots=True)
class FileFact:
    """One file of the package in the image: its entry at the real path, and its bytes. ``shipped`` is the sha256 (hex)
    that RECORD holds for it, empty where RECORD does not know it."""

    path: str
    entry: Entry
    data: bytes
    shipped: str = ""


@dataclass(frozen=True, slots=True)
class Compiled:
    """A compiled file: the real path of its ``source``, and its ``head``, the first 16 bytes (PEP 552)."""

    source: str
    head: bytes


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Static reading and the interpreter itself gave different answers about one thing."""

    about: str
    static: str
    dynamic: str


@dataclass(frozen=True, slots=True)
class Site:
    """The facts about one package under one launch. ``python`` is (major, minor, micro); ``search_path`` is the
    interpreter's ``sys.path`` in order; ``dist_info`` the winner's dist-info folder or empty; ``files`` maps a path
    relative to the copy's ``base`` (``vllm/models/x.py``) to what lies there, None where nothing does. ``pycs`` holds
    the compiled files of the files asked for by their real paths. ``notes`` tell what reading
    alone cannot decide. The winner is the one that reading finds: it must not be relied on where ``disagreements`` name
    an import. ``chosen`` is the copy that was asked about, by default the winner."""

    launch: Launch
    python: tuple[int, int, int]
    search_path: tuple[str, ...]
    copies: tuple[Copy, ...]
    winner: Copy | None
    dist_info: str
    version: str
    files: Mapping[str, FileFact | None]
    pycs: Mapping[str, Compiled] = field(default_factory=dict)
    how: Literal["static", "dynamic", "both"] = "static"
    disagreements: tuple[Disagreement, ...] = ()
    notes: tuple[str, ...] = ()
    chosen: Copy | None = None


def module_of(file: str) -> str:
    """``vllm/models/x.py`` -> ``vllm.models.x``; empty for a file that is no Python module."""
    if not file.endswith(".py"):
        return ""
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
