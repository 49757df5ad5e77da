"""The way of the data: catalog and image, match, facts, plan, delivery, proof, receipt.

    from patchkit import api

    plan = api.status("vllm-xpu:nightly")
    done = api.apply("vllm-xpu:nightly", delivery=api.Delivery(mode="image"))

Everything that the command line does goes through these functions. They raise ``patchkit.errors`` and never print.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from patchkit.api.look import Options, facts, launch_for, look, opened, refuse_unless_deliverable, remedy_for, status

if TYPE_CHECKING:
    from patchkit.api.authoring import Prose, edit, save
    from patchkit.api.containers import apply_to_container, container_status, verify_container
    from patchkit.api.deliver import Applied, Below, Delivery, Done, Mode, Step, apply, refuse_remote
    from patchkit.api.following import Rebase, Retirement, Settled, Update, check_update, rebase, retire, survey
    from patchkit.api.hosts import HostAnswer, differences, verify_hosts
    from patchkit.api.importing import Wanted, import_change, import_container
    from patchkit.api.locks import check_lock, lock
    from patchkit.api.overlays import OverlayParts, overlay_parts, overlay_text, pinned
    from patchkit.api.prove import Verified, verify
    from patchkit.api.reverting import Reverted, revert_container, revert_image, revert_overlay

__all__ = [
    "Applied",
    "Below",
    "Delivery",
    "Done",
    "HostAnswer",
    "Mode",
    "Options",
    "OverlayParts",
    "Prose",
    "Rebase",
    "Retirement",
    "Reverted",
    "Settled",
    "Step",
    "Update",
    "Verified",
    "Wanted",
    "apply",
    "apply_to_container",
    "check_lock",
    "check_update",
    "container_status",
    "differences",
    "edit",
    "facts",
    "import_change",
    "import_container",
    "launch_for",
    "lock",
    "look",
    "opened",
    "overlay_parts",
    "overlay_text",
    "pinned",
    "rebase",
    "refuse_remote",
    "refuse_unless_deliverable",
    "remedy_for",
    "retire",
    "revert_container",
    "revert_image",
    "revert_overlay",
    "save",
    "status",
    "survey",
    "verify",
    "verify_container",
    "verify_hosts",
]

#: What only some commands need is imported at its first use: a package index costs half of a second.
_LATER = {
    "Applied": "deliver",
    "Below": "deliver",
    "Delivery": "deliver",
    "Done": "deliver",
    "HostAnswer": "hosts",
    "Mode": "deliver",
    "OverlayParts": "overlays",
    "Prose": "authoring",
    "Rebase": "following",
    "Retirement": "following",
    "Reverted": "reverting",
    "Settled": "following",
    "Step": "deliver",
    "Update": "following",
    "Verified": "prove",
    "Wanted": "importing",
    "apply": "deliver",
    "apply_to_container": "containers",
    "check_lock": "locks",
    "check_update": "following",
    "container_status": "containers",
    "differences": "hosts",
    "edit": "authoring",
    "import_change": "importing",
    "import_container": "importing",
    "lock": "locks",
    "overlay_parts": "overlays",
    "overlay_text": "overlays",
    "pinned": "overlays",
    "rebase": "following",
    "refuse_remote": "deliver",
    "retire": "following",
    "revert_container": "reverting",
    "revert_image": "reverting",
    "revert_overlay": "reverting",
    "save": "authoring",
    "survey": "following",
    "verify": "prove",
    "verify_container": "containers",
    "verify_hosts": "hosts",
}


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(importlib.import_module(f"{__name__}.{_LATER[name]}"), name)
