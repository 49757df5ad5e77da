"""Images in one file: ``oci-archive:PATH[:REF]`` (a tar of an OCI layout) and ``docker-archive:PATH[:NAME:TAG]`` (what
``docker save`` writes).

A derived image goes into a copy of the file, or, in place, over the file's last members: readers take the first or the
last ``manifest.json`` and ``index.json`` of an archive as they like, so there must be one of each.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import IO, Any

from patchkit.errors import BadInput, Unreachable
from patchkit.images import Access, edit, split_path
from patchkit.images.files import lock
from patchkit.images.layer import sha256
from patchkit.images.model import Reference
from patchkit.images.oci import EMPTY_INDEX, LAYOUT_MARK, LayoutReader, blob_name, named_entry, with_entry
from patchkit.images.rawjson import Object, dump, parse
from patchkit.images.stored import (
    Guard,
    Publication,
    Root,
    Store,
    StoredImage,
    derive_index,
    derived_tag,
    open_images,
    open_one,
)
from patchkit.images.stream import Blob, is_packed
from patchkit.images.tarball import Member, Tarball

__all__ = ["derive_index", "open_all", "open_image"]

_DOCKER_PLAIN_LAYER = "application/vnd.docker.image.rootfs.diff.tar"


def open_image(reference: Reference, *, platform: str | None, access: Access) -> StoredImage:
    """See ``patchkit.images.open_image``."""
    return open_one(_store(reference), reference, platform)


def open_all(reference: Reference, *, platform: str | None, access: Access) -> tuple[StoredImage, ...]:
    """See ``patchkit.images.open_all``."""
    return open_images(_store(reference), reference, platform)


def _store(reference: Reference) -> OciArchive | DockerArchive:
    path = split_path(reference)[0]
    return OciArchive(path) if reference.transport == "oci-archive" else DockerArchive(path)


class MemberBlob:
    """A blob inside an archive."""

    toc = None

    def __init__(self, tarball: Tarball, member: Member, digest: str) -> None:
        self._tarball, self._member, self.digest, self.size = tarball, member, digest, member.size

    def open(self, offset: int = 0, size: int | None = None) -> IO[bytes]:
        return _Window(self._tarball.open(self._member.data + offset), max(0, self.size - offset))  # type: ignore[return-value]


class _Window:
    """The next ``left`` bytes of a stream."""

    def __init__(self, stream: IO[bytes], left: int) -> None:
        self._stream, self._left = stream, left

    def read(self, size: int) -> bytes:
        data = self._stream.read(min(size, self._left))
        self._left -= len(data)
        return data

    def close(self) -> None:
        self._stream.close()

    def __enter__(self) -> _Window:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class OciArchive(LayoutReader):
    """The ``Store`` in one ``oci-archive`` file."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._opened: Tarball | None = None

    @property
    def tarball(self) -> Tarball:
        """The file, its members known."""
        if self._opened is None:
            self._opened = Tarball(self.path)
        return self._opened

    def at(self, target: Reference) -> OciArchive:
        return OciArchive(split_path(target)[0])

    def layer(self, descriptor: Object) -> Blob:
        member = self.tarball.member(blob_name(descriptor["digest"]))
        if member is None:
            where = f"{self.path}/{blob_name(descriptor['digest'])}"
            raise Unreachable("missing-blob", "the archive lacks this blob", where=where)
        return MemberBlob(self.tarball, member, descriptor["digest"])

    def default_target(self, reference: Reference, image_id: str, *, derived: bool) -> Reference:
        ref = split_path(reference)[1]
        name = f":{derived_tag(ref, image_id, derived=derived)}" if ref else ""
        return Reference("oci-archive", f"{_beside(self.path, derived=derived)}{name}")

    def named(self, reference: Reference, tag: str) -> Reference:
        return Reference("oci-archive", tag)

    def publish(self, target: Reference, new: Publication, guard: Guard, source: Store) -> str:
        assert isinstance(source, OciArchive)
        with lock(_lockable(self.path)):
            self._opened = None
            if not guard(self.root(target)):
                return "it is there already, byte for byte"
            source._opened = None
            index, entries = source.index()
            raw = source.read_file("index.json") or EMPTY_INDEX
            here = self.path.exists() and self.path.samefile(source.path)
            old = named_entry(entries, target) if here else None
            index = with_entry(index, entries if here else [], old, new.root, target)
            files = {blob_name(digest): data for digest, data in new.everything.items()}
            add = {**files, "oci-layout": LAYOUT_MARK, "index.json": dump(index, like=raw)}
            road = source.tarball.rewrite(self.path, set(add), add, in_place=new.in_place)
        self._opened = None
        return road

    def read_file(self, name: str) -> bytes | None:
        return self.tarball.read(name) if self.path.exists() else None


