"""Images in an OCI layout (``oci:PATH[:REF]``): a folder of blobs and an ``index.json``.

Layout: image-spec image-layout.md. Only new blobs and ``index.json`` are written, ``index.json`` last.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from patchkit.errors import BadInput, Unreachable
from patchkit.images import Access, edit, split_path
from patchkit.images.files import link_or_copy, lock, write_whole, writing
from patchkit.images.layer import sha256
from patchkit.images.model import Reference
from patchkit.images.rawjson import MAX_JSON, Object, dump, parse
from patchkit.images.stored import (
    Guard,
    Publication,
    Root,
    Store,
    StoredImage,
    derive_index,
    derived_tag,
    media_type_of,
    open_images,
    open_one,
)
from patchkit.images.stream import Blob

__all__ = ["derive_index", "open_all", "open_image"]

_REF = "org.opencontainers.image.ref.name"
#: The REF of an image that was derived from one without REF; see ``stored.derived_tag``.
_UNNAMED = re.compile("patchkit-[0-9a-f]{12}")
_NAME = "io.containerd.image.name"
LAYOUT_MARK = b'{"imageLayoutVersion":"1.0.0"}'
EMPTY_INDEX = b'{"schemaVersion":2,"manifests":[]}'


def open_image(reference: Reference, *, platform: str | None, access: Access) -> StoredImage:
    """See ``patchkit.images.open_image``."""
    return open_one(Layout(split_path(reference)[0]), reference, platform)


def open_all(reference: Reference, *, platform: str | None, access: Access) -> tuple[StoredImage, ...]:
    """See ``patchkit.images.open_all``."""
    return open_images(Layout(split_path(reference)[0]), reference, platform)


class FileBlob:
    """A blob in a file of its own. Reading all of it is cheap, and then its diff-id is known to be true."""

    toc = None

    def __init__(self, path: Path, digest: str, size: int) -> None:
        self.path, self.digest, self.size = path, digest, size

    def open(self, offset: int = 0, size: int | None = None) -> IO[bytes]:
        try:
            stream = self.path.open("rb")
        except OSError as error:
            raise Unreachable(
                "missing-blob", f"cannot read the blob: {error.strerror}", where=str(self.path)
            ) from error
        stream.seek(offset)
        return stream


class LayoutReader:
    """What a layout and an archive of one have in common: everything but how a file in it is read and written."""

    has_manifests = True

    def __init__(self, path: str) -> None:
        self.path = Path(path)

    def root(self, reference: Reference) -> Root | None:
        if not self.path.exists():
            return None
        _, entries = self.index()
        found = named_entry(entries, reference)
        return self.root_of(found) if found is not None else None

    def repo_digests(self, root: Root) -> tuple[str, ...]:
        return ()

    def manifest(self, descriptor: Object) -> bytes:
        return self.read(descriptor["digest"])

    def config(self, descriptor: Object) -> bytes:
        return self.read(descriptor["digest"])

    def close(self) -> None:
        """Nothing is held open."""

    def index(self, *, or_empty: bool = False) -> tuple[Object, list[Object]]:
        """``index.json`` and its entries."""
        where = f"{self.path}/index.json"
        raw = self.read_file("index.json")
        if raw is None and not or_empty:
            raise Unreachable("no-such-image", "this is no OCI layout: it has no index.json", where=str(self.path))
        index = parse(raw or EMPTY_INDEX, where)
        return index, edit.descriptors(index, "manifests", where)

    def root_of(self, descriptor: Object) -> Root:
        """What an entry of the index points to."""
        raw = self.read(descriptor["digest"])
        return Root(raw, media_type_of(raw, descriptor.get("mediaType"), str(self.path)))

    def read(self, digest: str) -> bytes:
        """A small blob, verified."""
        name = blob_name(digest)
        data = self.read_file(name)
        if data is None:
            remedy = "name a platform that is there with --platform, or copy the image again"
            raise Unreachable("missing-blob", "the layout lacks this blob", where=f"{self.path}/{name}", remedy=remedy)
        if sha256(data) != digest:
            what, remedy = "the blob's bytes do not match its name", "fetch or build the image again; it is damaged"
            raise Unreachable("digest-mismatch", what, where=f"{self.path}/{name}", remedy=remedy)
        return data

    def read_file(self, name: str) -> bytes | None:
        """The bytes of a small file of the layout, None where it has none of the name."""
        raise NotImplementedError


class Layout(LayoutReader):
    """The ``Store`` in one folder."""

    def at(self, target: Reference) -> Layout:
        return Layout(split_path(target)[0])

    def layer(self, descriptor: Object) -> Blob:
        return FileBlob(self.path / blob_name(descriptor["digest"]), descriptor["digest"], descriptor["size"])

    def default_target(self, reference: Reference, image_id: str, *, derived: bool) -> Reference:
        path, ref = split_path(reference)
        return Reference("oci", f"{path}:{derived_tag(ref, image_id, derived=derived)}")

    def named(self, reference: Reference, tag: str) -> Reference:
        return Reference("oci", f"{split_path(reference)[0]}:{tag}")

    def publish(self, target: Reference, new: Publication, guard: Guard, source: Store) -> str:
        if not split_path(target)[1]:
            raise BadInput(
                "bad-reference", "the new image needs a tag", where=str(target), remedy=f"write {target}:REF"
            )
        with writing(self.path):
            (self.path / "blobs" / "sha256").mkdir(parents=True, exist_ok=True)
        with lock(self.path):
            index, entries = self.index(or_empty=True)
            old = named_entry(entries, target)
            if not guard(self.root_of(old) if old is not None else None):
                return "it is there already, byte for byte"
            linked = self._bring(source, new)
            for digest, data in new.everything.items():
                self._put(digest, data)
            if not (self.path / "oci-layout").exists():
                write_whole(self.path / "oci-layout", LAYOUT_MARK)
            raw = self.read_file("index.json") or EMPTY_INDEX
            write_whole(self.path / "index.json", dump(with_entry(index, entries, old, new.root, target), like=raw))
        size = sum(len(data) for data in new.everything.values())
        return f"wrote {len(new.everything)} blobs of {size} bytes" + (f" and linked {linked}" if linked else "")

    def _put(self, digest: str, data: bytes) -> None:
        path = self.path / blob_name(digest)
        if not path.exists() or sha256(path.read_bytes()) != digest:
            write_whole(path, data)

    def _bring(self, source: Store, new: Publication) -> int:
        """Have every blob below the new root here too, from another layout."""
        assert isinstance(source, Layout)
        if source.path.resolve() == self.path.resolve():
            return 0
        fresh = new.everything
        missing = [
            name
            for digest in below(new.root.raw, lambda digest: fresh.get(digest) or source.read(digest))
            if digest not in fresh and not (self.path / (name := blob_name(digest))).exists()
        ]
        for name in missing:
            link_or_copy(source.path / name, self.path / name)
        return len(missing)

    def read_file(self, name: str) -> bytes | None:
        path = self.path / name
        try:
            with path.open("rb") as stream:
                return stream.read(MAX_JSON + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Unreachable("cannot-read", f"cannot read: {error.strerror}", where=str(path)) from error


def blob_name(digest: str) -> str:
    """Where a blob lies in a layout."""
    return "blobs/sha256/" + digest.partition(":")[2]


def with_entry(index: Object, entries: list[Object], old: Object | None, root: Root, target: Reference) -> Object:
    """The layout's index with REF pointing to ``root``; everything else in it stays."""
    entry: Object = {"mediaType": root.media_type, "digest": root.digest, "size": len(root.raw)}
    if old is None:
        ref = split_path(target)[1]
        return {**index, "manifests": [*entries, {**entry, **({"annotations": {_REF: ref}} if ref else {})}]}
    return {**index, "manifests": [{**one, **entry} if one is old else one for one in entries]}


