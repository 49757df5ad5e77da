"""What a person sees and what a program reads: both drawn from the same object."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

import click

Document = dict[str, Any]


def document(command: str, **parts: Any) -> Document:
    """The envelope of every ``--json`` answer; empty parts are left in so that a reader need not test for them."""
    envelope: Document = {
        "schema": f"patchkit.{command}",
        "version": 1,
        "image": {},
        "files": [],
        "copies": [],
        "levels": [],
        "findings": [],
    }
    envelope.update(parts)
    return envelope


def print_json(answer: Mapping[str, Any]) -> None:
    """Write one JSON document to standard output."""
    text = json.dumps(answer, indent=2, sort_keys=True, ensure_ascii=False)
    # A file name that is no UTF-8 is held as surrogates, which no stream takes: as \udcXX they are JSON's own escapes.
    click.echo(text.encode("utf-8", "backslashreplace").decode())


def clean(text: str) -> str:
    """The text with control characters made visible: names come from images and may hold terminal escapes."""
    return "".join(
        char if char in "\n\t" or unicodedata.category(char) not in ("Cc", "Cf", "Cs") else f"\\x{ord(char):02x}"
        for char in text
    )


def table(rows: Sequence[Sequence[str]], header: Sequence[str] = ()) -> str:
    """Rows as aligned columns, two blanks apart; the last column is never padded."""
    body = [[clean(cell).replace("\n", " ").replace("\t", " ") for cell in row] for row in rows]
    lines = [list(header), *body] if header else body
    if not lines:
        return ""
    widths = [max(len(row[column]) for row in lines) for column in range(len(lines[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in lines
    )
