"""Classify and apply in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from patchkit.diff.model import Patch, PatchResult, SeriesResult


def evaluate(
    patch: Patch,
    read: Callable[[str], bytes | None],
    *,
    strip: int = 1,
    pre: Mapping[str, str] | None = None,
    post: Mapping[str, str] | None = None,
    fuzz: int = 0,
    complete: bool = False,
    context_free: bool = False,
    mode: Callable[[str], int | None] | None = None,
) -> PatchResult:
    """What ``patch`` would do to the files that ``read`` gives.

    Args:
        patch: from ``parse``.
        read: path inside the tree -> its bytes, None where no regular file is there.
        strip: leading components to remove from the patch's names, as ``patch -p``.
        pre: pinned pre-images, path -> ``sha256:<hex>`` (the form of manifests; bare hex is taken too).
        post: pinned post-images, the same. A file that equals its post-image is ``applied``; one that equals its
            pre-image must come out as its post-image, and so must every result of fuzz.
        fuzz: how many context lines may be dropped at each end (GNU patch's levels). 0 drops none.
        complete: take ``partial`` files and patches: what is missing is added.
        context_free: take insertions without any context into files that nothing vouches for, at their stated line.
        mode: path -> permission bits, for telling whether a mode change is already made. Without it every mode change
            counts as still to be made.

    Raises:
        patchkit.errors.BadInput: ``unsafe-path``, ``strip-too-deep``, or ``patch-too-costly`` for input that is made
            to keep the search busy.
    """
    raise NotImplementedError


def evaluate_series(
    patches: Sequence[Patch],
    read: Callable[[str], bytes | None],
    *,
    strip: int = 1,
    pre: Sequence[Mapping[str, str]] | None = None,
    post: Sequence[Mapping[str, str]] | None = None,
    fuzz: Sequence[int] | int = 0,
    complete: bool = False,
    context_free: bool = False,
    mode: Callable[[str], int | None] | None = None,
) -> SeriesResult:
    """What the patches would do one after the other, later ones on top of earlier ones' results, in memory.

    ``pre``, ``post`` and ``fuzz`` hold one item a patch (``fuzz`` may be one number for all); all else as for
    ``evaluate``, which is the series of one. A patch that is not ``ok`` leaves its files alone, and the patches after
    it are still classified, each on what it finds.
    """
    raise NotImplementedError
