"""The facts about one package in one image under one launch: read, asked of the interpreter, and compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from patchkit.images.model import Image
from patchkit.site.model import Launch, Site


def site_facts(
    image: Image,
    launch: Launch,
    package: str,
    files: Sequence[str],
    *,
    decoys: Sequence[str] = (),
    everything: bool = False,
    run: bool = True,
    copy: str = "",
) -> Site:
    """The facts about ``package`` and about ``files`` (paths relative to the copy's base, ``vllm/models/x.py``).

    Read from the files always; asked of the interpreter too where the image can run here and ``run`` allows it. Where
    the two differ both answers are kept in ``disagreements``. ``copy`` names another copy than the winner (its root or
    its base) for ``files`` and the version. Facts are kept in the cache by image ID, launch and question.

    Raises:
        patchkit.errors.Refused: ``launch-unknown``, ``interpreter-unknown``, ``copy-unknown``.
        patchkit.errors.Unreachable: the image cannot be read.
    """
    raise NotImplementedError


def to_json(site: Site) -> dict[str, Any]:
    """The facts as plain JSON values."""
    raise NotImplementedError


def from_json(data: Mapping[str, Any]) -> Site:
    """The facts that ``to_json`` wrote. Raises ValueError (or KeyError, TypeError) on anything else."""
    raise NotImplementedError
