"""What the program that serves does to the search path itself, before it imports.

Neither reading the search path nor asking the interpreter shows it, since the program is not run: ``sys.path.insert(0,
"/app")`` in a start script brings another copy than the one that was found. So the program's own text is read.
"""

from __future__ import annotations

import ast
import posixpath
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import takewhile

from patchkit.site.copies import find_copies
from patchkit.site.model import Launch
from patchkit.site.static import Module, Search, find_in, find_module
from patchkit.site.view import View

#: Programs that put the working folder in front of the search path before they import what they are to serve: each
#: does so in the module that its console script calls.
_FROM_WORKING_FOLDER = frozenset(
    {"uvicorn", "gunicorn", "hypercorn", "daphne", "granian", "flask", "fastapi", "celery", "streamlit"}
)
_KEEP_ORDER = frozenset({"append", "extend", "index", "count", "copy"})
_LISTS = frozenset({"path", "meta_path", "path_hooks"})


@dataclass(frozen=True, slots=True)
class Front:
    """A place in a program's text, ``file:line``, that puts ``folder`` in front of a search path (None where only
    running tells which), or that changes the path otherwise."""

    where: str
    folder: str | None
    inserts: bool = False


def doubts(view: View, search: Search, launch: Launch, package: str) -> list[str]:
    """Why the serving process may import another copy than the one that the search path gives: a sentence each, none
    where the program leaves the path alone, or puts in front what holds no other copy."""
    winner = find_module(view, search, package)
    found = []
    for front in _fronts_of(view, search, launch, package):
        if front.folder is None:
            others = [copy.root for copy in find_copies(view, launch, package) if not copy.serves]
            if others:
                what = "changes what is imported in a way that only running tells"
                found.append(f"{front.where} {what}, and another copy lies at {others[0]}")
            continue
        folder = posixpath.normpath(posixpath.join(launch.cwd, front.folder))
        module = find_in(view, search.python, folder, package)
        if module is not None and module.kind != "namespace" and _place(view, module) != _place(view, winner):
            what = f"puts {folder} in front of the search path"
            found.append(f"{front.where} {what}, where another copy lies: {_place(view, module)}")
    return found


def path_changes(view: View, search: Search, module: str) -> list[str]:
    """The packages on the way to a module that change, when they are imported, where their modules are looked for
    first: each as ``file:line``."""
    parts = module.split(".")
    found = []
    for end in range(1, len(parts)):
        package = find_module(view, search, ".".join(parts[:end]))
        if package is not None and package.kind == "source":
            text = view.read(package.origin) or b""
            if b"__path__" in text:
                found += [front.where for front in _read(view, text, package.origin, "", _is_own)]
    return found


def _place(view: View, module: Module | None) -> str:
    return "" if module is None else view.real(module.origin)


def _fronts_of(view: View, search: Search, launch: Launch, package: str) -> Iterator[Front]:
    name = posixpath.basename(launch.argument)
    if launch.form == "console-script" and name in _FROM_WORKING_FOLDER:
        yield Front(launch.argument, launch.cwd)
    if launch.form == "command":
        text, file = launch.argument.encode("utf-8", "surrogateescape"), "the text of -c"
    else:
        file = _file_of(view, search, launch)
        text = view.read(file) or b"" if file else b""
    yield from _read(view, text, file, launch.cwd, _is_search)
    for imported in _imported(text):
        if imported.partition(".")[0] == package:
            return  # from here on the package is the one that was found
        module = find_module(view, search, imported)
        if module is not None and module.kind == "source":
            for front in _read(view, view.read(module.origin) or b"", module.origin, launch.cwd, _is_search):
                # What a library puts there is its caller's folder, or one of its own; what else it does it takes back.
                if front.inserts:
                    yield front if front.folder else Front(front.where, launch.cwd)


def _imported(text: bytes) -> Iterator[str]:
    """The modules that a program imports by its own first lines."""
    for statement in _parsed(text):
        if isinstance(statement, ast.Import):
            yield from (name.name for name in statement.names)
        elif isinstance(statement, ast.ImportFrom) and statement.module and not statement.level:
            yield statement.module


def _parsed(text: bytes) -> list[ast.stmt]:
    try:
        return ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []


def _file_of(view: View, search: Search, launch: Launch) -> str:
    """The program's own file, empty where it has none that can be read."""
    if launch.form in ("console-script", "script"):
        return posixpath.join(launch.argument, "__main__.py") if view.is_dir(launch.argument) else launch.argument
    module = find_module(view, search, launch.argument)
    if module is not None and module.locations:
        module = find_module(view, search, f"{launch.argument}.__main__")
    return module.origin if module is not None and module.kind == "source" else ""


def _is_search(node: ast.expr) -> bool:
    """``sys.path`` and the other lists that decide an import."""
    return isinstance(node, ast.Attribute) and node.attr in _LISTS and _is_named(node.value, "sys")


def _is_named(node: ast.expr, module: str) -> bool:
    """Also ``_sys``, as careful scripts call it."""
    return isinstance(node, ast.Name) and node.id.lstrip("_") == module


