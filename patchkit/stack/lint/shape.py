"""Faults of form: flags that never arrive, flags given twice, variables, images, mounts, health."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from difflib import get_close_matches

from patchkit.stack.compose_model import covers
from patchkit.stack.lint.flags import Given, is_known
from patchkit.stack.lint.model import Cause, Issue, Start

#: Finding, what breaks the command off, what to do.
_CAUSES: dict[Cause, tuple[str, str, str]] = {
    "comment": ("comment-in-command", "a # line ends the continued command", "put comments above the command"),
    "comment-at-end": (
        "comment-in-command",
        "a comment at the end of a line swallows its backslash, and the command ends",
        "put comments above the command",
    ),
    "blank-line": ("blank-line-in-command", "a blank line ends the continued command", "take the blank line out"),
    "space-after-backslash": (
        "space-after-backslash",
        "a blank after the backslash: it escapes the blank, not the line's end, and the command ends",
        "take the blank out",
    ),
    "no-backslash": ("missing-backslash", "the line has no backslash, and the command ends", "end it in a backslash"),
    "eaten-backslash": (
        "backslash-eaten",
        "Compose takes the backslash out before the shell sees it, and the command ends",
        "give the script to the shell as an item of a list, in a literal block: - |",
    ),
}
_MOVING = ("latest",)


def lost_flags(start: Start) -> Iterator[Issue]:
    """What was written for the server and never arrives."""
    for lost in start.lost:
        name, what, remedy = _CAUSES[lost.cause]
        gone = " ".join(word.text for word in lost.words)
        yield start.issue(
            name, "error", f"{what}: the flags after it are lost", lost.at, evidence=f"lost: {gone}", remedy=remedy,
            edits=lost.edits,
        )  # fmt: skip


def given_twice(start: Start, given: Sequence[Given], repeatable: Collection[str]) -> Iterator[Issue]:
    """Options that stand twice: the last one counts, and nobody sees which that is."""
    by_name: dict[str, list[Given]] = defaultdict(list)
    for each in given:
        by_name[each.name].append(each)
    for name, several in by_name.items():
        if len(several) > 1 and name not in repeatable:
            values = " then ".join(each.value or "(no value)" for each in several)
            yield start.issue(
                "flag-twice",
                "warning",
                f"{name} is given {len(several)} times; the last one counts",
                several[-1].word.start,
                evidence=values,
                remedy="keep one of them",
            )


def unknown(start: Start, given: Sequence[Given], known: Collection[str]) -> Iterator[Issue]:
    """Options that this server's parser refuses."""
    for each in given:
        if not is_known(each.name, known):
            near = get_close_matches(each.name, known, n=1)
            yield start.issue(
                "unknown-flag",
                "error",
                f"this image's vLLM does not know {each.name}",
                each.word.start,
                evidence=each.word.text,
                remedy=f"did you mean {near[0]}?" if near else "vllm serve --help=all lists what it knows",
            )


def unquoted_variables(start: Start) -> Iterator[Issue]:
    """A shell drops an unquoted variable that is empty, and the next flag becomes the value of the one before."""
    for word in start.written:
        if word.variable:
            yield start.issue(
                "unquoted-variable",
                "warning",
                f"{word.variable} is not quoted: empty, it vanishes; with blanks, it becomes several arguments",
                word.start,
                evidence=word.text,
                remedy=f'"{word.variable}"',
            )


def service_health(start: Start) -> Iterator[Issue]:
    """A compose service without a healthcheck counts as healthy while the model still loads."""
    if start.service and not start.has_healthcheck:
        yield start.issue(
            "missing-healthcheck",
            "warning",
            "no healthcheck, so nothing tells when the model serves",
            remedy='healthcheck: {test: ["CMD", "curl", "-fsS", "http://localhost:8000/health"], start_period: 30m}',
        )


def moving_image(start: Start) -> Iterator[Issue]:
    """A tag that names another image tomorrow."""
    if start.image is None:
        return
    name = start.image.text
    tag = name.rpartition("/")[2].partition(":")[2]
    if "@" not in name and not name.startswith("sha256:") and (not tag or tag in _MOVING):
        yield start.issue(
            "unpinned-image",
            "warning",
            f"{name} names another image after the next pull, and the patches may not fit it",
            start.image.start,
            evidence=name,
            remedy=f"patchkit compose --image {name}  # writes an overlay that pins the digest",
        )


def decoy_mounts(start: Start, decoys: Collection[str]) -> Iterator[Issue]:
    """A mount over a copy of the package that the server does not import: nothing is patched, and nothing is said."""
    for mount in start.mounts:
        decoy = next((each for each in decoys if covers(each, mount.text)), None)
        if decoy is not None:
            yield start.issue(
                "decoy-mounted",
                "error",
                f"{mount.text} lies in {decoy}, a copy of the package that the server does not import",
                mount.start,
                evidence=start.source.text[mount.start : mount.end].strip(),
                remedy="patchkit resolve --image IMAGE PACKAGE  # the one that serves; patchkit compose mounts onto it",
            )
