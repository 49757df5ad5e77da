"""What the checks look at. Everything is asked for once, when the first check needs it."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from patchkit.catalog.load import load_catalog
from patchkit.catalog.model import Catalog
from patchkit.deliver.image import LABEL_FINGERPRINT, LABEL_ORIGIN_DIGEST, LABEL_ORIGIN_NAME, LABEL_RECEIPT
from patchkit.deliver.receipt import Receipt, load
from patchkit.errors import PatchkitError, Refused
from patchkit.images.engine import Engine, engine

Json = Mapping[str, Any]

_AT_ONCE = 8  # inspections under way at the same time: an engine answers some 10 ms each


@dataclass(frozen=True, slots=True)
class Question:
    """What the person asked about; empty parts mean everything there is. ``output`` is the folder whose receipt counts
    as this project's."""

    image: str | None = None
    container: str | None = None
    compose: tuple[Path, ...] = ()
    host: str | None = None
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


@dataclass
class World:
    """The engine, its patched images and its containers, the catalog, and the receipts."""

    question: Question = field(default_factory=Question)

    @cached_property
    def _engine(self) -> tuple[Engine | None, PatchkitError | None]:
        try:
            found = engine(self.question.host)
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

    @cached_property
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

    @cached_property
    def patched_images(self) -> tuple[PatchedImage, ...]:
        """The images with our labels (all, or the one asked about), by ID."""
        if self.engine is None:
            return ()
        names = [str(item["Id"]) for item in self.engine.images(LABEL_FINGERPRINT)]
        if self.question.image:
            asked = self.engine.inspect_image(self.question.image)
            names = [name for name in names if asked and name == asked["Id"]]
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

    @cached_property
    def containers(self) -> tuple[Container, ...]:
        """The running containers (or the one asked about, running or not), by name."""
        if self.engine is None:
            return ()
        if self.question.container:
            names = [self.question.container]
        else:
            names = [str(item["Id"]) for item in self.engine.containers(running=True)]
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

    @cached_property
    def receipts(self) -> Mapping[Path, Receipt | PatchkitError]:
        """The receipt files that containers' labels name and the one in the output folder; an unreadable one as its
        error."""
        places = {Path(container.receipt_path) for container in self.containers if container.receipt_path}
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

    def receipt_of(self, container: Container) -> Receipt | None:
        """The receipt file that the container's label names, None where there is none to be read."""
        found = self.receipts.get(Path(container.receipt_path)) if container.receipt_path else None
        return found if isinstance(found, Receipt) else None

    def _inspected(self, names: list[str], inspect: Any) -> list[Json]:
        """One inspection each, several at a time; what went away meanwhile is left out."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return [item for item in pool.map(inspect, names) if item is not None]

    def require(self) -> None:
        """Raise ``not-there`` where the person asked about an image or container that this engine does not have."""
        if self.engine is None:
            return
        asked = self.question
        if asked.image and self.engine.inspect_image(asked.image) is None:
            raise Refused("not-there", "this engine has no such image", where=asked.image, remedy="docker images")
        if asked.container and self.engine.inspect_container(asked.container) is None:
            raise Refused(
                "not-there", "this engine has no such container", where=asked.container, remedy="docker ps -a"
            )
