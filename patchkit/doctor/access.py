"""What a user of an image may reach: by mode, owner and groups, as the kernel decides it."""

from __future__ import annotations

import posixpath

from patchkit.errors import Refused
from patchkit.images.model import Entry
from patchkit.images.paths import MAX_LINKS, rows
from patchkit.site.view import View

_SEARCH, _RUN = 0o1, 0o5


def first_closed(view: View, path: str, user: str) -> Entry | None:
    """The first folder on the way to a program that the user may not enter, or the program itself where it may not be
    read and run; None where nothing is closed or nothing is there. ``user`` is the image's notation.

    Raises:
        patchkit.errors.Refused: ``unknown-user``, no engine starts a container as one that the image does not know.
    """
    uid, groups = _ids(view, user)
    if uid == 0:
        return None
    todo = [part for part in reversed(path.split("/")) if part not in ("", ".")]
    here, links = "/", 0
    while todo:
        folder = view.lstat(here)
        if folder is not None and not _may(folder, uid, groups, _SEARCH):
            return folder
        part = todo.pop()
        step = posixpath.dirname(here) if part == ".." else posixpath.join(here, part)
        entry = view.lstat(step)
        if entry is not None and entry.kind == "symlink" and links < MAX_LINKS:
            links += 1
            here = "/" if entry.target.startswith("/") else here
            todo += [part for part in reversed(entry.target.split("/")) if part not in ("", ".")]
        else:
            here = step
    program = view.lstat(here)
    return program if program is not None and not _may(program, uid, groups, _RUN) else None


def _may(entry: Entry, uid: int, groups: set[int], wanted: int) -> bool:
    shift = 6 if entry.uid == uid else 3 if entry.gid in groups else 0
    return entry.mode >> shift & wanted == wanted


def _ids(view: View, user: str) -> tuple[int, set[int]]:
    """User and groups as engines take them from ``uid[:gid]`` or names: /etc/passwd decides, and a number that it does
    not know has group 0 (https://docs.docker.com/reference/dockerfile/#user)."""
    name, _, group = (user or "0").partition(":")
    found = next((row for row in rows(view.fs, "/etc/passwd") if len(row) > 3 and name in (row[0], row[2])), None)
    number = found[2] if found else "0" if name == "root" else name
    if not number.isdigit():
        remedy = "name one that is in its /etc/passwd, or a number"
        raise Refused("unknown-user", f"the image knows no user {name}", where="/etc/passwd", remedy=remedy)
    uid = int(number)
    known = [row for row in rows(view.fs, "/etc/group") if len(row) > 3 and row[2].isdigit()]
    if group:
        return uid, {int(group)} if group.isdigit() else {int(row[2]) for row in known if row[0] == group}
    groups = {int(row[2]) for row in known if found and found[0] in row[3].split(",")}
    return uid, groups | {int(found[3]) if found and found[3].isdigit() else 0}
