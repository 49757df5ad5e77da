"""What a shell start script ends in, as far as reading tells."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from dataclasses import dataclass, field

from patchkit.images import paths
from patchkit.images.model import Filesystem
from patchkit.site.environment import decides_imports
from patchkit.site.shell import NotPlain, Step, Values, Word, assignment, environment, plain, steps

#: Start scripts are small; a larger one is not followed.
_MAX_SCRIPT = 256 * 1024
_MAX_STEPS = 20_000
_MAX_SOURCED = 8

# Commands that neither start what serves nor change what it finds.
_HARMLESS_NAMES = """
    echo printf : true false [ [[ test (( mkdir chmod chown ulimit umask sleep ls cat trap wait pwd date id whoami
    hostname nproc ln touch return kill nvidia-smi xpu-smi rocm-smi which command type shopt hash
    uname df free sync logger stty tput clear break continue
"""
_HARMLESS = frozenset(_HARMLESS_NAMES.split())
# These give variables values that only running tells.
_READS = frozenset({"read", "let", "getopts", "mapfile", "readarray", "local"})
_TESTS = frozenset({"[", "[[", "test", "(("})
_FILTERS = frozenset({"tee", "ts", "grep", "sed", "awk", "cat", "logger", "sort", "head", "tail"})
_DECLARE = frozenset({"export", "declare", "typeset", "readonly"})


@dataclass(frozen=True, slots=True)
class Ending:
    """The program that a script ends in: its words (None for one that only running would tell), environment and
    working folder, and the earlier commands that may have changed files."""

    argv: tuple[str | None, ...]
    env: dict[str, str]
    cwd: str
    earlier: tuple[str, ...] = ()


@dataclass
class _Shell:
    fs: Filesystem
    values: Values
    exported: set[str]
    all_exported: bool = False
    functions: dict[str, bool] = field(default_factory=dict)
    earlier: list[str] = field(default_factory=list)
    last: tuple[int, Ending | str] | None = None
    beside: str = ""
    sourced: int = 0
    count: int = 0


def ending_of(
    fs: Filesystem, text: str, zero: str, args: Sequence[str | None], env: dict[str, str], cwd: str
) -> Ending:
    """The program that the script ``text`` ends in, ``zero`` being its ``$0`` and ``args`` its arguments.

    Raises:
        NotPlain: where reading does not tell.
    """
    if len(text) > _MAX_SCRIPT:
        raise NotPlain("the script is too large to follow", 1)
    values = Values(dict(env), list(args), zero, cwd, lambda path: paths.realpath(fs, path))
    shell = _Shell(fs, values, set(env))
    found = _walk(shell, text)
    if found is not None:
        return found
    if shell.last is None:
        raise NotPlain("the script starts no program", text.count("\n") + 1)
    line, last = shell.last
    if isinstance(last, str):
        raise NotPlain(last, line)
    return last


def _walk(shell: _Shell, text: str) -> Ending | None:
    """Follow the commands; an ``exec`` ends the script and is returned."""
    guarded = False
    for step in steps(text):
        shell.count += 1
        if shell.count > _MAX_STEPS:
            raise NotPlain("the script is too long to follow", step.line)
        if step.function:
            shell.functions[step.function] = shell.functions.get(step.function, True) and _is_harmless(shell, step)
            continue
        if step.joined not in ("&&", "||", "|"):
            guarded = False
        if step.joined == "&" and shell.last is not None and isinstance(shell.last[1], Ending):
            shell.beside = shell.beside or _words(shell.last[1])
        conditional = step.depth > 0 or step.joined == "||" or guarded
        if step.joined == "&&" and guarded:
            conditional = True
        guarded = guarded or step.name in _TESTS
        ended = _command(shell, step, conditional)
        if isinstance(ended, Ending):
            return ended
        if ended:
            break
    return None


def _is_harmless(shell: _Shell, step: Step) -> bool:
    if step.joined == "|" and step.name in _FILTERS:
        return True
    return step.name in _HARMLESS or shell.functions.get(step.name, False)


def _command(shell: _Shell, step: Step, conditional: bool) -> Ending | bool:
    """Take one command into account. An Ending, or True, ends the script."""
    values = shell.values
    prefix: dict[str, str | None] = {}
    words = list(step.words)
    while words and (pair := assignment(words[0])):
        prefix[pair[0]] = values.one(pair[1])
        words.pop(0)
    if not words:
        for name, value in prefix.items():
            _set(shell, name, value, conditional, export=shell.all_exported)
        return False
    name = plain(words[0]) or ""
    if name in _DECLARE:
        for word in words[1:]:
            pair = assignment(word)
            text = plain(word) or ""
            if pair:
                _set(shell, pair[0], values.one(pair[1]), conditional, export=name == "export")
            elif text and not text.startswith("-") and name == "export" and not conditional:
                shell.exported.add(text)
        return False
    if name == "exit":
        return not conditional
    if name == "return" and shell.sourced:
        if conditional:
            raise NotPlain("`return` stands under a condition", step.line)
        return True
    if name == "exec":
        words = words[1:]
        if not words:
            return False
        if conditional:
            raise NotPlain("`exec` stands under a condition", step.line)
        if (plain(words[0]) or "").startswith("-"):
            raise NotPlain("`exec` with options", step.line)
        _note_earlier(shell, step)
        return _ending(shell, step, words, prefix)
    if name in ("set", "shift", "unset", "cd", "pushd", "source", ".", "eval", "alias"):
        return _builtin(shell, step, name, words[1:], conditional)
    if name in _READS:
        for word in words[1:]:
            _set(shell, (plain(word) or "").partition("=")[0], None, conditional, export=False)
        return False
    if _is_harmless(shell, step):
        for word in words[1:]:
            values.expand(word)  # ${NAME:=value} is an assignment
        return False
    if name in shell.functions:
        raise NotPlain(f"the function `{name}` does more than reading can follow", step.line)
    _note_earlier(shell, step)
    if conditional:
        shell.last = (step.line, f"`{name or '...'}` stands under a condition")
    else:
        shell.last = (step.line, _ending(shell, step, words, prefix))
    return False


def _note_earlier(shell: _Shell, step: Step) -> None:
    """What was taken for the program so far is only something that runs before this one."""
    if shell.beside:
        raise NotPlain(f"`{shell.beside}` runs in the background beside it: which of them serves?", step.line)
    if shell.last is not None and isinstance(shell.last[1], Ending):
        shell.earlier.append(_words(shell.last[1]))


def _words(ending: Ending) -> str:
    return " ".join(word or "..." for word in ending.argv)


def _set(shell: _Shell, name: str, value: str | None, conditional: bool, export: bool) -> None:
    if conditional and value != shell.values.variables.get(name):
        value = None
    shell.values.variables[name] = value
    if export:
        shell.exported.add(name)


def _builtin(shell: _Shell, step: Step, name: str, words: list[Word], conditional: bool) -> bool:
    values = shell.values
    fields = [field for word in words for field in values.expand(word)]
    if name in ("eval", "alias"):
        raise NotPlain(f"`{name}` decides what starts", step.line)
    if name == "set":
        rest = _options(shell, fields)
        if rest is not None:
            values.args = None if conditional else rest
    elif name == "shift":
        count = int(fields[0]) if fields and fields[0] and fields[0].isdigit() else 1
        values.args = None if conditional or values.args is None else values.args[count:]
    elif name == "unset":
        for variable in fields:
            if variable and not variable.startswith("-"):
                if conditional:
                    _set(shell, variable, None, True, export=False)
                else:
                    values.variables.pop(variable, None)
    elif name in ("cd", "pushd"):
        targets = [target for target in fields if target not in ("--", "-P", "-L")]
        target = targets[0] if len(targets) == 1 else values.variables.get("HOME") if not targets else None
        known = target is not None and target != "-" and not conditional and values.cwd is not None
        values.cwd = posixpath.normpath(posixpath.join(values.cwd or "/", target or "")) if known else None
    else:
        return _source(shell, step, fields, conditional)
    return False


def _options(shell: _Shell, fields: list[str | None]) -> list[str | None] | None:
    """The new arguments that ``set`` gives, None where it sets only options."""
    index = 0
    while index < len(fields):
        text = fields[index]
        if text == "--":
            return fields[index + 1 :]
        if text is None or not text.startswith(("-", "+")):
            return fields[index:]
        if text.endswith("o"):
            index += 1
            if index < len(fields) and fields[index] == "allexport":
                shell.all_exported = text.startswith("-")
        elif "a" in text[1:]:
            shell.all_exported = text.startswith("-")
        index += 1
    return None


def _source(shell: _Shell, step: Step, fields: list[str | None], conditional: bool) -> bool:
    values = shell.values
    if not fields or fields[0] is None or values.cwd is None:
        raise NotPlain("a file is sourced whose name only running tells", step.line)
    path = paths.realpath(shell.fs, posixpath.join(values.cwd, fields[0]))
    if conditional:
        raise NotPlain(f"`{fields[0]}` is sourced under a condition", step.line)
    venv = posixpath.dirname(posixpath.dirname(path))
    if posixpath.basename(path) == "activate" and paths.stat(shell.fs, f"{venv}/pyvenv.cfg"):
        # What the activate script of every venv does to the environment: docs.python.org, library/venv.
        values.variables["VIRTUAL_ENV"] = venv
        before = values.variables.get("PATH")
        values.variables["PATH"] = None if before is None else f"{venv}/bin:{before}"
        values.variables.pop("PYTHONHOME", None)
        shell.exported.update({"VIRTUAL_ENV", "PATH"})
        return False
    data = paths.read(shell.fs, path)
    if data is None:
        return False
    if len(data) > _MAX_SCRIPT or shell.sourced >= _MAX_SOURCED:
        raise NotPlain(f"`{fields[0]}` is too much to follow", step.line)
    shell.sourced += 1
    try:
        return _walk(shell, data.decode("utf-8", "replace")) is not None
    except NotPlain as why:
        raise NotPlain(f"the sourced `{fields[0]}`, {why}", step.line) from why
    finally:
        shell.sourced -= 1


def _ending(shell: _Shell, step: Step, words: list[Word], prefix: dict[str, str | None]) -> Ending:
    values = shell.values
    argv = [field for word in words for field in values.expand(word)]
    exported = {name: value for name, value in values.variables.items() if name in shell.exported}
    exported.update(prefix)
    unknown = sorted(name for name, value in exported.items() if value is None and decides_imports(name))
    if unknown:
        raise NotPlain(f"{unknown[0]} is set to what only running tells", step.line)
    if values.cwd is None:
        raise NotPlain("the working folder is one that only running tells", step.line)
    return Ending(tuple(argv), environment(exported), values.cwd, tuple(shell.earlier))
