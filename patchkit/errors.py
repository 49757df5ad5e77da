"""What can go wrong, in three kinds; each kind is one exit status of the command line.

Every error says what happened, where, and the next command to run. Library code raises these and nothing else on
purpose; it never prints and never exits.
"""

from __future__ import annotations

from collections.abc import Sequence


class PatchkitError(Exception):
    """Base of all errors that patchkit raises on purpose.

    Args:
        code: stable kebab-case name of the fault (``target-tag-taken``); scripts may match on it.
        what: one sentence in plain words: what happened and, where known, why.
        where: the place: ``file:line:col``, an image reference, or a path inside an image.
        remedy: the command to run or the thing to do next.
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
        self.remedy = remedy
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
