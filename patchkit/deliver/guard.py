"""The boot guard: a small program in front of the entrypoint that starts the server only if it runs what was proven.

It is one file, made for one delivery: a derived image holds it, a delivery by mounts mounts it. A nightly that moved
under the mounts, a changed PATH or PYTHONPATH, a shadowing folder then stop the start instead of half-patched serving.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from patchkit.catalog.model import Gpus, RefusedEnv
from patchkit.images.model import Filesystem
from patchkit.site.environment import decides_imports
from patchkit.site.launch import GUARD_PATH, given_to, launch_of, program_of, require_known
from patchkit.site.model import Launch
from patchkit.site.program import program_text

_MARK = 'SPEC: "dict[str, object]" = {}\n'


@dataclass(frozen=True, slots=True)
class GuardedFile:
    """One file that the server must find: real path, package-relative path, dotted module name (empty for data), hash
    (hex, or ``absent``) of the post-image, and the hash (hex) that RECORD holds for it, empty where it holds none."""

    path: str
    relative: str
    module: str
    post: str
    shipped: str = ""


@dataclass(frozen=True, slots=True)
class Guard:
    """One guard: the program's bytes, to lie at ``path`` readable by everybody, and what the container must start."""

    path: str
    program: bytes
    entrypoint: tuple[str, ...]
    command: tuple[str, ...]


def make_guard(
    config: Mapping[str, Any],
    fs: Filesystem,
    files: Sequence[GuardedFile],
    *,
    record: str,
    remedy: str,
    launch: str | None = None,
    gpus: Gpus | None = None,
    refused_env: Sequence[RefusedEnv] = (),
) -> Guard:
    """The guard of one delivery.

    Args:
        config: the image's config (or a service's, from ``service_config``), without a guard in it.
        fs: the image's files.
        files: what the server must find.
        record: the path of RECORD in the winner's dist-info, empty where there is none.
        remedy: the command that a person runs when the guard stops the start.
        launch: what the person gave with ``--launch``, where the image does not tell it.
        gpus: the only ones that the server may be started with.
        refused_env: settings that the server must not be started with.

    ``command`` is the image's own, to be repeated by a compose overlay: one that sets an entrypoint drops it (Compose
    specification, 05-services.md).

    Raises:
        patchkit.errors.Refused: ``launch-unknown``: there is nothing to be guarded.
    """
    inner = config.get("config", config)
    entrypoint = tuple(str(word) for word in inner.get("Entrypoint") or ())
    command = tuple(str(word) for word in inner.get("Cmd") or ())
    serving = require_known(launch_of(config, fs, launch))
    words = (*entrypoint, *command)
    first = words[0] if words and launch is None else ""
    spec = {
        "form": serving.form,
        "argument": serving.argument,
        "interpreter": serving.interpreter,
        "flags": list(serving.flags),
        "command": first,
        "program": program_of(config, fs, first) if first else "",
        "record": record,
        "files": [
            {
                "path": file.path,
                "relative": file.relative,
                "module": file.module,
                "post": file.post,
                "shipped": file.shipped,
            }
            for file in files
        ],
        "remedy": remedy,
        "gpus": {"only": list(gpus.only), "why": gpus.why} if gpus else {},
        "refused_env": [(one.name, list(one.values), one.why) for one in refused_env],
        **_changes(serving, config, fs),
    }
    text = program_text("patchkit.deliver", "_guard_program")
    assert text.count(_MARK) == 1
    # A literal of strings, lists and mappings in ASCII: whatever a name in the image holds, it stays a string.
    program = text.replace(_MARK, f"SPEC = {spec!a}\n").encode()
    return Guard(GUARD_PATH, program, (serving.interpreter, *serving.flags, GUARD_PATH, *entrypoint), command)


def _changes(serving: Launch, config: Mapping[str, Any], fs: Filesystem) -> dict[str, Any]:
    """What a start script changes of that which decides imports: the guard checks under the same."""
    start_env, start_cwd = given_to(config, fs)
    decides = {name for name in {*serving.env, *start_env} if decides_imports(name)}
    env = {n: serving.env[n] for n in sorted(decides) if n in serving.env and serving.env[n] != start_env.get(n)}
    unset = sorted(name for name in decides if name in start_env and name not in serving.env)
    return {"env": env, "unset": unset, "cwd": serving.cwd if serving.cwd != start_cwd else ""}
