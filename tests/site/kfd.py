"""What AMD's kernel driver tells of its GPUs, made up: the part of sysfs that is read, and the device nodes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

#: As on a machine with such GPUs, the lines that nobody asks for left out.
CPU = "cpu_cores_count 16\nsimd_count 0\ngfx_target_version 0\nvendor_id 0\ndrm_render_minor 0\n"
GPU = "cpu_cores_count 0\nsimd_count 304\n{version}vendor_id 4098\ndrm_render_minor {minor}\nnum_xcc 1\n"


def sysfs(root: Path, gpus: Mapping[int, str]) -> Path:
    """The ``/sys`` of a machine with one CPU and these GPUs: the number of the render node -> ``gfx_target_version``
    (empty: the kernel has no such line). Returns the folder to mount."""
    nodes = root / "sys/class/kfd/kfd/topology/nodes"
    texts = [CPU]
    for minor, version in gpus.items():
        line = f"gfx_target_version {version}\n" if version else ""
        texts.append(GPU.format(minor=minor, version=line))
    for number, text in enumerate(texts):
        (nodes / str(number)).mkdir(parents=True, exist_ok=True)
        (nodes / str(number) / "properties").write_text(text)
    # An engine mounts control groups below its own /sys, and cannot make the folder in a read-only one.
    (root / "sys/fs/cgroup").mkdir(parents=True, exist_ok=True)
    return root / "sys"


def machine(root: Path, gpus: Mapping[int, str]) -> str:
    """A whole root of such a machine: ``sysfs`` and the device nodes, as plain files."""
    sysfs(root, gpus)
    (root / "dev/dri").mkdir(parents=True)
    (root / "dev/kfd").touch()
    for minor in gpus:
        (root / f"dev/dri/renderD{minor}").touch()
    return str(root)


def options(root: Path, gpus: Mapping[int, str]) -> list[str]:
    """What makes ``docker run`` start a container that is given these GPUs, as far as files tell."""
    devices = ["kfd", *(f"dri/renderD{minor}" for minor in gpus)]
    given = [word for device in devices for word in ("--device", f"/dev/null:/dev/{device}")]
    return ["-v", f"{sysfs(root, gpus)}:/sys:ro", *given]
