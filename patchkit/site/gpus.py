"""Which AMD GPUs a program here is given, and which of them a series is not for.

Read from the kernel alone, so that it is known before torch or ROCm is there. Also part of programs that travel into
containers as text: Python 3.8 or newer, standard library only, ASCII, and as few imports as the work needs.
"""

import os


def amd_gpus(root: str = "/") -> "list[tuple[str, str]]":
    """The AMD GPUs that a ROCm program can open here: each one's render node and architecture (``gfx942``), in the
    kernel's order. One whose number tells no architecture stands under a text that no pattern of names matches.

    AMD's driver tells each node of its topology in ``properties``: ``gfx_target_version`` is major, minor and step as
    decimal pairs, 0 for a CPU; in the name minor and step are hex digits (90402 is gfx942, 90010 is gfx90a).
    ``drm_render_minor N`` is /dev/dri/renderD<N>. A container's sysfs shows the GPUs of the whole host: those count
    whose render node is there and whose properties may be read. ROCm's runtime chooses by the same.

    Sources: Linux, drivers/gpu/drm/amd/amdkfd, kfd_topology.c (``node_show``: EPERM where the device cgroup forbids the
    GPU) and kfd_device.c (``gfx_target_version``); ROCm, libhsakmt/src/topology.c
    (``topology_sysfs_check_node_supported``, ``topology_sysfs_get_node_props``); LLVM, AMDGPUUsage, "Processors";
    https://github.com/ROCm/rocm-cli/pull/343 (the line on an MI300X).
    """
    nodes = os.path.join(root, "sys/class/kfd/kfd/topology/nodes")
    if not (os.path.exists(os.path.join(root, "dev/kfd")) and os.path.isdir(nodes)):
        return []
    found = []
    for node in sorted(os.listdir(nodes), key=lambda name: (len(name), name)):
        try:
            with open(os.path.join(nodes, node, "properties"), errors="replace") as file:
                told = {words[0]: words[1] for words in map(str.split, file) if len(words) == 2}
        except OSError:
            continue
        version = told.get("gfx_target_version", "")
        device = "dev/dri/renderD" + told.get("drm_render_minor", "")
        if version != "0" and os.path.exists(os.path.join(root, device)):
            found.append(("/" + device, _architecture(version)))
    return found


def _architecture(version: str) -> str:
    if version.isdecimal():
        major, minor, step = int(version) // 10000, int(version) // 100 % 100, int(version) % 100
        if major and minor < 16 and step < 16:
            return f"gfx{major}{minor:x}{step:x}"
    return f"an unknown architecture (gfx_target_version {version or 'missing'})"


def refused_gpus(gpus: "list[tuple[str, str]]", only: "list[str]", why: str) -> "list[str]":
    """A sentence for each kind among ``gpus`` that none of the shell patterns ``only`` matches."""
    kinds: "dict[str, list[str]]" = {}
    for device, name in gpus:
        if not _fits(name, only):
            kinds.setdefault(name, []).append(device)
    wanted = f"the patches are for {', '.join(only)}: {why}"
    return [f"it is given {name} ({', '.join(devices)}); {wanted}" for name, devices in kinds.items()]


def gpu_remedy(gpus: "list[tuple[str, str]]", only: "list[str]") -> str:
    """What to do where some of ``gpus`` are refused."""
    fitting = [device for device, name in gpus if _fits(name, only)]
    if fitting:
        return f"pass these devices through and no others: /dev/kfd, {', '.join(fitting)}"
    return "none of the GPUs passed through will do: pass others through, or serve on another machine"


def _fits(name: str, only: "list[str]") -> bool:
    from fnmatch import fnmatchcase

    return any(fnmatchcase(name, pattern) for pattern in only)
