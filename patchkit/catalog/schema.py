"""The manifest's JSON schema for editors and its reference for the docs, both drawn from the types."""

from __future__ import annotations

import dataclasses
import inspect
import json
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any, Literal, get_args, get_origin

from patchkit.catalog.decode import fields_of, unwrap
from patchkit.catalog.model import Manifest

#: The schema's name: stable, and no address that anybody fetches.
SCHEMA_ID = "urn:patchkit:manifest:1"


def json_schema() -> dict[str, Any]:
    """The schema of a manifest, JSON Schema draft-07 (the dialect that yaml-language-server reads)."""
    classes = list(_classes(Manifest))
    schema = _object(Manifest)
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$id": SCHEMA_ID,
        "title": "patchkit manifest",
        **schema,
        "definitions": {each.__name__: _object(each) for each in classes if each is not Manifest},
    }


def schema_text() -> str:
    """The schema as the file that is shipped."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


def shipped() -> str:
    """The schema file inside the installed package."""
    return files("patchkit.catalog").joinpath("manifest.schema.json").read_text("utf-8")


def reference() -> str:
    """The manifest reference as Markdown: a section a class, a row a key."""
    out = [
        "# The manifest",
        "",
        "One YAML file in a catalog's `manifests/` folder. `patchkit manifest check` names every fault with its place.",
        "`patchkit manifest schema` prints the JSON schema, with which an editor checks while you type.",
        "",
        "<!-- generated from patchkit/catalog/model.py by `patchkit manifest schema --markdown` -->",
        "",
    ]
    for cls in _classes(Manifest):
        title = "The file itself" if cls is Manifest else f"`{cls.__name__}`"
        text = " ".join(inspect.cleandoc(cls.__doc__ or "").replace("``", "`").split())
        out += [f"## {title}", "", text, "", "| key | what stands there | must | meaning |", "|---|---|---|---|"]
        out += [
            f"| `{name}` | {_words(hint)} | {'yes' if required else ''} | {_cell(key.text)} |"
            for name, (hint, key, required) in fields_of(cls).items()
        ]
        out.append("")
    return "\n".join(out)


def _classes(cls: type) -> Iterator[type]:
    """The class and every class inside it, each once, outer ones first."""
    todo, seen = [cls], {cls}
    while todo:
        here = todo.pop(0)
        yield here
        for hint, _, _ in fields_of(here).values():
            for each in _inner(hint):
                if each not in seen:
                    seen.add(each)
                    todo.append(each)


def _inner(hint: Any) -> Iterator[type]:
    bare, _ = unwrap(hint)
    if dataclasses.is_dataclass(bare) and isinstance(bare, type):
        yield bare
    for each in get_args(bare):
        yield from _inner(each)


def _object(cls: type) -> dict[str, Any]:
    keys = fields_of(cls)
    return {
        "type": "object",
        "properties": {name: {"description": key.text, **_schema(hint)} for name, (hint, key, _) in keys.items()},
        "required": [name for name, (_, _, required) in keys.items() if required],
        "additionalProperties": False,
    }


def _schema(hint: Any) -> dict[str, Any]:
    bare, form = unwrap(hint)
    if isinstance(bare, type) and dataclasses.is_dataclass(bare):
        # A sibling of $ref is ignored in draft-07, so that a description needs the list of one.
        return {"allOf": [{"$ref": f"#/definitions/{bare.__name__}"}]}
    if get_origin(bare) is tuple:
        return {"type": "array", "items": _schema(get_args(bare)[0])}
    if get_origin(bare) is Mapping:
        key, value = get_args(bare)
        return {"type": "object", "propertyNames": _schema(key), "additionalProperties": _schema(value)}
    if get_origin(bare) is Literal:
        return {"enum": list(get_args(bare))}
    if bare is bool:
        return {"type": "boolean"}
    if bare is int:
        return {"type": "integer", "minimum": 0}
    return {"type": "string", **({"pattern": f"^(?:{form.pattern})$"} if form else {})}


def _words(hint: Any) -> str:
    bare, form = unwrap(hint)
    if isinstance(bare, type) and dataclasses.is_dataclass(bare):
        return f"a mapping, see [`{bare.__name__}`](#{bare.__name__.lower()})"
    if get_origin(bare) is tuple:
        return f"a list of: {_words(get_args(bare)[0])}"
    if get_origin(bare) is Mapping:
        key, value = get_args(bare)
        return f"a mapping from {_words(key)} to {_words(value)}"
    if get_origin(bare) is Literal:
        return " or ".join(f"`{each}`" for each in get_args(bare))
    if form:
        return _cell(form.words)
    return {bool: "`true` or `false`", int: "a whole number"}.get(bare, "a text")


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