def _is_own(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "__path__"


def _read(view: View, text: bytes, file: str, cwd: str, is_path: Callable[[ast.expr], bool]) -> Iterator[Front]:
    folders = _Folders(view, file, cwd)
    for statement in _parsed(text) if b"path" in text or b"exec" in text else []:
        for node in ast.walk(statement):
            for value in _put_first(node, is_path):
                folder = None if value is None else folders.of(value)
                yield Front(f"{file}:{getattr(node, 'lineno', 1)}", folder, value is not None)
        folders.learn(statement)


def _put_first(node: ast.AST, is_path: Callable[[ast.expr], bool]) -> list[ast.expr | None]:
    """What a statement or call puts in front of the path; None for what cannot be told. Nothing where it leaves the
    order of what is there alone."""
    match node:
        case ast.Call(func=ast.Attribute(value=path, attr="insert"), args=[_, value]) if is_path(path):
            return [value]
        case ast.Call(func=ast.Attribute(value=path, attr=method)) if is_path(path) and method not in _KEEP_ORDER:
            return [None]
        case ast.Call(func=ast.Attribute(value=module, attr=name)) if is_path is _is_search and _is_named(module, "os"):
            # What serves then is another program than the one that was read.
            return [None] if name.startswith("exec") else []
        case ast.Delete(targets=[ast.Subscript(value=path)]) if is_path(path):
            return [None]
        case ast.Assign(targets=[target], value=value):
            whole = is_path(target)
            if not whole and not (isinstance(target, ast.Subscript) and is_path(target.value)):
                return []
            if isinstance(value, ast.BinOp) and is_path(value.right):
                value = value.left
            elif _is_extend_path(value) or (isinstance(value, ast.BinOp) and is_path(value.left)):
                return []
            if not isinstance(value, ast.List | ast.Tuple):
                return [None]
            return [*takewhile(lambda each: not (isinstance(each, ast.Starred) and is_path(each.value)), value.elts)]
    return []


def _is_extend_path(value: ast.expr) -> bool:
    """``pkgutil.extend_path(__path__, __name__)`` adds at the end (docs.python.org, library/pkgutil)."""
    if not isinstance(value, ast.Call):
        return False
    name = value.func.attr if isinstance(value.func, ast.Attribute) else getattr(value.func, "id", "")
    return name == "extend_path"


@dataclass
class _Folders:
    """Works out folders as start scripts write them: constants, and steps from ``__file__``."""

    view: View
    file: str
    cwd: str
    names: dict[str, str | None] = field(default_factory=dict)

    def learn(self, statement: ast.stmt) -> None:
        """Remember a name that is assigned once."""
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target = statement.targets[0]
            if isinstance(target, ast.Name):
                self.names[target.id] = None if target.id in self.names else self.of(statement.value)

    def of(self, node: ast.expr) -> str | None:
        """The folder that the expression stands for, None where only running tells."""
        match node:
            case ast.Constant(value=str(text)):
                return text
            case ast.Name(id="__file__"):
                return self.file if self.file.startswith("/") else None
            case ast.Name(id=name):
                return self.names.get(name)
            case ast.Attribute(value=inner, attr="parent"):
                return self._up(inner, 1)
            case ast.Subscript(value=ast.Attribute(value=inner, attr="parents"), slice=ast.Constant(value=int(count))):
                return self._up(inner, count + 1)
            case ast.BinOp(left=left, op=ast.Div(), right=right):
                return self._joined([left, right])
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                texts = [self.of(left), self.of(right)]
                return None if None in texts else "".join(text or "" for text in texts)
            case ast.Call(func=function, args=args):
                return self._called(function, args)
        return None

    def _called(self, function: ast.expr, args: list[ast.expr]) -> str | None:
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        if name in ("getcwd", "cwd") and not args:
            return self.cwd
        if name == "dirname" and len(args) == 1:
            return self._up(args[0], 1)
        if name in ("join", "joinpath") and args:
            on = [function.value] if name == "joinpath" and isinstance(function, ast.Attribute) else []
            return self._joined([*on, *args])
        if name in ("realpath", "resolve"):
            inner = self._inner(function, args)
            return None if inner is None else self.view.real(posixpath.join(self.cwd, inner))
        if name in ("abspath", "normpath", "absolute", "str", "fspath", "Path", "PurePath", "as_posix"):
            return self._inner(function, args)
        return None

    def _inner(self, function: ast.expr, args: list[ast.expr]) -> str | None:
        if len(args) == 1:
            return self.of(args[0])
        return self.of(function.value) if isinstance(function, ast.Attribute) and not args else None

    def _up(self, node: ast.expr, count: int) -> str | None:
        path = self.of(node)
        for _ in range(count if path is not None else 0):
            path = posixpath.dirname(path or "")
        return path

    def _joined(self, nodes: list[ast.expr]) -> str | None:
        parts = [self.of(node) for node in nodes]
        known = [part for part in parts if part is not None]
        return posixpath.join(*known) if len(known) == len(parts) else None
