"""The typed form of a manifest. One class a mapping of the YAML; field names are the YAML's keys.

These classes are the one source of the schema: the loader, the JSON schema for editors and the reference in the docs
are all drawn from their types, their ``Key`` texts and their ``Form`` patterns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal


@dataclass(frozen=True, slots=True)
class Key:
    """What a key of the YAML means, in one sentence for people."""

    text: str


@dataclass(frozen=True, slots=True)
class Form:
    """How a string must be spelled: words for people and a pattern that the whole of it must match (the common part of
    Python's and ECMA 262's regular expressions, since the JSON schema carries it too)."""

    words: str
    pattern: str


Sha256 = Annotated[str, Form("sha256:<64 hex digits>", "sha256:[0-9a-f]{64}")]
FileHash = Annotated[str, Form("sha256:<64 hex digits>, or absent for no file", "sha256:[0-9a-f]{64}|absent")]
Slug = Annotated[str, Form("lower-case letters, digits and . _ + -", "[a-z0-9][a-z0-9._+-]*")]
Relative = Annotated[
    str,
    Form(
        "a relative path with / between its parts, none of them . or ..",
        r"(?!\.\.?(/|$))[^/\\\x00]+(/(?!\.\.?(/|$))[^/\\\x00]+)*",
    ),
]
Absolute = Annotated[str, Form("an absolute path with no . or .. part", r"(/(?!\.\.?(/|$))[^/\x00]+)+")]
Platform = Annotated[str, Form("os/architecture[/variant]", "[a-z0-9]+/[a-z0-9_]+(/[a-z0-9]+)?")]
Dotted = Annotated[str, Form("a dotted Python name", r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")]
Parameter = Annotated[str, Form("a plain Python name", r"[A-Za-z_][A-Za-z0-9_]*")]
EnvName = Annotated[str, Form("the name of an environment variable", r"[A-Za-z_][A-Za-z0-9_]*")]
Date = Annotated[str, Form("a date, YYYY-MM-DD", "[0-9]{4}-[0-9]{2}-[0-9]{2}")]
GpuPattern = Annotated[
    str, Form("a shell pattern of AMD's architecture names, gfx942 or gfx11*", r"gfx[0-9a-f*?!\[\]-]+")
]
Text = Annotated[str, Form("a text that is not empty", r"[\s\S]*\S[\s\S]*")]


@dataclass(frozen=True, slots=True)
class ImagePattern:
    """A shell pattern over ``name:tag`` (``vllm-xpu:*``, ``*/intel/vllm:*``); ``*`` crosses slashes."""

    match: Annotated[Text, Key("Shell pattern over name:tag; * crosses slashes. `vllm-xpu:*`, `*/intel/vllm:*`.")]


@dataclass(frozen=True, slots=True)
class KnownDigest:
    """One image digest that somebody has looked at: which package version it holds, and when it was seen (ISO date)."""

    version: Annotated[Text, Key("The package's version inside this image.")]
    seen: Annotated[Date, Key("When somebody looked at it.")] = ""


@dataclass(frozen=True, slots=True)
class Assert:
    """A Python snippet that proves a patch at run time: run after ``import module`` in a fresh process under the
    launch; fails by raising. ``before`` runs before the import. ``needs`` declares what it needs."""

    module: Annotated[Dotted, Key("The module that is imported.")]
    code: Annotated[Text, Key("Python that runs after the import; it fails by raising.")]
    before: Annotated[str, Key("Python that runs before the import.")] = ""
    needs: Annotated[
        tuple[Literal["torch", "gpu"], ...], Key("What it needs beyond Python; where that is absent it is blocked.")
    ] = ()


@dataclass(frozen=True, slots=True)
class DropWhen:
    """Machine-checked condition under which a patch is no longer needed. Exactly one is set: ``post`` (path -> sha256
    of a file as fixed upstream), or ``syntax``: a condition on a file's syntax tree."""

    post: Annotated[
        Mapping[Relative, Sha256], Key("Path to the hash of the file as fixed upstream; all must hold.")
    ] = field(default_factory=dict)
    syntax: Annotated[SyntaxCondition | None, Key("A condition on a file's syntax tree.")] = None


