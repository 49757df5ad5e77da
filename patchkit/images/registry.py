"""Images in a registry (``docker://HOST/NAME[:TAG|@DIGEST]``), patched without pulling them.

API: distribution-spec. Sent are one small layer, configs, manifests and at last the tag; layers that the target
repository lacks are mounted from the origin's.
"""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Mapping
from typing import IO
from urllib.parse import urlencode, urljoin

import requests

from patchkit import cache
from patchkit.errors import BadInput, Refused, Unreachable
from patchkit.images import Access, edit
from patchkit.images.client import Client, reason
from patchkit.images.layer import sha256
from patchkit.images.model import Reference
from patchkit.images.oci import below
from patchkit.images.rawjson import Object, parse
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
from patchkit.images.toc import Toc, toc_of

__all__ = ["derive_index", "open_all", "open_image"]

_ACCEPT = {"Accept": ", ".join([*edit.MANIFESTS, *edit.INDEXES])}
#: Base layers that cannot be mounted are copied up to this size altogether; more is never copied unasked.
_MAX_COPY = 100 * 1024 * 1024
_RESUMES = 5


def open_image(reference: Reference, *, platform: str | None, access: Access) -> StoredImage:
    """See ``patchkit.images.open_image``."""
    return open_one(Repository(reference, access), reference, platform)


def open_all(reference: Reference, *, platform: str | None, access: Access) -> tuple[StoredImage, ...]:
    """See ``patchkit.images.open_all``."""
    return open_images(Repository(reference, access), reference, platform)


