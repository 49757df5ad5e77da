"""The edge of lint: which options the vLLM inside an image knows."""

from __future__ import annotations

import json

from patchkit import images
from patchkit.errors import PatchkitError
from patchkit.findings import Finding
from patchkit.images.model import Image, Run
from patchkit.site.facts import site_facts
from patchkit.site.launch import launch_of, require_known
from patchkit.site.model import Launch
from patchkit.stack.lint.known import PROBE, SOURCES, from_probe, from_source

_TIMEOUT = 180.0  # seconds; importing torch on a cold disk


def options_of(
    reference: str, *, launch: str | None = None, run: bool = True
) -> tuple[frozenset[str] | None, list[Finding]]:
    """The options, from the parser itself where it can be imported and ``run`` allows it, else from the source; None
    where neither is to be had. What was not possible comes back as notes: lint goes on without it. ``launch`` names the
    serving command where the image does not tell it."""
    try:
        with images.open_image(images.parse_reference(reference)) as image:
            serving = require_known(launch_of(json.loads(image.config), image.fs, launch))
            asked = _ask(image, serving) if run and image.can_run else None
            if asked is not None:
                return asked, []
            site = site_facts(image, serving, "vllm", SOURCES, run=run)
            found = from_source({path: fact.data for path, fact in site.files.items() if fact is not None})
    except PatchkitError as error:
        return None, [_note(reference, f"{error.what}, so options were not checked", error.remedy or "")]
    if found:
        return found, []
    if site.winner is None:
        what, remedy = "the launch imports no vllm", "name the image that serves, or its start with --launch"
    else:
        what = f"vllm {site.version} is there without the source of its argument parser ({' or '.join(SOURCES[:2])})"
        remedy = "name an image with the whole of vLLM"
    return None, [_note(reference, f"{what}, so options were not checked", remedy)]


def not_asked(where: str, image: str) -> Finding:
    """The note of a start that was looked at without any image; ``image`` is what it runs, where that is told."""
    asked = image if image and "$" not in image else "IMAGE"
    return _note(where, "no image was named, so it was not checked that vLLM knows the options", f"--image {asked}")


def _ask(image: Image, launch: Launch) -> frozenset[str] | None:
    argv = (launch.interpreter, *launch.flags, "-c", PROBE)
    answer = image.run(Run(argv, env=dict(launch.env), cwd=launch.cwd, user=launch.user or None, timeout=_TIMEOUT))
    return from_probe(answer.stdout.decode("utf-8", "replace"))


def _note(reference: str, what: str, remedy: str) -> Finding:
    return Finding("options-not-checked", "note", what, reference, remedy=remedy)