@dataclass(frozen=True, slots=True)
class SyntaxCondition:
    """A condition on the syntax tree of ``path``, in one of three forms; what it cannot tell does not hold.

    With ``calls_no`` the function ``function`` must mention none of the names, nor may what it names in the same file
    or what the module imports; code ``except_under`` a function's say-so is left out. With ``calls_with`` it must call
    each of the names and pass these parameters of its own on to every such call, as plain arguments. With ``future``
    the module must import that name from ``__future__``. Dotted names are compared on their last part."""

    path: Annotated[Relative, Key("The file, relative to site-packages.")]
    function: Annotated[str, Key("The function to look into; dotted for a method (`Class.method`).")] = ""
    calls_no: Annotated[
        tuple[Dotted, ...], Key("Holds when the function mentions none of these names (or modules, where it imports).")
    ] = ()
    except_under: Annotated[
        tuple[Dotted, ...],
        Key(
            "With `calls_no`: functions under whose say-so a mention does not count: in the body of an `if` on a call "
            "of one, on a name that the file assigns from nothing but such calls, or on an `and` with one of these. "
            "What the function answers cannot be told."
        ),
    ] = ()
    calls_with: Annotated[
        Mapping[Dotted, tuple[Parameter, ...]],
        Key(
            "Called name to the function's own parameters. Holds when the function calls each of these names and "
            "passes these parameters to every such call."
        ),
    ] = field(default_factory=dict)
    future: Annotated[str, Key("Holds when the module imports this name from `__future__`.")] = ""


@dataclass(frozen=True, slots=True)
class PatchEntry:
    """One patch of the series. ``pre`` and ``post`` map package-relative paths to ``sha256:<hex>`` of pre- and
    post-image (``absent`` where the patch creates or removes the file). ``versions`` narrows the manifest's range,
    ``platforms`` lists ``linux/amd64`` and such (empty: all). ``fuzz`` above 0 is allowed only with ``post`` pinned.
    Entries that share an ``id`` are variants of one patch."""

    id: Annotated[Slug, Key("The patch's name. Entries that share one are variants of the same patch.")]
    file: Annotated[Relative, Key("The diff, relative to the catalog's folder.")]
    pre: Annotated[
        Mapping[Relative, FileHash], Key("Path to the hash of the file before the patch, for each target.")
    ] = field(default_factory=dict)
    post: Annotated[
        Mapping[Relative, FileHash], Key("Path to the hash of the file after the patch, for each target.")
    ] = field(default_factory=dict)
    versions: Annotated[str, Key("PEP 440 range that narrows the manifest's, for this entry.")] = ""
    platforms: Annotated[tuple[Platform, ...], Key("Platforms that it is for (`linux/amd64`); empty: all.")] = ()
    fuzz: Annotated[int, Key("Context lines that may be dropped, 0 to 2; above 0 only with every `post` pinned.")] = 0
    upstream: Annotated[str, Key("Where upstream has or discusses it: the address of an issue or pull request.")] = ""
    drop_when: Annotated[
        DropWhen | None, Key("Machine-checked condition under which the patch is no longer needed.")
    ] = None
    asserts: Annotated[tuple[Assert, ...], Key("Snippets that prove the patch at run time.")] = ()


@dataclass(frozen=True, slots=True)
class RefusedEnv:
    """An environment setting under which the series must not be used, and why.

    It is looked at wherever the environment of what serves is known: the boot guard does not start the server;
    ``apply`` refuses an image or a running container, ``compose`` and ``up`` a service, before anything is patched;
    ``status``, ``verify`` and ``doctor`` fail, and ``verify`` knows it from the receipt where the catalog is gone. The
    guard sees what it is started with, not what a start script behind it sets: that is read out of the script before
    anything is patched, as far as reading tells, and seen by ``verify`` and ``doctor`` in the running processes. What a
    program sets for itself once it runs, nobody sees.
    """

    name: Annotated[EnvName, Key("The environment variable.")]
    values: Annotated[
        tuple[str, ...], Key("Those of its values, in upper or lower case; empty: any, an empty one too.")
    ]
    why: Annotated[Text, Key("The reason, told to the person.")]