class Repository:
    """The ``Store`` in one repository. Manifests and configs are kept in the cache by their digests; ``fresh`` reads
    them from the registry all the same."""

    has_manifests = True

    def __init__(
        self, reference: Reference, access: Access, *, fresh: bool = False, client: Client | None = None
    ) -> None:
        self.host, self.name, _ = split_name(reference)
        self.client = client or Client(self.host, self.name, access)
        self._access, self._fresh = access, fresh
        self._blobs: dict[str, RemoteBlob] = {}
        self.client.widen([f"repository:{self.name}:pull"])

    def at(self, target: Reference) -> Repository:
        host = split_name(target)[0]
        client = self.client if host == self.host else None
        return Repository(target, self._access, fresh=True, client=client)

    def root(self, reference: Reference) -> Root | None:
        tag = split_name(reference)[2]
        answer = self.client.send("GET", f"{self._url}/manifests/{tag}", headers=_ACCEPT, expect=(200, 404))
        if answer.status_code == 404:
            answer.close()
            return None
        raw = self.client.small_body(answer)
        stated = answer.headers.get("Docker-Content-Digest")
        for promised in (stated, tag if edit.is_digest(tag) else None):
            if promised is not None and edit.is_digest(promised) and promised != sha256(raw):
                raise _lie(reference, promised)
        kind = answer.headers.get("Content-Type", "").partition(";")[0].strip()
        media_type = media_type_of(raw, kind if kind in (*edit.MANIFESTS, *edit.INDEXES) else None, str(reference))
        _keep(raw)
        return Root(raw, media_type)

    def repo_digests(self, root: Root) -> tuple[str, ...]:
        return (f"{self.host}/{self.name}@{root.digest}",)

    def manifest(self, descriptor: Object) -> bytes:
        return self._small("manifests", descriptor["digest"], _ACCEPT)

    def config(self, descriptor: Object) -> bytes:
        return self._small("blobs", descriptor["digest"], {})

    def layer(self, descriptor: Object) -> Blob:
        digest = descriptor["digest"]
        if digest not in self._blobs:
            url = f"{self._url}/blobs/{digest}"
            self._blobs[digest] = RemoteBlob(self.client, url, digest, descriptor["size"], toc_of(descriptor))
        return self._blobs[digest]

    def default_target(self, reference: Reference, image_id: str, *, derived: bool) -> Reference:
        tag = split_name(reference)[2]
        new = derived_tag("" if edit.is_digest(tag) else tag, image_id, derived=derived)
        return Reference("docker", f"//{self.host}/{self.name}:{new}")

    def named(self, reference: Reference, tag: str) -> Reference:
        full = "/" in tag or ":" in tag
        return Reference("docker", f"//{tag}" if full else f"//{self.host}/{self.name}:{tag}")

    def publish(self, target: Reference, new: Publication, guard: Guard, source: Store) -> str:
        assert isinstance(source, Repository)
        tag = split_name(target)[2]
        if edit.is_digest(tag):
            raise BadInput("bad-reference", "the new image needs a tag, not a digest", where=str(target))
        self.client.widen([f"repository:{self.name}:pull,push", f"repository:{source.name}:pull"])
        current = self.root(target)
        if not guard(current):
            return "it is there already, byte for byte"
        mounted = self._bring(source, new) if (source.host, source.name) != (self.host, self.name) else 0
        for digest, data in new.blobs.items():
            self._upload(digest, data)
        for one in new.manifests:
            self._put_manifest(one.digest, one)
        if current is not None:
            now = self.root(target)
            if now is None or now.digest != current.digest:
                what = "the tag was moved while the image was written; nothing was put in its place"
                raise Refused("tag-moved", what, where=str(target), remedy="run it again")
        self._put_manifest(tag, new.root)
        size = sum(len(data) for data in new.everything.values())
        return f"sent {len(new.everything)} blobs of {size} bytes" + (f", {mounted} layers mounted" if mounted else "")

    def close(self) -> None:
        for blob in self._blobs.values():
            blob.close()
        self.client.close()

    @property
    def _url(self) -> str:
        return f"/v2/{self.name}"

    def _small(self, kind: str, digest: str, headers: Mapping[str, str]) -> bytes:
        path = cache.folder("files") / digest.partition(":")[2]
        if not self._fresh:
            kept = cache.read(path)
            if kept is not None and sha256(kept) == digest:
                return kept
        answer = self.client.send("GET", f"{self._url}/{kind}/{digest}", headers=headers, expect=(200, 404))
        if answer.status_code == 404:
            answer.close()
            raise Unreachable("missing-blob", f"the registry lacks {digest}", where=f"{self.host}/{self.name}")
        data = self.client.small_body(answer)
        if sha256(data) != digest:
            raise _lie(f"{self.host}/{self.name}", digest)
        _keep(data)
        return data

    def _upload(self, digest: str, data: bytes) -> None:
        """Send one blob: POST, then PUT; once more from the beginning where that breaks. (A single POST with the digest
        is answered 202 by distribution 2.8, so it would send the bytes twice.)"""
        for last in (False, True):
            begun = self.client.send("POST", f"{self._url}/blobs/uploads/", body=b"", expect=(202,))
            begun.close()
            place = urljoin(begun.url, begun.headers.get("Location", ""))
            place += ("&" if "?" in place else "?") + urlencode({"digest": digest})
            headers = {"Content-Type": "application/octet-stream"}
            try:
                self.client.send("PUT", place, headers=headers, body=data, expect=(201,), again=False).close()
                return
            except Unreachable:
                if last:
                    raise

    def _put_manifest(self, name: str, root: Root) -> None:
        url = f"{self._url}/manifests/{name}"
        answer = self.client.send("PUT", url, headers={"Content-Type": root.media_type}, body=root.raw, expect=(201,))
        answer.close()
        stated = answer.headers.get("Docker-Content-Digest")
        if stated is not None and stated != root.digest:
            raise _lie(f"{self.host}/{self.name}", root.digest)

    def _bring(self, source: Repository, new: Publication) -> int:
        """Have every blob and manifest below the new root in this repository too; what cannot be mounted is copied
        where it is small."""
        fresh = new.everything
        manifests: dict[str, bytes] = {}

        def read(digest: str) -> bytes:
            manifests[digest] = fresh.get(digest) or source.manifest({"digest": digest})
            return manifests[digest]

        needed = [digest for digest in dict.fromkeys(below(new.root.raw, read)) if digest not in fresh]
        blobs = [digest for digest in needed if digest not in manifests]
        missing = blobs if source.host != self.host else [one for one in blobs if not self._mount(one, source.name)]
        if missing:
            sizes = _sizes([new.root.raw, *manifests.values()])
            total = sum(sizes[digest] for digest in missing)
            if total > _MAX_COPY:
                raise Refused(
                    "would-copy",
                    f"{total / 1e9:.1f} GB in {len(missing)} layers would have to be copied: they cannot be mounted",
                    where=f"{self.host}/{self.name}",
                    remedy=f"give a tag in {source.host}/{source.name}, or copy the image there first (skopeo copy)",
                )
            for digest in missing:
                with source.layer({"digest": digest, "size": sizes[digest]}).open() as stream:
                    data = stream.read(sizes[digest] + 1)
                if sha256(data) != digest:
                    raise _lie(f"{source.host}/{source.name}", digest)
                self._upload(digest, data)
        for digest in needed:
            if digest in manifests:
                raw = manifests[digest]
                self._put_manifest(digest, Root(raw, media_type_of(raw, None, digest)))
        return len(blobs) - len(missing)

    def _mount(self, digest: str, source: str) -> bool:
        """Have a blob of another repository here. Anything but 201 means no (ggcr#1404, harbor#17097)."""
        query = urlencode({"mount": digest, "from": source})
        url = f"{self._url}/blobs/uploads/?{query}"
        answer = self.client.send("POST", url, body=b"", expect=(201, 202, 401, 403, 404, 405))
        answer.close()
        if answer.status_code == 201:
            return True
        if answer.status_code == 202 and answer.headers.get("Location"):
            place = urljoin(answer.url, answer.headers["Location"])
            with contextlib.suppress(Unreachable):  # an upload left open is cleared away by the registry itself
                self.client.send("DELETE", place, expect=range(200, 500), again=False).close()
        head = self.client.send("HEAD", f"{self._url}/blobs/{digest}", expect=(200, 404, 401, 403))
        head.close()
        return head.status_code == 200


