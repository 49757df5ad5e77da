"""Changes to a person's manifest that leave every other byte alone: comments, order, quotes, blank lines.

The text is changed, not a tree that is written out again: a YAML writer moves the comment behind a list's last entry in
front of the next one, and a removed entry's comment stays behind.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from patchkit.catalog import nodes
from patchkit.catalog.faults import Faults
from patchkit.catalog.model import PatchEntry


def learned(text: str, digests: Mapping[str, str], seen: str) -> str:
    """The manifest with image digests added; those it lists already stay as they are.

    Args:
        text: the manifest, sound.
        digests: digest -> the package's version in that image.
        seen: the day on which it was looked at, YYYY-MM-DD, or empty. The caller says it: no clock is read here.
    """
    page = _Page.of(text)
    listed = page.value(page.root, "digests")
    known = {key.value for key, _ in listed.value} if listed is not None else set()
    items = {
        digest: {"version": version, **({"seen": seen} if seen else {})}
        for digest, version in digests.items()
        if digest not in known
    }
    if not items:
        return text
    pairs = [f"{_quoted(digest)}: {_flow(item)}" for digest, item in items.items()]
    if listed is None:
        return page.inserted(
            page.top_of(page.key(page.root, "patches")), ["digests:", *(f"  {each}" for each in pairs)]
        )
    return page.added_pairs(listed, pairs)


def with_patch(text: str, entry: PatchEntry) -> str:
    """The manifest with the entry in its series: in place of the one with the same id and file, else behind the last
    variant of the same id, else at the end. Keys that the new entry does not set keep what stands there."""
    page = _Page.of(text)
    series = page.series()
    places = [index for index, each in enumerate(series.value) if page.text_at(each, "id") == entry.id]
    same = [index for index in places if page.text_at(series.value[index], "file") == entry.file]
    if not same:
        return page.added_item(series, places[-1] if places else len(series.value) - 1, _keys(entry))
    for key, value in _keys(entry).items():
        page = _Page.of(page.with_key(page.series().value[same[0]], key, value))
    return page.text


def without_patch(text: str, patch: str, file: str | None = None) -> str:
    """The manifest without every entry of that id, or without the one variant that ``file`` names. The comment lines
    right above an entry go with it."""
    page = _Page.of(text)
    series = page.series()
    for index in reversed(range(len(series.value))):
        item = series.value[index]
        if page.text_at(item, "id") == patch and file in (None, page.text_at(item, "file")):
            page = _Page.of(page.removed_item(page.series(), index))
    return page.text


def with_versions(text: str, versions: str) -> str:
    """The manifest with another range of releases that its series is for."""
    page = _Page.of(text)
    return page.with_key(page.root, "versions", versions)


_Value = str | dict[str, str]


def _keys(entry: PatchEntry) -> dict[str, _Value]:
    """The keys that are written by machine; drop_when and asserts are a person's."""
    keys: dict[str, _Value] = {"id": entry.id, "file": entry.file}
    if entry.versions:
        keys["versions"] = entry.versions
    if entry.upstream:
        keys["upstream"] = entry.upstream
    if entry.pre:
        keys["pre"] = dict(sorted(entry.pre.items()))
    if entry.post:
        keys["post"] = dict(sorted(entry.post.items()))
    return keys


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _scalar(text: str) -> str:
    """The text as YAML: bare where it then reads as the same text, else in quotes."""
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._/+-]*(://[A-Za-z0-9._/+-]+)?", text):
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        if isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:str":
            return text
    return _quoted(text)


def _flow(value: _Value) -> str:
    if isinstance(value, str):
        return _scalar(value)
    return "{" + ", ".join(f"{_scalar(key)}: {_quoted(each)}" for key, each in value.items()) + "}"


def _block(keys: Mapping[str, _Value]) -> list[str]:
    lines = []
    for key, value in keys.items():
        if isinstance(value, str):
            lines.append(f"{key}: {_scalar(value)}")
        else:
            lines += [f"{key}:", *(f"  {_scalar(name)}: {_quoted(each)}" for name, each in value.items())]
    return lines


@dataclass(frozen=True, slots=True)
class _Page:
    """A manifest's text as lines, with its node tree. Methods that change something return the whole new text."""

    lines: tuple[str, ...]
    root: yaml.MappingNode
    newline: str

    @classmethod
    def of(cls, text: str) -> _Page:
        faults = Faults()
        root = nodes.compose(Path("manifest"), text.encode(), faults)
        faults.settle()
        assert isinstance(root, yaml.MappingNode)  # callers give a manifest that was loaded
        newline = "\r\n" if "\r\n" in text else "\n"
        return cls(tuple(text.removesuffix(newline).split(newline)), root, newline)

    @property
    def text(self) -> str:
        return self.newline.join(self.lines) + self.newline

    def key(self, node: yaml.Node, name: str) -> yaml.Node:
        found: yaml.Node = next(key for key, _ in node.value if key.value == name)
        return found

    def value(self, node: yaml.Node, name: str) -> yaml.Node | None:
        return next((value for key, value in node.value if key.value == name), None)

    def text_at(self, node: yaml.Node, name: str) -> str:
        found = self.value(node, name)
        return found.value if isinstance(found, yaml.ScalarNode) else ""

    def series(self) -> yaml.SequenceNode:
        found = self.value(self.root, "patches")
        assert isinstance(found, yaml.SequenceNode)
        return found

    def inserted(self, at: int, new: list[str]) -> str:
        return self._text(*self.lines[:at], *new, *self.lines[at:])

    def _text(self, *lines: str) -> str:
        return self.newline.join(lines) + self.newline

    def _span(self, node: yaml.Node, new: str) -> str:
        """The text with ``new`` in place of a scalar or flow node."""
        (first, start), (last, end) = _start(node), _end(node)
        line = self.lines[first][:start] + new + self.lines[last][end:]
        return self._text(*self.lines[:first], line, *self.lines[last + 1 :])

    def _without_span(self, start: tuple[int, int], end: tuple[int, int]) -> str:
        line = self.lines[start[0]][: start[1]] + self.lines[end[0]][end[1] :]
        return self._text(*self.lines[: start[0]], line, *self.lines[end[0] + 1 :])

    def last_line(self, node: yaml.Node) -> int:
        """The last line that holds something of the node: the parser's own end of a block lies behind the blank and
        comment lines that follow."""
        if isinstance(node, yaml.ScalarNode):
            first, (last, column) = _start(node)[0], _end(node)
            if node.style in ("|", ">") and column == 0:
                last -= 1
            while last > first and not self.lines[min(last, len(self.lines) - 1)].strip():
                last -= 1
            return min(last, len(self.lines) - 1)
        if _flows(node) or not node.value:
            return _end(node)[0]
        tail = node.value[-1]
        return self.last_line(tail[1] if isinstance(tail, tuple) else tail)

    def after(self, node: yaml.Node, column: int) -> int:
        """The line behind the node and behind the comments that are indented deeper than ``column``."""
        at = self.last_line(node) + 1
        while at < len(self.lines) and re.match(rf" {{{column + 1},}}#", self.lines[at]):
            at += 1
        return at

    def top_of(self, node: yaml.Node) -> int:
        """The node's first line, or that of the comment lines right above it that are indented as it is."""
        at, column = _start(node)
        while at > 0 and re.match(rf" {{{column}}}#", self.lines[at - 1]):
            at -= 1
        return at

    def added_pairs(self, mapping: yaml.Node, pairs: list[str]) -> str:
        """The text with ``key: value`` lines at the end of a mapping below the root."""
        if not mapping.value:
            line, column = _start(mapping)
            head, tail = self.lines[line][:column].rstrip(), self.lines[_end(mapping)[0]][_end(mapping)[1] :]
            new = [f"{head}{tail}", *(f"  {each}" for each in pairs)]
            return self._text(*self.lines[:line], *new, *self.lines[_end(mapping)[0] + 1 :])
        if _flows(mapping):
            line, column = _end(mapping.value[-1][1])
            head, tail = self.lines[line][:column], self.lines[line][column:]
            return self._text(*self.lines[:line], f"{head}, {', '.join(pairs)}{tail}", *self.lines[line + 1 :])
        column = _start(mapping)[1]
        return self.inserted(self.after(mapping, column - 1), [" " * column + each for each in pairs])

    def added_item(self, series: yaml.SequenceNode, behind: int, keys: Mapping[str, _Value]) -> str:
        """The text with a new entry in the series, behind the one numbered ``behind``."""
        if series.value and series.flow_style:
            line, column = _end(series.value[behind])
            head, tail = self.lines[line][:column], self.lines[line][column:]
            flow = "{" + ", ".join(f"{key}: {_flow(value)}" for key, value in keys.items()) + "}"
            return self._text(*self.lines[:line], f"{head}, {flow}{tail}", *self.lines[line + 1 :])
        column = _start(series)[1] if series.value else 2
        first, *rest = _block(keys)
        new = [" " * column + f"- {first}", *(" " * (column + 2) + each for each in rest)]
        if series.value:
            return self.inserted(self.after(series.value[behind], column), new)
        line, start = _start(series)
        last, end = _end(series)
        return self._text(
            *self.lines[:line],
            self.lines[line][:start].rstrip() + self.lines[last][end:],
            *new,
            *self.lines[last + 1 :],
        )

    def removed_item(self, series: yaml.SequenceNode, index: int) -> str:
        item = series.value[index]
        if _flows(series):
            return self._without_span(
                _end(series.value[index - 1]) if index else _start(item),
                _start(series.value[1]) if not index and len(series.value) > 1 else _end(item),
            )
        column = _start(series)[1]
        # The entry's own node starts behind its dash.
        first = _start(item)[0]
        while not self.lines[first].startswith(" " * column + "-"):
            first -= 1
        top = first
        while top > 0 and re.match(rf" {{{column}}}#", self.lines[top - 1]):
            top -= 1
        rest = [*self.lines[:top], *self.lines[self.after(item, column) :]]
        if len(series.value) == 1:
            at = _start(self.key(self.root, "patches"))[0]
            rest[at] = re.sub(r"^(\"?'?patches\"?'?:)", r"\1 []", rest[at])
        return self._text(*rest)

    def with_key(self, item: yaml.Node, key: str, value: _Value) -> str:
        """The text with one key of a mapping set."""
        old = self.value(item, key)
        if old is not None and _plain(old) == value:
            return self.text
        if old is None:
            if _flows(item):
                return self.added_pairs(item, [f"{key}: {_flow(value)}"])
            column = _start(item)[1]
            return self.inserted(self.after(item, column - 1), [" " * column + each for each in _block({key: value})])
        if isinstance(old, yaml.ScalarNode) or _flows(old):
            return self._span(old, _flow(value))
        first, column = _start(old)
        new = [" " * column + each.removeprefix("  ") for each in _block({key: value})[1:]]
        return self._text(*self.lines[:first], *new, *self.lines[self.last_line(old) + 1 :])


def _plain(node: yaml.Node) -> object:
    if isinstance(node, yaml.MappingNode):
        return {key.value: value.value for key, value in node.value}
    return node.value


def _flows(node: yaml.Node) -> bool:
    """Whether the node is written in braces or brackets."""
    return isinstance(node, yaml.CollectionNode) and bool(node.flow_style)


def _start(node: yaml.Node) -> tuple[int, int]:
    assert node.start_mark is not None  # the parsers give every node its marks
    return node.start_mark.line, node.start_mark.column


def _end(node: yaml.Node) -> tuple[int, int]:
    assert node.end_mark is not None
    return node.end_mark.line, node.end_mark.column
