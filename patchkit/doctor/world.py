"""What the checks look at. Everything is asked for once, when the first check needs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from threading import RLock
from typing import Any, TypeVar

from patchkit.api.containers import connect, running, verify_container
from patchkit.api.look import Options, launch_for, opened, status
from patchkit.api.prove import Verified
from patchkit.catalog.load import load_catalog
from patchkit.catalog.match import match
from patchkit.catalog.model import Catalog, Manifest, RefusedEnv
from patchkit.deliver.container import LiveContainer
from patchkit.deliver.image import (
    LABEL_FINGERPRINT,
    LABEL_ORIGIN_DIGEST,
    LABEL_ORIGIN_NAME,
    LABEL_RECEIPT,
    LAYER_RECEIPT,
)
from patchkit.deliver.receipt import Receipt, load
from patchkit.errors import PatchkitError, Unreachable
from patchkit.images import paths
from patchkit.images.containers import Container as Files
from patchkit.images.engine import Engine
from patchkit.images.model import Reference
from patchkit.plan import Plan
from patchkit.proof.processes import Inside, look_inside
from patchkit.site.model import Launch, module_of
from patchkit.site.probe import Answer, ask
from patchkit.site.probe import Question as Probe
from patchkit.site.record import find_dist, parse_record
from patchkit.site.view import View
from patchkit.stack.compose_model import Model, read

Json = Mapping[str, Any]

T = TypeVar("T")

_AT_ONCE = 8  # inspections under way at the same time: an engine answers some 10 ms each


class once(cached_property[T]):  # noqa: N801 - used like its parent
    """A cached property that is computed one time however many threads ask: functools has no lock from 3.12 on."""

    def __init__(self, compute: Callable[[Any], T]) -> None:
        super().__init__(compute)
        self._one_at_a_time = RLock()

    def __get__(self, instance: object, owner: type[Any] | None = None) -> T:  # type: ignore[override]
        with self._one_at_a_time:
            return super().__get__(instance, owner)


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


def _answer(live: LiveContainer, launch: Launch, question: Probe) -> Answer:
    """What a container's interpreter answers; ``no-answer`` is raised where it says nothing that counts."""
    answer = ask(live, launch, question)
    if not answer.spoke:
        name = live.container.name
        what = f"its interpreter gave no answer: {answer.how_it_ended}"
        raise Unreachable("no-answer", what, where=name, remedy=f"patchkit verify --container {name}")
    return answer


def _known(looks: Mapping[str, T | PatchkitError]) -> Mapping[str, T]:
    """The looks that there were."""
    return {name: look for name, look in looks.items() if not isinstance(look, PatchkitError)}


