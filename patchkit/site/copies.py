"""Every place where a package lies in an image, what each one is, and which launches would import it."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

from patchkit.images.model import Filesystem
from patchkit.site.model import Copy, CopyKind, Launch
from patchkit.site.record import Dist, dists_in, find_dist
from patchkit.site.static import Module, Search, find_in, find_module, search_of
from patchkit.site.view import View, as_view

_ROOTS = ("/workspace", "/opt", "/app", "/root", "/home")
_DEPTH = 4
_SITE_FOLDERS = ("site-packages", "dist-packages")
# Where tools keep environments and unpacked wheels, deeper in a home folder than the walk goes.
_IN_HOME = (
    ".local",
    ".local/share/pipx/venvs",
    ".local/pipx/venvs",
    ".local/share/uv/tools",
    ".cache/uv/archive-v0",
)
_NEVER = frozenset({"proc", "sys", "dev"})
_SKIPPED = frozenset({"__pycache__", ".git", "node_modules", "site-packages", "dist-packages"})
# Asking for each entry's kind is the dear part of a walk; what is named like this is no folder that holds a package.
_SUFFIXES = """
    .py .pyc .pyi .so .a .o .txt .json .yaml .yml .toml .cfg .ini .conf .md .rst .html .css .js .svg .png .h .hpp .c
    .cpp .cc .cu .cuh .gz .xz .zip .whl .csv .mo .po .typed .pth .lock .sh .list .md5sums .postinst .prerm
