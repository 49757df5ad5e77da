"""From an image's config to the launch: which interpreter starts what, followed through wrappers and scripts."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from patchkit.errors import BadInput, Refused
from patchkit.images import paths
from patchkit.images.model import DEFAULT_PATH, Entry, Filesystem
from patchkit.site.model import Launch, LaunchForm
from patchkit.site.script import ending_of
from patchkit.site.shell import NotPlain

#: Where the boot guard lies in an image or is mounted; it starts what follows it.
GUARD_PATH = "/.patchkit/guard.py"

_MAX_STEPS = 12
_BEFORE = "before it, `"
# A larger file is taken for a compiled program without being read: some transports read slowly.
_LARGEST_SCRIPT = 1024 * 1024
_ELF = b"\x7fELF"
_SHEBANG_LENGTH = 255  # of the kernel: fs/binfmt_script.c, BINPRM_BUF_SIZE less one
_PYTHON = re.compile(r"python(\d+(\.\d+)?)?t?")  # t: the free-threaded build (PEP 703)
_SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh"})


# Programs that start another Python, whose search path is not theirs: it begins with that program's folder.
_STARTER_NAMES = """
    torchrun accelerate deepspeed horovodrun ddtrace-run opentelemetry-instrument newrelic-admin coverage
"""
_STARTERS = frozenset(_STARTER_NAMES.split())
_STARTING_MODULES = re.compile(
    r"torch\.distributed\.(run|launch)|accelerate\.commands\.\w+|deepspeed(\..*)?"
    r"|pdb|cProfile|profile|trace|runpy|coverage|debugpy|memray|viztracer|ddtrace(\..*)?"
)


def is_python(program: str) -> bool:
    """Whether a program's file is called as Python interpreters are."""
    return _PYTHON.fullmatch(posixpath.basename(program)) is not None


class _Unknown(Exception):  # noqa: N818
    """The way from the config to an interpreter is not plain; the text says why."""


@dataclass
class _Way:
    """Where the following stands: environment, working folder and user as they are by now, and the way so far."""

    fs: Filesystem
    env: dict[str, str]
    cwd: str
    user: str
    trail: list[str] = field(default_factory=list)
    scripts: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def real(self, path: str) -> str:
        return paths.realpath(self.fs, posixpath.join(self.cwd, path))

    def entry(self, path: str) -> Entry | None:
        return paths.stat(self.fs, posixpath.join(self.cwd, path))

    def program(self, name: str) -> str:
        """The absolute path of a program as execvp(3) finds it."""
        if "/" in name:
            found = posixpath.normpath(posixpath.join(self.cwd, name))
            if not _runnable(self.entry(found)):
                raise _Unknown(f"`{name}` is no program in the image")
            return found
        search = self.env.get("PATH", DEFAULT_PATH)
        for folder in search.split(":"):
            found = posixpath.join(self.cwd, folder, name)
            if _runnable(self.entry(found)):
                return found
        raise _Unknown(f"`{name}` is not on the image's PATH ({search})")


def launch_of(config: Mapping[str, Any], fs: Filesystem, override: str | None = None) -> Launch:
    """The launch that this config starts.

    Args:
        config: an image's whole config JSON, or only its ``config`` part, or the ``Config`` of a running container:
            Entrypoint, Cmd, Env, WorkingDir and User are read.
        fs: the image's files; nothing is run.
        override: what the person gave with ``--launch``: a command line that stands for entrypoint and command.

    Returns:
        The launch. Where the way is not plain its form is ``unknown`` and ``source`` says why.

    Raises:
        patchkit.errors.BadInput: ``launch-unreadable``, the override is no command line.
    """
    way, inner = _start(config, fs)
    if override is None:
        start = "the image's entrypoint and command"
        argv = [*_strings(inner.get("Entrypoint")), *_strings(inner.get("Cmd"))]
    else:
        start = "--launch"
        argv = _split(override)
        if not argv:
            raise BadInput("launch-unreadable", "an empty command line starts nothing", where="--launch")
    try:
        if not argv:
            raise _Unknown("the image has neither entrypoint nor command")
        launch = _follow(way, list(argv), 0)
        return replace(launch, source="; ".join([_trail(start, way), *way.notes]))
    except (_Unknown, Refused) as why:
        return Launch("unknown", "", "", way.cwd, way.env, way.user, source=f"{_trail(start, way)}: {why}")


