"""A compose service, or an image alone, as one command line for docker or podman."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from patchkit.stack.compose_model import Model, Service
from patchkit.stack.overlay import OverlayMount, PinnedImage, Start

#: Keys of a service that the line carries, or that mean nothing outside of a compose project.
_CARRIED = frozenset(
    (
        *("image", "build", "command", "entrypoint", "environment", "volumes", "ports", "devices", "group_add"),
        *("deploy", "gpus", "ipc", "shm_size", "ulimits", "network_mode", "user", "working_dir", "cap_add", "cap_drop"),
        *("init", "security_opt", "privileged", "restart", "stop_grace_period", "healthcheck", "hostname", "read_only"),
        *("tmpfs", "labels", "container_name", "profiles", "pull_policy", "networks", "depends_on", "extra_hosts"),
    )
)


def run_line(
    engine: str,
    image: PinnedImage,
    *,
    mounts: Sequence[OverlayMount] = (),
    labels: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    start: Start | None = None,
    service: Service | None = None,
    model: Model | None = None,
) -> tuple[str, tuple[str, ...]]:
    """The command line, and the keys of the service that it cannot carry.

    Args:
        engine: ``docker`` or ``podman``.
        image: what to run.
        mounts: patched files; ``--mount`` fails where the source is missing, ``-v`` would make a folder of it.
        labels: labels of the container.
        environment: variables to add or replace.
        start: a start with a guard in front, instead of the service's own.
        service: the compose service to carry over, with ``model`` around it.
    """
    raw: Mapping[str, Any] = service.raw if service else {}
    variables = {**(service.environment if service else {}), **(environment or {})}
    entrypoint = start.entrypoint if start else service.entrypoint if service else None
    command = start.command if start and start.command is not None else service.command if service else None
    words: list[list[str]] = [[engine, "run", "--rm"] if not raw.get("restart") else [engine, "run", "-d"]]
    words += _settings(raw)
    words += [["-e", name if value is None else f"{name}={value}"] for name, value in sorted(variables.items())]
    words += [["--label", f"{name}={value}"] for name, value in sorted((labels or {}).items())]
    words += _volumes(raw, model)
    words += [["--mount", _mount("bind", each.source, each.target, True, each.selinux)] for each in mounts]
    if image.local:
        words.append(["--pull=never"])
    rest = list(entrypoint[1:]) if entrypoint else []
    if entrypoint:
        words.append(["--entrypoint", entrypoint[0]])
    words.append([image.name, *rest, *(command or ())])
    left = tuple(key for key, value in raw.items() if value not in (None, [], {}) and key not in _CARRIED)
    return " \\\n  ".join(" ".join(shlex.quote(word) for word in group) for group in words), left


def _settings(raw: Mapping[str, Any]) -> Iterator[list[str]]:
    plain = {
        "container_name": "--name",
        "network_mode": "--network",
        "user": "--user",
        "working_dir": "--workdir",
        "hostname": "--hostname",
        "ipc": "--ipc",
        "shm_size": "--shm-size",
        "restart": "--restart",
    }
    for key, option in plain.items():
        if raw.get(key):
            yield [option, str(raw[key])]
    for key, option in {"privileged": "--privileged", "init": "--init", "read_only": "--read-only"}.items():
        if raw.get(key):
            yield [option]
    lists = {"group_add": "--group-add", "cap_add": "--cap-add", "cap_drop": "--cap-drop"}
    lists |= {"security_opt": "--security-opt", "tmpfs": "--tmpfs", "extra_hosts": "--add-host"}
    for key, option in lists.items():
        for each in raw.get(key) or ():
            yield [option, str(each)]
    for device in raw.get("devices") or ():
        parts = (device.get("source"), device.get("target"), device.get("permissions"))
        yield ["--device", ":".join(part for part in parts if part)]
    yield from _gpus(raw)
    for port in raw.get("ports") or ():
        host = f"{port['host_ip']}:" if port.get("host_ip") else ""
        published = f"{port['published']}:" if port.get("published") else ""
        protocol = "" if port.get("protocol", "tcp") == "tcp" else f"/{port['protocol']}"
        yield ["-p", f"{host}{published}{port['target']}{protocol}"]
    for name, limit in (raw.get("ulimits") or {}).items():
        soft, hard = (limit["soft"], limit["hard"]) if isinstance(limit, Mapping) else (limit, limit)
        yield ["--ulimit", f"{name}={soft}:{hard}"]
    if raw.get("stop_grace_period"):
        yield ["--stop-timeout", str(_seconds(str(raw["stop_grace_period"])))]
    yield from _health(raw.get("healthcheck") or {})


def _gpus(raw: Mapping[str, Any]) -> Iterator[list[str]]:
    reserved = (((raw.get("deploy") or {}).get("resources") or {}).get("reservations") or {}).get("devices") or ()
    for device in [*reserved, *(raw.get("gpus") or ())]:
        if device.get("device_ids"):
            yield ["--gpus", f'"device={",".join(device["device_ids"])}"']
        else:
            count = device.get("count", -1)
            yield ["--gpus", "all" if count == -1 else str(count)]


def _health(check: Mapping[str, Any]) -> Iterator[list[str]]:
    if check.get("disable"):
        yield ["--no-healthcheck"]
        return
    test = check.get("test")
    if test:
        kind, *words = test
        yield ["--health-cmd", words[0] if kind == "CMD-SHELL" else shlex.join(words)]
    for key in ("interval", "timeout", "retries", "start_period"):
        if check.get(key) is not None:
            yield [f"--health-{key.replace('_', '-')}", str(check[key])]


def _volumes(raw: Mapping[str, Any], model: Model | None) -> Iterator[list[str]]:
    for volume in raw.get("volumes") or ():
        source = str(volume.get("source") or "")
        if volume["type"] == "volume" and model is not None:
            source = model.volumes.get(source, source)
        selinux = str((volume.get("bind") or {}).get("selinux") or "")
        yield ["--mount", _mount(volume["type"], source, volume["target"], bool(volume.get("read_only")), selinux)]


def _mount(kind: str, source: str, target: str, read_only: bool, selinux: str) -> str:
    parts = [f"type={kind}", f"target={target}"]
    if source:
        parts.insert(1, f"source={source}")
    if read_only:
        parts.append("readonly")
    if selinux:
        parts.append("relabel=shared" if selinux == "z" else "relabel=private")
    # A comma separates the parts, so one inside a path needs the CSV quotes that docker's parser takes.
    return ",".join(_csv(part) if "," in part or '"' in part else part for part in parts)


def _csv(field: str) -> str:
    doubled = field.replace('"', '""')
    return f'"{doubled}"'


def _seconds(text: str) -> int:
    """Compose writes durations as ``1m30s``."""
    total, number = 0, ""
    for char in text:
        if char.isdigit():
            number += char
        else:
            total += int(number or 0) * {"h": 3600, "m": 60, "s": 1}.get(char, 0)
            number = ""
    return total
