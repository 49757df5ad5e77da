"""``drop_when``: whether upstream holds the fix, told from a file's bytes and never from a version number.

In doubt a condition does not hold: a patch carried once too often is seen, a patch dropped too early is a silent no-op.
"""

from __future__ import annotations

import ast
import hashlib
import warnings
from collections.abc import Iterator, Mapping

from patchkit.catalog.model import DropWhen, SyntaxCondition


def holds(condition: DropWhen, files: Mapping[str, bytes | None]) -> bool:
    """Whether the condition holds for the pristine ``files`` (path relative to site-packages -> bytes, None or missing
    where there is no such file)."""
    if condition.syntax is not None:
        data = files.get(condition.syntax.path)
        return data is not None and _syntax_holds(condition.syntax, data)
    return bool(condition.post) and all(
        _sha256(files.get(path)) == expected for path, expected in condition.post.items()
    )


def paths(condition: DropWhen) -> tuple[str, ...]:
    """The files that ``holds`` looks at."""
    return (condition.syntax.path,) if condition.syntax is not None else tuple(condition.post)


def mentions(data: bytes, text: str) -> bool:
    """Whether the source holds ``text`` as a whole string constant; False for what is no Python."""
    tree = _tree(data)
    return tree is not None and any(isinstance(node, ast.Constant) and node.value == text for node in ast.walk(tree))


def _sha256(data: bytes | None) -> str:
    return "absent" if data is None else f"sha256:{hashlib.sha256(data).hexdigest()}"


def _tree(data: bytes) -> ast.Module | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an invalid escape in somebody's string is no word of ours
            return ast.parse(data)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _syntax_holds(condition: SyntaxCondition, data: bytes) -> bool:
    tree = _tree(data)
    if tree is None:
        return False
    if condition.future:
        return any(
            isinstance(node, ast.ImportFrom)
            and node.module == "__future__"
            and any(alias.name == condition.future for alias in node.names)
            for node in tree.body
        )
    banned = {name.rpartition(".")[2] for name in condition.calls_no}
    bodies = list(_functions(tree, condition.function.split(".")))
    # A function that is gone or renamed proves nothing; a name that is only mentioned may be called under another.
    return bool(bodies) and bool(banned) and not any(banned & set(_names(body)) for body in bodies)


def _functions(tree: ast.AST, parts: list[str]) -> Iterator[ast.AST]:
    """Every definition with that dotted name; more than one where branches define it."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            if node.name != parts[0]:
                continue
            if len(parts) > 1:
                yield from _functions(node, parts[1:])
            elif not isinstance(node, ast.ClassDef):
                yield node
        else:
            yield from _functions(node, parts)


def _names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
