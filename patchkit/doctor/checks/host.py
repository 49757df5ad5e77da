"""This machine, for a stack that serves on its cards."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from patchkit.doctor.model import Report, check
from patchkit.doctor.world import Container, World

_DRI = Path("/dev/dri")


@check(
    "render-device",
    "error",
    "a server for Intel or AMD cards sees no card",
    """XPU and ROCm servers reach their cards through /dev/dri (and /dev/kfd). Without the device in the container the
    server falls back or fails at start.""",
)
def render_device(world: World) -> Iterator[Report]:
    for container in world.containers:
        if _needs_dri(container):
            devices = [str(each.get("PathOnHost")) for each in _host_config(container).get("Devices") or []]
            if not any(each.startswith("/dev/dri") for each in devices) and not _host_config(container).get(
                "Privileged"
            ):
                yield Report("/dev/dri is not passed to it", container.name, remedy="devices: [/dev/dri:/dev/dri]")
    if any(_needs_dri(container) for container in world.containers) and not list(_DRI.glob("renderD*")):
        yield Report("this machine has no render device", where=str(_DRI), remedy="install the cards' driver")


@check(
    "render-group",
    "warning",
    "a server's user is not in the group of the render devices",
    "The render devices belong to a group; a server that does not run as root needs it with group_add.",
)
def render_group(world: World) -> Iterator[Report]:
    groups = {str(device.stat().st_gid) for device in _DRI.glob("renderD*")}
    for container in world.containers:
        user = str((container.inspect.get("Config") or {}).get("User") or "0")
        if groups and _needs_dri(container) and user.split(":")[0] not in ("0", "root"):
            added = {str(group) for group in _host_config(container).get("GroupAdd") or []}
            if not added & {*groups, "render"}:
                remedy = f"group_add: [{min(groups)}]"
                yield Report(f"user {user} without group {', '.join(sorted(groups))}", container.name, remedy=remedy)


@check(
    "weights-incomplete",
    "error",
    "a model's weights are not all there",
    "The index of a model in shards names files that the mounted folder does not hold: the download was cut.",
)
def weights(world: World) -> Iterator[Report]:
    seen: set[Path] = set()
    for container in world.containers:
        for mount in container.mounts:
            source = Path(str(mount.get("Source", "")))
            if mount.get("Type") != "bind" or source in seen or not source.is_dir():
                continue
            seen.add(source)
            for index in _indexes(source):
                missing = _missing(index)
                if missing:
                    yield Report(
                        f"{len(missing)} shards are missing, first {missing[0]}",
                        where=str(index.parent),
                        remedy="download the model again; what is there is kept",
                    )


def _indexes(folder: Path) -> Iterator[Path]:
    """Indexes of sharded weights in a mounted folder itself, or in a cache of the Hugging Face hub below it."""
    name = "model.safetensors.index.json"
    yield from sorted({*folder.glob(name), *folder.glob(f"*/{name}"), *folder.glob(f"**/models--*/snapshots/*/{name}")})


def _missing(index: Path) -> list[str]:
    try:
        shards = set(json.loads(index.read_bytes())["weight_map"].values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return [index.name]
    return sorted(str(shard) for shard in shards if not (index.parent / str(shard)).is_file())


def _needs_dri(container: Container) -> bool:
    env = (container.inspect.get("Config") or {}).get("Env") or []
    return "VLLM_TARGET_DEVICE=xpu" in env or "VLLM_TARGET_DEVICE=rocm" in env


def _host_config(container: Container) -> dict[str, Any]:
    return dict(container.inspect.get("HostConfig") or {})
