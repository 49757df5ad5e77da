"""Prove a delivery: one look at the files from outside, one run inside."""

from __future__ import annotations

from collections.abc import Sequence

from patchkit.catalog.model import Assert
from patchkit.images.model import Mount, Runnable
from patchkit.proof.model import Expectation, Proof
from patchkit.site.model import Launch


def prove(
    target: Runnable,
    launch: Launch,
    package: str,
    expectations: Sequence[Expectation],
    asserts: Sequence[Assert] = (),
    *,
    mounts: Sequence[Mount] = (),
    run: bool = True,
    devices: Sequence[str] = (),
    gpus: str | None = None,
    timeout: float = 300.0,
) -> Proof:
    """All six levels for files that were delivered.

    Args:
        target: the derived image, or the base image with ``mounts``, or a running container.
        mounts: what the bind delivery shows at which path; used for reading and for the run alike.
        run: False executes nothing: the levels that need it are ``not run``.
        devices, gpus: hardware passed through, as docker's ``--device`` and ``--gpus`` spell it.
        timeout: seconds after which the run inside is stopped.

    A level that cannot be shown is never left out: it says why. Nothing an image does makes this raise.

    Raises:
        patchkit.errors.Unreachable: the target itself cannot be read or run any more.
    """
    raise NotImplementedError
