"""The files of an image read through its layers, topmost first, without unpacking anything to disk."""

from __future__ import annotations

from collections.abc import Sequence

from patchkit.errors import Refused
from patchkit.images.layerindex import Found, LayerIndex
from patchkit.images.model import MAX_READ, Entry
from patchkit.images.stream import Blob
from patchkit.images.toc import open_index


class LayeredFilesystem:
    """A ``Filesystem`` over layers (bottom first), each read only when a question reaches it.

    Folders that a layer only mentions take their metadata from the layers below. Where a layer writes below a path that
    is a symlink further down, engines disagree about the outcome (overlay2 puts a folder in the link's place,
    containerd follows the link: rules_oci#857): asking for such a path is refused, since no answer holds everywhere.
    """

    def __init__(self, blobs: Sequence[Blob], diff_ids: Sequence[str]) -> None:
        self._stack = list(zip(blobs, diff_ids, strict=True))[::-1]
        self._open: list[LayerIndex] = []
        self._known: dict[str, tuple[int, Found] | None] = {}

    def close(self) -> None:
        """Free the layers' indexes."""
        for index in self._open:
            index.close()
        self._open.clear()

    def lstat(self, path: str) -> Entry | None:
        """The entry at ``path`` itself, or None. Raises as reading a layer does, and Refused ``ambiguous-path``."""
        found = self._find(path)
        if found is None:
            return Entry("/", "dir", 0o755, 0, 0) if path == "/" else None
        return found[1].entry(path)

    def read(self, path: str, limit: int = MAX_READ) -> bytes:
        """The bytes of the regular file at ``path``; raises as the protocol says."""
        found = self._find(path)
        if found is None or found[1].kind != "file":
            raise FileNotFoundError(path)
        if found[1].size > limit:
            raise Refused("too-large", f"{found[1].size} bytes, more than the {limit} that are read", where=path)
        return self._layer(found[0]).read(found[1])

    def listdir(self, path: str) -> Sequence[str]:
        """The sorted names in the folder at ``path``; empty where there is no such folder."""
        entry = self.lstat(path)
        if entry is None or entry.kind != "dir":
            return []
        names: set[str] = set()
        hidden: set[str] = set()
        for number in range(len(self._stack)):
            layer = self._layer(number)
            added, removed = layer.names(path)
            names |= added - hidden
            hidden |= removed | added
            if layer.hides_below(path):
                break
        return sorted(names)

    def _find(self, path: str, first: int = 0) -> tuple[int, Found] | None:
        """The row that counts for ``path`` and its layer's number from the top, looking from layer ``first`` down."""
        if first == 0 and path in self._known:
            return self._known[path]
        answer: tuple[int, Found] | None = None
        for number in range(first, len(self._stack)):
            layer = self._layer(number)
            found = layer.find(path)
            if found is not None and found.kind != "implicit":
                if answer is not None and found.kind != "dir":
                    raise Refused(
                        "ambiguous-path",
                        f"one layer has a {found.kind} here and a later one writes below it as if it were a folder; "
                        "engines disagree about the outcome",
                        where=path,
                        remedy="rebuild the image with the file's real path, without the link",
                    )
                answer = (number, found)
                break
            if found is not None:
                answer = answer or (number, found)
            if layer.hides(path):
                break
        if answer is not None and answer[1].kind == "link":
            answer = self._find(answer[1].target, answer[0] + 1)
        if first == 0:
            self._known[path] = answer
        return answer

    def _layer(self, number: int) -> LayerIndex:
        while len(self._open) <= number:
            self._open.append(open_index(*self._stack[len(self._open)]))
        return self._open[number]
