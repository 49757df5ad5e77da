"""Starts in shell text and in plain argument lists: which words the server gets, and which are lost on the way."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from patchkit.stack.lint.model import Cause, Edit, Lost, Setting, Source, Start
from patchkit.stack.lint.words import Command, Placed, Word, shell_commands

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_BLANK_LINE = re.compile(r"\n(?=[ \t\r]*\n)")
_PREFIXES = ("exec", "env", "nohup", "sudo", "time", "command", "nice")

#: Options of `docker run` and `podman run` that take no value; every other one takes the next word
#: (https://docs.docker.com/reference/cli/docker/container/run/).
_RUN_SWITCHES = frozenset(
    f"--{name}"
    for name in (
        *("detach", "disable-content-trust", "init", "interactive", "no-healthcheck", "oom-kill-disable", "privileged"),
        *("publish-all", "quiet", "read-only", "replace", "rm", "sig-proxy", "tty"),
    )
)


def starts_in_script(source: Source) -> list[Start]:
    """The starts in a shell script."""
    return starts_in_shell(source, Placed.whole(source.text), editable=True)


def start_of_arguments(name: str, arguments: Sequence[str], env: Mapping[str, str]) -> Start | None:
    """The start in a plain argument list such as ``vllm serve ...``; None where it starts no server."""
    source = Source(name, "")
    words = [Word(text) for text in arguments]
    return _start(source, words, {key: Setting(value) for key, value in env.items()})


def starts_in_shell(
    source: Source, text: Placed, *, editable: bool, env: Mapping[str, Setting] | None = None
) -> list[Start]:
    """The starts in shell text. ``editable`` says that a line may be moved: true for whole lines of a file."""
    found = []
    settings = dict(env or {})
    commands = shell_commands(text)
    for number, command in enumerate(commands):
        if command.words[0].text == "export":
            settings.update(_assignments(command.words[1:]))
        elif all(_ASSIGNMENT.fullmatch(word.text) for word in command.words):
            settings.update(_assignments(command.words))
        lost = tuple(_lost(source, text, commands, number, editable and text.exact))
        words = [word for word in command.words if word.text.strip()]
        start = _start(source, words, settings, lost)
        if start is not None:
            found.append(start)
    return found


def serve_arguments(words: Sequence[Word]) -> tuple[Word, ...] | None:
    """What stands after ``vllm serve`` or the API server's module, None where neither stands there."""
    for index, word in enumerate(words):
        name = word.text.rpartition("/")[2]
        follower = words[index + 1].text if index + 1 < len(words) else ""
        if name == "vllm" and follower == "serve":
            return tuple(words[index + 2 :])
        if word.text == "-m" and follower == "vllm.entrypoints.openai.api_server":
            return tuple(words[index + 2 :])
        if word.text == "-m" and follower in ("vllm", "vllm.entrypoints.cli.main"):
            rest = words[index + 2 :]
            return tuple(rest[1:]) if rest and rest[0].text == "serve" else None
    return None


def _start(
    source: Source, words: Sequence[Word], env: Mapping[str, Setting], lost: tuple[Lost, ...] = ()
) -> Start | None:
    image = None
    settings = dict(env)
    rest = list(words)
    while rest and (_ASSIGNMENT.fullmatch(rest[0].text) or rest[0].text in _PREFIXES):
        settings.update(_assignments(rest[:1]))
        rest = rest[1:]
    if not rest:
        return None
    at = rest[0].start
    devices: list[str] = []
    program = rest[0].text.rpartition("/")[2]
    if program in ("docker", "podman") and len(rest) > 1 and rest[1].text in ("run", "create"):
        options, rest = _run_options(rest[2:])
        if not rest:
            return None
        image, rest = rest[0], rest[1:]
        for name, value in options:
            if name in ("-e", "--env"):
                settings.update(_assignments([value]))
            if name == "--entrypoint":
                rest.insert(0, value)
            if name in ("--device", "--gpus"):
                devices.append("gpu" if name == "--gpus" else value.text)
    args = serve_arguments(rest)
    if args is None and image is not None and rest and program in ("docker", "podman"):
        args = arguments_of_entrypoint(rest)
    if args is None:
        return None
    return Start(source, at, args, lost, settings, image, devices=tuple(devices))


def arguments_of_entrypoint(words: Sequence[Word]) -> tuple[Word, ...] | None:
    """The words as arguments of an image whose entrypoint is the server itself (``vllm/vllm-openai``): a model or an
    option comes first, never a program."""
    first = words[0].text
    return tuple(words) if first.startswith("-") or re.fullmatch(r"[\w.-]+/[\w.-]+", first) else None


