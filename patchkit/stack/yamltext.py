"""YAML text, written: quoted so that every reader sees the same value, and the same bytes each time.

Compose files are written, never edited: a separate overlay leaves a person's file, its comments and its anchors alone.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from patchkit.errors import BadInput

#: Letters first and no character that YAML gives a meaning; ``y``, ``no``, ``on`` and such are booleans in YAML 1.1.
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_WORDS = frozenset(("y", "yes", "n", "no", "true", "false", "on", "off", "null"))

_SHORT = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}

Node: TypeAlias = "str | int | bool | Reset | Sequence[Node] | Mapping[str, Node] | None"


class Reset:
    """Compose's tag that takes a key of the files before away (Compose 2.24.4 or newer)."""


RESET = Reset()


def key(text: str) -> str:
    """A mapping's key, plain where every YAML version reads it as this text."""
    return text if _PLAIN.fullmatch(text) and text.lower() not in _WORDS else quoted(text)


def quoted(text: str) -> str:
    """A double-quoted scalar on one line. What YAML does not print (YAML 1.2 section 5.1), and what other readers take
    for a line break, is escaped.

    Raises:
        patchkit.errors.BadInput: ``not-text``: a name whose bytes are no UTF-8, which YAML cannot hold; escaped it
            would name another file.
    """
    try:
        # Under a locale without UTF-8, Python holds even the bytes of a good name as surrogates.
        text = text.encode("utf-8", "surrogateescape").decode()
    except UnicodeError:
        raise BadInput(
            "not-text", "the name is no UTF-8, and YAML holds nothing else", where=text, remedy="give it another name"
        ) from None
    return '"' + "".join(_SHORT.get(char) or (char if _printable(char) else _escape(char)) for char in text) + '"'


def comment(text: str) -> str:
    """The text as comment lines; a control character cannot end a comment early."""
    lines = text.rstrip("\n").split("\n")
    return "".join(
        "#" + "".join(char if _printable(char) else _escape(char) for char in f" {line}".rstrip()) + "\n"
        for line in lines
    )


def block(node: Mapping[str, Node], indent: int = 0) -> str:
    """A mapping as block YAML, keys in the order given. Strings are always quoted."""
    return "".join(_entry(name, value, indent) for name, value in node.items())


def _entry(name: str, value: Node, indent: int) -> str:
    pad = " " * indent
    if isinstance(value, Mapping) and value:
        return f"{pad}{key(name)}:\n{block(value, indent + 2)}"
    if isinstance(value, Sequence) and not isinstance(value, str) and value:
        return f"{pad}{key(name)}:\n{''.join(_item(each, indent + 2) for each in value)}"
    return f"{pad}{key(name)}: {_flow(value)}\n"


def _item(value: Node, indent: int) -> str:
    pad = " " * indent
    if isinstance(value, Mapping) and value:
        return f"{pad}- {block(value, indent + 2)[indent + 2 :]}"
    return f"{pad}- {_flow(value)}\n"


def _flow(value: Node) -> str:
    match value:
        case None:
            return "null"
        case Reset():
            return "!reset null"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case str():
            return quoted(value)
        case Mapping():
            return "{" + ", ".join(f"{key(name)}: {_flow(each)}" for name, each in value.items()) + "}"
        case _:
            return "[" + ", ".join(_flow(each) for each in value) + "]"


def _printable(char: str) -> bool:
    return unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Zl", "Zp", "Co", "Cn")


def _escape(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
