"""What the import lines of ``.pth`` files do to imports: editable installs, namespaces, and the older tricks.

Such a line is code that every start runs. The forms that installers write are known and read; any other is named in a
note, because reading alone cannot tell what it does.
"""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from patchkit.site.view import View

# Lines of installers and tools that leave the imports of other packages alone.
_HARMLESS = re.compile(
    r"""import\ os;\ var\ =\ 'SETUPTOOLS_USE_DISTUTILS'   # setuptools: distutils-precedence.pth
    | import\ _virtualenv\b                               # virtualenv: _virtualenv.pth
    | import\ coverage\b | import\ os,\ sys;exec\(.*coverage
    | import\ _distutils_hack\b""",
    re.VERBOSE,
)
_NSPKG = re.compile(r"_getframe\(1\)\.f_locals\['sitedir'\], \*\((.*?)\)\)")
_SITE_DIR = re.compile(r"site\.addsitedir\(\s*['\"]([^'\"]+)['\"]\s*\)")
_SYS_PATH = re.compile(r"sys\.path\.(insert\(\s*0\s*,|append\()\s*['\"]([^'\"]+)['\"]\s*\)")
_IMPORTED = re.compile(r"import[ \t]+([A-Za-z_][\w.]*)")


@dataclass(frozen=True, slots=True)
class Finder:
    """An import hook that a ``.pth`` file installs.

    ``mapping`` holds module name -> the path it is taken from (a package's folder, or a file), ``namespaces`` name ->
    search path of a namespace package, ``placeholder`` the search path entry through which those are found. ``reach``
    says which modules below a mapped name it answers for: none, its immediate children, or all. ``first`` says that it
    is asked before the search path. ``source`` is the ``.pth`` file.
    """

    source: str
    mapping: tuple[tuple[str, str], ...]
    reach: Literal["exact", "children", "below"] = "exact"
    first: bool = False
    namespaces: tuple[tuple[str, tuple[str, ...]], ...] = ()
    placeholder: str = ""

    def path_of(self, name: str) -> str | None:
        """The path that the module is taken from, its folder's without suffix; None where the finder does not say."""
        for known, path in reversed(self.mapping):
            if name == known:
                return path
            if name.startswith(f"{known}."):
                rest = name[len(known) + 1 :].split(".")
                if self.reach == "below" or (self.reach == "children" and len(rest) == 1):
                    return posixpath.join(path, *rest)
        return None

    def portions_at(self, entry: str, name: str) -> tuple[str, ...]:
        """The folders of a namespace package that the finder gives for its search path entry."""
        return dict(self.namespaces).get(name, ()) if entry == self.placeholder else ()


@dataclass(frozen=True, slots=True)
class PthImport:
    """What one import line does to the search."""

    finder: Finder | None = None
    namespaces: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    site_dirs: tuple[str, ...] = ()
    path_first: tuple[str, ...] = ()
    path_last: tuple[str, ...] = ()
    moves_to_front: Literal["", "mark", "move"] = ""
    notes: tuple[str, ...] = ()


def read_import_line(view: View, line: str, folder: str, source: str) -> PthImport:
    """The effect of one ``import`` line of the ``.pth`` file ``source`` that lies in ``folder``."""
    if _HARMLESS.match(line):
        return PthImport()
    if "sys.__plen = len(sys.path)" in line:
        return PthImport(moves_to_front="mark")
    if "sys.__plen" in line and "__egginsert" in line:
        return PthImport(moves_to_front="move")
    if match := _NSPKG.search(line):
        parts = [part.strip().strip("'\"") for part in match[1].split(",") if part.strip()]
        return PthImport(namespaces={".".join(parts): (posixpath.join(folder, *parts),)})
    if match := _SITE_DIR.search(line):
        return PthImport(site_dirs=(posixpath.normpath(posixpath.join(folder, match[1])),))
    if match := _SYS_PATH.search(line):
        return PthImport(path_first=(match[2],)) if match[1].startswith("insert") else PthImport(path_last=(match[2],))
    for match in _IMPORTED.finditer(line):
        text = view.text(posixpath.join(folder, f"{match[1]}.py"))
        if text is not None:
            return _read_module(text, source, match[1])
    return PthImport(notes=(f"{source} runs a line that may change imports: {line.strip()[:120]}",))


