"""Read a patch: our own scan over the bytes, and unidiff's reading beside it.

The scan finds the sections, counts every hunk, refuses what is no unified text diff by name, and takes nothing for
granted that patch tools let pass in silence: counts that leave lines over, markers in odd places, sections cut short.
What it found is then handed to unidiff, and the two must agree (``crosscheck``).
"""

from __future__ import annotations

import re
from typing import NoReturn

from patchkit.diff.crosscheck import disagreement
from patchkit.diff.hunks import read_hunks
from patchkit.diff.model import FileKind, FilePatch, Hunk, Patch
from patchkit.diff.names import NULL, text, unquote
from patchkit.diff.source import Source
from patchkit.errors import BadInput

#: The largest patch that is read: ten times the largest diff of a whole release that we know.
MAX_BYTES = 64 * 1024 * 1024
#: PATH_MAX of Linux twice, quoted: no honest name line is longer.
MAX_NAME_LINE = 4 * 4096 * 2
#: More blanks than that in a ``diff --git`` line are made to keep us busy.
_MAX_BLANKS = 200

_COMBINED = re.compile(rb"@@@+ -\d")
_NORMAL = re.compile(rb"\d+(?:,\d+)?[acd]\d+(?:,\d+)?\r?")
_INDEX = re.compile(rb"index ([0-9A-Fa-f]{1,64})\.\.([0-9A-Fa-f]{1,64})(?: ([0-7]{6}))?")
_MODE = re.compile(rb"[0-7]{6}")
_ISO_DATE = re.compile(rb" \d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
_EPOCH = re.compile(rb"(1970-01-01|1969-12-31) (\d\d):(\d\d):00(?:\.0+)?(?: ([+-])(\d\d)(\d\d))?\r?")
_QUOTED = re.compile(rb'"(?:[^"\\]|\\.)*"')

#: The lines that may stand between ``diff --git`` and ``---``. Source: git-diff(1), "generating patch text with -p".
_EXTENDED = (
    b"old mode ", b"new mode ", b"deleted file mode ", b"new file mode ", b"copy from ", b"copy to ",
    b"rename from ", b"rename to ", b"similarity index ", b"dissimilarity index ", b"index ",
)  # fmt: skip

#: What the lines start with that may begin a section, or that are no prose.
_STARTS = b"d-@*GBC"

_EMPTY_BLOB = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
_UNSUPPORTED_MODES = {"120000": "a symbolic link", "160000": "a submodule"}


def parse(data: bytes, name: str = "<patch>") -> Patch:
    """The patch that ``data`` holds: git, plain, quilt or mail-formatted unified diffs, with prose around them.

    Raises:
        patchkit.errors.BadInput: ``malformed-patch`` with ``where`` as ``name:line``, also for a patch without any
            section; ``unsupported-patch`` for binary, combined and context diffs, symbolic links and submodules;
            ``patch-too-large``.
    """
    if len(data) > MAX_BYTES:
        raise BadInput("patch-too-large", f"the patch has {len(data)} bytes, more than {MAX_BYTES}", where=name)
    return _Reader(data, name).read()


class _Reader(Source):
    def __init__(self, data: bytes, name: str) -> None:
        super().__init__(data, name)
        self.files: list[FilePatch] = []
        self.bodies: list[tuple[int, int]] = []  # line ranges of each section's hunks, for the cross-check

    # The whole patch

    def read(self) -> Patch:
        at = 0
        first = None
        count = len(self.lines)
        while at < count:
            after = self.section(at) if self.signs[at] in _STARTS else None
            if after is None:
                at += 1
                continue
            first = at if first is None else first
            at = after
        if first is None:
            self.no_section()
        header = b"".join(self.lines[:first])
        found = disagreement(self.lines, self.bodies, self.files)
        if found is not None:
            self.malformed(*found)
        return Patch(self.name, header.decode("utf-8", "replace"), tuple(self.files))

    def no_section(self) -> NoReturn:
        if not any(line.strip() for line in self.lines):
            self.malformed(0, "the patch is empty")
        for at in range(len(self.lines)):
            line = self.line(at)
            if _NORMAL.fullmatch(line) and self.line(at + 1)[:2] in (b"< ", b"> "):
                self.unsupported(at, "this is a normal diff")
            if line[:1] in b" \t" and line.lstrip().startswith(b"--- ") and self.line(at + 1).lstrip()[:4] == b"+++ ":
                self.malformed(at, "the patch is indented: every line of it must start at the first column")
        self.malformed(0, "there is no file section in the patch: no '---' and '+++' lines with a hunk after them")

    def section(self, at: int) -> int | None:
        """Read what starts at line ``at``; the line after it, or None where it is prose."""
        line = self.line(at)
        following = self.line(at + 1)
        if line.startswith(b"diff --git "):
            return self.git_section(at)
        if line.startswith(b"--- ") and following.startswith(b"+++ "):
            return self.plain_section(at)
        if line.startswith(b"@@"):
            self.stray_hunk(at)
        elif line.startswith((b"diff --cc ", b"diff --combined ")):
            if following.startswith((b"index ", b"mode ", b"new file ", b"deleted file ", b"--- ")):
                self.unsupported(at, "this is a merge commit's combined diff")
        elif line.startswith(b"*** ") and following.startswith(b"--- "):
            if self.line(at + 2).startswith(b"***************"):
                self.unsupported(at, "this is a context diff")
        elif line.startswith(b"GIT binary patch") and following.startswith((b"literal ", b"delta ")):
            self.unsupported(at, "the patch changes a binary file")
        elif _binary_notice(line, strict=True):
            self.unsupported(at, "the patch says that a binary file differs, and not how")
        return None

    def stray_hunk(self, at: int) -> None:
        """A hunk header where none belongs is prose only when nothing after it looks like a hunk's body."""
        line = self.line(at)
        if _COMBINED.match(line):
            self.unsupported(at, "this is a merge commit's combined diff")
        if not line.startswith(b"@@ -"):
            return
        if at + 1 >= len(self.lines) or self.signs[at + 1] in b"\n\r +-\\":
            self.malformed(at, "a hunk that belongs to no file: it must follow '---' and '+++' lines or another hunk")

    # Plain sections

    def plain_section(self, at: int) -> int | None:
        after = self.line(at + 2)
        if not after.startswith(b"@@ -"):
            if _COMBINED.match(after):
                self.unsupported(at, "this is a merge commit's combined diff")
            cut_off = at + 2 >= len(self.lines)
            if cut_off or after.startswith((b"diff --git ", b"--- ", b"@@")):
                self.malformed(at + 2, "a file section without a hunk: the patch is cut off or damaged here")
            return None
        crlf = all(self.line(at + i).endswith(b"\r") for i in range(3))
        old, old_date = self.name_field(at, crlf)
        new, new_date = self.name_field(at + 1, crlf)
        hunks, end = read_hunks(self, at + 2, crlf)
        if old != NULL and _is_epoch(old_date) and not any(hunk.old for hunk in hunks):
            old = NULL
        if new != NULL and _is_epoch(new_date) and not any(hunk.new for hunk in hunks):
            new = NULL
        kind: FileKind = "create" if old == NULL else "delete" if new == NULL else "modify"
        section = FilePatch(kind, old, new, hunks, at + 1, crlf=crlf)
        self.add(section, at, (at + 2, end))
        return end

    def name_field(self, at: int, crlf: bool) -> tuple[str, bytes]:
        """The name and the time stamp of a ``---`` or ``+++`` line."""
        raw = self.line(at)[4:]
        if len(raw) > MAX_NAME_LINE:
            self.malformed(at, "a file name of more than 32 KiB")
        if crlf:
            raw = raw.removesuffix(b"\r")
        quoted = _QUOTED.match(raw)
        if quoted:
            return text(unquote(quoted.group())), raw[quoted.end() :].strip()
        name, tab, stamp = raw.partition(b"\t")
        if not tab:
            date = _ISO_DATE.search(raw)
            if date:
                name, stamp = raw[: date.start()].rstrip(b" "), raw[date.start() + 1 :]
        return text(name), stamp

    # Git sections

    def git_section(self, start: int) -> int | None:
        if len(self.lines[start]) > MAX_NAME_LINE:
            self.malformed(start, "a file name of more than 32 KiB")
        at = start + 1
        crlf = self.line(start).endswith(b"\r")
        extended: dict[bytes, bytes] = {}
        while self.line(at).startswith(_EXTENDED):
            line = self.line(at)
            crlf = crlf and line.endswith(b"\r")
            key = next(key for key in _EXTENDED if line.startswith(key))
            if key in extended:
                self.malformed(at, f"a second '{key.decode().strip()}' line in one file section")
            extended[key] = line[len(key) :] if key != b"index " else line
            at += 1
        if self.line(at).startswith(b"GIT binary patch") or _binary_notice(self.line(at), strict=False):
            self.unsupported(at, "the patch changes a binary file")
        named = self.line(at).startswith(b"--- ") and self.line(at + 1).startswith(b"+++ ")
        rest = self.line(start)[len(b"diff --git ") :]
        if not named and not extended:
            if not _is_same_twice(rest.removesuffix(b"\r")):
                return None
            if not self.line(at).strip() or self.signs[at] in _STARTS:
                self.malformed(start, "a file section that says nothing: the patch is cut off or damaged here")
            return None
        if named:
            crlf = crlf and all(self.line(at + i).endswith(b"\r") for i in range(3))
        if crlf:
            rest = rest.removesuffix(b"\r")
            extended = {key: value.removesuffix(b"\r") for key, value in extended.items()}
        section, end = self.git_names(start, at, rest, extended, named, crlf)
        self.add(section, start, (at + 2, end) if named else None)
        return end

    def git_names(
        self, start: int, at: int, rest: bytes, extended: dict[bytes, bytes], named: bool, crlf: bool
    ) -> tuple[FilePatch, int]:
        kind: FileKind = "modify" if named else "mode"
        for key, value in (
            (b"new file mode ", "create"), (b"deleted file mode ", "delete"),
            (b"rename from ", "rename"), (b"copy from ", "copy"),
        ):  # fmt: skip
            if key in extended:
                kind = value  # type: ignore[assignment]
        hunks: tuple[Hunk, ...] = ()
        end = at
        tails: list[str] = []
        if kind in ("rename", "copy"):
            tails = [text(unquote(extended.get(f"{kind} {side} ".encode(), b""))) for side in ("from", "to")]
            if not all(tails):
                self.malformed(start, f"a {kind} needs both a '{kind} from' and a '{kind} to' line")
        if named:
            old, _ = self.name_field(at, crlf)
            new, _ = self.name_field(at + 1, crlf)
            if not self.line(at + 2).startswith(b"@@ -"):
                if _COMBINED.match(self.line(at + 2)):
                    self.unsupported(at + 2, "this is a merge commit's combined diff")
                self.malformed(at + 2, "a file section without a hunk: the patch is cut off or damaged here")
            hunks, end = read_hunks(self, at + 2, crlf)
            if kind == "modify":
                kind = "create" if old == NULL else "delete" if new == NULL else "modify"
            if (old == NULL) != (kind == "create") or (new == NULL) != (kind == "delete"):
                self.malformed(at, f"the section's header says {kind}, its '---' and '+++' lines say otherwise")
        else:
            old = new = ""

        def agrees(pair: tuple[str, str]) -> bool:
            """Whether this reading of the ``diff --git`` line names what the lines below it name."""
            if tails and not (_ends(pair[0], tails[0]) and _ends(pair[1], tails[1])):
                return False
            if not tails and kind != "modify" and _tail(pair[0]) != _tail(pair[1]):
                return False
            return not named or all(
                below == NULL or _tail(above) == _tail(below) for above, below in zip(pair, (old, new), strict=True)
            )

        agreed = next(filter(agrees, self.header_pairs(start, rest)), None)
        if agreed is None:
            self.malformed(
                start, "the 'diff --git' line names other files than the lines below it, or none that is clear"
            )
        if not named:
            old = NULL if kind == "create" else agreed[0]
            new = NULL if kind == "delete" else agreed[1]
        return self.git_facts(start, kind, old, new, hunks, extended, crlf), end

    def git_facts(
        self, start: int, kind: FileKind, old: str, new: str, hunks: tuple[Hunk, ...], extended: dict[bytes, bytes],
        crlf: bool,
    ) -> FilePatch:  # fmt: skip
        def mode(*keys: bytes) -> str | None:
            for key in keys:
                if key in extended:
                    if not _MODE.fullmatch(extended[key]):
                        self.malformed(start, f"'{key.decode()}' needs six octal digits")
                    return extended[key].decode()
            return None

        old_mode, new_mode = mode(b"old mode ", b"deleted file mode "), mode(b"new mode ", b"new file mode ")
        if (b"old mode " in extended) != (b"new mode " in extended):
            self.malformed(start, "a mode change needs both an 'old mode' and a 'new mode' line")
        old_blob = new_blob = ""
        index_mode = None
        if b"index " in extended:
            index = _INDEX.fullmatch(extended[b"index "])
            if not index:
                self.malformed(start, "an 'index' line that cannot be read")
            old_blob, new_blob = index.group(1).decode().lower(), index.group(2).decode().lower()
            index_mode = index.group(3).decode() if index.group(3) else None
        for found in (old_mode, new_mode, index_mode):
            if found in _UNSUPPORTED_MODES:
                self.unsupported(start, f"the patch is about {_UNSUPPORTED_MODES[found]}")
        if not hunks:
            empty = (kind == "create" and _EMPTY_BLOB.startswith(new_blob)) or (
                kind == "delete" and _EMPTY_BLOB.startswith(old_blob)
            )
            changed = old_blob != new_blob or extended.get(b"similarity index ", b"100%") != b"100%"
            if not empty and (changed or (kind == "mode" and not new_mode)):
                self.malformed(start, "the section says that the file's content changes, and has no hunk")
        return FilePatch(
            kind, old, new, hunks, start + 1, True, old_mode, new_mode, old_blob.rstrip("0") and old_blob,
            new_blob.rstrip("0") and new_blob, crlf,
        )  # fmt: skip

    def header_pairs(self, at: int, rest: bytes) -> list[tuple[str, str]]:
        """Every way to read a ``diff --git`` line as two names: blanks in unquoted names leave it open."""
        first = _QUOTED.match(rest)
        if first:
            halves = [(first.group(), rest[first.end() + 1 :])]
        elif rest.endswith(b'"') and b' "' in rest:
            old, _, new = rest.partition(b' "')
            halves = [(old, b'"' + new)]
        else:
            blanks = [match.start() for match in re.finditer(b" ", rest)]
            if len(blanks) > _MAX_BLANKS:
                self.malformed(at, f"more than {_MAX_BLANKS} blanks in a 'diff --git' line")
            blanks.sort(key=lambda i: abs(2 * i + 1 - len(rest)))
            halves = [(rest[:i], rest[i + 1 :]) for i in blanks]
        return [(text(unquote(old)), text(unquote(new))) for old, new in halves if old and new]

    # One section is read

    def add(self, section: FilePatch, at: int, body: tuple[int, int] | None) -> None:
        if section.old_name == NULL and section.new_name == NULL:
            self.malformed(at, "both sides of a section are /dev/null")
        if not section.old_name or not section.new_name:
            self.malformed(at, "a section without a file name")
        if section.kind == "create" and any(hunk.old for hunk in section.hunks):
            self.malformed(at, "a file is created, and its hunks have lines of an old one")
        if section.kind == "delete" and any(hunk.new for hunk in section.hunks):
            self.malformed(at, "a file is deleted, and its hunks leave lines over")
        if section.kind in ("create", "delete") and len(section.hunks) > 1:
            self.malformed(at, f"to {section.kind} a file takes one hunk, not {len(section.hunks)}")
        self.files.append(section)
        if body is not None:
            self.bodies.append(body)


def _binary_notice(line: bytes, *, strict: bool) -> bool:
    """What diff, hg and svn write in place of a binary file's change. Prose may say ``Binary files a and b differ``
    too: where no git header stands above, both names must look like paths."""
    line = line.rstrip(b"\r")
    if line.startswith(b"Cannot display: file marked as a binary type"):
        return True
    if line.startswith(b"Binary file ") and line.endswith(b" has changed"):
        return True
    if not (line.startswith(b"Binary files ") and line.endswith(b" differ")):
        return False
    old, _, new = line[len(b"Binary files ") : -len(b" differ")].partition(b" and ")
    return not strict or (b"/" in old and b"/" in new)


def _is_epoch(stamp: bytes) -> bool:
    """Whether a time stamp is the epoch, which is how diff says that a file is not there. Source: diff(1), -N."""
    match = _EPOCH.fullmatch(stamp)
    if not match:
        return False
    day, hour, minute, sign, zone_hour, zone_minute = match.groups()
    minutes = int(hour) * 60 + int(minute) - (1440 if day == b"1969-12-31" else 0)
    zone = (int(zone_hour) * 60 + int(zone_minute)) * (-1 if sign == b"-" else 1) if sign else 0
    return minutes == zone


def _tail(name: str) -> str:
    """The name without its first component, or the whole of a name that has but one."""
    return name.partition("/")[2] or name


def _ends(name: str, tail: str) -> bool:
    """Whether ``name`` is ``tail`` below at most one more folder."""
    return name == tail or _tail(name) == tail


def _is_same_twice(rest: bytes) -> bool:
    """Whether the text is one path twice, with or without a leading folder each (``a/x b/x``)."""
    half, odd = divmod(len(rest), 2)
    return bool(odd) and rest[half : half + 1] == b" " and _tail(text(rest[:half])) == _tail(text(rest[half + 1 :]))
