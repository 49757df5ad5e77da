"""The lines of a patch, and how what is wrong with them is said."""

from __future__ import annotations

from typing import NoReturn

from patchkit.diff.lines import split_lines
from patchkit.errors import BadInput


class Source:
    """A patch as lines with their line feeds. Places are 0-based line numbers.

    Raises:
        patchkit.errors.BadInput: ``unsupported-patch`` for UTF-16.
    """

    def __init__(self, data: bytes, name: str) -> None:
        self.name = name
        if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
            self.unsupported(0, "the patch is UTF-16 text")
        self.lines = split_lines(data.removeprefix(b"\xef\xbb\xbf"))
        if self.lines and not self.lines[-1].endswith(b"\n"):
            self.lines[-1] += b"\n"  # cut off in its last line: mended where the counts are complete all the same
        #: The first byte of each line; a line has at least its line feed.
        self.signs = bytes([line[0] for line in self.lines])

    def malformed(self, at: int, what: str) -> NoReturn:
        """The patch is damaged at this line."""
        raise BadInput(
            "malformed-patch",
            what,
            where=f"{self.name}:{max(0, min(at, len(self.lines) - 1)) + 1}",
            remedy="make the patch anew from the two versions (diff -u, git diff), or mend that line",
        )

    def unsupported(self, at: int, what: str) -> NoReturn:
        """The patch is of a kind that is not read."""
        raise BadInput(
            "unsupported-patch",
            f"{what}: only unified diffs of text are read",
            where=f"{self.name}:{at + 1}",
            remedy="make a unified diff of the text files alone: git diff, or diff -u",
        )

    def line(self, at: int) -> bytes:
        """The line without its line feed, or nothing past the end."""
        return self.lines[at][:-1] if at < len(self.lines) else b""

    def starts_section(self, at: int) -> bool:
        """Whether a section's first lines stand there."""
        line = self.line(at)
        return line.startswith(b"diff --git ") or (line.startswith(b"--- ") and self.line(at + 1).startswith(b"+++ "))