@dataclass
class World:
    """The engine, its patched images and its containers, the catalog, and the receipts."""

    question: Question = field(default_factory=Question)
    _opened: ExitStack = field(default_factory=ExitStack)

    def close(self) -> None:
        """Give back what reading took."""
        self._opened.close()

    @once
    def _engine(self) -> tuple[Engine | None, PatchkitError | None]:
        try:
            found = connect(next(iter(self.question.hosts), None))
            _ = found.version
        except PatchkitError as error:
            return None, error
        return found, None

    @property
    def engine(self) -> Engine | None:
        """The engine, None where none can be reached."""
        return self._engine[0]

    @property
    def engine_error(self) -> PatchkitError | None:
        """Why there is no engine."""
        return self._engine[1]

    @once
    def _catalog(self) -> tuple[Catalog | None, PatchkitError | None]:
        try:
            return load_catalog(self.question.catalog), None
        except PatchkitError as error:
            return None, error

    @property
    def catalog(self) -> Catalog | None:
        """The catalog, None where it has faults."""
        return self._catalog[0]

    @property
    def catalog_error(self) -> PatchkitError | None:
        """What is wrong with the catalog."""
        return self._catalog[1]

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
        return str((self.engine.inspect_image(self.question.image) or {}).get("Id", ""))

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
        return tuple(sorted(found, key=lambda container: container.name))

    @once
    def receipts(self) -> Mapping[Path, Receipt | PatchkitError]:
        """The receipt files that containers' labels name and the one in the output folder; an unreadable one as its
        error."""
        # The label of a derived image names a path inside it; only an overlay's names one here.
        inside = f"/{LAYER_RECEIPT}"
        labels = {container.receipt_path for container in self.containers}
        places = {Path(label) for label in labels if label and not label.endswith(inside)}
        own = self.question.output.absolute() / "receipt.json"
        if own.exists():
            places.add(own)
        found: dict[Path, Receipt | PatchkitError] = {}
        for place in sorted(places):
            try:
                found[place] = load(place)
            except PatchkitError as error:
                found[place] = error
        return found

    @property
    def readable(self) -> tuple[Receipt, ...]:
        """The receipts that can be read."""
        return tuple(each for each in self.receipts.values() if isinstance(each, Receipt))

    @once
    def verified(self) -> Mapping[str, Verified | PatchkitError]:
        """Container ID -> what its receipt says against its files as they are now, without running anything; for those
        that carry a label of ours, or whose image has a receipt for mounts in the output folder."""
        asked = [item for item in self.containers if item.running and self.expects_patches(item)]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return dict(zip([item.id for item in asked], pool.map(self._verify, asked), strict=True))

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

    def manifest_for(self, image_name: str, image_id: str = "") -> str:
        """The name of the manifest that is for an image, empty where none is or several claim it."""
        if self.catalog is None:
            return ""
        try:
            return match(self.catalog, [image_id], Reference("docker-daemon", image_name)).manifest.name
        except PatchkitError:
            return ""

    def concerns(self, container: Container) -> bool:
        """Whether the container runs something that patches are for."""
        return self.expects_patches(container) or bool(self.manifest_for(container.image_name, container.image_id))

    @once
    def logs(self) -> Mapping[str, list[str]]:
        """Container ID -> the last lines of its log, for those that patches are for."""
        if self.engine is None:
            return {}
        asked = [container.id for container in self.containers if self.concerns(container)]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return dict(zip(asked, pool.map(self._log, asked), strict=True))

    def _log(self, container: str) -> list[str]:
        assert self.engine is not None
        try:
            return self.engine.logs(container, tail=2000)
        except PatchkitError:
            return []  # it is gone, or its log driver keeps nothing that can be read

    def _verify(self, container: Container) -> Verified | PatchkitError:
        try:
            return verify_container(
                container.id,
                Options(catalog=self.question.catalog, run=False),
                output_folder=self.question.output,
                host=next(iter(self.question.hosts), None),
            )
        except PatchkitError as error:
            return error

    @once
    def _looks(self) -> Mapping[str, tuple[Launch, Inside | None] | PatchkitError]:
        def look(live: LiveContainer, launch: Launch, receipt: Receipt) -> tuple[Launch, Inside | None]:
            files = [file.image_path for file in receipt.files]
            names = [one.name for one in self.refused_env(receipt.manifest)]
            return launch, look_inside(live, launch, files, caches_of(launch, live.container.cwd), names)

        return self._of_each(self.proven, look)

    @once
    def _bytecode(self) -> Mapping[str, Mapping[str, Any] | PatchkitError]:
        def look(live: LiveContainer, launch: Launch, receipt: Receipt) -> Mapping[str, Any]:
            modules = {file.image_path: name for file in receipt.files if (name := module_of(file.path))}
            question = Probe(modules=[*modules.values()], sources=[*modules])
            return _answer(live, launch, question).table("bytecode")

        asked = [
            (item, done)
            for item, done in self.proven
            if any(level.name == "bytecode" and level.state != "passed" for level in done.proof.levels)
        ]
        return self._of_each(asked, look)

    @once
    def _gpus(self) -> Mapping[str, tuple[tuple[str, str], ...] | PatchkitError]:
        def look(live: LiveContainer, launch: Launch, receipt: Receipt) -> tuple[tuple[str, str], ...]:
            return _answer(live, launch, Probe()).gpus or ()

        asked = [
            (item, done)
            for item, done in self.proven
            if (manifest := self.manifest(done.receipt.manifest)) and manifest.gpus
        ]
        return self._of_each(asked, look)

    @property
    def inside(self) -> Mapping[str, tuple[Launch, Inside | None]]:
        """Container ID -> its launch and a look at its processes, patched files and compile caches."""
        return _known(self._looks)

    @property
    def bytecode(self) -> Mapping[str, Mapping[str, Any]]:
        """Container ID -> what its interpreter says of the compiled files beside the patched sources, where reading
        them left it open. It imports none of them."""
        return _known(self._bytecode)

    @property
    def gpus(self) -> Mapping[str, tuple[tuple[str, str], ...]]:
        """Container ID -> the AMD GPUs that it is given (render node and architecture), for those whose series is not
        for all."""
        return _known(self._gpus)

    @property
    def unseen(self) -> Mapping[str, PatchkitError]:
        """Container ID -> why ``inside``, ``bytecode`` or ``gpus`` lacks it, although it was to be asked."""
        looks: tuple[Mapping[str, Any], ...] = (self._gpus, self._bytecode, self._looks)
        return {name: why for each in looks for name, why in each.items() if isinstance(why, PatchkitError)}

    def manifest(self, name: str) -> Manifest | None:
        """The manifest of this name, None where the catalog has none."""
        manifests = self.catalog.manifests if self.catalog else ()
        return next((each for each in manifests if each.name == name), None)

    def refused_env(self, manifest: str) -> tuple[RefusedEnv, ...]:
        """The settings that the manifest of this name refuses."""
        found = self.manifest(manifest)
        return found.refused_env if found else ()

    def _of_each(
        self, asked: Sequence[tuple[Container, Verified]], look: Callable[[LiveContainer, Launch, Receipt], T]
    ) -> Mapping[str, T | PatchkitError]:
        """Container ID -> what a look into it gives, or why there was none; several at a time."""

        def one(pair: tuple[Container, Verified]) -> T | PatchkitError:
            receipt = pair[1].receipt
            try:
                with running(pair[0].id, next(iter(self.question.hosts), None)) as live:
                    return look(live, launch_for(live, Options(launch=receipt.launch_given or None)), receipt)
            except PatchkitError as error:
                return error

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return dict(zip([item.id for item, _ in asked], pool.map(one, asked), strict=True))

    def shipped(self, container: Container, base: str) -> Mapping[str, str]:
        """What RECORD says that the package's files were when they were installed: path -> sha256 (hex)."""
        receipt = self.verified.get(container.id)
        assert self.engine is not None
        with Files(self.engine, container.id) as found:
            package = receipt.receipt.package if isinstance(receipt, Verified) else ""
            dist = find_dist(found.fs, base, package)
            return parse_record(found.fs.read(dist.record)) if dist and dist.record else {}

    def package_file(self, container: Container, path: str) -> bytes | None:
        """A file of the patched package as the container has it, None where it has none or is not known to be ours."""
        done = self.verified.get(container.id)
        if not isinstance(done, Verified) or self.engine is None:
            return None
        with Files(self.engine, container.id) as found:
            return paths.read(found.fs, f"{done.receipt.copy}/{path}")

    @once
    def plan(self) -> Plan | PatchkitError | None:
        """What the patches would do to the image asked about; None where none was."""
        if self.question.image is None or self.catalog is None:
            return None
        try:
            return status(self.question.image, Options(catalog=self.question.catalog))
        except PatchkitError as error:
            return error

    @once
    def asked(self) -> tuple[View, Launch] | None:
        """The files of the image asked about, and how it starts; None where none was, or its start cannot be read."""
        if self.question.image is None or self.engine is None:
            return None
        try:
            image = self._opened.enter_context(opened(self.question.image))
            return View(image.fs), launch_for(image, Options(catalog=self.question.catalog))
        except PatchkitError:
            return None

    @once
    def compose(self) -> Model | PatchkitError | None:
        """The effective model of the compose files asked about, None where none were."""
        if not self.question.compose:
            return None
        try:
            return read(self.question.compose)
        except PatchkitError as error:
            return error

    def receipt_of(self, container: Container) -> Receipt | None:
        """The receipt file that the container's label names, None where there is none to be read."""
        found = self.receipts.get(Path(container.receipt_path)) if container.receipt_path else None
        return found if isinstance(found, Receipt) else None

    def _inspected(self, names: list[str], inspect: Any) -> list[Json]:
        """One inspection each, several at a time; what went away meanwhile is left out."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return [item for item in pool.map(inspect, names) if item is not None]

    def require(self) -> None:
        """Raise ``no-such-image`` or ``no-such-container`` where the engine does not have what was asked about."""
        if self.engine is None:
            return
        asked = self.question
        if asked.image and self.engine.inspect_image(asked.image) is None:
            raise Unreachable(
                "no-such-image", "the engine has no image of that name", where=asked.image, remedy="docker images"
            )
        if asked.container and self.engine.inspect_container(asked.container) is None:
            raise Unreachable(
                "no-such-container", "the engine has no such container", where=asked.container, remedy="docker ps -a"
            )
