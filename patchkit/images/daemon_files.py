"""The files of an image in an engine, read without running anything of it. Two roads behind one protocol.

``OverlayFilesystem`` reads the layers' folders on this machine: a few microseconds a fact, but only for root and only
where the engine keeps them so. ``ArchiveFilesystem`` asks the engine through a container that is created and never
started: it works everywhere.
"""

from __future__ import annotations

import base64
import json
import os
import posixpath
import stat
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from patchkit.errors import Refused
from patchkit.images import daemon_cache
from patchkit.images.daemon_cache import Known
from patchkit.images.engine import Engine, EngineError, Json
from patchkit.images.model import HOST_XATTRS, MAX_READ, Entry, EntryKind, kind_of
from patchkit.images.signals import held

#: ``listdir`` reads at most so much of a folder's archive before it takes another road: site-packages hold gigabytes.
LIST_BUDGET = 8 * 1024 * 1024
#: A file of at most this size is kept when its entry is asked for: its bytes come in the same answer (40 ms in 20.10).
_AT_ONCE = 1024 * 1024

#: A folder's path -> the names in it, for that folder and some below; None where they cannot be told.
Lister = Callable[[str], Mapping[str, Sequence[str]] | None]

# Go's fs.FileMode, in which the archive API tells an entry's kind
_GO_SYMLINK = 1 << 27


def overlay_folders(engine: Engine, inspected: Json) -> tuple[Path, ...] | None:
    """The image's layer folders on this machine, top first, or None where they cannot be read truthfully: another
    machine's or user's, owners shifted, or a layer that depends on overlayfs features beyond whiteouts."""
    driver = inspected.get("GraphDriver") or {}
    data = driver.get("Data") or {}
    if driver.get("Name") not in ("overlay2", "overlay") or "UpperDir" not in data or os.geteuid() != 0:
        return None
    if engine.is_remote or (engine.is_rootless and not (engine.kind == "podman" and _in_user_namespace())):
        return None
    status = {str(pair[0]): str(pair[1]) for pair in engine.info.get("DriverStatus") or [] if len(pair) == 2}
    # With redirect_dir or metacopy a layer's folder alone does not tell a file's place or content (overlayfs.rst).
    if status.get("Native Overlay Diff") == "false" or status.get("Using metacopy") == "true":
        return None
    lower = [part for part in str(data.get("LowerDir") or "").split(":") if part]
    folders = tuple(Path(part) for part in [str(data["UpperDir"]), *lower])
    if len(folders) != len((inspected.get("RootFS") or {}).get("Layers") or []):
        return None
    return folders if all(folder.is_dir() for folder in folders) else None