class DockerArchive:
    """The ``Store`` in one ``docker-archive`` file. It holds configs and layers but no manifests: those are made here,
    so that an archive can be patched like any other store."""

    has_manifests = False

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        self._opened: Tarball | None = None
        self._made: dict[str, bytes] = {}
        self._layers: dict[str, Member] = {}
        self._names: dict[str, str] = {}

    @property
    def tarball(self) -> Tarball:
        """The file, its members known."""
        if self._opened is None:
            self._opened = Tarball(self.path)
        return self._opened

    def at(self, target: Reference) -> DockerArchive:
        return DockerArchive(split_path(target)[0])

    def root(self, reference: Reference) -> Root | None:
        if not self.path.exists():
            return None
        found = _tagged(self._images(), reference)
        if found is None:
            return None
        raw = self._manifest(found)
        self._made[sha256(raw)] = raw
        return Root(raw, edit.DOCKER_MANIFEST)

    def repo_digests(self, root: Root) -> tuple[str, ...]:
        return ()

    def manifest(self, descriptor: Object) -> bytes:
        return self._made[descriptor["digest"]]

    def config(self, descriptor: Object) -> bytes:
        return self._made[descriptor["digest"]]

    def layer(self, descriptor: Object) -> Blob:
        return MemberBlob(self.tarball, self._layers[descriptor["digest"]], descriptor["digest"])

    def default_target(self, reference: Reference, image_id: str, *, derived: bool) -> Reference:
        entry = _tagged(self._images(), reference) or {}
        name, _, tag = (split_path(reference)[1] or next(iter(entry.get("RepoTags") or []), "")).partition(":")
        ref = f":{name}:{derived_tag(tag, image_id, derived=derived)}" if name else ""
        return Reference("docker-archive", f"{_beside(self.path, derived=derived)}{ref}")

    def named(self, reference: Reference, tag: str) -> Reference:
        return Reference("docker-archive", tag)

    def publish(self, target: Reference, new: Publication, guard: Guard, source: Store) -> str:
        assert isinstance(source, DockerArchive)
        with lock(_lockable(self.path)):
            self._opened = None
            if not guard(self.root(target)):
                return "it is there already, byte for byte"
            source._opened = None
            images = source._images()
            here = self.path.exists() and self.path.samefile(source.path)
            old = _tagged(images, target) if here else None
            entry = source._entry(new.root, _full_tag(split_path(target)[1]), old)
            tags = [_short(tag) for tag in entry["RepoTags"] or []]
            others = [one for one in images if one is not old] if here else []
            kept = [
                {**one, "RepoTags": [tag for tag in one.get("RepoTags") or [] if _short(tag) not in tags]}
                for one in others
            ]
            add = {_file_name(digest, new.root): data for digest, data in new.blobs.items()}
            add["manifest.json"] = json.dumps([*kept, entry], separators=(",", ":")).encode()
            # Other lists of the same images would now say something else; engines that look for them first would load
            # the unpatched image.
            drop = {*add, "repositories", "index.json", "oci-layout"}
            road = source.tarball.rewrite(self.path, drop, add, in_place=new.in_place)
        self._opened = None
        return road

    def close(self) -> None:
        """Nothing is held open."""

    def _entry(self, root: Root, tag: str, old: Object | None) -> Object:
        """The line of ``manifest.json`` for a root made of this archive's layers and one more."""
        value = parse(root.raw, "manifest")
        layers = [one["digest"] for one in value["layers"]]
        tags = [tag] if tag else (old or {}).get("RepoTags")
        names = [self._names.get(digest) or _file_name(digest, root) for digest in layers]
        return {"Config": _file_name(value["config"]["digest"], root), "RepoTags": tags, "Layers": names}

    def _images(self) -> list[Object]:
        """The lines of ``manifest.json``, their shape checked."""
        where = f"{self.path}/manifest.json"
        raw = self.tarball.read("manifest.json")
        if raw is None:
            raise Unreachable(
                "no-such-image", "this is no docker-archive: it has no manifest.json", where=str(self.path)
            )
        images = parse(b'{"images":' + raw + b"}", where)["images"]
        if not isinstance(images, list) or not all(_is_line(one) for one in images):
            raise Unreachable("bad-manifest", "manifest.json is no list of images", where=where)
        return images

    def _manifest(self, line: Object) -> bytes:
        """A manifest for one line of ``manifest.json``, as it would stand in a registry."""
        where = f"{self.path}/{line['Config']}"
        config = self._member(line["Config"])
        raw = self.tarball.read(line["Config"]) or b""
        stem = Path(line["Config"]).name.removesuffix(".json")
        if edit.is_digest(f"sha256:{stem}") and sha256(raw) != f"sha256:{stem}":
            remedy = "write the archive again; it is damaged"
            raise Unreachable("digest-mismatch", "the config does not match its name", where=where, remedy=remedy)
        diff_ids = edit.diff_ids(parse(raw, where), where)
        if len(diff_ids) != len(line["Layers"]):
            raise Unreachable("bad-manifest", "manifest.json and the config list different layers", where=where)
        self._made[sha256(raw)] = raw
        layers = []
        for name, diff_id in zip(line["Layers"], diff_ids, strict=True):
            member = self._member(name)
            packed = is_packed(MemberBlob(self.tarball, member, diff_id))
            digest = self._digest(member) if packed else diff_id
            self._layers[digest], self._names[digest] = member, name
            kind = edit.DOCKER_LAYER if packed else _DOCKER_PLAIN_LAYER
            layers.append({"mediaType": kind, "size": member.size, "digest": digest})
        descriptor = {"mediaType": edit.DOCKER_CONFIG, "size": config.size, "digest": sha256(raw)}
        return dump({"schemaVersion": 2, "mediaType": edit.DOCKER_MANIFEST, "config": descriptor, "layers": layers})

    def _member(self, name: str) -> Member:
        member = self.tarball.member(name)
        if member is None:
            raise Unreachable("missing-blob", "the archive lacks this member", where=f"{self.path}/{name}")
        return member

    def _digest(self, member: Member) -> str:
        digest, left = hashlib.sha256(), member.size
        with self.tarball.open(member.data) as stream:
            while left and (piece := stream.read(min(left, 1 << 20))):
                digest.update(piece)
                left -= len(piece)
        return f"sha256:{digest.hexdigest()}"


