"""Questions about a Python file's syntax tree, answered so that doubt is a no. Nothing of the file is run.

Names are compared on their last part alone: ``tl.asm`` and ``lib.other.asm`` are both ``asm``. No walk recurses, for
the file is not trusted and may be nested deeper than Python's stack.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator

Function = ast.FunctionDef | ast.AsyncFunctionDef
#: Whether an expression, as the test of an ``if``, can only be true where one of certain functions said so.
Guard = Callable[[ast.expr], bool]

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def parse(data: bytes) -> ast.Module | None:
    """The source's tree; None for what is no Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an invalid escape in somebody's string is no word of ours
            return ast.parse(data)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def functions(tree: ast.Module, name: str) -> list[Function]:
    """Every definition with that dotted name; more than one where branches define it."""
    found: list[Function] = []
    todo: list[tuple[ast.AST, list[str]]] = [(tree, name.split("."))]
    while todo:
        node, parts = todo.pop()
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, (*_SCOPES, ast.ClassDef)):
                todo.append((child, parts))
            elif not isinstance(child, ast.Lambda) and child.name == parts[0]:
                if len(parts) > 1:
                    todo.append((child, parts[1:]))
                elif not isinstance(child, ast.ClassDef):
                    found.append(child)
    return found


def guard(tree: ast.Module, names: Collection[str]) -> Guard:
    """What tests as one of the functions ``names`` does: a call of it, a name or attribute to which the whole file
    assigns nothing but such tests, or an ``and`` with one of them. A function that is assigned to or is a parameter
    itself could be any other, so that its calls count for nothing. What the function says cannot be told."""
    if not names:
        return lambda test: False
    assigned: dict[str, list[ast.expr | None]] = {}
    for name, value in _assigned(tree):
        assigned.setdefault(name, []).append(value)
    settled: set[str] = set()

    def holds(test: ast.expr) -> bool:
        todo = [test]
        while todo:
            each = todo.pop()
            if isinstance(each, ast.BoolOp) and isinstance(each.op, ast.And):
                todo += each.values
            elif isinstance(each, ast.Call):
                if _last(each.func) in names and _last(each.func) not in assigned:
                    return True
            elif _last(each) in settled:
                return True
        return False

    # One pass: what is assigned from a name that is settled only later stays in doubt.
    for name, values in assigned.items():
        if all(value and holds(value) for value in values):
            settled.add(name)
    return holds


def mentions_none(tree: ast.Module, found: Iterable[Function], names: Collection[str], spared: Guard) -> bool:
    """Whether the functions ``found`` keep clear of ``names``, and with them what they name in the same file (a helper,
    a class, an alias) and what the module imports; all without the bodies of ``if`` whose test ``spared`` accepts.

    A mention is a name, an attribute, a part of an import or of a dotted string: what is only mentioned may be called
    under another name."""
    outer = list(_walk([tree], spared, _SCOPES))
    known: dict[str, list[ast.AST]] = {}
    for node in outer:
        for name in _defined(node):
            known.setdefault(name, []).append(node)
    todo: list[ast.AST] = [*found, *(node for node in outer if isinstance(node, (ast.Import, ast.ImportFrom)))]
    while todo:
        for node in _walk([todo.pop()], spared):
            for name in _names(node):
                if name in names:
                    return False
                if not name.startswith("__"):  # super().__init__ is not that of the file's other classes
                    todo += known.pop(name, ())
    return True


def passes_on(function: Function, callee: str, names: Collection[str]) -> bool:
    """Whether ``function`` calls ``callee``, and hands its own parameters ``names`` as they came to each such call.

    False as soon as the callee is mentioned in another way (under another name, inside a nested function that may
    never run, in an ``assert`` that -O removes), or a parameter is assigned to."""
    own = function.args
    if not set(names) <= {each.arg for each in (*own.posonlyargs, *own.args, *own.kwonlyargs)}:
        return False
    body = _walk(function.body, lambda test: False, (*_SCOPES, ast.ClassDef, ast.GeneratorExp, ast.Assert))
    calls = [node for node in body if isinstance(node, ast.Call) and _last(node.func) == callee]
    heads = {id(call.func) for call in calls}
    for node in ast.walk(function):
        if isinstance(node, ast.alias):
            if node.asname and callee in _names(node):
                return False
        elif id(node) not in heads and callee in _names(node):
            return False
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load) and node.id in names:
            return False
    return bool(calls) and all(
        set(names) <= {value.id for value in _values(call) if isinstance(value, ast.Name)} for call in calls
    )


def _walk(start: Iterable[ast.AST], spared: Guard, closed: tuple[type[ast.AST], ...] = ()) -> Iterator[ast.AST]:
    """As ``ast.walk``, without the bodies of spared ``if`` and without what lies inside nodes of a ``closed`` kind."""
    todo = list(start)
    while todo:
        node = todo.pop()
        yield node
        if isinstance(node, closed):
            continue
        if isinstance(node, ast.If) and spared(node.test):
            todo += [node.test, *node.orelse]
        else:
            todo += ast.iter_child_nodes(node)


def _names(node: ast.AST) -> list[str]:
    """What the node itself mentions, not what lies below it."""
    if isinstance(node, (ast.Name, ast.Attribute)):
        return [_last(node)]
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value.split(".")
    if isinstance(node, ast.alias):
        return [*node.name.split("."), *([node.asname] if node.asname else [])]
    if isinstance(node, ast.ImportFrom) and node.module:
        return node.module.split(".")
    return []


def _defined(node: ast.AST) -> list[str]:
    """The names that a statement of a module or class gives to something."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return [node.name]
    if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
        return [name for name, _ in _assigned(node)]
    return []


def _assigned(tree: ast.AST) -> Iterator[tuple[str, ast.expr | None]]:
    """Every name and attribute that gets a value, and that value; None where the expression alone does not tell it."""
    plain: dict[int, ast.expr] = {}
    bare: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            plain.update((id(target), node.value) for target in node.targets)
        elif isinstance(node, ast.AnnAssign) and node.value:
            plain[id(node.target)] = node.value
        elif isinstance(node, ast.AnnAssign):
            bare.add(id(node.target))
    for node in ast.walk(tree):
        if isinstance(node, (ast.Name, ast.Attribute)) and not isinstance(node.ctx, ast.Load):
            if id(node) not in bare:
                yield _last(node), plain.get(id(node))
        elif isinstance(node, ast.arg):
            yield node.arg, None
        elif isinstance(node, ast.alias) and node.asname:
            yield node.asname, None


def _values(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(each.value for each in call.keywords if each.arg)]


def _last(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