def runs_before(launch: Launch) -> list[str]:
    """What a start script runs before it gives way to the server, a clause each, as ``source`` tells it."""
    return [note for note in launch.source.split("; ") if note.startswith(_BEFORE)]


def program_of(config: Mapping[str, Any], fs: Filesystem, name: str) -> str:
    """The absolute path of the program that ``name`` starts in this image, empty where it starts none."""
    try:
        return _start(config, fs)[0].program(name)
    except _Unknown:
        return ""


def given_to(config: Mapping[str, Any], fs: Filesystem) -> tuple[dict[str, str], str]:
    """Environment and working folder as the engine gives them to the entrypoint."""
    way, _ = _start(config, fs)
    return way.env, way.cwd


def _start(config: Mapping[str, Any], fs: Filesystem) -> tuple[_Way, Mapping[str, Any]]:
    """The process as the engine starts it, and the inner part of the config."""
    inner = config.get("config", config)
    if not isinstance(inner, Mapping):
        inner = {}
    user = inner.get("User")
    user = user if isinstance(user, str) else ""
    env = _environment(inner.get("Env"))
    env.setdefault("PATH", DEFAULT_PATH)
    env.setdefault("HOME", home_of(fs, user))
    cwd = inner.get("WorkingDir")
    cwd = posixpath.normpath(posixpath.join("/", cwd)) if isinstance(cwd, str) else "/"
    return _Way(fs, env, paths.realpath(fs, cwd), user), inner


def require_known(launch: Launch) -> Launch:
    """The launch itself.

    Raises:
        patchkit.errors.Refused: ``launch-unknown``, with the reason and how to name it.
    """
    if launch.form == "unknown":
        raise Refused(
            "launch-unknown",
            "reading does not tell which Python serves, so nothing can be said about what it imports",
            where=launch.source,
            remedy="name the command that serves: --launch 'vllm serve' (or --launch '/path/to/python -m package')",
        )
    return launch