def below(root: bytes, read: Callable[[str], bytes]) -> Iterator[str]:
    """The digests of everything that a root needs, itself included, what is pointed to first. ``read`` gives the bytes
    of a manifest."""
    value = parse(root, "manifest")
    for descriptor in edit.descriptors(value, "manifests", "index") if "manifests" in value else ():
        yield from below(read(descriptor["digest"]), read)
    if "layers" in value:
        yield edit.config_descriptor(value, "manifest")["digest"]
        for descriptor in edit.descriptors(value, "layers", "manifest"):
            yield descriptor["digest"]
    yield sha256(root)


def named_entry(entries: list[Object], reference: Reference) -> Object | None:
    """The entry of the layout's index that REF names; without REF the only one, derived images that got their name from
    us for want of a REF aside: the same command must find the same image again.

    Raises:
        patchkit.errors.BadInput: ``which-image``: REF is missing or names several.
    """
    ref = split_path(reference)[1]
    names = [one.get("annotations") or {} for one in entries]
    if ref:
        found = [one for one, name in zip(entries, names, strict=True) if ref in (name.get(_REF), name.get(_NAME))]
    else:
        derived = [_UNNAMED.fullmatch(str(name.get(_REF, ""))) is not None for name in names]
        found = [one for one, ours in zip(entries, derived, strict=True) if not ours] or entries
    if len({one["digest"] for one in found}) > 1:
        there = sorted({str(name.get(_REF) or name.get(_NAME) or "(no name)") for name in names})
        what = f"the layout holds several images: {', '.join(there)}"
        raise BadInput("which-image", what, where=str(reference), remedy=f"write {reference.transport}:PATH:REF")
    return found[0] if found else None
