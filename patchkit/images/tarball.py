"""An image archive as a file: its members found, and its last ones replaced without moving the gigabytes before them.

In place, the old end of the file is first saved beside it (``FILE.patchkit-undo``); whoever opens the archive after a
crash puts it back, so that the archive is the old one or the new one, never something between.
"""

from __future__ import annotations

import json
import os
import tarfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import IO, NamedTuple

from patchkit.errors import Unreachable
from patchkit.images import tar
from patchkit.images.files import copy, lock, replacing, sync_folder, write_whole, writing
from patchkit.images.rawjson import MAX_JSON

#: What stands behind the replaced members is moved along; more than this means that they do not stand at the end.
_MAX_TAIL = 64 * 1024 * 1024


class Member(NamedTuple):
    """Where a member lies: its header(s) from ``start``, its bytes from ``data`` on."""

    start: int
    data: int
    size: int


class Tarball:
    """An uncompressed tar archive on disk. Links between its members are followed (``docker save`` makes them).

    Raises (when made):
        patchkit.errors.Unreachable: ``no-such-image``, ``bad-archive``, ``cannot-read``, or ``stale-undo``.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        _recover(path)
        self._members: dict[str, Member] = {}
        self._all: list[tuple[str, Member]] = []
        self._scan()

    def member(self, name: str) -> Member | None:
        """The last regular member of the name."""
        return self._members.get(_plain(name))

    def read(self, name: str) -> bytes | None:
        """The bytes of a small member, None where there is none of the name."""
        member = self.member(name)
        if member is None:
            return None
        with self.open(member.data) as stream:
            return stream.read(min(member.size, MAX_JSON + 1))

    def open(self, offset: int) -> IO[bytes]:
        """The archive's bytes from ``offset`` on."""
        try:
            stream = self.path.open("rb")
        except OSError as error:
            raise Unreachable("cannot-read", f"cannot read: {error.strerror}", where=str(self.path)) from error
        stream.seek(offset)
        return stream

    def rewrite(self, target: Path, drop: Collection[str], add: Mapping[str, bytes], *, in_place: bool) -> str:
        """Write the archive without the members ``drop`` and with ``add`` at the end: to ``target`` whole or not at
        all, or into this very file. Returns the road taken in words."""
        dropped = [member for name, member in self._all if name in drop]
        cut = min((member.start for member in dropped), default=self._end)
        moved = [member for name, member in self._all if member.start >= cut and name not in drop]
        added = b"".join(
            tar.member(name, tar.FILE, mode=0o644, uid=0, gid=0, mtime=0, data=data) for name, data in add.items()
        )
        if sum(self._length(member) for member in moved) > _MAX_TAIL:
            return self._copy(target, 0, [m for name, m in self._all if name not in drop], added)
        if not in_place or target.resolve() != self.path.resolve():
            return self._copy(target, cut, moved, added)
        with self.open(0) as stream:
            tail = b"".join(_range(stream, member.start, self._length(member)) for member in moved)
            undo = _range(stream, cut, self.path.stat().st_size - cut)
        self._append(cut, tail + added + tar.END, undo)
        return f"replaced the archive's last {len(undo)} bytes in place"

    def _copy(self, target: Path, cut: int, moved: list[Member], added: bytes) -> str:
        with replacing(target) as part:
            copy(self.path, part, cut)
            with self.path.open("rb") as old, part.open("ab") as new:
                for member in moved:
                    old.seek(member.start)
                    _pump(old, new, self._length(member))
                new.write(added + tar.END)
                new.flush()
                os.fsync(new.fileno())
        return f"copied the archive and added {len(added)} bytes"

    def _append(self, cut: int, data: bytes, undo: bytes) -> None:
        note = _undo_path(self.path)
        facts = self.path.stat()
        head = json.dumps({"inode": facts.st_ino, "device": facts.st_dev, "cut": cut}).encode()
        write_whole(note, head + b"\n" + undo)
        try:
            with writing(self.path), self.path.open("r+b") as stream:
                stream.truncate(cut)
                stream.seek(cut)
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
        except BaseException:
            _replay(self.path, note)
            raise
        note.unlink()
        sync_folder(note.parent)

    def _scan(self) -> None:
        links: dict[str, str] = {}
        try:
            with tarfile.open(self.path, "r:", errors="surrogateescape") as archive:
                for info in archive:
                    member = Member(info.offset, info.offset_data, info.size if info.isreg() else 0)
                    name = _plain(info.name)
                    self._all.append((name, member))
                    if info.isreg():
                        self._members[name] = member
                    elif info.islnk():
                        links[name] = _plain(info.linkname)
                    elif info.issym():
                        links[name] = _plain(os.path.join(os.path.dirname(name), info.linkname))  # noqa: PTH118, PTH120
                self._end = archive.offset
        except FileNotFoundError:
            raise Unreachable("no-such-image", "there is no such file", where=str(self.path)) from None
        except (tarfile.TarError, ValueError, OverflowError) as error:
            remedy = "if it is compressed, unpack it first: gunzip FILE (patchkit reads and alters plain archives)"
            raise Unreachable(
                "bad-archive", f"not a tar archive: {error}", where=str(self.path), remedy=remedy
            ) from error
        except OSError as error:
            raise Unreachable("cannot-read", f"cannot read: {error.strerror}", where=str(self.path)) from error
        for name, target in links.items():
            if target in self._members:
                self._members.setdefault(name, self._members[target])

    def _length(self, member: Member) -> int:
        return member.data - member.start + member.size + -member.size % tar.BLOCK


def _plain(name: str) -> str:
    return os.path.normpath(name).lstrip("/")


def _range(stream: IO[bytes], start: int, size: int) -> bytes:
    stream.seek(start)
    return stream.read(size)


def _pump(old: IO[bytes], new: IO[bytes], size: int) -> None:
    while size and (piece := old.read(min(size, 1 << 20))):
        new.write(piece)
        size -= len(piece)


def _undo_path(path: Path) -> Path:
    return path.with_name(path.name + ".patchkit-undo")


def _recover(path: Path) -> None:
    note = _undo_path(path)
    if path.exists() and note.exists():
        with lock(path):
            if note.exists():  # the run that was at work may have finished meanwhile
                _replay(path, note)


def _replay(path: Path, note: Path) -> None:
    """Put back the end of the archive that an unfinished run has cut off."""
    head, _, undo = note.read_bytes().partition(b"\n")
    facts = path.stat()
    try:
        wanted = json.loads(head)
        inode, device, cut = wanted["inode"], wanted["device"], int(wanted["cut"])
    except (ValueError, TypeError, LookupError):
        inode = device = cut = -1
    if (facts.st_ino, facts.st_dev) != (inode, device) or not 0 <= cut <= facts.st_size:
        raise Unreachable(
            "stale-undo",
            f"{note.name} was written for another file than the one that now lies beside it",
            where=str(path),
            remedy=f"if the archive is whole, remove {note}",
        )
    with writing(path), path.open("r+b") as stream:
        stream.seek(cut)
        stream.write(undo)
        stream.truncate()
        stream.flush()
        os.fsync(stream.fileno())
    note.unlink()
    sync_folder(note.parent)
