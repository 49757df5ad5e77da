"""Images made of manifests and blobs by digest: what a layout, an archive of one, and a registry have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from patchkit.errors import BadInput, Refused, Unreachable
from patchkit.images import TRANSPORTS, edit, parse_reference, readback
from patchkit.images.layer import Layer, build_layer, sha256
from patchkit.images.layers import LayeredFilesystem
from patchkit.images.model import (
    Derivation,
    Derived,
    DerivedIndex,
    Filesystem,
    Identity,
    Image,
    Reference,
    Run,
    RunResult,
)
from patchkit.images.platforms import host_platform, matches
from patchkit.images.rawjson import Object, parse
from patchkit.images.stream import Blob


class Root(NamedTuple):
    """What a tag points to: the raw manifest or index and its media type."""

    raw: bytes
    media_type: str

    @property
    def digest(self) -> str:
        return sha256(self.raw)


class Store(Protocol):
    """A place that holds blobs by digest, and tags. Everything read by digest is verified. ``has_manifests`` is whether
    its manifests are known outside by their digests."""

    has_manifests: bool

    def at(self, target: Reference) -> Store:
        """The store that ``target`` lies in: this one or its like elsewhere."""

    def root(self, reference: Reference) -> Root | None:
        """What the tag of ``reference`` points to now; None where there is no such tag.

        Raises:
            patchkit.errors.Unreachable: the place cannot be read.
        """

    def repo_digests(self, root: Root) -> tuple[str, ...]:
        """See ``Identity.repo_digests``."""

    def manifest(self, descriptor: Object) -> bytes:
        """The raw manifest that the descriptor names."""

    def config(self, descriptor: Object) -> bytes:
        """The raw config that the descriptor names."""

    def layer(self, descriptor: Object) -> Blob:
        """The layer that the descriptor names."""

    def default_target(self, reference: Reference, image_id: str, *, derived: bool) -> Reference:
        """See ``Image.default_target``; ``derived`` says that the image at ``reference`` is patchkit's own."""

    def named(self, reference: Reference, tag: str) -> Reference:
        """See ``Image.named``."""

    def publish(self, target: Reference, new: Publication, guard: Guard, source: Store) -> str:
        """Write ``new`` here and have the tag of ``target`` point to it, all or nothing; blobs of the origin that are
        missing here come from ``source``. ``guard`` is called with what the tag points to just before the write: it
        raises, or says whether there is anything to write. Returns the road taken in words."""

    def close(self) -> None:
        """Free what reading took."""


Guard = Callable[[Root | None], bool]


@dataclass(frozen=True, slots=True)
class Publication:
    """What a delivery adds: ``blobs`` (layers and configs), ``manifests`` below the root, and the ``root`` itself.
    ``in_place`` allows to alter the file that the origin lies in, where that is one."""

    root: Root
    blobs: Mapping[str, bytes]
    manifests: tuple[Root, ...]
    in_place: bool

    @property
    def everything(self) -> Mapping[str, bytes]:
        """All of it by digest, in the order in which it may be written: nothing before what it points to."""
        return {**self.blobs, **{one.digest: one.raw for one in (*self.manifests, self.root)}}


