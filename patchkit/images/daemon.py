"""``docker-daemon:``, an image in a Docker engine of either store, or in podman through its compatible socket."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from functools import cached_property

from patchkit.errors import BadInput, Unreachable
from patchkit.images import TRANSPORTS, Access, daemon_write, edit, parse_reference, rawjson, sandbox
from patchkit.images.daemon_files import ArchiveFilesystem, OverlayFilesystem, overlay_folders
from patchkit.images.daemon_store import Documents, documents
from patchkit.images.engine import Engine, Json, engine, image_id, split_tag
from patchkit.images.layer import sha256
from patchkit.images.model import (
    DEFAULT_PATH,
    Derivation,
    Derived,
    Filesystem,
    Identity,
    Image,
    Reference,
    Run,
    RunResult,
)
from patchkit.images.paths import rows, stat
from patchkit.images.platforms import matches

#: Names in a folder and three levels below, one JSON line a folder: where the copies of a package are looked for.
_LIST = """
import json, os, sys
todo = [(sys.argv[1], 3)]
for path, depth in todo:
    try:
        with os.scandir(path) as entries:
            found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    except OSError:
        continue
    print(json.dumps([path, [name for name, _ in found]]))
    todo += [(os.path.join(path, name), depth - 1) for name, folder in found if folder and depth]
