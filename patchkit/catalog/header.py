"""The prose in front of a diff: why it is there, where it comes from, who wrote it, in DEP-3 field names.

DEP-3 (https://dep-team.pages.debian.net/deps/dep3/) puts RFC 2822 fields before the diff; text that belongs to no field
is the long description. ``git format-patch`` mails have that form too, with ``Subject`` and ``From``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from email.errors import HeaderParseError
from email.header import decode_header, make_header

_FIELD = re.compile(r"([A-Za-z][A-Za-z0-9-]*):(?:[ \t]+(.*)|)$")
#: Lines that begin a diff. Everything before the first one is prose.
_DIFF = re.compile(rb"(diff --git |diff -|--- [^\n]|Index: |\*\*\* |@@ -|GIT binary patch|old mode |new file mode )")
#: Fields in the order in which they are written; others follow in their own order.
_ORDER = (
    "Description",
    "Origin",
    "Bug",
    "Forwarded",
    "Author",
    "Reviewed-by",
    "Applies-To",
    "Applied-Upstream",
    "Last-Update",
)
_SAME = {"subject": "Description", "from": "Author"}
#: Fields of a mail that say nothing about the patch.
_ENVELOPE = {"date", "mime-version", "content-type", "content-transfer-encoding", "message-id", "to", "cc", "x-mailer"}


@dataclass(frozen=True, slots=True)
class Header:
    """The fields in their order, names as DEP-3 spells them (``Subject`` counts as ``Description``, ``From`` as
    ``Author``). A value's lines are joined with ``\\n``; the first line of ``Description`` is the short one."""

    fields: tuple[tuple[str, str], ...] = ()

    def get(self, name: str) -> str:
        """The first field of that name, empty where there is none."""
        return next((value for key, value in self.fields if key.lower() == name.lower()), "")

    @property
    def title(self) -> str:
        """The short description: one line, empty where there is none."""
        return self.get("Description").partition("\n")[0]

    def with_field(self, name: str, value: str) -> Header:
        """The header with the field set; an empty value removes it."""
        rest = tuple((key, old) for key, old in self.fields if key.lower() != name.lower())
        return Header((*rest, (name, value)) if value else rest)


def split(patch: bytes) -> tuple[bytes, bytes]:
    """A patch as its prose and its diff; together they are the patch again."""
    at = 0
    for line in patch.split(b"\n"):
        if _DIFF.match(line):
            return patch[:at], patch[at:]
        at += len(line) + 1
    return patch, b""


def parse(patch: bytes) -> Header:
    """The header of a patch. Bytes that are not UTF-8 become U+FFFD: prose, never applied to anything."""
    prose = split(patch)[0].decode("utf-8", "replace").replace("\r\n", "\n")
    fields: list[tuple[str, list[str]]] = []
    loose: list[str] = []
    in_field = False
    for raw in prose.split("\n"):
        line = raw.removeprefix("# ") if raw.startswith("#") else raw
        if re.fullmatch("---+", line):
            break  # what follows in a mail is the list of changed files
        if re.match(r"From [0-9a-f]{40} ", line):
            continue  # the mbox separator of git format-patch
        match = _FIELD.match(line)
        if match and (in_field or not loose):
            fields.append((_SAME.get(match[1].lower(), match[1]), [match[2] or ""]))
            in_field = True
        elif in_field and line[:1] in (" ", "\t"):
            text = line.strip()
            fields[-1][1].append(
                "" if text == "." else text
            )  # a lone dot is a blank line, as in Debian's control files
        else:
            in_field = False
            loose.append(line)
    return _joined(fields, "\n".join(loose).strip("\n"))


def _joined(fields: list[tuple[str, list[str]]], loose: str) -> Header:
    # A mail folds and encodes its subject, and marks the series in it; a header written for DEP-3 does neither.
    mail = any(name == "Date" for name, _ in fields)
    found: list[tuple[str, str]] = []
    for name, lines in fields:
        if name.lower() in _ENVELOPE:
            continue
        text = _decoded(" ".join(lines)) if mail else "\n".join(lines)
        if name == "Description":
            text = re.sub(r"^\[PATCH[^\]]*\]\s*", "", text) if mail else text
            text, loose = f"{text}\n{loose}" if loose else text, ""
        found.append((name, text))
    if loose:
        found.insert(0, ("Description", loose))
    return Header(tuple(found))


def _decoded(text: str) -> str:
    """RFC 2047 words as text; as they are where they are broken."""
    try:
        return str(make_header(decode_header(text)))
    except (HeaderParseError, LookupError, UnicodeDecodeError, ValueError):
        return text


def render(header: Header) -> bytes:
    """The header as bytes that ``parse`` reads back, one blank line at the end."""
    rank = {name.lower(): place for place, name in enumerate(_ORDER)}
    ordered = sorted(header.fields, key=lambda field: rank.get(field[0].lower(), len(_ORDER)))
    out: list[str] = []
    for name, value in ordered:
        first, *rest = value.split("\n")
        out.append(f"{name}: {first}".rstrip())
        out.extend(f" {line}" if line.strip() else " ." for line in rest)
    return ("\n".join(out) + "\n\n").encode() if out else b""
