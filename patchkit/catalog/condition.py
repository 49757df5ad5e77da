"""``drop_when``: whether upstream holds the fix, told from a file's bytes and never from a version number.

In doubt a condition does not hold: a patch carried once too often is seen, a patch dropped too early is a silent no-op.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Mapping

from patchkit.catalog import syntax
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
    tree = syntax.parse(data)
    return tree is not None and any(isinstance(node, ast.Constant) and node.value == text for node in ast.walk(tree))


def _sha256(data: bytes | None) -> str:
    return "absent" if data is None else f"sha256:{hashlib.sha256(data).hexdigest()}"


def _syntax_holds(condition: SyntaxCondition, data: bytes) -> bool:
    tree = syntax.parse(data)
    if tree is None:
        return False
    if condition.future:
        return any(
            isinstance(node, ast.ImportFrom)
            and node.module == "__future__"
            and any(alias.name == condition.future for alias in node.names)
            for node in tree.body
        )
    found = syntax.functions(tree, condition.function)
    if not found:
        return False  # a function that is gone or renamed proves nothing
    if condition.calls_with:
        return all(
            syntax.passes_on(function, _last(callee), names)
            for function in found
            for callee, names in condition.calls_with.items()
        )
    spared = syntax.guard(tree, {_last(name) for name in condition.except_under})
    banned = {_last(name) for name in condition.calls_no}
    return bool(banned) and syntax.mentions_none(tree, found, banned, spared)


def _last(name: str) -> str:
    return name.rpartition(".")[2]
