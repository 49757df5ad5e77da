"""A YAML node tree to the typed form, driven by the types alone; faults are noted with their place, all of them."""

from __future__ import annotations

import dataclasses
import functools
import re
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import yaml

from patchkit.catalog.faults import Faults, near
from patchkit.catalog.model import Form, Key

_STANDARD = "tag:yaml.org,2002:"

#: Where a value stands in the document: ("patches", 0, "file").
Trail = tuple[str | int, ...]


class _Invalid:
    """Stands for a value whose fault was noted already."""


_INVALID = _Invalid()


@functools.cache
def fields_of(cls: type) -> dict[str, tuple[Any, Key, bool]]:
    """The YAML keys of a class: name -> (type without its ``Key``, the ``Key``, whether it must be given). A field
    without a ``Key`` is none of the YAML's."""
    hints = get_type_hints(cls, include_extras=True)
    found: dict[str, tuple[Any, Key, bool]] = {}
    for each in dataclasses.fields(cls):
        hint = hints[each.name]
        notes = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
        key = next((note for note in notes if isinstance(note, Key)), None)
        if key is None:
            continue
        rest = tuple(note for note in notes if not isinstance(note, Key))
        plain = get_args(hint)[0]
        required = each.default is dataclasses.MISSING and each.default_factory is dataclasses.MISSING
        found[each.name] = (Annotated[plain, *rest] if rest else plain, key, required)
    return found


def unwrap(hint: Any) -> tuple[Any, Form | None]:
    """A hint as its bare type and its ``Form``; ``X | None`` counts as X (absent is how None is written)."""
    form = None
    if get_origin(hint) is Annotated:
        form = next((note for note in get_args(hint)[1:] if isinstance(note, Form)), None)
        hint = get_args(hint)[0]
    if get_origin(hint) in (types.UnionType, typing.Union):
        hint = next(each for each in get_args(hint) if each is not type(None))
    return hint, form


