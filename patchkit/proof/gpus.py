"""Whether the GPUs that a server is given are those that its patches are for."""

from __future__ import annotations

from collections.abc import Sequence

from patchkit.catalog.model import Gpus
from patchkit.findings import Finding
from patchkit.site.gpus import gpu_remedy, refused_gpus


def gpu_findings(wanted: Gpus | None, seen: Sequence[tuple[str, str]] | None, where: str) -> list[Finding]:
    """An error for each kind of GPU that the series is not for.

    Args:
        wanted: the manifest's word, None where it has none.
        seen: as ``patchkit.site.gpus.amd_gpus`` gives them; None where nobody told, which is a note.
        where: who is given the GPUs.
    """
    if wanted is None:
        return []
    if seen is None:
        what = f"nobody told which GPUs it is given; the patches are for {', '.join(wanted.only)}"
        return [Finding("gpus-unseen", "note", what, where, remedy="ask it while it runs, without --no-run")]
    gpus, only = list(seen), list(wanted.only)
    said, remedy = refused_gpus(gpus, only, wanted.why), gpu_remedy(gpus, only)
    return [Finding("gpu-refused", "error", each, where, remedy=remedy) for each in said]
