"""What can go wrong, in three kinds; each kind is one exit status of the command line.

Every error says what happened, where, and the next command to run. Library code raises these and nothing else on
purpose; it never prints and never exits.
"""

from __future__ import annotations

from collections.abc import Sequence

#: What helps where the place that raises knows no better: by code, for faults that have one answer wherever they occur.
_REMEDIES = {
    "bad-archive": "write the archive anew (docker save, skopeo copy)",
    "bad-auth-file": "log in anew: docker login REGISTRY",
    "bad-certificate": "name a readable PEM file: --ca-file FILE",
    "bad-config": "write the image anew with the tool that made it, or pull it again",
    "bad-json": "write the image anew with the tool that made it, or pull it again",
    "bad-manifest": "write the image anew with the tool that made it, or pull it again",
    "bad-python-version": "--python 3.12",
    "bad-receipt": "give this user the right to read it, or deliver again: patchkit apply --image IMAGE",
    "bad-record": "take another release: its RECORD is damaged",
    "bad-reference": "name it with a tag: NAME:TAG",
    "bad-sdist": "take another release, or one that has a wheel",
    "bad-strip-level": "-p 1, or -p auto",
    "cannot-read": "give this user the right to read it, or run as root",
    "cannot-run": "see that it starts by hand; without running anything: --no-run",
    "cannot-write": "give this user the right to write there, make room on the disk, or name another place",
    "double-mount": "leave one of the two mounts out",
    "file-in-the-way": "move the file away, then run again",
    "file-too-large": "no source file is that large: look at what it is",
    "folder-in-the-way": "move the folder away, then run again",
    "hostile-layer": "do not run this image; get it anew from whoever built it",
    "launch-unreadable": "write it as a shell would take it: --launch 'vllm serve'",
    "missing-blob": "copy the image anew, whole (skopeo copy)",
    "no-index": "name one platform: --platform linux/amd64",
    "no-manifest-file": "name a manifest that is there, or check all: patchkit manifest check",
    "no-mounts": "make the container anew with them: docker run",
    "no-registry": "check the network, then run again",
    "no-run": "leave out --no-run",
    "no-such-image": "see that the path and the name in it are right (skopeo list-tags, ls)",
    "no-such-patch": "mend the series, or put the file there",
    "no-such-platform": "leave --platform out, or name one that the image has",
    "not-a-file": "look at what lies there; a patch changes regular files only",
    "not-in-record": "take another release, or name the image: --image REF",
    "patch-too-large": "split it; a patch of one fault is small",
    "path-not-real": "name the file by its real path",
    "read-back": "run again; if it stays, something else writes there at the same time",
    "registry-error": "try again; if it stays, ask whoever runs the registry",
    "relative-mount": "write both paths from / on",
    "symlink-loop": "look at the links that are named; no program could follow them either",
    "tag-moved": "run the command again",
    "too-large": "no source file is that large: look at what it is",
    "too-many-files": "import a diff instead: patchkit import FILE",
    "unknown-manifest": "see what there is: patchkit list",
    "unreadable": "name a file that is there and that this user may read",
    "unsafe-path": "do not apply it; its names lead out of where it belongs",
}


class PatchkitError(Exception):
    """Base of all errors that patchkit raises on purpose.

    Args:
        code: stable kebab-case name of the fault (``target-tag-taken``); scripts may match on it.
        what: one sentence in plain words: what happened and, where known, why.
        where: the place: ``file:line:col``, an image reference, or a path inside an image.
        remedy: the command to run or the thing to do next; by default what helps with any fault of this code.
        details: further lines, such as one line a hunk.
    """

    status = 1

    def __init__(
        self, code: str, what: str, *, where: str | None = None, remedy: str | None = None, details: Sequence[str] = ()
    ) -> None:
        super().__init__(what)
        self.code = code
        self.what = what
        self.where = where
        self.remedy = remedy or _REMEDIES.get(code)
        self.details = tuple(details)

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        return f"{place}{self.what} [{self.code}]"


class Refused(PatchkitError):  # noqa: N818 - read aloud it says what happened
    """The work was understood and cannot be done truthfully: a patch does not apply, a proof failed. Exit status 1."""

    status = 1


class BadInput(PatchkitError):  # noqa: N818
    """The call, a manifest or a patch is wrong and must be mended by a person. Exit status 2."""

    status = 2


class Unreachable(PatchkitError):  # noqa: N818
    """An engine, a registry or an image cannot be reached or read. Exit status 3."""

    status = 3