class Decoder:
    """Decodes one document.

    Args:
        path: the document's file, for the faults.
        faults: where they are noted.
        checks: class -> what to call with each sound instance of it and its trail, for rules that types do not hold.
        given: fields that no key of the YAML fills, by name.
    """

    def __init__(
        self,
        path: Path,
        faults: Faults,
        checks: Mapping[type, Callable[[Any, Trail], None]],
        given: Mapping[str, object],
    ) -> None:
        self._path = path
        self._faults = faults
        self._checks = checks
        self._given = given
        self._marks: dict[Trail, yaml.Mark] = {}

    def decode(self, node: yaml.Node, cls: type) -> Any | None:
        """The document as an instance of ``cls``, or None when a fault was noted."""
        value = self._value(node, cls, ())
        return None if value is _INVALID else value

    def fault(self, trail: Trail, text: str) -> None:
        """Note a fault at the value that stands at ``trail``, or at the nearest thing around it."""
        while trail not in self._marks:
            trail = trail[:-1]
        self._at(self._marks[trail], text)

    def _at(self, mark: yaml.Mark, text: str) -> None:
        self._faults.add(self._path, mark.line + 1, mark.column + 1, text)

    def _value(self, node: yaml.Node, hint: Any, trail: Trail) -> Any:
        self._marks[trail] = node.start_mark
        hint, form = unwrap(hint)
        if dataclasses.is_dataclass(hint):
            return self._object(node, typing.cast(type, hint), trail)
        if get_origin(hint) is tuple:
            return self._sequence(node, get_args(hint)[0], trail)
        if get_origin(hint) is Mapping:
            key, value = get_args(hint)
            return self._mapping(node, key, value, trail)
        return self._scalar(node, hint, form, trail)

    def _pairs(self, node: yaml.Node, trail: Trail) -> list[tuple[yaml.ScalarNode, yaml.Node]] | None:
        """The key and value nodes of a mapping, its faults noted; None where it is none."""
        if not isinstance(node, yaml.MappingNode) or node.tag != f"{_STANDARD}map":
            self._at(node.start_mark, f"{_name(trail)} must be a mapping of key: value")
            return None
        seen: dict[str, yaml.Mark] = {}
        pairs = []
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self._at(key.start_mark, "a key must be a text")
            elif key.value in seen:
                self._at(key.start_mark, f"{key.value} stands twice; first in line {seen[key.value].line + 1}")
            else:
                seen[key.value] = key.start_mark
                pairs.append((key, value))
        return pairs

    def _object(self, node: yaml.Node, cls: type, trail: Trail) -> Any:
        pairs = self._pairs(node, trail)
        if pairs is None:
            return _INVALID
        known = fields_of(cls)
        values: dict[str, Any] = {}
        sound = True
        for key, value in pairs:
            if key.value not in known:
                self._at(key.start_mark, f"unknown key {key.value}{near(key.value, known)}")
                sound = False
                continue
            values[key.value] = self._value(value, known[key.value][0], (*trail, key.value))
            sound = sound and values[key.value] is not _INVALID
        for name, (_, text, required) in known.items():
            if required and name not in values:
                self._at(node.start_mark, f"{name} is missing: {text.text}")
                sound = False
        if not sound:
            return _INVALID
        extra = {
            name: value for name, value in self._given.items() if name in {f.name for f in dataclasses.fields(cls)}
        }
        found = cls(**values, **{name: value for name, value in extra.items() if name not in known})
        if cls in self._checks:
            self._checks[cls](found, trail)
        return found

    def _sequence(self, node: yaml.Node, item: Any, trail: Trail) -> Any:
        if not isinstance(node, yaml.SequenceNode) or node.tag != f"{_STANDARD}seq":
            self._at(node.start_mark, f"{_name(trail)} must be a list")
            return _INVALID
        values = [self._value(each, item, (*trail, index)) for index, each in enumerate(node.value)]
        return _INVALID if _INVALID in values else tuple(values)

    def _mapping(self, node: yaml.Node, key_hint: Any, value_hint: Any, trail: Trail) -> Any:
        pairs = self._pairs(node, trail)
        if pairs is None:
            return _INVALID
        _, form = unwrap(key_hint)
        found: dict[str, Any] = {}
        for key, value in pairs:
            if form and not re.fullmatch(form.pattern, key.value):
                self._at(key.start_mark, f"{_name(trail)}: {key.value!r} is not {form.words}")
                found[key.value] = _INVALID
                continue
            found[key.value] = self._value(value, value_hint, (*trail, key.value))
            self._marks[*trail, key.value] = key.start_mark  # what is said of a pair later is mostly about its key
        return _INVALID if _INVALID in found.values() else found

    def _scalar(self, node: yaml.Node, hint: Any, form: Form | None, trail: Trail) -> Any:
        if not isinstance(node, yaml.ScalarNode):
            self._at(node.start_mark, f"{_name(trail)} must be a single value")
            return _INVALID
        text = node.value
        if hint is bool:
            return self._choice(node, {"true": True, "false": False}, trail)
        if hint is int:
            if node.tag == f"{_STANDARD}int" and re.fullmatch("[0-9]{1,9}", text):
                return int(text)
            self._at(node.start_mark, f"{_name(trail)} must be a whole number")
            return _INVALID
        # YAML takes 2026-11-30 for a date and 0.10 for a number; the first is what was written, the second loses a 0.
        if node.tag not in (f"{_STANDARD}str", f"{_STANDARD}timestamp"):
            said = (
                f'must be a text; write it in quotes: "{text}"'
                if text
                else "is empty; leave the key out or give a value"
            )
            self._at(node.start_mark, f"{_name(trail)} {said}")
            return _INVALID
        if get_origin(hint) is Literal:
            return self._choice(node, {each: each for each in get_args(hint)}, trail)
        if form and not re.fullmatch(form.pattern, text):
            self._at(node.start_mark, f"{_name(trail)}: {text!r} is not {form.words}")
            return _INVALID
        return text

    def _choice(self, node: yaml.ScalarNode, choices: Mapping[str, Any], trail: Trail) -> Any:
        if node.value in choices:
            return choices[node.value]
        self._at(node.start_mark, f"{_name(trail)}: {node.value!r} is none of {', '.join(choices)}")
        return _INVALID


def _name(trail: Trail) -> str:
    """The trail as a person writes it: ``patches[0].file``."""
    text = ""
    for part in trail:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text or "the manifest"