"""
_FILE_NAMES = tuple(_SUFFIXES.split())
_CHECKOUT_MARKS = frozenset({".git", "pyproject.toml", "setup.py", "setup.cfg"})
_VERSION_LINES = (
    ("_version.py", re.compile(r"^(?:__version__ = )?version = ['\"]([^'\"]+)['\"]", re.MULTILINE)),
    ("_version.py", re.compile(r"^__version__\s*(?::[^=]+)?=\s*['\"]([^'\"]+)['\"]", re.MULTILINE)),
    ("version.py", re.compile(r"^__version__\s*(?::[^=]+)?=\s*['\"]([^'\"]+)['\"]", re.MULTILINE)),
    ("__init__.py", re.compile(r"^__version__\s*(?::[^=]+)?=\s*['\"]([^'\"]+)['\"]", re.MULTILINE)),
)


def find_copies(
    fs: Filesystem | View, launch: Launch, package: str, *, decoys: Sequence[str] = (), everything: bool = False
) -> tuple[Copy, ...]:
    """All copies, the winner first (of a namespace package its portions in the order of the search), then by path.

    Looked for on the search path of every kind of launch, below the working folder, in site- and dist-packages, in
    ``/workspace /opt /app /root /home`` to depth 4, and at the known ``decoys``; ``everything`` walks the whole image.

    Raises:
        patchkit.errors.Refused: ``launch-unknown``, ``interpreter-unknown``.
    """
    view = as_view(fs)
    gather = _Gather(view, package)
    searches: list[tuple[str, Search]] = []
    for name, variant in alternatives(launch, package):
        search = search_of(view, variant)
        searches.append((name, search))
        gather.python_of(search)
    for name, search in searches:
        gather.resolved(name, search, find_module(view, search, package))
    for _, search in searches:
        for entry in search.path:
            gather.base(entry)
    for base in _bases(view, package, launch.cwd, everything):
        gather.base(base)
    for decoy in decoys:
        gather.base(decoy)
        gather.base(posixpath.dirname(decoy))
    dists = _editable_dists(view, [entry for _, search in searches for entry in search.path])
    places = [place for place in gather.places.values() if not _is_inner(place, gather.places)]
    copies = [_describe(view, place, package, dists, decoys) for place in places]
    # The sort is stable, and those that serve were gathered first.
    return tuple(sorted(copies, key=lambda copy: (not copy.serves, "" if copy.serves else copy.root)))


def alternatives(launch: Launch, package: str) -> tuple[tuple[str, Launch], ...]:
    """The launches that are told apart: the one that serves, and those that people try by hand."""
    script = posixpath.join(posixpath.dirname(launch.interpreter), package)
    return (
        ("serving", launch),
        ("-m", replace(launch, form="module", argument=package)),
        ("-c", replace(launch, form="command", argument=f"import {package}")),
        ("console-script", replace(launch, form="console-script", argument=script)),
        ("cwd=/", replace(launch, form="module", argument=package, cwd="/")),
    )


@dataclass
class _Place:
    base: str
    root: str
    bare: bool
    archive: bool = False
    wins_for: list[str] = field(default_factory=list)
    hooked: str = ""


def _is_inner(place: _Place, roots: Collection[str]) -> bool:
    """Whether it is a module of another copy, ``pkg/config/pkg.py``, which no launch imports as ``pkg``."""
    folder, _, name = place.root.rpartition("/")
    single = "." in name and not place.archive
    return single and not place.wins_for and any(f"{folder}/".startswith(f"{root}/") for root in roots)


class _Gather:
    """Collects places, one for each real folder of the package."""

    def __init__(self, view: View, package: str) -> None:
        self.view = view
        self.package = package
        self.places: dict[str, _Place] = {}
        self.seen: set[str] = set()
        self.search: Search | None = None

    def python_of(self, search: Search) -> None:
        self.search = self.search or search

    def resolved(self, name: str, search: Search, module: Module | None) -> None:
        if module is None:
            return
        if module.kind == "zip":
            root, base, archive = module.origin, module.entry, True
            roots = [(root, base)]
        else:
            archive = False
            found = module.locations or (module.origin,)
            roots = [(self.view.real(path), self.view.real(posixpath.dirname(path))) for path in found]
        for root, base in roots:
            place = self.places.setdefault(root, _Place(base, root, module.kind == "namespace", archive))
            place.wins_for.append(name)
            if module.entry.startswith("finder of "):
                place.hooked = module.entry

    def base(self, folder: str) -> None:
        """Note the copy that ``folder`` holds, if any. A bare folder of the name is one only where it wins."""
        assert self.search is not None
        base = self.view.real(folder)
        if base in self.seen:
            return
        self.seen.add(base)
        module = find_in(self.view, self.search.python, base, self.package)
        if module is None or module.kind == "namespace":
            return
        archive = module.kind == "zip"
        found = module.origin if archive or not module.locations else module.locations[0]
        root = found if archive else self.view.real(found)
        self.places.setdefault(root, _Place(base, root, bare=False, archive=archive))


def _bases(view: View, package: str, cwd: str, everything: bool) -> Iterator[str]:
    """Folders that may hold the package, in no order that matters."""
    for prefix in ("/usr", "/usr/local", "/"):
        yield from _site_folders(view, prefix)
    if everything:
        yield from _walk(view, "/", 10_000, everything=True)
        return
    homes = ["/root", *(posixpath.join("/home", name) for name in view.sorted_names("/home"))]
    for home in homes:
        for inner in _IN_HOME:
            folder = posixpath.join(home, inner)
            yield from _site_folders(view, folder)
            for name in view.sorted_names(folder) if inner != ".local" else ():
                yield posixpath.join(folder, name)
                yield from _site_folders(view, posixpath.join(folder, name))
    for root in dict.fromkeys((*(() if cwd == "/" else (cwd,)), *_ROOTS)):
        yield from _walk(view, root, _DEPTH, everything=False)


def _site_folders(view: View, prefix: str) -> Iterator[str]:
    for library in ("lib", "lib64"):
        folder = posixpath.join(prefix, library)
        for name in view.sorted_names(folder):
            if name.startswith("python3"):
                for site in _SITE_FOLDERS:
                    yield posixpath.join(folder, name, site)


def _walk(view: View, root: str, depth: int, *, everything: bool) -> Iterator[str]:
    """The folders below ``root``; symlinks are not followed, so it ends."""
    todo = [(view.real(root), depth)]
    while todo:
        folder, left = todo.pop()
        yield folder
        yield from _site_folders(view, folder)
        if not left:
            continue
        for name in view.names(folder):
            if name in _SKIPPED and not (everything and name in _SITE_FOLDERS):
                continue
            if folder == "/" and name in _NEVER:
                continue
            if name.endswith(_FILE_NAMES):
                continue
            path = posixpath.join(folder, name)
            entry = view.lstat(path)
            if entry is not None and entry.kind == "dir":
                todo.append((path, left - 1))


def _editable_dists(view: View, entries: Sequence[str]) -> list[Dist]:
    return [dist for entry in dict.fromkeys(entries) for dist in dists_in(view, entry) if dist.editable]


def _describe(view: View, place: _Place, package: str, editable: Sequence[Dist], decoys: Sequence[str]) -> Copy:
    dist = None if place.archive else find_dist(view, place.base, package)
    source = next((d for d in editable if (place.root + "/").startswith(d.editable.rstrip("/") + "/")), None)
    names = view.names(place.base)
    note = ""
    kind: CopyKind
    if place.archive:
        kind, note = "vendored", "inside a zip archive: its files cannot be replaced one by one"
    elif place.bare:
        kind = "namespace" if dist is not None and dist.record else "shadow"
        note = "a folder without __init__.py"
    elif dist is not None and dist.record and not dist.editable:
        kind = "wheel"
    elif source is not None or place.hooked:
        kind = "editable"
        dist = source or dist
        note = place.hooked
    elif names & _CHECKOUT_MARKS or view.names(posixpath.dirname(place.base)) & {".git", "setup.py", "pyproject.toml"}:
        kind = "checkout"
    elif dist is not None:
        kind = "wheel"
    else:
        kind = "vendored"
    reals = {view.real(decoy) for decoy in decoys}
    return Copy(
        root=place.root,
        base=place.base,
        kind=kind,
        version=dist.version if dist is not None and dist.version else _stated_version(view, place.root),
        record=dist.record if dist is not None and kind in ("wheel", "namespace") else "",
        wins_for=tuple(dict.fromkeys(place.wins_for)),
        serves="serving" in place.wins_for,
        decoy=place.root in reals or place.base in reals,
        note=note,
    )


def _stated_version(view: View, root: str) -> str:
    """The version that a source tree states about itself, empty where it states none."""
    for name, pattern in _VERSION_LINES:
        match = pattern.search(view.text(posixpath.join(root, name)) or "")
        if match:
            return match[1]
    return ""
