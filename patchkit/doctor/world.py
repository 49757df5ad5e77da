"""What the checks look at. Everything is asked for once, when the first check needs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from patchkit.api.containers import connect, running, verify_container
from patchkit.api.look import Options, launch_for, look
from patchkit.api.prove import Promises, Verified, promises_in
from patchkit.catalog.load import load_catalog
from patchkit.catalog.match import match
from patchkit.catalog.model import Catalog, Manifest
from patchkit.deliver.container import LiveContainer
from patchkit.deliver.image import (
    LABEL_FINGERPRINT,
    LABEL_ORIGIN_DIGEST,
    LABEL_ORIGIN_NAME,
    LABEL_RECEIPT,
    LAYER_RECEIPT,
)
from patchkit.deliver.output import RECEIPT_NAME
from patchkit.deliver.receipt import Receipt, ReceiptFile, load
from patchkit.doctor.asking import once, or_why
from patchkit.errors import BadInput, PatchkitError, Refused, Unreachable
from patchkit.images import parse_reference, paths
from patchkit.images.containers import Container as Files
from patchkit.images.daemon import DaemonImage
from patchkit.images.daemon_write import is_id
from patchkit.images.engine import Engine, EngineError
from patchkit.images.model import Reference
from patchkit.plan import Plan
from patchkit.proof.processes import Inside, look_inside
from patchkit.site.model import Launch, module_of
from patchkit.site.probe import Answer, ask
from patchkit.site.probe import Question as Probe
from patchkit.site.record import find_dist
from patchkit.site.shipped import parse_record
from patchkit.site.view import View
from patchkit.stack.compose_model import Model, read

Json = Mapping[str, Any]

K = TypeVar("K")
T = TypeVar("T")

_AT_ONCE = 8  # inspections under way at the same time: an engine answers some 10 ms each


@dataclass(frozen=True, slots=True)
class Question:
    """What the person asked about; empty parts mean everything there is. ``hosts`` are engines, the first of which is
    looked into and the others compared with it. ``output`` is the folder whose receipt counts as this project's."""

    image: str | None = None
    container: str | None = None
    compose: tuple[Path, ...] = ()
    hosts: tuple[str, ...] = ()
    catalog: Path | None = None
    output: Path = Path(".patchkit")


@dataclass(frozen=True, slots=True)
class PatchedImage:
    """An image with our labels. ``origin_digest`` and ``origin_name`` are what it was made from, ``tags`` its names."""

    id: str
    tags: tuple[str, ...]
    origin_digest: str
    origin_name: str
    fingerprint: str
    inspect: Json


@dataclass(frozen=True, slots=True)
class Container:
    """A container as its engine tells it. ``receipt_path`` is the overlay's label, empty where there is none."""

    id: str
    name: str
    image_id: str
    image_name: str
    running: bool
    receipt_path: str
    fingerprint: str
    inspect: Json

    @property
    def mounts(self) -> list[Json]:
        """The mounts as inspected: ``Type``, ``Source``, ``Destination``, ``RW``."""
        return list(self.inspect.get("Mounts") or [])


def caches_of(launch: Launch, cwd: str) -> tuple[str, ...]:
    """Where vLLM, torch inductor and Triton keep what they compiled, under this launch's environment."""
    env = launch.env
    home = env.get("HOME") or ("/root" if launch.user in ("", "0", "root", "0:0") else cwd)
    base = env.get("XDG_CACHE_HOME") or f"{home.rstrip('/')}/.cache"
    return (
        env.get("VLLM_CACHE_ROOT") or f"{base}/vllm",
        env.get("TORCHINDUCTOR_CACHE_DIR") or f"/tmp/torchinductor_{launch.user or 'root'}",  # noqa: S108 - theirs
        env.get("TRITON_CACHE_DIR") or f"{env.get('TRITON_HOME') or home.rstrip('/')}/.triton/cache",
    )


@dataclass(frozen=True, slots=True)
class Seen:
    """What a look into a running container showed: its launch, its processes, patched files and compile caches, and
    what its interpreter answered of bytecode and GPUs, where that was to be asked."""

    launch: Launch
    inside: Inside
    answer: Answer | PatchkitError


def open_bytecode(done: Verified) -> list[ReceiptFile]:
    """The files of which reading did not show that no other bytecode runs instead."""
    proofs = [proof for level in done.proof.levels if level.name == "bytecode" for proof in level.files]
    unproven = {proof.name for proof in proofs if proof.state != "passed"}
    return [file for file in done.receipt.files if file.path in unproven]


def _answer(live: LiveContainer, launch: Launch, question: Probe) -> Answer:
    """What a container's interpreter answers; ``no-answer`` is raised where it says nothing that counts."""
    answer = ask(live, launch, question)
    if not answer.spoke or answer.gpus is None:
        raise _no_answer(live, f"its interpreter gave no answer: {answer.how_it_ended}")
    return answer