class OverlayFilesystem:
    """The merged view of layer folders as overlayfs would show it, whiteouts and opaque folders observed."""

    knows_owners = True

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = tuple(folders)

    def lstat(self, path: str) -> Entry | None:
        found = self._find(path)
        if found is None:
            return None
        host, status = found[0]
        kind = kind_of(status.st_mode)
        return Entry(
            path=path,
            kind=kind,
            mode=stat.S_IMODE(status.st_mode),
            uid=status.st_uid,
            gid=status.st_gid,
            size=status.st_size if kind == "file" else 0,
            mtime=status.st_mtime_ns // 10**9,
            target=os.readlink(host) if kind == "symlink" else "",  # noqa: PTH115 - the text as it is, "./" and all
            xattrs=_xattrs(host),
        )

    def read(self, path: str, limit: int = MAX_READ) -> bytes:
        found = self._find(path)
        if found is None or not stat.S_ISREG(found[0][1].st_mode):
            raise FileNotFoundError(path)
        if found[0][1].st_size > limit:
            raise _too_large(path, found[0][1].st_size, limit)
        with os.fdopen(os.open(found[0][0], os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
            return file.read(limit)

    def listdir(self, path: str) -> Sequence[str]:
        names: dict[str, bool] = {}
        for host, status in self._find(path) or []:
            if not stat.S_ISDIR(status.st_mode):
                break
            with os.scandir(host) as entries:
                for entry in entries:
                    names.setdefault(entry.name, not _is_whiteout(entry.stat(follow_symlinks=False)))
        return sorted(name for name, there in names.items() if there)

    def _find(self, path: str) -> list[tuple[str, os.stat_result]] | None:
        """The places in the layers that make up ``path``, top first: one for a file, several for a merged folder."""
        here = [(str(folder), folder.lstat()) for folder in self._folders]
        for part in [part for part in path.split("/") if part]:
            below: list[tuple[str, os.stat_result]] = []
            for host, status in here:
                if not stat.S_ISDIR(status.st_mode):
                    break
                try:
                    found = os.lstat(f"{host}/{part}")
                except FileNotFoundError:
                    found = None
                if found is not None:
                    if _is_whiteout(found):
                        break
                    if below and not stat.S_ISDIR(found.st_mode):
                        break  # a folder above hides a file below
                    below.append((f"{host}/{part}", found))
                    if not stat.S_ISDIR(found.st_mode) or _is_opaque(f"{host}/{part}"):
                        break
            if not below:
                return None
            here = below
        return here

    def close(self) -> None:
        """Nothing is held open."""


class ArchiveFilesystem:
    """The engine's archive API over a container of the image that is created at the first question and never started.

    ``lister`` tells what is in a folder (and in folders below it) whose archive is too large to read for its names
    alone; without one, where it knows nothing, or where it leaves out what the archive has shown, the archive is read
    to its end.
    """

    def __init__(self, engine: Engine, image_id: str, lister: Lister | None = None, *, remember: str = "") -> None:
        self._engine = engine
        self._image_id = image_id
        self._lister = lister
        self._container_id = ""
        self._stays = False
        self._remember = remember
        self._known = daemon_cache.load(remember) if remember else Known()
        self._known_before = self._known.size

    @property
    def knows_owners(self) -> bool:
        """Whether ``uid`` and ``gid`` of the entries are the image's."""
        return self._engine.kind == "docker"

    @classmethod
    def of_container(cls, engine: Engine, container: str) -> ArchiveFilesystem:
        """The files of a container that is there already and stays."""
        files = cls(engine, "")
        files._container_id, files._stays = container, True
        return files

    def lstat(self, path: str) -> Entry | None:
        if path not in self._known.entries:
            self._known.entries[path] = self._lstat(path)
        return self._known.entries[path]

    def read(self, path: str, limit: int = MAX_READ) -> bytes:
        entry = self.lstat(path)
        if entry is None or entry.kind != "file":
            raise FileNotFoundError(path)
        if entry.size > limit:
            raise _too_large(path, entry.size, limit)
        if path in self._known.contents:
            return self._known.contents[path]
        with self._members(path) as (archive, member):
            return _content(archive, member)

    def listdir(self, path: str) -> Sequence[str]:
        if path not in self._known.names:
            entry = self.lstat(path)
            self._known.names[path] = self._list(path) if entry is not None and entry.kind == "dir" else ()
        return self._known.names[path]

    def close(self) -> None:
        """Remove the container, if one was made, and keep for later runs what was learned."""
        if self._remember and self._known.size > self._known_before:
            daemon_cache.save(self._remember, self._known)
            self._known_before = self._known.size
        if self._container_id and not self._stays:
            container, self._container_id = self._container_id, ""
            self._engine.remove(container)

    def _container(self) -> str:
        if not self._container_id:
            with held():
                self._container_id = self._engine.create(never_started(self._image_id))
        return self._container_id

    def _lstat(self, path: str) -> Entry | None:
        folder, name = posixpath.split(path)
        if folder in self._known.names and name not in self._known.names[folder]:
            return None
        if self._engine.kind == "podman":
            # Podman's GET follows a final symlink; its HEAD tells the link, its place resolved instead of its text.
            about = self._head(path)
            if about is not None and about["mode"] & _GO_SYMLINK:
                return Entry(path, "symlink", 0o777, 0, 0, target=str(about["linkTarget"]))
        try:
            with self._members(path) as (archive, member):
                return self._keep(path, archive, member)
        except EngineError as error:
            if error.http == 404 or "not a directory" in error.what:
                return None
            raise

    def _head(self, path: str) -> Json | None:
        try:
            answer = self._engine.call("HEAD", f"/containers/{self._container()}/archive", params={"path": path})
        except EngineError as error:
            if error.http == 404:
                return None
            raise
        about: Json = json.loads(base64.b64decode(answer.headers["X-Docker-Container-Path-Stat"]))
        return about

    @contextmanager
    def _members(self, path: str) -> Iterator[tuple[tarfile.TarFile, tarfile.TarInfo]]:
        """The archive of ``path`` and its first member, which is ``path`` itself. The rest is read only when asked:
        a folder's archive holds all that is in it, and closing the connection ends it."""
        where = f"/containers/{self._container()}/archive"
        plain = {"Accept-Encoding": "identity"}  # engines compress otherwise, which costs more than it saves
        response = self._engine.call("GET", where, params={"path": path}, headers=plain, stream=True)
        try:
            with tarfile.open(fileobj=response.raw, mode="r|") as archive:
                member = archive.next()
                if member is None:
                    raise EngineError(0, "an empty archive", where=path)
                yield archive, member
        except tarfile.TarError as error:
            raise EngineError(0, f"a broken archive: {error}", where=path) from error
        finally:
            response.close()

    def _list(self, path: str) -> Sequence[str]:
        """The names in a folder, and on the way those in the folders below, as far as they are shown whole."""
        below: dict[str, set[str]] = {path: set()}
        with self._members(path) as (archive, first):
            root = first.name.rstrip("/")
            for member in archive:
                inside = member.name.removeprefix(root).strip("/") if root not in ("", ".") else member.name.strip("/")
                if inside:
                    here = posixpath.join(path, inside)
                    folder, name = posixpath.split(here)
                    below.setdefault(folder, set()).add(name)
                    if self._keep(here, archive, member).kind == "dir":
                        below.setdefault(here, set())
                if self._lister is not None and member.offset_data + member.size > LIST_BUDGET:
                    break
            else:
                self._known.names.update({folder: sorted(names) for folder, names in below.items()})
                return self._known.names[path]
        listed = self._lister(path) if self._lister is not None else None
        if listed is not None and below[path] <= set(listed.get(path, ())):
            self._known.names.update({folder: sorted(names) for folder, names in listed.items()})
            return self._known.names[path]
        self._lister = None
        return self._list(path)

    def _keep(self, path: str, archive: tarfile.TarFile, member: tarfile.TarInfo) -> Entry:
        """Keep what an archive says of one path, and a small file's bytes. Of a hard link it says too little."""
        entry = entry_of(path, member)
        if not member.islnk():
            self._known.entries[path] = entry
            if entry.kind == "file" and entry.size <= _AT_ONCE and member.offset_data <= LIST_BUDGET:
                self._known.contents[path] = _content(archive, member)
        return entry


def never_started(image_id: str, mounts: Sequence[tuple[str, str]] = ()) -> Json:
    """The spec of a container that only holds the image's files still (and shows ``mounts``, source to target).

    Its command is never run; some engines want one to be there.
    """
    return {
        "Image": image_id,
        "Entrypoint": ["/never-started"],
        "Cmd": [],
        "HostConfig": {
            "NetworkMode": "none",
            "Mounts": [{"Type": "bind", "Source": s, "Target": t, "ReadOnly": True} for s, t in mounts],
        },
    }


def entry_of(path: str, member: tarfile.TarInfo) -> Entry:
    """The entry that a tar member describes."""
    kind: EntryKind = "other"
    if member.isreg() or member.islnk():
        kind = "file"
    elif member.isdir():
        kind = "dir"
    elif member.issym():
        kind = "symlink"
    prefix = "SCHILY.xattr."
    return Entry(
        path=path,
        kind=kind,
        mode=member.mode & 0o7777,
        uid=member.uid,
        gid=member.gid,
        size=member.size if kind == "file" else 0,
        mtime=int(member.mtime),
        target=member.linkname if kind == "symlink" else "",
        xattrs={
            key.removeprefix(prefix): str(value).encode("utf-8", "surrogateescape")
            for key, value in member.pax_headers.items()
            if key.startswith(prefix)
        },
    )


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = archive.extractfile(member)
    data = file.read() if file is not None else b""
    if len(data) != member.size:
        raise EngineError(0, "a broken archive: it ends in the middle of a file", where=member.name)
    return data


def _too_large(path: str, size: int, limit: int) -> Refused:
    return Refused("file-too-large", f"the file has {size} bytes, more than the {limit} allowed", where=path)


def _is_whiteout(status: os.stat_result) -> bool:
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == 0


def _is_opaque(host: str) -> bool:
    # overlayfs.rst, "User xattr": an overlay mounted without privileges has its marks under user.overlay
    return any(_xattr(host, f"{space}.overlay.opaque") == b"y" for space in ("trusted", "user"))


def _in_user_namespace() -> bool:
    """Whether owners are shown as a rootless podman's containers have them (``podman unshare``)."""
    try:
        return Path("/proc/self/uid_map").read_text().split() != ["0", "0", "4294967295"]
    except OSError:
        return False


def _xattr(host: str, name: str) -> bytes | None:
    try:
        return os.getxattr(host, name, follow_symlinks=False)
    except OSError:
        return None


def _xattrs(host: str) -> dict[str, bytes]:
    """The xattrs that belong to the image."""
    names = [name for name in os.listxattr(host, follow_symlinks=False) if not name.startswith(HOST_XATTRS)]
    return {name: os.getxattr(host, name, follow_symlinks=False) for name in names}