"""


def open_image(reference: Reference, *, platform: str | None = None, access: Access | None = None) -> Image:
    """The image that the engine has under ``reference``; of ``access`` only ``run`` counts here.

    Raises:
        patchkit.errors.Unreachable: no engine, no such image, or one of another platform than ``platform``.
    """
    image = DaemonImage(engine(), reference, no_run=access is not None and not access.run)
    if platform is not None and not matches(image.identity.platform, platform):
        raise Unreachable(
            "no-such-platform",
            f"the engine holds this image for {image.identity.platform}, not for {platform}",
            where=str(reference),
            remedy=f"docker pull --platform {platform} {reference.name}",
        )
    return image


def _near(engine: Engine, name: str) -> str:
    """``did you mean X? Else: `` where the engine has an image of nearly that name."""
    tags = [tag for each in engine.images() for tag in each.get("RepoTags") or () if "<none>" not in tag]
    close = get_close_matches(daemon_write.with_tag(name), tags, n=2, cutoff=0.75)
    return f"did you mean {' or '.join(close)}? Else: " if close else ""


class DaemonImage:
    """An image in an engine. A fact that is not asked for costs no call, and none costs a container where it can be
    read without one."""

    def __init__(self, engine: Engine, reference: Reference, *, no_run: bool = False) -> None:
        self.engine = engine
        self.reference = reference
        self.no_run = no_run
        self._files: OverlayFilesystem | ArchiveFilesystem | None = None
        #: The image has just been made and must be looked at itself, whatever is known of its ID.
        self.is_new = False
        #: The image was loaded, untagged, only for this object, and goes with it.
        self.is_for_a_moment = False
        inspected = engine.inspect_image(reference.name)
        if inspected is None:
            raise Unreachable(
                "no-such-image",
                "the engine has no image of that name",
                where=str(reference),
                remedy=_near(engine, reference.name) + f"docker pull {reference.name}",
            )
        self.inspected: Json = inspected
        self.id = image_id(inspected)

    # -- what it is ------------------------------------------------------------------------------------------------

    @cached_property
    def documents(self) -> Documents | None:
        """The raw config, manifest and index, where the engine's store lets them be read."""
        return documents(self.engine, self.inspected)

    @cached_property
    def identity(self) -> Identity:
        """On the containerd store an image's ID is its manifest's or index's digest; where the store cannot be read it
        stands for the unknown config digest too."""
        layers = tuple(self.inspected.get("RootFS", {}).get("Layers") or ())
        parts = [self.inspected.get("Os"), self.inspected.get("Architecture"), self.inspected.get("Variant")]
        names = tuple(self.inspected.get("RepoDigests") or ())
        config, manifest, index = self.id, None, None
        if self.engine.store == "containerd":
            found = self.documents
            if found is not None:
                config = sha256(found.config)
                manifest = sha256(found.manifest) if found.manifest is not None else None
                index = sha256(found.index) if found.index is not None else None
        return Identity(
            config=config,
            diff_ids=layers,
            platform="/".join(str(part) for part in parts if part),
            manifest=manifest,
            index=index,
            # Podman makes up digests for images that no registry has seen (podman#15780): they name nothing.
            repo_digests=names if self.engine.kind == "docker" else (),
        )

    @property
    def config(self) -> bytes:
        return self.documents.config if self.documents is not None else nearest_config(self.inspected)

    def called(self, name: str) -> tuple[Reference, ...]:
        """What to match a manifest by where a container calls the image ``name``. An ID, by which overlays pin it, is
        no name: then its origin's counts, and its tags. Empty where there is none."""
        names = [name]
        origin = None
        if daemon_write.is_id(self.id, name):
            origin = daemon_write.origin_name(self, edit.labels(json.loads(self.config)))
            names = sorted(self.inspected.get("RepoTags") or ())
        found = [origin] if origin else []
        for each in names:
            with suppress(BadInput):
                found.append(parse_reference(each))
        return tuple(found)

    # -- its files and programs ------------------------------------------------------------------------------------

    @property
    def fs(self) -> Filesystem:
        return self._opened()

    @property
    def knows_owners(self) -> bool:
        """Whether the files' owners can be told; not by podman's API."""
        return self._opened().knows_owners

    def _opened(self) -> OverlayFilesystem | ArchiveFilesystem:
        if self._files is None:
            folders = overlay_folders(self.engine, self.inspected)
            lister = None if self.no_run else self._list
            self._files = (
                OverlayFilesystem(folders)
                if folders
                else ArchiveFilesystem(self.engine, self.id, lister, remember=self._remembered_as)
            )
        return self._files

    @property
    def _remembered_as(self) -> str:
        """What names the files for good: an index's digest alone does not, it stands for several platforms."""
        platform = self.identity.platform.replace("/", "-")
        return "" if self.is_new else f"{self.id.removeprefix('sha256:')}-{platform}"

    @property
    def can_run(self) -> bool:
        return not self.no_run

    def run(self, run: Run) -> RunResult:
        if self.no_run:
            raise Unreachable("no-run", "running anything of the image was ruled out", where=str(self.reference))
        return sandbox.run(self.engine, self.id, run, self._home(run))

    def _home(self, run: Run) -> str:
        """The home folder that the program's user has in the image: user site-packages lie below it."""
        inner = self.inspected.get("Config") or {}
        env = dict(item.partition("=")[::2] for item in inner.get("Env") or [])
        told = run.env.get("HOME") or env.get("HOME")
        # Facts are read as root and told of the user who serves.
        user = str(run.user if run.user is not None else inner.get("User") or "").partition(":")[0]
        if told or user in ("", "0", "root"):
            return told or "/root"
        known = rows(self.fs, "/etc/passwd")
        return next((row[5] for row in known if len(row) > 5 and user in (row[0], row[2])), "/")

    def _list(self, path: str) -> Mapping[str, Sequence[str]] | None:
        """The names in a folder and below, asked of the image's own Python; None where there is none or it fails."""
        env = dict(item.partition("=")[::2] for item in (self.inspected.get("Config") or {}).get("Env") or [])
        for folder in env.get("PATH", DEFAULT_PATH).split(":"):
            for name in ("python3", "python"):
                python = stat(self.fs, f"{folder}/{name}")
                if python is not None and python.kind == "file":
                    argv = (f"{folder}/{name}", "-I", "-S", "-c", _LIST, path)
                    result = self.run(Run(argv=argv, read_all=True, timeout=60))
                    return _listed(result.stdout) if result.status == 0 and result.ended == "exit" else None
        return None

    # -- what is made of it ----------------------------------------------------------------------------------------

    def default_target(self) -> Reference:
        name, tag = split_tag(self.reference.name.partition("@")[0])
        if daemon_write.is_id(self.id, self.reference.name) or ("@" in self.reference.name and not tag):
            return Reference(self.reference.transport, f"patchkit-{self.id.removeprefix('sha256:')[:12]}")
        # A patched image that is patched again stays what it is called: its origin is, and one layer of ours.
        ours = tag.endswith("-patchkit") and edit.is_derived(json.loads(self.config))
        return Reference(self.reference.transport, f"{name}:{tag}" if ours else f"{name}:{tag or 'latest'}-patchkit")

    def named(self, tag: str) -> Reference:
        if tag.partition(":")[0] in TRANSPORTS:
            return parse_reference(tag)
        return parse_reference(f"{self.reference.transport}:{tag}")

    def origin(self) -> Image:
        return daemon_write.origin(self)

    def derive(
        self, derivation: Derivation, target: Reference, *, force: bool = False, in_place: bool = False
    ) -> Derived:
        return daemon_write.derive(self, derivation, target, force=force, in_place=in_place)

    # -- its end ---------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Remove every container and untagged image that reading took."""
        if self._files is not None:
            files, self._files = self._files, None
            files.close()
        if self.is_for_a_moment:
            self.is_for_a_moment = False
            self.engine.remove_untagged(self.id)

    def __enter__(self) -> DaemonImage:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _listed(output: bytes) -> Mapping[str, Sequence[str]] | None:
    """What ``_LIST`` wrote, or None where it is anything else: the image's Python may say what it likes."""
    found: dict[str, Sequence[str]] = {}
    try:
        for line in output.splitlines():
            path, names = json.loads(line)
            if not isinstance(path, str) or not all(isinstance(name, str) for name in names):
                return None
            found[path] = names
    except (ValueError, TypeError, RecursionError):
        return None
    return found


def nearest_config(inspected: Json) -> bytes:
    """The nearest to the raw config that the engine's API tells: enough to read facts from, not to name the image."""
    value: Json = {
        "architecture": inspected.get("Architecture"),
        "config": inspected.get("Config") or {},
        "created": inspected.get("Created"),
        "os": inspected.get("Os"),
        "rootfs": {"type": "layers", "diff_ids": list((inspected.get("RootFS") or {}).get("Layers") or [])},
    }
    if inspected.get("Variant"):
        value["variant"] = inspected["Variant"]
    return rawjson.dump(value)
