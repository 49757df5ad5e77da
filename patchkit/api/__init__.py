"""The way of the data: catalog and image, match, facts, plan, delivery, proof, receipt.

    from patchkit import api

    plan = api.status("vllm-xpu:nightly")
    done = api.apply("vllm-xpu:nightly", delivery=api.Delivery(mode="image"))

Everything that the command line does goes through these functions. They raise ``patchkit.errors`` and never print.
"""

from patchkit.api.containers import apply_to_container, container_status, verify_container
from patchkit.api.deliver import Applied, Delivery, Done, Mode, Step, apply, refuse_remote
from patchkit.api.hosts import HostAnswer, differences, verify_hosts
from patchkit.api.look import Options, facts, launch_for, look, opened, refuse_unless_deliverable, status
from patchkit.api.overlays import overlay_text, pinned
from patchkit.api.prove import Verified, verify

__all__ = [
    "Applied",
    "Delivery",
    "Done",
    "HostAnswer",
    "Mode",
    "Options",
    "Step",
    "Verified",
    "apply",
    "apply_to_container",
    "container_status",
    "differences",
    "facts",
    "launch_for",
    "look",
    "opened",
    "overlay_text",
    "pinned",
    "refuse_remote",
    "refuse_unless_deliverable",
    "status",
    "verify",
    "verify_container",
    "verify_hosts",
]
