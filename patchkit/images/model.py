"""What an image is to patchkit: a few values and one small protocol with a module a transport behind it."""

from __future__ import annotations

import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

EntryKind = Literal["file", "dir", "symlink", "other"]

#: Where programs are looked for when the image does not say: moby, oci/defaults.go (DefaultPathEnv).
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

#: Extended attributes that are not an image's: SELinux labels and overlayfs's marks belong to the host that wrote them.
HOST_XATTRS = ("security.selinux", "trusted.overlay.", "user.overlay.")

#: No single file that patchkit reads out of an image is larger; RECORD of the largest wheels is about 1 MB.
MAX_READ = 64 * 1024 * 1024


def kind_of(mode: int) -> EntryKind:
    """The kind that a file's ``st_mode`` tells."""
    checks: tuple[tuple[EntryKind, Callable[[int], bool]], ...] = (
        ("file", stat.S_ISREG),
        ("dir", stat.S_ISDIR),
        ("symlink", stat.S_ISLNK),
    )
    return next((kind for kind, check in checks if check(mode)), "other")


@dataclass(frozen=True, slots=True)
class Reference:
    """An image reference ``transport:name`` as skopeo spells them, plus ``rootfs:``.

    ``name`` is everything after the transport's colon: ``vllm-xpu:nightly`` for ``docker-daemon``, ``PATH`` or
    ``PATH:REF`` for ``oci``, and so on.
    """

    transport: str
    name: str

    def __str__(self) -> str:
        return f"{self.transport}:{self.name}"


@dataclass(frozen=True, slots=True)
class Identity:
    """All the names of one image. Digests are spelled ``sha256:<64 hex>``; a name that does not exist is None.

    ``config`` is the digest of the raw config JSON (the image ID on the classic store), ``manifest`` and ``index``
    the digests of what points to it, ``repo_digests`` what registries know it by (``name@sha256:...``), ``diff_ids``
    the uncompressed layers bottom first: the only names that every store agrees on.
    """

    config: str
    diff_ids: tuple[str, ...]
    platform: str
    manifest: str | None = None
    index: str | None = None
    repo_digests: tuple[str, ...] = ()

    @property
    def digests(self) -> tuple[str, ...]:
        """Every digest that a manifest of the catalog may list for this image, most specific first."""
        found = [self.config, self.manifest, self.index, *(name.rpartition("@")[2] for name in self.repo_digests)]
        return tuple(dict.fromkeys(digest for digest in found if digest))


@dataclass(frozen=True, slots=True)
class Entry:
    """One directory entry of an image, not followed when it is a symlink. ``mode`` holds the permission bits only
    (``0o7777``), ``mtime`` is in whole seconds since the epoch, ``target`` is a symlink's text."""

    path: str
    kind: EntryKind
    mode: int
    uid: int
    gid: int
    size: int = 0
    mtime: int = 0
    target: str = ""
    xattrs: Mapping[str, bytes] = field(default_factory=dict)


class Filesystem(Protocol):
    """The files of one image, read without running anything. Paths are absolute, ``/``-separated and must hold no
    symlink in their parents: ``paths.realpath`` makes such a path of any other."""

    def lstat(self, path: str) -> Entry | None:
        """The entry at ``path`` itself, or None where there is none (or a parent is no folder)."""

    def read(self, path: str, limit: int = MAX_READ) -> bytes:
        """The bytes of the regular file at ``path``.

        Raises:
            FileNotFoundError: there is no regular file at ``path``.
            patchkit.errors.Refused: the file is larger than ``limit`` bytes.
        """

    def listdir(self, path: str) -> Sequence[str]:
        """The sorted names in the folder at ``path``; empty where there is no such folder."""


@dataclass(frozen=True, slots=True)
class Mount:
    """A host file or folder shown read-only inside a run at ``target``."""

    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Run:
    """One program to run in the sandbox: no network, read-only root, tmpfs for /tmp and HOME, no new privileges.

    ``user`` is the image's notation (``uid[:gid]`` or a name), None for the image's own. ``read_all`` runs as root with
    ``DAC_READ_SEARCH`` as the only capability, for reading facts. ``devices`` and ``gpus`` pass hardware through as
    docker's ``--device`` and ``--gpus`` spell it. A program must read its ``stdin`` to the end: podman may keep back
    what one that does not wrote.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str = "/"
    user: str | None = None
    stdin: bytes = b""
    mounts: tuple[Mount, ...] = ()
    read_all: bool = False
    timeout: float = 300.0
    memory: int = 16 * 1024**3
    processes: int = 512
    output_limit: int = 64 * 1024 * 1024
    devices: tuple[str, ...] = ()
    gpus: str | None = None


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a run ended. ``status`` is the exit status (128+N after signal N); ``ended`` says whether it ended by
    itself, was stopped at its time limit, or was cut because its output ran over the limit."""

    status: int
    stdout: bytes
    stderr: bytes
    ended: Literal["exit", "timeout", "output-limit"] = "exit"


