"""One layer as a value: what lies where, with mode, owner and time; written as a tar that is the same every time."""

from __future__ import annotations

import io
import posixpath
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

#: Every file of a fixture has this time, in seconds since the epoch, unless the fixture is about times.
MTIME = 1_750_000_000


@dataclass(frozen=True, slots=True)
class Node:
    """One entry; ``type`` is tarfile's. ``link`` is a symlink's text or a hard link's first name."""

    type: bytes
    data: bytes = b""
    link: str = ""
    mode: int = 0o644
    uid: int = 0
    gid: int = 0
    mtime: int = MTIME


class Tree:
    """A layer under construction. Paths are absolute; parents that nobody added get mode 0755 and the ``owner``."""

    def __init__(self, owner: int = 0) -> None:
        self.owner = owner
        self.nodes: dict[str, Node] = {}

    def folder(self, path: str, mode: int = 0o755, owner: int | None = None) -> None:
        self._add(path, Node(tarfile.DIRTYPE, mode=mode, **self._owned(owner)))

    def file(
        self, path: str, data: bytes | str, mode: int = 0o644, owner: int | None = None, mtime: int = MTIME
    ) -> None:
        raw = data.encode() if isinstance(data, str) else data
        self._add(path, Node(tarfile.REGTYPE, raw, mode=mode, mtime=mtime, **self._owned(owner)))

    def symlink(self, path: str, target: str) -> None:
        self._add(path, Node(tarfile.SYMTYPE, link=target, mode=0o777, **self._owned(None)))

    def hardlink(self, path: str, first: str) -> None:
        """A second name of a file that this tree holds already."""
        assert self.nodes[first].type == tarfile.REGTYPE
        self._add(path, Node(tarfile.LNKTYPE, link=first, **self._owned(None)))

    def whiteout(self, path: str) -> None:
        """Remove what a lower layer has at ``path``."""
        folder, name = posixpath.split(path)
        self.file(posixpath.join(folder, f".wh.{name}"), b"")

    def files(self, root: str, content: Iterable[tuple[str, bytes]], mode: int = 0o644) -> None:
        """Several files below ``root``."""
        for path, data in content:
            self.file(posixpath.join(root, path), data, mode)

    def own(self, root: str, uid: int, folder_mode: int | None = None) -> None:
        """Give everything at and below ``root`` to ``uid`` (and its group), folders with another mode on request."""
        for path, node in list(self.nodes.items()):
            if path == root or path.startswith(root.rstrip("/") + "/"):
                mode = folder_mode if folder_mode is not None and node.type == tarfile.DIRTYPE else node.mode
                self.nodes[path] = Node(node.type, node.data, node.link, mode, uid, uid, node.mtime)

    def write(self, path: Path) -> None:
        """Write the tar: parents first, then in the order added, so that hard links follow what they name."""
        with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
            for name, node in self.nodes.items():
                info = tarfile.TarInfo(name.lstrip("/"))
                info.type, info.mode, info.uid, info.gid, info.mtime = (
                    node.type,
                    node.mode,
                    node.uid,
                    node.gid,
                    node.mtime,
                )
                info.linkname = node.link.lstrip("/") if node.type == tarfile.LNKTYPE else node.link
                info.size = len(node.data)
                archive.addfile(info, io.BytesIO(node.data))

    def _owned(self, owner: int | None) -> dict[str, int]:
        uid = self.owner if owner is None else owner
        return {"uid": uid, "gid": uid}

    def _add(self, path: str, node: Node) -> None:
        assert path.startswith("/")
        assert posixpath.normpath(path) == path
        parent = posixpath.dirname(path)
        if parent != "/" and parent not in self.nodes:
            self.folder(parent)
        self.nodes[path] = node
