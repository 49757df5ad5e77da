"""JSON documents of images: parsed with care, and written back in the style they came in.

A config's or manifest's bytes are its name. Keeping key order, unknown keys and the style of the text means that taking
an edit back gives the very bytes, and with them the digest, of before.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from typing import Any

from patchkit.errors import Unreachable

#: Manifests and configs are tens of kilobytes; registries refuse manifests over 4 MiB.
MAX_JSON = 16 * 1024 * 1024
_HTML = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
_STYLES = tuple(itertools.product((None, 2, 3, 4, "\t"), (True, False), (True, False), (True, False), (b"", b"\n")))

Object = dict[str, Any]


def parse(raw: bytes, where: str, limit: int | None = MAX_JSON) -> Object:
    """The JSON object in ``raw``; ``limit`` is the most bytes it may have (None: any).

    Raises:
        patchkit.errors.Unreachable: ``bad-json``: too large, too deep, no object, or a key twice in one object (readers
            disagree about which one counts).
    """
    if limit is not None and len(raw) > limit:
        raise Unreachable("bad-json", f"a JSON document of {len(raw)} bytes is too large", where=where)
    try:
        value = json.loads(raw, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise Unreachable("bad-json", f"not valid JSON: {error}", where=where) from error
    if not isinstance(value, dict):
        raise Unreachable("bad-json", "not a JSON object", where=where)
    return value


def dump(value: Object, like: bytes = b"") -> bytes:
    """``value`` as JSON in the style of ``like`` where that is one of the usual ones, else compact as Go writes it."""
    for style in _STYLES if like else ():
        if _dump(json.loads(like), style) == like:
            return _dump(value, style)
    return _dump(value, (None, True, True, True, b""))


def _dump(value: Object, style: tuple[int | str | None, bool, bool, bool, bytes]) -> bytes:
    indent, tight, html, ascii_only, end = style
    comma = "," if tight or indent is not None else ", "
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only, separators=(comma, ":" if tight else ": "))
    if html:  # Go's encoding/json escapes these by default; they occur in strings only
        for char, escape in _HTML.items():
            text = text.replace(char, escape)
    return text.encode("utf-8", "surrogatepass") + end


def _unique(pairs: Iterable[tuple[str, Any]]) -> Object:
    value: Object = {}
    for key, item in pairs:
        if key in value:
            raise ValueError(f"the key {key!r} stands twice in one object")
        value[key] = item
    return value