def _no_answer(live: LiveContainer, what: str) -> Unreachable:
    name = live.container.name
    return Unreachable("no-answer", what, where=name, remedy=f"patchkit verify --container {name}")


@dataclass
class World:
    """The engine, its patched images and its containers, the catalog, and the receipts."""

    question: Question = field(default_factory=Question)
    _opened: ExitStack = field(default_factory=ExitStack)

    def close(self) -> None:
        """Give back what reading took."""
        self._opened.close()

    @once
    def _engine(self) -> Engine | PatchkitError:
        def reached() -> Engine:
            found = connect(next(iter(self.question.hosts), None))
            _ = found.version
            return found

        return or_why(reached)

    @property
    def engine(self) -> Engine | None:
        """The engine, None where none can be reached."""
        return None if isinstance(self._engine, PatchkitError) else self._engine

    @property
    def engine_error(self) -> PatchkitError | None:
        """Why there is no engine."""
        return self._engine if isinstance(self._engine, PatchkitError) else None

    @once
    def _catalog(self) -> Catalog | PatchkitError:
        return or_why(lambda: load_catalog(self.question.catalog))

    @property
    def catalog(self) -> Catalog | None:
        """The catalog, None where it has faults."""
        return None if isinstance(self._catalog, PatchkitError) else self._catalog

    @property
    def catalog_error(self) -> PatchkitError | None:
        """What is wrong with the catalog."""
        return self._catalog if isinstance(self._catalog, PatchkitError) else None

    @once
    def patched_images(self) -> tuple[PatchedImage, ...]:
        """All images with our labels, by ID."""
        if self.engine is None:
            return ()
        names = [str(item["Id"]) for item in self.engine.images(LABEL_FINGERPRINT)]
        found = []
        for inspect in self._inspected(names, self.engine.inspect_image):
            labels = (inspect.get("Config") or {}).get("Labels") or {}
            found.append(
                PatchedImage(
                    id=str(inspect["Id"]),
                    tags=tuple(inspect.get("RepoTags") or ()),
                    origin_digest=str(labels.get(LABEL_ORIGIN_DIGEST, "")),
                    origin_name=str(labels.get(LABEL_ORIGIN_NAME, "")),
                    fingerprint=str(labels.get(LABEL_FINGERPRINT, "")),
                    inspect=inspect,
                )
            )
        return tuple(sorted(found, key=lambda image: image.id))

    @once
    def images_asked(self) -> tuple[PatchedImage, ...]:
        """Of the patched images those that are asked about, themselves or by their origin: the image's, or those of the
        container; all where nothing in particular is asked about."""
        asked = self._asked_id
        if asked is None and self.question.container:
            asked = next((container.image_id for container in self.containers), "")
        return tuple(image for image in self.patched_images if asked in (None, image.id, image.origin_digest))

    @once
    def _asked_id(self) -> str | None:
        """The ID of the image asked about."""
        if self.engine is None or self.question.image is None:
            return None
        found = self.engine.inspect_image(self.question.image)
        if found is None:
            what = "the engine has no image of that name"
            raise Unreachable("no-such-image", what, where=self.question.image, remedy="docker images")
        return str(found["Id"])

    @once
    def containers(self) -> tuple[Container, ...]:
        """The running containers, those of the image asked about, or the one asked about, running or not; by name."""
        if self.engine is None:
            return ()
        if self.question.container:
            names = [self.question.container]
        else:
            related = {self._asked_id, *(image.id for image in self.images_asked)}
            names = [
                str(item["Id"])
                for item in self.engine.containers(running=True)
                if self._asked_id is None or item.get("ImageID") in related
            ]
        found = []
        for inspect in self._inspected(names, self.engine.inspect_container):
            config = inspect.get("Config") or {}
            labels = config.get("Labels") or {}
            found.append(
                Container(
                    id=str(inspect["Id"]),
                    name=str(inspect.get("Name", "")).lstrip("/"),
                    image_id=str(inspect.get("Image", "")),
                    image_name=str(config.get("Image", "")),
                    running=bool((inspect.get("State") or {}).get("Running")),
                    receipt_path=str(labels.get(LABEL_RECEIPT, "")),
                    fingerprint=str(labels.get(LABEL_FINGERPRINT, "")),
                    inspect=inspect,
                )
            )
        if self.question.container and not found:
            what = "the engine has no such container"
            raise Unreachable("no-such-container", what, where=self.question.container, remedy="docker ps -a")
        # Of those that were listed as running one that has ended since runs no patches any more.
        told = [each for each in found if each.running or self.question.container]
        return tuple(sorted(told, key=lambda container: container.name))

    @once
    def receipts(self) -> Mapping[Path, Receipt | PatchkitError]:
        """The receipt files that containers' labels name and the one in the output folder; an unreadable one as its
        error."""
        # The label of a derived image names a path inside it; only an overlay's names one here.
        inside = f"/{LAYER_RECEIPT}"
        labels = {container.receipt_path for container in self.containers}
        named = {Path(label) for label in labels if label and not label.endswith(inside)}
        own = self.question.output.absolute() / RECEIPT_NAME
        found = {place: or_why(partial(load, place)) for place in sorted({*named, own})}
        if own not in named and isinstance(found[own], Refused):
            del found[own]  # there is none, and nobody said that there was
        return found

    @property
    def readable(self) -> tuple[Receipt, ...]:
        """The receipts that can be read."""
        return tuple(each for each in self.receipts.values() if isinstance(each, Receipt))

    @once
    def verified(self) -> Mapping[str, Verified | PatchkitError]:
        """Container ID -> what its receipt says against its files as they are now, without running anything; for those
        that carry a label of ours, or whose image has a receipt for mounts in the output folder."""
        return _each({each.id: each for each in self.containers if self.expects_patches(each)}, self._verify)

    @property
    def proven(self) -> tuple[tuple[Container, Verified], ...]:
        """The containers that could be held against their receipts, and what came of it."""
        known = ((each, self.verified.get(each.id)) for each in self.containers)
        return tuple((each, done) for each, done in known if isinstance(done, Verified))

    def patched_in_place(self, container: Container) -> bool:
        """Whether the receipt in the output folder says that this very container's files were patched."""
        return f"container:{container.id}" in [each.delivered for each in self.readable]

    def expects_patches(self, container: Container) -> bool:
        """Whether something says that this container runs patched files."""
        bound = [each for each in self.readable if each.kind == "bind"]
        if self.patched_in_place(container):
            return True
        return bool(container.fingerprint or container.receipt_path) or any(
            container.image_id in receipt.delivered_identity.digests for receipt in bound
        )

    @once
    def images(self) -> Mapping[str, DaemonImage | PatchkitError]:
        """Image ID -> the image, for those that the containers were made from."""
        engine = self.engine
        if engine is None:
            return {}

        def opened(container: Container) -> DaemonImage:
            return self._opened.enter_context(DaemonImage(engine, Reference("docker-daemon", container.image_id)))

        return _each({container.image_id: container for container in self.containers}, opened)

    @once
    def manifests(self) -> Mapping[str, Manifest | PatchkitError | None]:
        """Container ID -> the manifest that is for its image, None where none is; an error where several claim it, or
        where its image does not tell by what names manifests know it."""

        def matched(container: Container) -> Manifest | PatchkitError | None:
            image, name = self.images.get(container.image_id), container.image_name
            if isinstance(image, DaemonImage):
                return self._matched(name, image.identity.digests, image.called(name))
            found = self._matched(name, [container.image_id])
            return image if found is None and is_id(container.image_id, name) else found

        return _each({container.id: container for container in self.containers}, matched)

    def manifest_for(self, image_name: str) -> Manifest | PatchkitError | None:
        """The manifest that is for an image of this name, None where none is; an error where several claim it."""
        return self._matched(image_name, [image_name.rpartition("@")[2]])

    def _matched(
        self, name: str, digests: Sequence[str], called: Sequence[Reference] = ()
    ) -> Manifest | PatchkitError | None:
        if self.catalog is None:
            return None
        try:
            return match(self.catalog, digests, Reference("docker-daemon", name), called=called).manifest
        except Refused:
            return None
        except BadInput as error:
            return error

    def concerns(self, container: Container) -> bool:
        """Whether the container runs something that patches are for, as far as anybody can tell."""
        return self.expects_patches(container) or self.manifests.get(container.id) is not None

    @once
    def logs(self) -> Mapping[str, list[str] | PatchkitError]:
        """Container ID -> the last lines of its log, for those that patches are for."""
        return _each({each.id: each for each in self.containers if self.concerns(each)}, self._log)

    def _log(self, container: Container) -> list[str]:
        assert self.engine is not None
        try:
            return self.engine.logs(container.id, tail=2000)
        except EngineError as error:
            if error.http == 404:
                return []  # it is gone
            error.remedy = error.remedy or f"see that it can be read: docker logs {container.name}"
            raise

    def _verify(self, container: Container) -> Verified:
        return verify_container(
            container.id,
            Options(catalog=self.question.catalog, run=False),
            output_folder=self.question.output,
            host=next(iter(self.question.hosts), None),
        )

    @once
    def looks(self) -> Mapping[str, Seen | PatchkitError]:
        """Container ID -> a look into it, or why there was none; for those that could be held against their receipts.
        Its interpreter is asked about compiled files where reading them left it open, and imports none of them."""
        return _each({container.id: (container, done) for container, done in self.proven}, self._look)

    def _look(self, proven: tuple[Container, Verified]) -> Seen:
        container, done = proven
        receipt, promises, left_open = done.receipt, self.promises(done.receipt), open_bytecode(done)
        with running(container.id, next(iter(self.question.hosts), None)) as live:
            launch = launch_for(live, Options(launch=receipt.launch_given or None))
            files = [file.image_path for file in receipt.files]
            names = [one.name for one in promises.refused_env]
            inside = look_inside(live, launch, files, caches_of(launch, live.container.cwd), names)
            if inside is None:
                raise _no_answer(live, "its interpreter did not tell which processes run")
            if not left_open and promises.gpus is None:
                return Seen(launch, inside, Answer())
            question = Probe(
                modules=[name for file in left_open if (name := module_of(file.path))],
                sources=[file.image_path for file in left_open],
            )
            return Seen(launch, inside, or_why(lambda: _answer(live, launch, question)))

    def answer(self, container: Container) -> Answer | PatchkitError:
        """What the container's interpreter answered that was to be asked."""
        seen = self.looks[container.id]
        return seen.answer if isinstance(seen, Seen) else seen

    def promises(self, receipt: Receipt) -> Promises:
        """Where a receipt's patches must not be used, as this catalog says it, or as theirs did."""
        return promises_in(self.catalog, receipt)

    def shipped(self, container: Container, receipt: Receipt) -> Mapping[str, str]:
        """What RECORD says that the package's files were when they were installed: path -> sha256 (hex)."""
        assert self.engine is not None
        bases = {file.image_path.removesuffix(file.path).rstrip("/") for file in receipt.files}
        found: dict[str, str] = {}
        with Files(self.engine, container.id) as files:
            for base in sorted(bases):
                dist = find_dist(files.fs, base, receipt.package)
                found |= parse_record(files.fs.read(dist.record)) if dist and dist.record else {}
        return found

    def package_file(self, container: Container, path: str) -> bytes | None:
        """A file of the patched package as the container has it, None where it has none or is not known to be ours."""
        done = self.verified.get(container.id)
        if not isinstance(done, Verified) or self.engine is None:
            return None
        with Files(self.engine, container.id) as found:
            return paths.read(found.fs, f"{done.receipt.copy}/{path}")

    @once
    def asked(self) -> tuple[DaemonImage, View, Launch] | PatchkitError | None:
        """The image asked about, its files, and how it starts; None where none was."""
        engine, name = self.engine, self.question.image
        if engine is None or name is None:
            return None

        def opened() -> tuple[DaemonImage, View, Launch]:
            image = self._opened.enter_context(DaemonImage(engine, parse_reference(name)))
            return image, View(image.fs), launch_for(image)

        return or_why(opened)

    @once
    def plan(self) -> Plan | PatchkitError | None:
        """What the patches would do to the image asked about; None where none was. What keeps that image from being
        read keeps them from being delivered, whatever the catalog says."""
        if self.asked is None or isinstance(self.asked, PatchkitError):
            return self.asked
        image, catalog = self.asked[0], self.catalog
        return or_why(lambda: look(image, catalog=catalog)) if catalog is not None else None

    @once
    def compose(self) -> Model | PatchkitError | None:
        """The effective model of the compose files asked about, None where none were."""
        return or_why(lambda: read(self.question.compose)) if self.question.compose else None

    def receipt_of(self, container: Container) -> Receipt | None:
        """What the container is held against: None where there is nothing, or nothing that can be read."""
        done = self.verified.get(container.id)
        if isinstance(done, Verified):
            return done.receipt
        found = self.receipts.get(Path(container.receipt_path)) if container.receipt_path else None
        return found if isinstance(found, Receipt) else None

    def _inspected(self, names: list[str], inspect: Any) -> list[Json]:
        """One inspection each, several at a time; what went away meanwhile is left out."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return [item for item in pool.map(inspect, names) if item is not None]

    def require(self) -> None:
        """Raise ``no-such-image`` or ``no-such-container`` where the engine does not have what was asked about."""
        if self.engine is not None:
            _ = self._asked_id if self.question.image else None, self.containers if self.question.container else None


def _each(asked: Mapping[str, K], look: Callable[[K], T]) -> Mapping[str, T | PatchkitError]:
    """Name -> what a look gives at what stands under it, or why there was none; several at a time."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return dict(zip(asked, pool.map(lambda each: or_why(lambda: look(each)), asked.values()), strict=True))
