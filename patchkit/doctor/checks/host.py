"""This machine, for a stack that serves on its cards."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from patchkit.catalog.model import Gpus
from patchkit.doctor.model import Report, check
from patchkit.doctor.world import Container, World
from patchkit.errors import PatchkitError
from patchkit.proof.gpus import gpu_findings
from patchkit.site.gpus import amd_gpus

_DRI = Path("/dev/dri")
_DRM = Path("/sys/class/drm")
_NVIDIA = Path("/proc/driver/nvidia/gpus")
_MEMINFO = Path("/proc/meminfo")
_INDEX = "model.safetensors.index.json"
_ROOT = "/"


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
                yield Report(
                    "/dev/dri is not passed to it",
                    container.name,
                    remedy="give it to the service: devices: [/dev/dri:/dev/dri]",
                )
    elsewhere = world.engine is not None and world.engine.is_remote
    if any(map(_needs_dri, world.containers)) and not elsewhere and not list(_DRI.glob("renderD*")):
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
                remedy = f"give it to the service: group_add: [{min(groups)}]"
                yield Report(f"user {user} without group {', '.join(sorted(groups))}", container.name, remedy=remedy)


@check(
    "gpu-refused",
    "error",
    "a server is given a GPU that its patches are not for",
    """The manifest names the architectures that its series is for. On another the patched code may take a path that was
    never meant for it: an AMD gfx103x passes for an NVIDIA SM100. Each container is asked which GPUs it is given; with
    --image this machine is asked whether any of its AMD GPUs would do.""",
)
def gpu_refused(world: World) -> Iterator[Report]:
    for container, done in world.proven:
        manifest = world.manifest(done.receipt.manifest)
        wanted = manifest.gpus if manifest else None
        yield from _refused(wanted, world.gpus.get(container.id, ()), container.name)
    elsewhere = world.engine is not None and world.engine.is_remote
    if world.plan is not None and not isinstance(world.plan, PatchkitError) and not elsewhere:
        wanted, here = world.plan.match.manifest.gpus, amd_gpus(_ROOT)
        if all(list(_refused(wanted, [gpu], "")) for gpu in here):
            yield from _refused(wanted, here, "this machine")


def _refused(wanted: Gpus | None, gpus: Sequence[tuple[str, str]], where: str) -> Iterator[Report]:
    for finding in gpu_findings(wanted, gpus, where):
        yield Report.of(finding)


@check(
    "weights-incomplete",
    "error",
    "a model's weights are not all there",
    "The index of a model in shards names files that the mounted folder does not hold: the download was cut.",
)
def weights(world: World) -> Iterator[Report]:
    for model in _models(world):
        missing = _missing(model / _INDEX) if (model / _INDEX).is_file() else []
        if missing:
            yield Report(
                f"{len(missing)} shards are missing, first {missing[0]}",
                where=str(model),
                remedy="download the model again; what is there is kept",
            )


@check(
    "weights-no-room",
    "error",
    "the rest of a model's weights does not fit on its disk",
    "The index of a model in shards tells its size. A download that fills the disk fails after hours.",
)
def no_room(world: World) -> Iterator[Report]:
    for model in _models(world):
        wanted = _json(model / _INDEX).get("metadata")
        total = wanted.get("total_size") if isinstance(wanted, dict) else None
        if not isinstance(total, int):
            continue
        there = sum(shard.stat().st_size for shard in model.glob("*.safetensors") if shard.is_file())
        free = shutil.disk_usage(model).free
        if total - there > free:
            yield Report(
                f"{_gib(total - there)} are still to come, {_gib(free)} are free",
                where=str(model),
                remedy="make room, or keep the weights on another disk",
            )


@check(
    "model-unknown",
    "warning",
    "the image does not hold the module of the model that is served",
    """vLLM's register of models does not know the architecture that the model's config.json asks for: the image is too
    old for the model, and the server ends, or falls back to a slow general way.""",
)
def model_unknown(world: World) -> Iterator[Report]:
    for container in world.containers:
        register = world.package_file(container, "model_executor/models/registry.py")
        if register is None:
            continue
        argv = " ".join(map(str, container.inspect.get("Args") or []))
        for mount, model in _mounted_models(container):
            names = _json(model / "config.json").get("architectures")
            hub = model.parent.parent.name.removeprefix("models--").replace("--", "/")
            if not isinstance(names, list) or not (str(mount.get("Destination")) in argv or hub in argv.split()):
                continue
            unknown = [str(name) for name in names if f'"{name}"'.encode() not in register]
            if unknown and len(unknown) == len(names):
                yield Report(
                    f"it knows no {', '.join(unknown)}",
                    where=f"{container.name}: {model}",
                    remedy="take an image with a newer vLLM",
                )


@check(
    "cards",
    "note",
    "which cards and how much memory this machine has",
    """What the kernel tells of the cards: PCI vendor and device, and the memory that the driver reports or, where it
    reports none, the largest window into it.""",
)
def cards(world: World) -> Iterator[Report]:
    found = [_card(device) for device in sorted(_DRM.glob("card[0-9]*/device")) if device.parent.name[4:].isdigit()]
    found += [
        text.group(1).strip()
        for told in sorted(_NVIDIA.glob("*/information"))
        if (text := re.search("^Model:(.*)$", told.read_text(errors="replace"), re.MULTILINE))
    ]
    if found:
        yield Report(f"{len(found)} cards: {'; '.join(found)}", evidence=_memory())


def _card(device: Path) -> str:
    name = f"{_text(device / 'vendor')}:{_text(device / 'device')}"
    told = _text(device / "mem_info_vram_total")  # amdgpu
    if told.isdigit():
        return f"{name} with {_gib(int(told))}"
    # A line a window: first address, last address, flags (Linux, Documentation/PCI/sysfs-pci.rst).
    windows = [[int(word, 16) for word in line.split()] for line in _text(device / "resource").splitlines()]
    largest = max((line[1] - line[0] + 1 for line in windows if len(line) == 3 and line[1]), default=0)
    return f"{name} with a window of {_gib(largest)}" if largest else name


def _memory() -> str:
    line = next((each for each in _text(_MEMINFO).splitlines() if each.startswith("MemAvailable:")), "")
    return f"{_gib(int(line.split()[1]) * 1024)} of memory available" if line else ""


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace").strip()
    except OSError:
        return ""


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"


def _models(world: World) -> list[Path]:
    """Every folder of a model that some container has mounted."""
    return sorted({model for container in world.containers for _, model in _mounted_models(container)})


def _mounted_models(container: Container) -> Iterator[tuple[Mapping[str, Any], Path]]:
    """Models in a mounted folder itself, or in a cache of the Hugging Face hub not far below it. Never the whole tree:
    somebody may have mounted the whole disk."""
    for mount in container.mounts:
        source = Path(str(mount.get("Source", "")))
        if mount.get("Type") != "bind" or not source.is_dir():
            continue
        hubs = [f"{above}models--*/snapshots/*" for above in ("", "*/", "*/*/")]
        found = {file.parent for where in (".", "*", *hubs) for file in source.glob(f"{where}/config.json")}
        found |= {file.parent for where in (".", "*", *hubs) for file in source.glob(f"{where}/{_INDEX}")}
        for model in sorted(found):
            yield mount, model


def _missing(index: Path) -> list[str]:
    try:
        shards = set(_json(index)["weight_map"].values())
    except (KeyError, TypeError, AttributeError):
        return [index.name]
    return sorted(str(shard) for shard in shards if not (index.parent / str(shard)).is_file())


def _json(file: Path) -> dict[str, Any]:
    """The object in a file; empty where there is none."""
    try:
        found = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _needs_dri(container: Container) -> bool:
    env = (container.inspect.get("Config") or {}).get("Env") or []
    return "VLLM_TARGET_DEVICE=xpu" in env or "VLLM_TARGET_DEVICE=rocm" in env


def _host_config(container: Container) -> dict[str, Any]:
    return dict(container.inspect.get("HostConfig") or {})
