"""What the archive API told about an image's files, kept on disk by its ID: an ID's files never change."""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from patchkit import cache
from patchkit.images.model import Entry

#: Contents larger than this are asked for again; a config or a metadata file is smaller.
_KEPT = 64 * 1024
_FORM = 1


@dataclass
class Known:
    """Facts by path: entries (None: nothing is there), names in folders, contents of files."""

    entries: dict[str, Entry | None] = field(default_factory=dict)
    names: dict[str, Sequence[str]] = field(default_factory=dict)
    contents: dict[str, bytes] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """How many facts there are; it only grows."""
        return len(self.entries) + len(self.names) + len(self.contents)


def load(name: str) -> Known:
    """What is known under this name; nothing where the cache has nothing, or something that cannot be read."""
    known = Known()
    with contextlib.suppress(ValueError, TypeError, KeyError):
        value = json.loads(cache.read(_place(name)) or b"{}")
        if value.get("form") == _FORM:
            known = Known(
                {path: _entry(path, told) for path, told in value["entries"].items()},
                {str(path): [str(name) for name in names] for path, names in value["names"].items()},
                {str(path): base64.b64decode(data) for path, data in value["contents"].items()},
            )
    return known


def save(name: str, known: Known) -> None:
    """Keep it; a cache that cannot be written costs time later and nothing else."""
    value = {
        "form": _FORM,
        "entries": {path: _told(entry) for path, entry in known.entries.items()},
        "names": {path: list(names) for path, names in known.names.items()},
        "contents": {
            path: base64.b64encode(data).decode("ascii") for path, data in known.contents.items() if len(data) <= _KEPT
        },
    }
    cache.write(_place(name), json.dumps(value, sort_keys=True).encode("ascii"))


def _place(name: str) -> Path:
    return cache.folder("files") / f"{name}.json"


def _told(entry: Entry | None) -> list[object] | None:
    if entry is None:
        return None
    xattrs = {name: base64.b64encode(data).decode("ascii") for name, data in entry.xattrs.items()}
    return [entry.kind, entry.mode, entry.uid, entry.gid, entry.size, entry.mtime, entry.target, xattrs]


def _entry(path: str, told: object) -> Entry | None:
    if told is None:
        return None
    if not isinstance(told, list) or len(told) != 8 or not isinstance(told[7], Mapping):
        raise ValueError(path)
    kind, mode, uid, gid, size, mtime, target, xattrs = told
    data = {str(name): base64.b64decode(text) for name, text in xattrs.items()}
    return Entry(path, kind, int(mode), int(uid), int(gid), int(size), int(mtime), str(target), data)