class StoredImage:
    """One platform's image in a ``Store``. ``slot`` is the digest of its manifest as stored: what an edit replaces in
    the index (``origin()`` has another manifest in the same slot)."""

    def __init__(
        self, reference: Reference, store: Store, root: Root, manifest: bytes, config: bytes, slot: str
    ) -> None:
        self.reference = reference
        self.store, self.root, self.slot = store, root, slot
        self.manifest, self.config = manifest, config
        self._value = parse(config, str(reference))
        layers = edit.descriptors(parse(manifest, str(reference)), "layers", str(reference))
        diff_ids = edit.diff_ids(self._value, str(reference))
        if len(layers) != len(diff_ids):
            what = f"the manifest has {len(layers)} layers and the config {len(diff_ids)}"
            raise Unreachable("bad-manifest", what, where=str(reference))
        self.identity = Identity(
            config=sha256(config),
            diff_ids=diff_ids,
            platform=edit.platform(self._value),
            manifest=sha256(manifest) if store.has_manifests else None,
            index=root.digest if root.media_type in edit.INDEXES else None,
            repo_digests=store.repo_digests(root),
        )
        self._files = LayeredFilesystem([store.layer(one) for one in layers], diff_ids)

    @property
    def fs(self) -> Filesystem:
        return self._files

    @property
    def can_run(self) -> bool:
        return False

    def run(self, run: Run) -> RunResult:
        raise Unreachable(
            "cannot-run",
            f"an image at {self.reference.transport}: is read, never run",
            where=str(self.reference),
            remedy="load it into an engine and name it there to have imports proven",
        )

    @property
    def is_derived(self) -> bool:
        return edit.is_derived(self._value)

    def default_target(self) -> Reference:
        return self.store.default_target(self.reference, self.identity.config, derived=self.is_derived)

    def named(self, tag: str) -> Reference:
        if tag.partition(":")[0] in TRANSPORTS:
            return parse_reference(tag)
        return self.store.named(self.reference, tag)

    def origin(self) -> StoredImage:
        if not self.is_derived:
            return self
        config = edit.origin_config(self.config)
        manifest = edit.origin_manifest(self.manifest, config)
        return StoredImage(self.reference, self.store, self.root, manifest, config, self.slot)

    def derive(
        self, derivation: Derivation, target: Reference, *, force: bool = False, in_place: bool = False
    ) -> Derived:
        answer = derive_index([self], [derivation], target, force=force, in_place=in_place).images[0]
        assert answer is not None
        return answer

    def release(self) -> None:
        """Free the layers' indexes; the store stays open."""
        self._files.close()

    def close(self) -> None:
        """Free what reading took."""
        self.release()
        self.store.close()

    def __enter__(self) -> StoredImage:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def open_images(
    store: Store, reference: Reference, platform: str | None, root: Root | None = None
) -> tuple[StoredImage, ...]:
    """The images of all platforms (those that ``platform`` names) that the tag points to; ``root`` saves asking again.

    Raises:
        patchkit.errors.Unreachable: ``no-such-image`` or ``no-such-platform``.
    """
    where = str(reference)
    root = root or store.root(reference)
    if root is None:
        raise Unreachable(
            "no-such-image",
            "there is no such image",
            where=where,
            remedy=f"see what lies there: skopeo inspect --raw {where}; or check path and name",
        )
    images, others = [], []
    for descriptor, raw in _children(store, root, where):
        stated = _stated_platform(descriptor)
        if platform and stated and not matches(stated, platform):
            others.append(stated)
            continue
        raw = raw or store.manifest(descriptor)
        config = store.config(edit.config_descriptor(parse(raw, where), where))
        image = StoredImage(reference, store, root, raw, config, sha256(raw))
        if platform and not matches(image.identity.platform, platform):
            others.append(image.identity.platform)
            continue
        images.append(image)
    if not images:
        what = f"the image has no platform {platform}; it has {', '.join(others) or 'none at all'}"
        raise Unreachable("no-such-platform", what, where=where, remedy="name one of them with --platform")
    return tuple(images)


def open_one(store: Store, reference: Reference, platform: str | None) -> StoredImage:
    """The image of ``platform``, or of the host's where there are several.

    Raises:
        patchkit.errors.Unreachable: as ``open_images``, ``no-such-platform`` too where several fit.
    """
    root = store.root(reference)
    if platform is None and root is not None and len(list(_children(store, root, str(reference)))) > 1:
        platform = host_platform()
    return open_images(store, reference, platform, root)[0]


def derive_index(
    images: Sequence[Image],
    derivations: Sequence[Derivation | None],
    target: Reference,
    *,
    force: bool = False,
    in_place: bool = False,
) -> DerivedIndex:
    """Derive the images of one tag together; see ``patchkit.images.derive_index``."""
    first = _stored(images[0])
    store, root, source = first.store, first.root, first.reference
    if target.transport != source.transport:
        raise BadInput(
            "other-transport",
            f"an image at {source.transport}: cannot be derived into {target.transport}:",
            where=str(target),
            remedy="copy the image there first (skopeo copy), then patch it there",
        )
    made = [
        _Made(_stored(image).origin(), derivation) if derivation is not None else None
        for image, derivation in zip(images, derivations, strict=True)
    ]
    done = [one for one in made if one is not None]
    replaced = {one.origin.slot: one.manifest for one in done}
    dropped: tuple[str, ...] = ()
    if root.media_type in edit.INDEXES:
        raw, dropped = edit.derive_index(root.raw, replaced)
        new_root, manifests = Root(raw, root.media_type), tuple(Root(one.manifest, one.media_type) for one in done)
    else:
        new_root, manifests = Root(done[0].manifest, root.media_type), ()
    blobs = {digest: data for one in done for digest, data in one.blobs}
    existed = False
    there = store.at(target)

    def guard(current: Root | None) -> bool:
        nonlocal existed
        existed = current is not None and current.digest == new_root.digest
        if not existed:
            _may_replace(there, source, root, target, current, force=force, in_place=in_place)
        return not existed

    try:
        road = there.publish(target, Publication(new_root, blobs, manifests, in_place), guard, store)
        answers = [_read_back(there, target, new_root, one, road, existed=existed) if one else None for one in made]
    finally:
        there.close()
    index = new_root.digest if new_root.media_type in edit.INDEXES else None
    return DerivedIndex(target, tuple(answers), index, dropped)


