"""This machine, for a stack that serves on its cards."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from patchkit.doctor.asking import or_why
from patchkit.doctor.model import Report, Unseen, check, elsewhere
from patchkit.doctor.world import Container, World
from patchkit.errors import BadInput, PatchkitError
from patchkit.findings import Finding
from patchkit.plan import Plan
from patchkit.proof.gpus import gpu_findings
from patchkit.site.gpus import amd_gpus

_DRI = Path("/dev/dri")
_DRM = Path("/sys/class/drm")
_NVIDIA = Path("/proc/driver/nvidia/gpus")
_MEMINFO = Path("/proc/meminfo")
_INDEX = "model.safetensors.index.json"
_AGAIN = "download the model again; what is there is kept"


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
    if away := elsewhere(world):
        yield away
    elif any(map(_needs_dri, world.containers)) and not list(_DRI.glob("renderD*")):
        yield Report("this machine has no render device", where=str(_DRI), remedy="install the cards' driver")


@check(
    "render-group",
    "warning",
    "a server's user is not in the group of the render devices",
    "The render devices belong to a group; a server that does not run as root needs it with group_add.",
)
def render_group(world: World) -> Iterator[Report]:
    if away := elsewhere(world):
        yield away
        return
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
def gpu_refused(world: World) -> Iterator[Report | Finding]:
    for container, done in world.proven:
        gpus = world.promises(done.receipt).gpus
        if gpus is None:
            continue
        answer = world.answer(container)
        if isinstance(answer, PatchkitError):
            yield Unseen.of(answer, container.name)
        else:
            yield from gpu_findings(gpus, answer.gpus, container.name)
    wanted = world.plan.match.manifest.gpus if isinstance(world.plan, Plan) else None
    if wanted is not None:
        if away := elsewhere(world):
            yield away
            return
        here = amd_gpus()
        if all(gpu_findings(wanted, [gpu], "") for gpu in here):
            yield from gpu_findings(wanted, here, "this machine")


@check(
    "weights-incomplete",
    "error",
    "a model's weights are not all there",
    "The index of a model in shards names files that the mounted folder does not hold: the download was cut.",
)
def weights(world: World) -> Iterator[Report]:
    for one in _indexes(world):
        if isinstance(one, Unseen):
            yield one
            continue
        model, index = one
        shards = index.get("weight_map")
        if not isinstance(shards, dict):
            yield Unseen("it tells no shards", str(model / _INDEX), remedy=_AGAIN)
            continue
        missing = sorted(shard for shard in set(map(str, shards.values())) if not (model / shard).is_file())
        if missing:
            yield Report(
                f"{len(missing)} shards are missing, first {missing[0]}",
                where=str(model),
                remedy=_AGAIN,
            )


@check(
    "weights-no-room",
    "error",
    "the rest of a model's weights does not fit on its disk",
    "The index of a model in shards tells its size. A download that fills the disk fails after hours.",
)
def no_room(world: World) -> Iterator[Report]:
    for one in _indexes(world):
        if isinstance(one, Unseen):
            yield one
            continue
        model, index = one
        wanted = index.get("metadata")
        total = wanted.get("total_size") if isinstance(wanted, dict) else None
        if not isinstance(total, int):
            continue  # an index need not tell
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
    if away := elsewhere(world):
        yield away
        return
    for container in world.containers:
        register = world.package_file(container, "model_executor/models/registry.py")
        if register is None:
            continue
        argv = _argv(container)
        for one in _mounted_models(world, container):
            if isinstance(one, Unseen):
                yield one
                continue
            mount, model = one
            hub = model.parent.parent.name.removeprefix("models--").replace("--", "/")
            if not (str(mount.get("Destination")) in argv or hub in argv.split()):
                continue
            config = _json(model / "config.json")
            if isinstance(config, PatchkitError):
                yield Unseen.of(config)
                continue
            names = config.get("architectures")
            unknown = [str(name) for name in names or () if f'"{name}"'.encode() not in register]
            if isinstance(names, list) and unknown and len(unknown) == len(names):
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
    """The text of a file of the kernel's; empty where there is none, as each driver has others."""
    try:
        return file.read_text(errors="replace").strip()
    except FileNotFoundError:
        return ""


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"


def _indexes(world: World) -> Iterator[tuple[Path, dict[str, Any]] | Unseen]:
    """Every model in shards that some container has mounted, and its index."""
    if away := elsewhere(world):
        yield away
        return
    found = [one for container in world.containers for one in _mounted_models(world, container)]
    yield from dict.fromkeys(one for one in found if isinstance(one, Unseen))
    for model in sorted({one[1] for one in found if not isinstance(one, Unseen)}):
        index = _json(model / _INDEX) if (model / _INDEX).is_file() else None
        if isinstance(index, PatchkitError):
            yield Unseen.of(index)
        elif index is not None:
            yield model, index


def _mounted_models(world: World, container: Container) -> Iterator[tuple[Mapping[str, Any], Path] | Unseen]:
    """The models in a container's mounted folders."""
    for mount in container.mounts:
        source, target = Path(str(mount.get("Source", ""))), str(mount.get("Destination"))
        for folder in _places(source) if mount.get("Type") == "bind" else ():
            holds = or_why(partial(_holds_model, folder)) if isinstance(folder, Path) else folder
            if isinstance(folder, Path) and holds is True:
                yield mount, folder
            elif isinstance(holds, PatchkitError) and world.concerns(container):
                # One that the server does not name, such as lost+found, is not taken for a folder of models.
                place = f"{target}/{folder.relative_to(source)}" if isinstance(folder, Path) else target
                if place == target or "models--" in place or place in _argv(container):
                    yield Unseen.of(holds)


def _places(source: Path) -> Iterator[Path | PatchkitError]:
    """Where a model may lie: in a mounted folder itself, right below, or in a cache of the Hugging Face hub not far
    below. Never the whole tree: somebody may have mounted the whole disk."""
    below = or_why(partial(_listed, source))
    if isinstance(below, PatchkitError):
        yield below
        return
    yield source
    yield from below
    for above in ("", "*/", "*/*/"):
        for hub in sorted(source.glob(f"{above}models--*")):
            kept = or_why(partial(_listed, hub / "snapshots"))
            yield from [kept] if isinstance(kept, PatchkitError) else kept


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _holds_model(folder: Path) -> bool:
    for name in ("config.json", _INDEX):
        try:
            (folder / name).stat()
        except (FileNotFoundError, NotADirectoryError):
            continue
        return True
    return False


def _json(file: Path) -> dict[str, Any] | PatchkitError:
    """The object in a file of a model's; empty where there is no such file."""

    def read() -> dict[str, Any]:
        try:
            found = json.loads(file.read_bytes())
        except FileNotFoundError:
            return {}
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise BadInput("bad-json", "it holds no JSON object", where=str(file), remedy=_AGAIN)
        return found

    return or_why(read)


def _argv(container: Container) -> str:
    return " ".join(map(str, container.inspect.get("Args") or []))


def _needs_dri(container: Container) -> bool:
    env = (container.inspect.get("Config") or {}).get("Env") or []
    return "VLLM_TARGET_DEVICE=xpu" in env or "VLLM_TARGET_DEVICE=rocm" in env


def _host_config(container: Container) -> dict[str, Any]:
    return dict(container.inspect.get("HostConfig") or {})
