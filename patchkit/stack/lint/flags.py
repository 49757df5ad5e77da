"""The server's options out of its arguments, as its own parser takes them.

vLLM's parser takes ``_`` for ``-`` in names, dotted names for keys of a JSON option, and, as argparse does, every
prefix of a name that only one option has (``vllm/utils/argparse_utils.py`` in 0.33.0).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from patchkit.stack.lint.words import Word


@dataclass(frozen=True, slots=True)
class Given:
    """One option as given. ``name`` is its long form; ``value`` is None where no value follows. ``value_word`` can be
    replaced by a fix, ``prefix`` is what stands before the value in it (``--name=``)."""

    name: str
    value: str | None
    word: Word
    value_word: Word | None = None
    prefix: str = ""


def options(args: Sequence[Word], spellings: Mapping[str, str]) -> list[Given]:
    """The options in the order given. A JSON value also counts as its dotted keys."""
    found: list[Given] = []
    index = 0
    while index < len(args):
        word = args[index]
        index += 1
        if not is_option(word.text):
            continue
        name, equals, value = word.text.partition("=")
        if equals:
            found.extend(_expand(Given(long_form(name, spellings), value, word, word, f"{name}=")))
        elif index < len(args) and not is_option(args[index].text):
            found.extend(_expand(Given(long_form(name, spellings), args[index].text, word, args[index])))
        else:
            found.append(Given(long_form(name, spellings), None, word))
    return found


def is_option(text: str) -> bool:
    """Whether a word is an option's name, not a value such as ``-1``."""
    return text.startswith("-") and len(text) > 1 and not text[1].isdigit() and text[1] != "."


def model_of(args: Sequence[Word], given: Sequence[Given]) -> str:
    """The model that is served, empty where the arguments do not name one."""
    if args and not is_option(args[0].text):
        return args[0].text
    return next((each.value or "" for each in given if each.name == "--model"), "")


def long_form(name: str, spellings: Mapping[str, str]) -> str:
    """A name as the parser knows it: ``-tp`` as ``--tensor-parallel-size``, ``--kv_cache_dtype`` with dashes."""
    head, dot, rest = name.partition(".")
    if head.startswith("--"):
        head = head.replace("_", "-")
    return f"{spellings.get(head, head)}{dot}{rest.removesuffix('+')}"


def is_known(name: str, known: Collection[str]) -> bool:
    """Whether the parser takes the name: as it is, without its dotted keys, as the switched-off form of a switch, or
    as the only option that begins so."""
    head = name.partition(".")[0]
    if head in known or head in ("-h", "--help") or head.startswith("-O"):
        return True
    for prefix, other in (("--no-", "--"), ("--disable-", "--enable-"), ("--enable-", "--disable-")):
        if head.startswith(prefix) and other + head.removeprefix(prefix) in known:
            return True
    return head.startswith("--") and sum(option.startswith(head) for option in known) == 1


def _expand(given: Given) -> Iterator[Given]:
    yield given
    if given.value and given.value.lstrip().startswith("{"):
        try:
            value = json.loads(given.value)
        except ValueError:
            return
        for key, each in _leaves(value):
            yield Given(f"{given.name}.{key}", each, given.word)


def _leaves(value: object, trail: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _leaves(each, f"{trail}.{key}" if trail else str(key))
    else:
        yield trail, str(value)
