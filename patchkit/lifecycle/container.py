"""What somebody changed by hand inside a container, as files."""

from __future__ import annotations

import posixpath
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass

from patchkit.errors import Refused, Unreachable
from patchkit.images.engine import Engine
from patchkit.images.model import MAX_READ

_MAX_FILES = 200_000
_SOURCES = (".py", ".pyi", ".json", ".yaml", ".yml", ".toml", ".txt", ".cfg", ".ini", ".jinja", ".md", ".cu", ".h")


@dataclass(frozen=True, slots=True)
class Origin:
    """The image that a container was made from: its ID, and the name it was called by where that is still the same."""

    container: str
    image_id: str
    name: str


def origin(engine: Engine, container: str) -> Origin:
    """The container's image.

    Raises:
        patchkit.errors.Unreachable: ``no-such-container``.
    """
    found = engine.inspect_container(container)
    if found is None:
        raise Unreachable(
            "no-such-container", "the engine has no such container", where=container, remedy="docker ps -a"
        )
    image_id, name = str(found["Image"]), str(found["Config"]["Image"])
    named = engine.inspect_image(name)
    return Origin(str(found["Id"]), image_id, name if named is not None and named["Id"] == image_id else image_id)


def files(engine: Engine, container: str, root: str) -> dict[str, bytes]:
    """The text-like files below ``root`` (the package's own folder), by their path from the folder above it.

    The engine's own list of changes is not asked: it takes seconds and misses a file whose size and time are equal
    (measured on Docker 20.10).

    Raises:
        patchkit.errors.Refused: ``too-many-files`` or ``file-too-large``.
        patchkit.errors.Unreachable: the engine does not answer.
    """
    where = f"/containers/{container}/archive"
    plain = {"Accept-Encoding": "identity"}  # engines compress otherwise
    response = engine.call("GET", where, params={"path": root}, headers=plain, stream=True)
    top = posixpath.basename(root)
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=response.raw, mode="r|") as archive:
            for number, member in enumerate(archive):
                if number > _MAX_FILES:
                    raise Refused("too-many-files", f"more than {_MAX_FILES} files", where=root)
                name = posixpath.normpath(member.name)
                inside = name == top or name.startswith(f"{top}/")
                if not member.isfile() or not inside or "__pycache__" in name or not name.endswith(_SOURCES):
                    continue
                if member.size > MAX_READ:
                    raise Refused("file-too-large", f"it has {member.size} bytes", where=f"{root}/{name}")
                stream = archive.extractfile(member)
                assert stream is not None  # it is a regular file
                found[name] = stream.read()
    except tarfile.TarError as error:
        raise Unreachable("bad-archive", f"the engine's archive is damaged: {error}", where=container) from error
    finally:
        response.close()
    return found


def changed_below(engine: Engine, container: str, root: str) -> list[str]:
    """The text-like files below ``root`` that the engine's own list of changes names; see ``files`` for what it misses.

    Raises:
        patchkit.errors.Unreachable: the engine does not answer.
    """
    listed = engine.call("GET", f"/containers/{container}/changes").json() or ()
    paths = [str(each.get("Path")) for each in listed]
    return sorted(path for path in paths if path.startswith(f"{root}/") and path.endswith(_SOURCES))


def edited(
    now: Mapping[str, bytes], shipped: Mapping[str, str], same: Mapping[str, str]
) -> tuple[list[str], list[str]]:
    """The paths that were changed or are new, and those that were removed.

    Args:
        now: the container's files.
        shipped: path -> ``sha256:<hex>`` of the files as RECORD holds them.
        same: path -> ``sha256:<hex>`` of ``now``.
    """
    changed = [path for path in sorted(now) if shipped.get(path) != same[path]]
    removed = [path for path in sorted(shipped) if path not in now and path.endswith(_SOURCES)]
    return changed, removed