@dataclass(frozen=True, slots=True)
class Change:
    """What the patch layer does to one path of the image: new bytes, or None to remove the file.

    ``path`` is a real path (no symlink in its parents). ``mode``, ``uid`` and ``gid`` are those of the new file; the
    writer of the layer adds every parent folder with its true metadata.
    """

    path: str
    data: bytes | None
    mode: int = 0o644
    uid: int = 0
    gid: int = 0
    mtime: int = 0
    xattrs: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Derivation:
    """One patch layer and what goes with it into the derived image's config. ``created_by`` is the text of the one
    history entry; ``labels`` are set on the config and, as annotations, on OCI manifests; ``entrypoint`` replaces the
    config's where a guard goes in front of it (None leaves it alone)."""

    changes: tuple[Change, ...]
    labels: Mapping[str, str]
    created_by: str
    entrypoint: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Derived:
    """A derived image as written: how to call it from now on, its identity, the road that was taken and why, and
    whether an equal one was already there."""

    reference: Reference
    identity: Identity
    road: str
    existed: bool = False


class Runnable(Protocol):
    """What a proof needs of its target: files to read and, where possible, a place to run in. An image is one, and so
    is a running container."""

    @property
    def fs(self) -> Filesystem: ...

    @property
    def can_run(self) -> bool: ...

    def run(self, run: Run) -> RunResult: ...


class Subject(Runnable, Protocol):
    """What facts are taken of: an image, or a running container with the config that it was started with."""

    @property
    def reference(self) -> Reference: ...

    @property
    def identity(self) -> Identity: ...

    @property
    def config(self) -> bytes: ...


class Image(Protocol):
    """One image of one platform at one place. Context manager: leaving it frees what reading it took."""

    reference: Reference

    @property
    def identity(self) -> Identity: ...

    @property
    def config(self) -> bytes:
        """The raw config JSON, byte for byte as its digest names it (from a daemon that does not give it away: the
        nearest that its API tells)."""

    @property
    def fs(self) -> Filesystem: ...

    @property
    def can_run(self) -> bool:
        """Whether ``run`` can work here (an engine is there, or bubblewrap for an unpacked root)."""

    def run(self, run: Run) -> RunResult:
        """Run a program of the image in the sandbox.

        Raises:
            patchkit.errors.Unreachable: nothing here can run the image.
        """

    def default_target(self) -> Reference:
        """The derived image's name when the person gives none: ``<name>:<tag>-patchkit``, or ``patchkit-<12 hex>``
        where there is no tag."""

    def named(self, tag: str) -> Reference:
        """A reference of this transport from what the person gave with ``--tag`` (a full name, or a REF in the same
        layout).

        Raises:
            patchkit.errors.BadInput: ``bad-reference``.
        """

    def derive(
        self, derivation: Derivation, target: Reference, *, force: bool = False, in_place: bool = False
    ) -> Derived:
        """Write the derived image: this image's layers (less an own patch layer on top) and exactly one new one.

        All or nothing, and the same input gives the same bytes. Read back and compared before it returns.

        Raises:
            patchkit.errors.Refused: ``target-tag-taken`` when somebody else's image holds the tag and ``force`` is not
                set, ``target-is-source`` without ``in_place``, ``too-many-layers``, ``read-back`` on a difference.
            patchkit.errors.Unreachable: the place cannot be written.
        """

    def origin(self) -> Image:
        """The image that this one was derived from when its topmost layer is ours (told by the labels), else itself."""

    def __enter__(self) -> Image: ...

    def __exit__(self, *exc: object) -> None: ...


@dataclass(frozen=True, slots=True)
class DerivedIndex:
    """The platforms of one index as derived together, in the order of the images given (None: left as it was).
    ``index`` is the new index's digest (None: there is no index), ``dropped`` the digests of attestations that were
    true of replaced manifests only."""

    reference: Reference
    images: tuple[Derived | None, ...]
    index: str | None = None
    dropped: tuple[str, ...] = ()