def _read_module(text: str, source: str, module: str) -> PthImport:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        tree = ast.Module([], [])
    values = {name: value for name, value in _constants(tree) if name in ("MAPPING", "NAMESPACES", "PATH_PLACEHOLDER")}
    effect: PthImport | None = None
    if "MAPPING" in values:
        effect = _setuptools(source, text, values)
    elif found := list(_map_module_calls(tree)):
        # The redirector of the `editables` package, which hatchling and pdm-backend install, is asked last.
        top_level = tuple(pair for pair in found if "." not in pair[0])
        effect = PthImport(finder=Finder(source, top_level))
    elif known := _install_call(tree, posixpath.dirname(source)):
        # The finder of scikit-build-core inserts itself before all others.
        effect = PthImport(finder=Finder(source, known, first=True))
    if effect is not None:
        return effect
    return PthImport(notes=(f"{source} imports {module}, which may change imports",))


def _constants(tree: ast.Module) -> Iterator[tuple[str, object]]:
    for node in tree.body:
        target: ast.expr | None = None
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target = node.targets[0]
        elif isinstance(node, ast.AnnAssign):
            target = node.target
        value = getattr(node, "value", None)
        if isinstance(target, ast.Name) and isinstance(value, ast.expr):
            parts = [value.left, value.right] if isinstance(value, ast.BinOp) else [value]
            try:
                values = [ast.literal_eval(part) for part in parts]
            except (ValueError, TypeError, RecursionError):
                continue
            # The placeholder is written as a sum of two texts.
            yield target.id, "".join(map(str, values)) if len(values) > 1 else values[0]


def _setuptools(source: str, text: str, values: Mapping[str, object]) -> PthImport:
    """The finder that setuptools writes (setuptools/command/editable_wheel.py): asked last, and its namespaces through
    a search path entry of their own. Up to version 67 it answered for all modules below a mapped name."""
    mapping = _pairs(values.get("MAPPING"))
    paths = dict(mapping)
    placeholder = str(values.get("PATH_PLACEHOLDER", ""))
    below = "fullname.startswith(" in text
    children = "parent in MAPPING" in text
    namespaces: list[tuple[str, tuple[str, ...]]] = []
    given = values.get("NAMESPACES")
    for name, folders in given.items() if isinstance(given, dict) else ():
        portions = [str(item) for item in folders] if isinstance(folders, list | tuple) else []
        portions = portions or ([paths[name]] if name in paths else [])
        if not below or not portions:
            portions.append(placeholder)
        namespaces.append((str(name), tuple(portions)))
    finder = Finder(
        source,
        mapping,
        reach="below" if below else "children" if children else "exact",
        namespaces=tuple(namespaces),
        placeholder=placeholder if namespaces else "",
    )
    return PthImport(finder=finder, path_last=(placeholder,) if namespaces else ())


def _pairs(value: object) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, dict):
        return ()
    return tuple((name, path) for name, path in value.items() if isinstance(name, str) and isinstance(path, str))


def _map_module_calls(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in tree.body:
        call = node.value if isinstance(node, ast.Expr) else None
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "map_module":
            texts = [arg.value for arg in call.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
            if len(texts) == 2:
                yield texts[0], texts[1]


def _install_call(tree: ast.Module, folder: str) -> tuple[tuple[str, str], ...]:
    """The modules of scikit-build-core's ``install(sources, wheel_files, ...)``; the latter lie beside the finder."""
    for node in tree.body:
        call = node.value if isinstance(node, ast.Expr) else None
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "install" and call.args:
            try:
                maps = [_pairs(ast.literal_eval(argument)) for argument in call.args[:2]]
            except (ValueError, TypeError, RecursionError):
                return ()
            built = [(name, posixpath.join(folder, path)) for name, path in (maps[1] if len(maps) > 1 else ())]
            return (*maps[0], *built)
    return ()