def _is_line(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("Config"), str)
        and isinstance(value.get("Layers"), list)
        and all(isinstance(one, str) for one in value["Layers"])
        and isinstance(value.get("RepoTags") or [], list)
        and all(isinstance(one, str) for one in value.get("RepoTags") or [])
    )


def _file_name(digest: str, root: Root) -> str:
    """The name of a new member: a config ends in ``.json``, as engines and tools expect, a layer in ``.tar``."""
    is_config = parse(root.raw, "manifest")["config"]["digest"] == digest
    return digest.partition(":")[2] + (".json" if is_config else ".tar")


def _full_tag(name: str) -> str:
    """A name with its tag, which ``docker load`` needs."""
    return f"{name}:latest" if name and ":" not in name.rpartition("/")[2] else name


def _short(name: str) -> str:
    """A full name less what Docker's names leave out: skopeo writes ``docker.io/library/x:t`` where docker has x:t."""
    return _full_tag(name).removeprefix("docker.io/").removeprefix("library/")


def _tagged(images: list[Object], reference: Reference) -> Object | None:
    """The line that the reference's name picks; without a name the only one.

    Raises:
        patchkit.errors.BadInput: ``which-image``.
    """
    tag = _short(split_path(reference)[1])
    found = [one for one in images if tag in map(_short, one.get("RepoTags") or [])] if tag else images
    if len(found) > 1:
        there = ", ".join(sorted({str(name) for one in images for name in one.get("RepoTags") or ["(no name)"]}))
        remedy = "write docker-archive:PATH:NAME:TAG"
        raise BadInput("which-image", f"the archive holds several: {there}", where=str(reference), remedy=remedy)
    return found[0] if found else None


def _beside(path: Path, *, derived: bool) -> Path:
    """The derived archive's path: ``image-patchkit.tar`` beside ``image.tar``."""
    return path if derived and path.stem.endswith("-patchkit") else path.with_name(f"{path.stem}-patchkit{path.suffix}")


def _lockable(path: Path) -> Path:
    return path if path.exists() else path.parent
