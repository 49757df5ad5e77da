"""Platforms as ``os/architecture[/variant]``."""

from __future__ import annotations

import platform as host

_MACHINES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "i686": "386"}


def host_platform() -> str:
    """The platform whose images run here (Linux, whatever the host's own system: engines run Linux)."""
    machine = host.machine().lower()
    return f"linux/{_MACHINES.get(machine, machine)}"


def matches(found: str, wanted: str) -> bool:
    """Whether ``found`` is the platform ``wanted``, which may leave out the variant."""
    return found == wanted or found.startswith(wanted + "/")
