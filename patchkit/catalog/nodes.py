"""YAML text to a node tree with a place for every node; hostile until it has passed here.

Aliases are refused outright (a few nested ones expand to gigabytes), and so are depth, size and custom tags: no
manifest needs them.
"""

from __future__ import annotations

from pathlib import Path

import yaml

from patchkit.catalog.faults import Faults

MAX_BYTES = 1024 * 1024
MAX_DEPTH = 16

#: The C parser gives the same nodes and marks and is ten times faster, but not every build of PyYAML has it.
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def compose(path: Path, data: bytes, faults: Faults) -> yaml.Node | None:
    """The document's root node, or None after noting in ``faults`` why there is none."""
    if len(data) > MAX_BYTES:
        faults.add(path, 1, 1, f"larger than {MAX_BYTES} bytes")
        return None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        column = len(before) - (before.rfind(b"\n") + 1) + 1
        faults.add(path, before.count(b"\n") + 1, column, f"not UTF-8: byte 0x{data[error.start]:02x}")
        return None
    try:
        if not _harmless(path, text, faults):
            return None
        documents = list(yaml.compose_all(text, Loader=LOADER))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line, mark.column) if mark else (0, 0)
        faults.add(path, line + 1, column + 1, _words(error, text, line, column))
        return None
    except yaml.reader.ReaderError as error:
        before_text = text[: error.position]
        column = len(before_text) - (before_text.rfind("\n") + 1) + 1
        faults.add(path, before_text.count("\n") + 1, column, f"a character that YAML forbids: {error.character!r}")
        return None
    if not documents:
        faults.add(path, 1, 1, "empty")
        return None
    if len(documents) > 1:
        mark = documents[1].start_mark
        assert mark is not None  # the parsers give every node its marks
        faults.add(path, mark.line + 1, mark.column + 1, "a second document; one file is one manifest")
        return None
    root: yaml.Node = documents[0]
    return root


def _harmless(path: Path, text: str, faults: Faults) -> bool:
    """Whether the text holds no alias and no deep nest. Events are flat, so nothing is built while looking."""
    depth = 0
    for event in yaml.parse(text, Loader=LOADER):
        if isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        if isinstance(event, yaml.AliasEvent):
            said = f"alias *{event.anchor}: aliases are refused; repeat the text"
        elif depth > MAX_DEPTH:
            said = f"nested deeper than {MAX_DEPTH} levels"
        else:
            continue
        mark = event.start_mark
        assert mark is not None  # the parsers give every event its marks
        faults.add(path, mark.line + 1, mark.column + 1, said)
        return False
    return True


def _words(error: yaml.MarkedYAMLError, text: str, line: int, column: int) -> str:
    lines = text.split("\n")
    if line < len(lines) and "\t" in lines[line][: column + 1]:
        return "a tab; YAML indents with blanks"
    return ", ".join(part for part in (error.context, error.problem) if part) or "not YAML"
