"""What a shell start script ends in, as far as reading tells."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

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
# What `&&` stands behind without being a condition: these do not fail in a start script that works at all.
_SURE = _DECLARE | {"cd", "pushd", "mkdir", "echo", "printf", ":", "true", "set", "shift", "unset", "source", "."}


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
    held: int = 0
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
    sure = True
    before: _State | None = None
    for step in steps(text):
        shell.count += 1
        if shell.count > _MAX_STEPS:
            raise NotPlain("the script is too long to follow", step.line)
        if step.function:
            harmless = _is_harmless(shell, step) and not _assigns(step)
            shell.functions[step.function] = shell.functions.get(step.function, True) and harmless
            continue
        if step.joined not in ("&&", "||", "|"):
            guarded = False
        if step.joined != "&&":
            _doubt(shell, before)
            sure, before = True, None
        elif not sure and before is None:
            before = _state(shell)
        sure = sure and (step.name in _SURE or assignment(step.words[0]) is not None)
        if step.joined == "&" and shell.last is not None and isinstance(shell.last[1], Ending):
            shell.beside = shell.beside or _words(shell.last[1])
        conditional = step.depth > 0 or step.joined == "||" or guarded
        if step.joined == "&&" and guarded:
            conditional = True
        guarded = guarded or step.name in _TESTS
        ended = _command(shell, step, conditional)
        if isinstance(ended, Ending) and before is not None:
            # Where the command before `&&` fails nothing serves, unless something else is started further down.
            shell.last, shell.held = (step.line, ended), step.line
        elif isinstance(ended, Ending):
            return ended
        elif ended:
            break
    return None


_State = tuple[dict[str, str | None], str | None]


def _state(shell: _Shell) -> _State:
    exported = {name: shell.values.variables.get(name) for name in shell.exported}
    return {**shell.values.variables, **exported}, shell.values.cwd


def _doubt(shell: _Shell, before: _State | None) -> None:
    """What changed since ``before`` did so only if a command did not fail."""
    if before is None:
        return
    variables, cwd = before
    now, here = _state(shell)
    for name in {*variables, *now}:
        if name not in variables or name not in now or variables[name] != now[name]:
            shell.values.variables[name] = None
    if here != cwd:
        shell.values.cwd = None


def _assigns(step: Step) -> bool:
    """Whether a command that is harmless otherwise gives a variable a value."""
    expands = any(part.kind == "var" and part.how.endswith("=") for word in step.words for part in word)
    return expands or _is_printf_v(step.words)


def _is_printf_v(words: Sequence[Word]) -> bool:
    return len(words) > 1 and plain(words[0]) == "printf" and (plain(words[1]) or "").startswith("-v")


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
    while len(words) > 1 and plain(words[0]) in ("command", "builtin") and not (plain(words[1]) or "").startswith("-"):
        words.pop(0)
    step = replace(step, words=tuple(words))
    name = step.name
    if not shell.functions.get(name, True):
        raise NotPlain(f"the function `{name}` does more than reading can follow", step.line)
    if name in _DECLARE:
        _declare(shell, step, name, words[1:], conditional)
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
    if name in ("set", "shift", "unset", "cd", "pushd", "popd", "source", ".", "eval", "alias"):
        return _builtin(shell, step, name, words[1:], conditional)
    if name in _READS or _is_printf_v(words):
        for word in words[1:]:
            _set(shell, (plain(word) or "").partition("=")[0], None, conditional, export=False)
        return False
    if _is_harmless(shell, step):
        for word in words[1:]:
            values.expand(word)  # ${NAME:=value} is an assignment
        return False
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
    if shell.held:
        raise NotPlain("`exec` stands under a condition", shell.held)
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


def _declare(shell: _Shell, step: Step, name: str, words: list[Word], conditional: bool) -> None:
    """``export`` and its kin. Their words are expanded first, so that a name may come out of a variable."""
    values = shell.values
    options = [text for word in words if (text := plain(word) or "").startswith(("-", "+"))]
    letters = "".join(text for text in options if text.startswith("-"))
    if "f" in letters or "F" in letters:
        return
    if "n" in letters and name != "export":
        raise NotPlain(f"`{name} -n` gives a variable a second name", step.line)
    stops = (name == "export" and "n" in letters) or any("x" in text for text in options if text.startswith("+"))
    export = name == "export" or "x" in letters or shell.all_exported
    for word in words:
        if (plain(word) or "").startswith(("-", "+")):
            continue
        pair = assignment(word, quoted=True)
        given: list[tuple[str, str | None]] = [(pair[0], values.one(pair[1]))] if pair else []
        for expanded in [] if pair else values.expand(word):
            if expanded is None:
                raise NotPlain(f"`{name}` of variables that only running tells", step.line)
            variable, equal, after = expanded.partition("=")
            given.append((variable, after if equal else values.variables.get(variable)))
        for variable, value in given:
            if pair or value != values.variables.get(variable):
                _set(shell, variable, value, conditional, export=False)
            if export or stops:
                _export(shell, variable, stops, conditional)


def _export(shell: _Shell, variable: str, stops: bool, conditional: bool) -> None:
    """Programs that are started get the variable from here on, or (``stops``) no more."""
    if conditional and (variable in shell.exported) is stops:
        if variable in shell.values.variables:
            shell.values.variables[variable] = None
            shell.exported.add(variable)
    elif stops:
        shell.exported.discard(variable)
    else:
        shell.exported.add(variable)


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
        for variable in [] if "-f" in fields else fields:
            if variable and not variable.startswith("-"):
                if conditional:
                    _set(shell, variable, None, True, export=False)
                else:
                    values.variables.pop(variable, None)
    elif name in ("cd", "pushd", "popd"):
        targets = [target for target in fields if target not in ("--", "-P", "-L")]
        home = values.variables.get("HOME") if name == "cd" and not targets else None
        target = targets[0] if len(targets) == 1 and name != "popd" else home
        if "CDPATH" in values.variables and not (target or "").startswith(("/", ".")):
            target = None
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
        if "a" in text[1:]:
            shell.all_exported = text.startswith("-")
        if text.endswith("o"):
            index += 1
            if index < len(fields) and fields[index] == "allexport":
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