class RemoteBlob:
    """A blob in a registry. Read once from the beginning it is also kept in an unnamed file, so that it is never
    fetched twice; a read that breaks off goes on from where it was."""

    def __init__(self, client: Client, url: str, digest: str, size: int, toc: Toc | None) -> None:
        self._client, self._url, self.digest, self.size, self.toc = client, url, digest, size, toc
        self._kept: IO[bytes] | None = None

    def open(self, offset: int = 0, size: int | None = None) -> IO[bytes]:
        if self._kept is not None:
            return _Kept(self._kept, offset)  # type: ignore[return-value]
        end = self.size if size is None else min(self.size, offset + size)
        return _Fetch(self, offset, end)  # type: ignore[return-value]

    def close(self) -> None:
        """Free the disk."""
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    def get(self, offset: int, end: int) -> requests.Response:
        """The blob's bytes from ``offset`` to ``end``, as an answer whose body is still to come."""
        headers = {"Range": f"bytes={offset}-{end - 1}"} if offset or end < self.size else {}
        answer = self._client.send("GET", self._url, headers=headers, expect=(200, 206))
        if offset and answer.status_code == 200:  # a server that knows no ranges
            left = offset
            for piece in answer.iter_content(64 * 1024):
                left -= len(piece)
                if left <= 0:
                    break
            if left:
                raise Unreachable("registry-error", "it cannot give a part of a blob", where=self._url)
        return answer


class _Fetch:
    """A blob on its way from the registry."""

    def __init__(self, blob: RemoteBlob, offset: int, end: int) -> None:
        self._blob, self._position, self._end, self._resumes = blob, offset, end, _RESUMES
        self._answer = blob.get(offset, end)
        self._spool: IO[bytes] | None = _spool() if (offset, end) == (0, blob.size) else None

    def read(self, size: int) -> bytes:
        if self._position >= self._end:
            size = 1  # to see that it ends where it should
        while True:
            try:
                data = self._answer.raw.read(size)
                if data or self._position >= self._end:
                    break
                raise requests.ConnectionError("the connection was cut")
            except (requests.RequestException, OSError, _urllib3_error()) as error:
                self._answer.close()
                if self._resumes == 0:
                    what = f"the transfer broke off again and again: {reason(error)}"
                    raise Unreachable("no-registry", what, where=self._blob._client.host) from error
                self._resumes -= 1
                self._answer = self._blob.get(self._position, self._end)
        self._position += len(data)
        self._blob._client.received += len(data)
        self._keep(data)
        return data

    def close(self) -> None:
        self._answer.close()
        if self._spool is not None:
            if self._position == self._blob.size and self._blob._kept is None:
                self._blob._kept = self._spool
            else:
                self._spool.close()

    def __enter__(self) -> _Fetch:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _keep(self, data: bytes) -> None:
        if self._spool is not None:
            try:
                self._spool.write(data)
            except OSError:  # no room: it is read from the registry again if need be
                self._spool.close()
                self._spool = None


class _Kept:
    """A reader of its own over the shared file."""

    def __init__(self, file: IO[bytes], position: int) -> None:
        self._file, self._position = file, position

    def read(self, size: int) -> bytes:
        self._file.seek(self._position)
        data = self._file.read(size)
        self._position += len(data)
        return data

    def close(self) -> None:
        """The file belongs to the blob."""

    def __enter__(self) -> _Kept:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def split_name(reference: Reference) -> tuple[str, str, str]:
    """Registry, repository, and tag or digest of a ``docker://`` reference. Docker Hub is meant where no registry is
    named (distribution/reference normalize.go)."""
    text = reference.name.removeprefix("//")
    text, _, digest = text.partition("@")
    head, slash, rest = text.partition("/")
    host, path = (head, rest) if slash and re.search(r"[.:]|^localhost$", head) else ("docker.io", text)
    name, colon, tag = path.rpartition(":")
    if not colon:
        name, tag = path, "latest"
    if host in ("docker.io", "index.docker.io"):
        host = "docker.io"
        name = name if "/" in name else f"library/{name}"
    return host, name, digest or tag


def _sizes(manifests: list[bytes]) -> dict[str, int]:
    found = {}
    for raw in manifests:
        value = parse(raw, "manifest")
        if "layers" in value:
            for one in [edit.config_descriptor(value, "manifest"), *edit.descriptors(value, "layers", "manifest")]:
                found[one["digest"]] = one["size"]
    return found


def _keep(data: bytes) -> None:
    cache.write(cache.folder("files") / sha256(data).partition(":")[2], data)


def _spool() -> IO[bytes] | None:
    folder = cache.folder("spool")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return tempfile.TemporaryFile(dir=folder)  # not /tmp, which is often memory
    except OSError:
        return None


def _urllib3_error() -> type[Exception]:
    import urllib3

    return urllib3.exceptions.HTTPError


def _lie(where: object, digest: str) -> Unreachable:
    what = f"the registry gives other bytes than those of {digest}"
    return Unreachable(
        "digest-mismatch", what, where=str(where), remedy="do not use this registry until that is mended"
    )
