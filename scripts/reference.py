"""Writes the generated half of the docs: ``python scripts/reference.py [FOLDER]``. A test holds it against the code."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click

sys.path.insert(0, str(Path(__file__).parents[1]))

from patchkit import api
from patchkit.catalog.schema import reference as manifest
from patchkit.cli import COMMANDS, root
from patchkit.doctor.run import CHECKS
from tests.stories.told import protections

FOLDER = Path(__file__).parents[1] / "docs" / "reference"


def commands() -> str:
    """Every command with its help, examples included."""
    out = ["# Commands", "", "What `patchkit COMMAND --help` says.", ""]
    with click.Context(root, info_name="patchkit") as context:
        for name in sorted(COMMANDS):
            command = root.get_command(context, name)
            assert command is not None
            for path, each in _leaves(("patchkit", name), command, context):
                out += [f"## {path}", "", "```text", _help(each, path, context), "```", ""]
    return "\n".join(out)


def _leaves(
    path: tuple[str, ...], command: click.Command, context: click.Context
) -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        yield " ".join(path), command
        return
    for name in command.list_commands(context):
        each = command.get_command(context, name)
        assert each is not None
        yield from _leaves((*path, name), each, context)


def _help(command: click.Command, path: str, parent: click.Context) -> str:
    with click.Context(command, info_name=path, terminal_width=100, max_content_width=100) as context:
        return command.get_help(context).rstrip()


def python() -> str:
    """Every name of ``patchkit.api`` with its signature and docstring."""
    out = ["# Python", "", inspect.cleandoc(api.__doc__ or ""), ""]
    for name in sorted(api.__all__, key=lambda each: (each[0].isupper(), each)):
        thing = getattr(api, name)
        if not (inspect.isclass(thing) or inspect.isfunction(thing)):
            continue
        out += [f"## `{name}`", "", "```python", _signature(name, thing), "```", ""]
        out += ["```text", inspect.cleandoc(thing.__doc__ or ""), "```", ""]
    return "\n".join(out)


def _signature(name: str, thing: Callable[..., object]) -> str:
    signature = inspect.signature(thing)
    parameters = [
        each.replace(
            annotation=each.annotation if each.annotation is each.empty else _Text(str(each.annotation)),
            default=each.default if each.default is each.empty else _Text(_default(each.default)),
        )
        for each in signature.parameters.values()
    ]
    returned = signature.return_annotation
    tail = "" if returned in (signature.empty, None) else f" -> {returned}"
    plain = inspect.Signature(parameters)
    one = f"{name}{plain}{tail}"
    if len(one) <= 100:
        return one
    inside = ",\n    ".join(_parameters(plain))
    return f"{name}(\n    {inside},\n){tail}"


def _parameters(signature: inspect.Signature) -> Iterator[str]:
    starred = False
    for each in signature.parameters.values():
        if each.kind is each.KEYWORD_ONLY and not starred:
            yield "*"
        starred = starred or each.kind is each.KEYWORD_ONLY
        yield str(each)


def checks() -> str:
    """Every check of the doctor."""
    out = [
        "# The doctor's checks",
        "",
        "What `patchkit doctor` looks for. It ends with 0 only where no check of severity error found anything;",
        "`patchkit doctor --explain ID` tells one of them.",
        "",
        "| Check | Severity | Finds | Why it matters |",
        "|---|---|---|---|",
    ]
    for each in CHECKS.values():
        cells = (f"`{each.id}`", each.severity, each.title, each.why)
        out.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
    return "\n".join([*out, ""])


class _Text:
    """Source text where ``inspect`` would write a value's or a string's own form."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _default(value: object) -> str:
    """A default value as it is written: ``Options()`` and not all of its fields."""
    if hasattr(value, "__dataclass_fields__"):
        return f"{type(value).__name__}()"
    return "..." if callable(value) else repr(value)


PAGES: dict[str, Callable[[], str]] = {
    "checks.md": checks,
    "commands.md": commands,
    "manifest.md": manifest,
    "python.md": python,
    "../protections.md": protections,
}

if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    target.mkdir(parents=True, exist_ok=True)
    for page, text in PAGES.items():
        (target / page).write_text(text(), encoding="utf-8")