def _run_options(words: Sequence[Word]) -> tuple[list[tuple[str, Word]], list[Word]]:
    """The options of ``docker run`` with their values, and what stands from the image on."""
    options = []
    index = 0
    while index < len(words) and words[index].text.startswith("-"):
        word = words[index]
        name, equals, _ = word.text.partition("=")
        index += 1
        if equals:
            cut = len(name) + 1
            options.append((name, Word(word.text[cut:], word.start, word.end, word.at[cut:], word.exact)))
        elif name not in _RUN_SWITCHES and not re.fullmatch(r"-[ditPq]+", name) and index < len(words):
            options.append((name, words[index]))
            index += 1
    return options, list(words[index:])


def _assignments(words: Sequence[Word]) -> dict[str, Setting]:
    pairs = [(match, word) for word in words if (match := _ASSIGNMENT.fullmatch(word.text))]
    return {match[1]: Setting(match[2], word.start) for match, word in pairs}


def _lost(source: Source, text: Placed, commands: Sequence[Command], number: int, editable: bool) -> Iterator[Lost]:
    """The commands right after this one that begin with a flag: no program is called so, they were meant for it. And
    flags in a comment at its end that stand on later lines of the file: a folded scalar made one line of them."""
    swallowed = _swallowed(source, text, commands[number].end)
    if swallowed is not None:
        yield swallowed
    for before, command in zip(commands[number:], commands[number + 1 :], strict=False):
        gap = text.text[before.end : command.start]
        if not command.words[0].text.startswith("-") or "\n" not in gap:
            return
        cause = _cause(gap, before.words[-1])
        if cause == "no-backslash" and source.text[before.words[-1].end :].lstrip(" ").startswith("\\"):
            cause = "eaten-backslash"
        words = tuple(word for word in command.words if word.text.strip())
        edits = _mend(source, commands[number], before, command, cause) if editable else ()
        yield Lost(words, cause, text.at[before.end + _break(gap, cause)], edits)


def _swallowed(source: Source, text: Placed, end: int) -> Lost | None:
    comment = re.compile(r"[ \t]*(#[^\n]*)").match(text.text, end)
    if comment is None:
        return None
    begin = text.at[comment.start(1)]
    for match in re.finditer(r"(?<=\s)--?[A-Za-z]", comment[1]):
        first = comment.start(1) + match.start()
        if "\n" in source.text[begin : text.at[first]]:
            words = [
                Word(each.group(), text.at[each.start()], text.at[each.end() - 1] + 1, exact=False)
                for each in re.compile(r"\S+").finditer(text.text, first, comment.end(1))
            ]
            return Lost(tuple(words), "comment", begin)
    return None


def _cause(gap: str, last: Word) -> Cause:
    lines = gap.split("\n")
    if not last.text.strip():
        return "space-after-backslash"
    if lines[0].lstrip().startswith("#"):
        return "comment-at-end"
    if any(line.lstrip().startswith("#") for line in lines):
        return "comment"
    if _BLANK_LINE.search(gap):
        return "blank-line"
    return "no-backslash"


def _break(gap: str, cause: Cause) -> int:
    """Where in the gap between two commands the first is broken off."""
    if cause in ("comment", "comment-at-end"):
        return gap.index("#")
    if cause == "blank-line":
        blank = _BLANK_LINE.search(gap)
        assert blank is not None
        return blank.end()
    return 0


def _mend(source: Source, first: Command, before: Command, command: Command, cause: Cause) -> tuple[Edit, ...]:
    """Comments go above the command, blank lines go away, every line but the last ends in a backslash."""
    last = before.words[-1]
    begin = last.start if cause == "space-after-backslash" else last.end
    end = command.words[0].start
    gap = source.text[begin:end]
    edits = []
    comments = [each.rstrip("\\ \t") for each in re.findall(r"(?m)(?:^|[ \t\\])[ \t]*(#.*)$", gap)]
    if comments:
        above = source.line_start(first.words[0].start)
        indent = source.text[above : first.words[0].start]
        indent = indent[: len(indent) - len(indent.lstrip())]
        edits.append(Edit(above, above, "".join(f"{indent}{each}\n" for each in comments)))
    lead = "" if source.text[begin - 1] in " \t" else " "
    edits.append(Edit(begin, end, f"{lead}\\\n{source.text[source.line_start(end) : end]}"))
    return tuple(edits)