def service_config(service: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """The image's config as a compose service changes it: entrypoint, command, environment, working_dir, user.

    ``service`` is one service of the effective model (interpolated). A service's entrypoint drops the image's command.
    Source: Compose specification, 05-services.md, ``entrypoint`` and ``command``.
    """
    inner = config.get("config", config)
    merged: dict[str, Any] = dict(inner) if isinstance(inner, Mapping) else {}
    if service.get("entrypoint") is not None:
        merged["Entrypoint"] = _words(service["entrypoint"])
        merged["Cmd"] = []
    if service.get("command") is not None:
        merged["Cmd"] = _words(service["command"])
    env = _environment(merged.get("Env"))
    settings = service.get("environment")
    if isinstance(settings, Mapping):
        env.update({str(name): _text(value) for name, value in settings.items() if value is not None})
    elif isinstance(settings, Sequence) and not isinstance(settings, str):
        env.update(_environment(settings))
    merged["Env"] = [f"{name}={value}" for name, value in env.items()]
    if isinstance(service.get("working_dir"), str):
        merged["WorkingDir"] = service["working_dir"]
    if service.get("user") is not None:
        merged["User"] = str(service["user"])
    return merged


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _words(value: object) -> list[str]:
    return _split(value) if isinstance(value, str) else _strings(value)


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as why:
        raise BadInput("launch-unreadable", f"this is no command line: {why}", where=text) from why


def _strings(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [str(item) for item in value] if isinstance(value, Sequence) else []


def _environment(value: object) -> dict[str, str]:
    return dict(item.split("=", 1) for item in _strings(value) if "=" in item)


def home_of(fs: Filesystem, user: str) -> str:
    """HOME as engines set it: the user's in /etc/passwd, else ``/`` (moby, daemon/oci_linux.go)."""
    name = user.partition(":")[0] or "0"
    for fields in paths.rows(fs, "/etc/passwd"):
        if len(fields) >= 6 and name in (fields[0], fields[2]):
            return fields[5] or "/"
    return "/"


def _runnable(entry: Entry | None) -> bool:
    return entry is not None and entry.kind == "file" and bool(entry.mode & 0o111)


def _trail(start: str, way: _Way) -> str:
    return " → ".join([start, *way.trail])


def _follow(way: _Way, argv: list[str | None], count: int) -> Launch:
    if count > _MAX_STEPS:
        raise _Unknown("more wrappers than can be followed")
    name = argv[0]
    if name is None:
        raise _Unknown("the program's name is one that only running tells")
    program = way.program(name)
    real = way.real(program)
    way.trail.append(program)
    entry = way.fs.lstat(real)
    data = way.fs.read(real) if entry is not None and entry.size <= _LARGEST_SCRIPT else _ELF
    if data.startswith(b"#!"):
        return _follow_shebang(way, program, data, argv[1:], count)
    if is_python(program) or is_python(real):
        return _python(way, program, argv[1:], count)
    for path in (program, real):
        base = posixpath.basename(path)
        if base in _SHELLS:
            return _shell(way, base, argv[1:], count)
        if base == "busybox" and argv[1:] and argv[1] in _SHELLS:
            return _shell(way, argv[1], argv[2:], count)
        if base in _WRAPPERS:
            return _follow(way, _WRAPPERS[base](way, argv[1:]), count + 1)
    if not data.startswith(_ELF):
        # execvp(3) gives a file without a magic number to the shell.
        return _script(way, program, data, argv[1:], count)
    raise _Unknown(f"`{program}` is a compiled program that is no Python and no wrapper known here")


def _follow_shebang(way: _Way, program: str, data: bytes, args: list[str | None], count: int) -> Launch:
    line = data[2 : _SHEBANG_LENGTH + 1].split(b"\n", 1)
    if len(line) == 1 and len(data) > _SHEBANG_LENGTH:
        raise _Unknown(f"`{program}` has a first line longer than the {_SHEBANG_LENGTH} bytes that Linux reads")
    # All that follows the interpreter is one argument: execve(2).
    words = line[0].decode("utf-8", "surrogateescape").strip(" \t\r").split(None, 1)
    if not words:
        raise _Unknown(f"`{program}` has an empty `#!` line")
    way.scripts.append(program)
    return _follow(way, [words[0], *words[1:], program, *args], count + 1)


def _shell(way: _Way, name: str, args: list[str | None], count: int) -> Launch:
    index = 0
    command = False
    before = way.env.get("BASH_ENV", "") if name == "bash" else ""
    while index < len(args):
        text = args[index]
        if text is None:
            raise _Unknown(f"an option of `{name}` is one that only running tells")
        if text in ("--", "-"):
            index += 1
            break
        if not text.startswith(("-", "+")) or len(text) < 2:
            break
        if text.startswith("--"):
            index += 1 + (text in ("--rcfile", "--init-file"))
            before = "" if text == "--posix" else before
            continue
        letters = text[1:]
        before = "" if "p" in letters and text.startswith("-") else before
        if "s" in letters and text.startswith("-"):
            raise _Unknown(f"`{name} -s` reads its commands from standard input")
        if "l" in letters or (name != "sh" and "i" in letters):
            raise _Unknown(f"`{name} {text}` reads start-up files first, which may change everything")
        command = command or "c" in letters
        index += 1 + letters.count("o")
    rest = args[index:]
    if not rest:
        raise _Unknown(f"`{name}` without a script is interactive: nothing serves")
    first = rest[0]
    if first is None:
        raise _Unknown(f"what `{name}` runs is something that only running tells")
    if command:
        way.trail[-1] += " -c"
        zero = rest[1] if len(rest) > 1 and rest[1] is not None else name
        return _shell_text(way, first, zero, rest[2:], count, before)
    path = posixpath.normpath(posixpath.join(way.cwd, first))
    entry = way.entry(path)
    if entry is None or entry.kind != "file":
        raise _Unknown(f"the script `{first}` is not in the image")
    return _script(way, path, way.fs.read(entry.path), rest[1:], count, before)


def _script(way: _Way, path: str, data: bytes, args: list[str | None], count: int, before: str = "") -> Launch:
    if way.trail[-1] != path:
        way.trail.append(path)
    if b"\0" in data[:4096]:
        raise _Unknown(f"`{path}` is neither a program nor a script that can be read")
    if path not in way.scripts:
        way.scripts.append(path)
    return _shell_text(way, data.decode("utf-8", "surrogateescape"), path, args, count, before)


def _shell_text(way: _Way, text: str, zero: str, args: list[str | None], count: int, before: str) -> Launch:
    """``before`` is the file that bash reads first, as BASH_ENV names it (bash(1), "Invocation")."""
    if before:
        text = f'. "{before}"; {text}'  # in one line: errors name the script's
    try:
        ending = ending_of(way.fs, text, zero, args, way.env, way.cwd)
    except NotPlain as why:
        raise _Unknown(f"not plain enough to follow: {why}") from why
    way.env, way.cwd = ending.env, paths.realpath(way.fs, ending.cwd)
    way.notes.extend(f"{_BEFORE}{command}` runs and may change files" for command in ending.earlier)
    if not ending.argv:
        raise _Unknown("the script ends in an empty command")
    return _follow(way, list(ending.argv), count + 1)


_LETTERS = frozenset("bBdEiIOPqRsSuvx")
# Those that change the search path or which bytecode is read.
_KEPT = frozenset("IPEsSO")


def _python(way: _Way, interpreter: str, args: list[str | None], count: int) -> Launch:
    """Source: docs.python.org, using/cmdline: the options, then one of ``-c``, ``-m``, a script, or nothing."""
    flags: list[str] = []
    index = 0
    while index < len(args):
        text = args[index]
        following = args[index + 1] if index + 1 < len(args) else ""
        if text is None or following is None:
            raise _Unknown("an argument of Python is one that only running tells")
        if not text.startswith("-"):
            if posixpath.join(way.cwd, text) == GUARD_PATH:
                way.trail[-1] = "boot guard"
                return _follow(way, args[index + 1 :] or [None], count + 1)
            return _launch(way, interpreter, "script", text, flags)
        if text == "-":
            raise _Unknown("Python reads its program from standard input")
        if text == "--check-hash-based-pycs":
            flags.extend((text, following))
            index += 2
            continue
        if text.startswith("--"):
            raise _Unknown(f"`{text}` makes Python print and end")
        ends, value, took = _python_letters(text, following, flags)
        if ends:
            return _launch(way, interpreter, ends, value, flags)
        index += 1 + took
    raise _Unknown("Python without a script is interactive: nothing serves")


def _python_letters(text: str, following: str, flags: list[str]) -> tuple[LaunchForm | None, str, int]:
    """Read one argument of one-letter options: the form that it starts and what of, and how many words more it took."""
    for position, letter in enumerate(text[1:], 2):
        attached = text[position:]
        if letter in "cm":
            value = attached or following
            if not value:
                raise _Unknown(f"`-{letter}` without what to run")
            return ("command" if letter == "c" else "module"), value, 0
        if letter in "WX":
            value = attached or following
            if letter == "X" and value.startswith(("pycache_prefix", "frozen_modules")):
                flags.append(f"-X{value}")
            return None, "", 0 if attached else 1
        if letter in "hV?":
            raise _Unknown(f"`-{letter}` makes Python print and end")
        if letter not in _LETTERS:
            raise _Unknown(f"`-{letter}` is no option of Python known here")
        if letter in _KEPT:
            flags.append(f"-{letter}")
    return None, "", 0


def _launch(way: _Way, interpreter: str, form: LaunchForm, argument: str, flags: list[str]) -> Launch:
    starter = argument if form == "module" else posixpath.basename(argument) if form == "script" else ""
    if starter in _STARTERS or (form == "module" and _STARTING_MODULES.fullmatch(starter)):
        raise _Unknown(f"`{starter}` starts another program, which is what serves")
    if form == "script":
        argument = posixpath.normpath(posixpath.join(way.cwd, argument))
        if way.entry(argument) is None:
            raise _Unknown(f"the script `{argument}` is not in the image")
        if argument in way.scripts:
            form = "console-script"
        else:
            way.trail.append(argument)
    else:
        way.trail[-1] += f" -m {argument}" if form == "module" else " -c"
    return Launch(form, interpreter, argument, way.cwd, dict(way.env), way.user, tuple(flags))


# Programs that end in starting another one: name -> what is left of their arguments.

_Wrapper = Callable[[_Way, list[str | None]], list[str | None]]


def _past_options(name: str, valued: str = "", positional: int = 0) -> _Wrapper:
    """A wrapper with one-letter options, of which ``valued`` take an argument, then ``positional`` words."""

    def rest(way: _Way, args: list[str | None]) -> list[str | None]:
        index = 0
        while index < len(args):
            text = args[index]
            if text is None:
                raise _Unknown(f"an option of `{name}` is one that only running tells")
            if text == "--":
                index += 1
                break
            if not text.startswith("-") or text == "-":
                break
            takes = not text.startswith("--") and text[-1] in valued and text.find(text[-1]) == len(text) - 1
            index += 2 if takes else 1
        index += positional
        if index >= len(args):
            raise _Unknown(f"`{name}` is given no program to start")
        return args[index:]

    return rest


def _env(way: _Way, args: list[str | None]) -> list[str | None]:
    """env(1), with ``-S`` of GNU coreutils 8.30 and ``-C``."""
    index = 0
    while index < len(args):
        text = args[index]
        if text is None:
            raise _Unknown("an argument of `env` is one that only running tells")
        if text in ("-i", "-", "--ignore-environment"):
            way.env = {}
        elif text == "--":
            index += 1
            break
        elif text in ("-u", "--unset", "-C", "--chdir") or text.startswith(("--unset=", "--chdir=")):
            value: str | None = text.partition("=")[2]
            if not value:
                index += 1
                value = args[index] if index < len(args) else ""
            if text.startswith(("-u", "--unset")):
                way.env.pop(value or "", None)
            else:
                way.cwd = way.real(value or "")
        elif text.startswith(("-S", "--split-string", "-vS")):
            joined = text.partition("S")[2] if text.startswith(("-S", "-vS")) else text.partition("=")[2]
            if not joined:
                index += 1
                joined = (args[index] if index < len(args) else "") or ""
            if "${" in joined:
                raise _Unknown("`env -S` with variables")
            try:
                words = shlex.split(joined)
            except ValueError as why:
                raise _Unknown(f"`env -S` with words that cannot be split: {why}") from why
            return _env(way, [*words, *args[index + 1 :]])
        elif text.startswith("-"):
            if text not in ("-v", "--debug", "-0", "--null"):
                raise _Unknown(f"`{text}` is no option of `env` known here")
        elif "=" in text:
            name, _, setting = text.partition("=")
            way.env[name] = setting
        else:
            break
        index += 1
    while index < len(args) and "=" in (args[index] or ""):
        name, _, setting = (args[index] or "").partition("=")
        way.env[name] = setting
        index += 1
    if index >= len(args):
        raise _Unknown("`env` is given no program to start")
    return args[index:]


def _as_user(name: str) -> _Wrapper:
    def rest(way: _Way, args: list[str | None]) -> list[str | None]:
        args = args[1:] if args[:1] == ["--"] else args
        if len(args) < 2 or args[0] is None or args[0].startswith("-"):
            raise _Unknown(f"`{name}` with options")
        way.user = args[0]
        way.env["HOME"] = home_of(way.fs, args[0])
        return args[1:]

    return rest


_WRAPPERS: dict[str, _Wrapper] = {
    "env": _env,
    "tini": _past_options("tini", valued="ep"),
    "tini-static": _past_options("tini", valued="ep"),
    "docker-init": _past_options("docker-init", valued="ep"),
    "catatonit": _past_options("catatonit"),
    "dumb-init": _past_options("dumb-init", valued="r"),
    "nohup": _past_options("nohup"),
    "setsid": _past_options("setsid"),
    "nice": _past_options("nice", valued="n"),
    "ionice": _past_options("ionice", valued="cn"),
    "stdbuf": _past_options("stdbuf", valued="ioe"),
    "timeout": _past_options("timeout", valued="ks", positional=1),
    "numactl": _past_options("numactl", valued="mNCpil"),
    "taskset": _past_options("taskset", positional=1),
    "gosu": _as_user("gosu"),
    "su-exec": _as_user("su-exec"),
}