@dataclass(frozen=True, slots=True)
class Gpus:
    """The GPUs that the series is for, and why no others. Where a server is given an AMD GPU whose architecture is
    unknown or none of ``only``, the boot guard does not start it, and ``apply --container``, ``status --container``,
    ``verify``, ``doctor`` and ``up`` fail; ``verify`` knows them from the receipt where the catalog is gone. Only AMD's
    kernel driver tells an architecture by name: GPUs of others, or none, change nothing."""

    only: Annotated[tuple[GpuPattern, ...], Key("Shell patterns of architecture names (`gfx942`, `gfx11*`).")]
    why: Annotated[Text, Key("What goes wrong on others, told to the person.")]


@dataclass(frozen=True, slots=True)
class Hint:
    """What a person can do differently once an image has something: told when ``path`` holds the text ``mentions`` as a
    whole string constant (a parser's name in a register, say)."""

    path: Annotated[Relative, Key("The file, relative to site-packages.")]
    mentions: Annotated[Text, Key("A string constant of the file's source; the whole of it must be equal.")]
    say: Annotated[Text, Key("What can be done differently then.")]


@dataclass(frozen=True, slots=True)
class Manifest:
    """One image family, its package, and the ordered series of patches. ``path`` is the file that it was read from."""

    path: Path
    name: Annotated[Slug, Key("The manifest's name, as `--manifest` takes it; one of its kind in a catalog.")]
    package: Annotated[Dotted, Key("The package as Python imports it.")]
    versions: Annotated[str, Key("PEP 440 range that the series was made for. It advises; the bytes decide.")]
    images: Annotated[tuple[ImagePattern, ...], Key("Images that this manifest is for.")]
    patches: Annotated[tuple[PatchEntry, ...], Key("The patches, in the order in which they apply.")]
    distribution: Annotated[str, Key("The name on the package index, where it is not the package's.")] = ""
    digests: Annotated[Mapping[Sha256, KnownDigest], Key("Image digests that somebody has looked at.")] = field(
        default_factory=dict
    )
    service: Annotated[str, Key("The compose service that the overlay is for when nothing else tells.")] = ""
    decoys: Annotated[
        tuple[Absolute, ...], Key("Folders in the image where copies of the package lie that do not serve.")
    ] = ()
    platforms: Annotated[tuple[Platform, ...], Key("Platforms that the series is for; empty: all.")] = ()
    strict: Annotated[bool, Key("Refuse pre-images that are not listed.")] = False
    refused_env: Annotated[
        tuple[RefusedEnv, ...], Key("Environment settings under which the series must not be used.")
    ] = ()
    gpus: Annotated[Gpus | None, Key("The AMD GPUs that the series is for; without it any.")] = None
    hints: Annotated[
        tuple[Hint, ...], Key("What can be done differently once an image has something, told by `check-update`.")
    ] = ()


@dataclass(frozen=True, slots=True)
class Catalog:
    """A folder with ``manifests/`` and ``patches/``."""

    root: Path
    manifests: tuple[Manifest, ...]

    def patch_bytes(self, entry: PatchEntry) -> bytes:
        """The diff's bytes, header included. ``entry.file`` was checked to lie inside ``root`` at load."""
        return (self.root / entry.file).read_bytes()


@dataclass(frozen=True, slots=True)
class Match:
    """Why a manifest was chosen: a listed digest, an image pattern, or by name; with what is to be told about it."""

    manifest: Manifest
    by: Literal["digest", "pattern", "name"]
    detail: str
    notes: tuple[str, ...] = ()