class _Made:
    """One derived image in memory."""

    def __init__(self, origin: StoredImage, derivation: Derivation) -> None:
        self.origin = origin
        self.layer: Layer = build_layer(origin.fs, derivation.changes)
        self.config = edit.derive_config(origin.config, derivation, self.layer.diff_id)
        self.manifest = edit.derive_manifest(origin.manifest, self.config, self.layer, derivation)
        oci = edit.family_is_oci(parse(origin.manifest, "manifest"))
        self.media_type = edit.OCI_MANIFEST if oci else edit.DOCKER_MANIFEST
        self.blobs = ((self.layer.digest, self.layer.blob), (sha256(self.config), self.config))


def _read_back(store: Store, target: Reference, root: Root, made: _Made, road: str, *, existed: bool) -> Derived:
    now = store.root(target)
    if now is None or now.digest != root.digest:
        raise Refused("read-back", "the tag points to something else than what was just written", where=str(target))
    manifest = store.manifest({"digest": sha256(made.manifest), "size": len(made.manifest)})
    config = store.config({"digest": sha256(made.config), "size": len(made.config)})
    image = StoredImage(target, store, root, manifest, config, sha256(manifest))
    try:
        readback.check(image, made.origin.config, made.layer.changes)
    finally:
        image.release()
    return Derived(target, image.identity, road, existed)


def _may_replace(
    store: Store,
    source: Reference,
    read: Root,
    target: Reference,
    current: Root | None,
    *,
    force: bool,
    in_place: bool,
) -> None:
    if current is None and target != source:
        return
    where = str(target)
    if target == source and (current is None or current.digest != read.digest):
        raise Refused("tag-moved", "the tag was moved since the image was read", where=where, remedy="run it again")
    if current is None or in_place or _is_ours(store, current, where):
        return
    if current.digest == read.digest:
        raise Refused(
            "target-is-source",
            "the derived image would take the place of the image that it is made from",
            where=where,
            remedy="give another name with --tag, or --in-place if that is wanted",
        )
    if not force:
        raise Refused(
            "target-tag-taken",
            "the tag holds an image that patchkit did not make",
            where=where,
            remedy="give another name with --tag, or --force to replace it",
        )


def _is_ours(store: Store, root: Root, where: str) -> bool:
    for descriptor, raw in _children(store, root, where):
        manifest = parse(raw or store.manifest(descriptor), where)
        config = parse(store.config(edit.config_descriptor(manifest, where)), where)
        if edit.is_derived(config):
            return True
    return False


def _children(store: Store, root: Root, where: str) -> Iterator[tuple[Object, bytes | None]]:
    """The descriptors of the runnable images under a root, with the manifest's bytes where they are at hand."""
    if root.media_type not in edit.INDEXES:
        yield {"digest": root.digest, "size": len(root.raw), "mediaType": root.media_type}, root.raw
        return
    for descriptor in edit.descriptors(parse(root.raw, where), "manifests", where):
        if descriptor.get("mediaType") in edit.MANIFESTS and not edit.is_attestation(descriptor):
            yield descriptor, None


def _stated_platform(descriptor: Object) -> str | None:
    stated = descriptor.get("platform")
    return edit.platform(stated) if isinstance(stated, dict) else None


def _stored(image: Image) -> StoredImage:
    assert isinstance(image, StoredImage)
    return image


def derived_tag(tag: str, image_id: str, *, derived: bool) -> str:
    """The tag of a derived image: ``<tag>-patchkit``; of an image that is derived already its own tag; where there is
    none, one made of the image ID."""
    if not tag:
        return f"patchkit-{image_id.partition(':')[2][:12]}"
    return tag if derived and tag.endswith("-patchkit") else f"{tag}-patchkit"


def media_type_of(raw: bytes, stated: object, where: str) -> str:
    """The media type of a manifest or index: its own word, else the descriptor's, else told by its form.

    Raises:
        patchkit.errors.Unreachable: ``bad-manifest``: neither a manifest nor an index that patchkit knows.
    """
    value = parse(raw, where)
    kind = value.get("mediaType") or stated
    if kind is None:
        kind = edit.OCI_INDEX if "manifests" in value else edit.OCI_MANIFEST
    if kind not in (*edit.MANIFESTS, *edit.INDEXES):
        what = f"a manifest of type {kind!r} is none of those that patchkit reads (OCI, Docker schema 2)"
        raise Unreachable(
            "bad-manifest", what, where=where, remedy="convert the image first (skopeo copy --format oci)"
        )
    return str(kind)
