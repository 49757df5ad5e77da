"""An unpacked root (``rootfs:PATH``): read in place, patched in a copy or in place, run under bubblewrap.

Beside the folder lie at most two files: ``PATH.config.json``, the image's config where somebody put it there (as
``skopeo inspect --config --raw`` prints it), and ``PATH.patchkit.json``, which says what patchkit changed and what was
there before. With it the origin is always at hand, and a run that was killed is taken back by the next.
"""

from __future__ import annotations

import base64
import json
import posixpath
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from patchkit.errors import BadInput, Refused, Unreachable
from patchkit.findings import counted
from patchkit.images import TRANSPORTS, Access, bubblewrap, edit, parse_reference, readback
from patchkit.images.files import lock, write_whole, writing
from patchkit.images.hostfs import HostFilesystem
from patchkit.images.layer import build_layer, sha256
from patchkit.images.model import (
    MAX_READ,
    Change,
    Derivation,
    Derived,
    Entry,
    Filesystem,
    Identity,
    Reference,
    Run,
    RunResult,
)
from patchkit.images.platforms import host_platform, matches
from patchkit.images.rawjson import dump, parse

_State = dict[str, Any]


def open_image(reference: Reference, *, platform: str | None, access: Access) -> RootfsImage:
    """See ``patchkit.images.open_image``."""
    path = Path(reference.name)
    if not path.is_dir():
        raise Unreachable("no-such-image", "there is no such folder", where=str(reference))
    _take_back(path)
    image = RootfsImage(reference)
    if platform and not matches(image.identity.platform, platform):
        what = f"the root is of platform {image.identity.platform}"
        raise Unreachable("no-such-platform", what, where=str(reference))
    return image


class RootfsImage:
    """The image in an unpacked root. It has no layers; its identity is that of its config alone."""

    def __init__(self, reference: Reference, *, as_origin: bool = False) -> None:
        self.reference = reference
        self._path = Path(reference.name)
        state = _state(self._path)
        raw = state["config"].encode() if state else _config(self._path)
        self.is_derived = state is not None and not as_origin
        host = HostFilesystem(reference.name)
        self.fs: Filesystem = _Before(host, state["before"]) if state and as_origin else host
        self.config = edit.origin_config(raw) if as_origin else raw
        value = parse(self.config, str(reference))
        self.identity = Identity(sha256(self.config), edit.diff_ids(value, str(reference)), edit.platform(value))

    @property
    def can_run(self) -> bool:
        return bubblewrap.is_here()

    def run(self, run: Run) -> RunResult:
        return bubblewrap.run(self._path, self.fs, run, _user(self.config))

    def default_target(self) -> Reference:
        name = self.reference.name.rstrip("/")
        return Reference("rootfs", name if self.is_derived and name.endswith("-patchkit") else f"{name}-patchkit")

    def named(self, tag: str) -> Reference:
        return parse_reference(tag) if tag.partition(":")[0] in TRANSPORTS else Reference("rootfs", tag)

    def origin(self) -> RootfsImage:
        return RootfsImage(self.reference, as_origin=True) if self.is_derived else self

    def derive(
        self, derivation: Derivation, target: Reference, *, force: bool = False, in_place: bool = False
    ) -> Derived:
        """See ``Image.derive``. A folder that is there already is never replaced, ``force`` or not."""
        if target.transport != "rootfs":
            what = f"a rootfs: cannot be derived into {target.transport}:"
            raise BadInput("other-transport", what, where=str(target), remedy="give a folder: --tag rootfs:PATH")
        origin = RootfsImage(self.reference, as_origin=True)
        layer = build_layer(origin.fs, derivation.changes)
        config = edit.derive_config(origin.config, derivation, layer.diff_id)
        path = Path(target.name)
        here = path.exists() and path.samefile(self._path)
        with lock(self._path if here else path.resolve().parent):
            now = _state(path) if path.exists() else None
            existed = now is not None and now["config"].encode() == config
            if existed:
                road = "it is there already"
            elif here:
                if not in_place and not self.is_derived:
                    raise Refused(
                        "target-is-source",
                        "the root itself would be changed",
                        where=str(target),
                        remedy="give another folder with --tag, or --in-place if that is wanted",
                    )
                _change(path, layer.changes, config)
                road = f"changed {counted(len(layer.changes), 'file')} in place"
            elif path.exists():
                what = "there is a folder or file of that name already"
                raise Refused("target-tag-taken", what, where=str(target), remedy="remove it, or give another name")
            else:
                _copy(self._path, path, layer.changes, config)
                road = f"copied the root and changed {counted(len(layer.changes), 'file')}"
        image = RootfsImage(target)
        readback.check(image, origin.config, layer.changes)
        return Derived(target, image.identity, road, existed)

    def __enter__(self) -> RootfsImage:
        return self

    def __exit__(self, *exc: object) -> None:
        """Nothing is held open."""


class _Before:
    """The root's files as they were before patchkit changed some."""

    def __init__(self, fs: HostFilesystem, before: Sequence[Mapping[str, Any]]) -> None:
        self._fs = fs
        self._saved = {one["path"]: _saved(one) for one in before}
        self._made = {one["path"] for one in before if one.get("folder")}

    def lstat(self, path: str) -> Entry | None:
        if path in self._saved:
            change = self._saved[path]
            if change.data is None:
                return None
            facts = (change.mode, change.uid, change.gid, len(change.data), change.mtime)
            return Entry(path, "file", *facts, xattrs=change.xattrs)
        return self._fs.lstat(path)

    def read(self, path: str, limit: int = MAX_READ) -> bytes:
        if path in self._saved:
            data = self._saved[path].data
            if data is None:
                raise FileNotFoundError(path)
            return data
        return self._fs.read(path, limit)

    def listdir(self, path: str) -> Sequence[str]:
        if path in self._made:
            return []
        names = set(self._fs.listdir(path))
        for one, change in self._saved.items():
            folder, _, name = one.rpartition("/")
            if (folder or "/") == path:
                names = names - {name} if change.data is None else names | {name}
        return sorted(names)


def _change(path: Path, changes: Sequence[Change], config: bytes) -> None:
    """Change the root in place. The state file says first what is to be taken back, and last that all is done."""
    old = _state(path)
    fs = HostFilesystem(str(path))
    wanted = {change.path: change for change in changes}
    saved = {one["path"]: one for one in old["before"]} if old else {}
    before = [saved[one] if one in saved else _save(fs, one) for one in wanted]
    folders = [one for change in changes if change.data is not None for one in fs.missing_folders(change.path)]
    before += [{"path": one, "folder": True} for one in dict.fromkeys(folders)]
    before += [one for one in saved.values() if one.get("folder")]
    back = {one: _saved(saved[one]) for one in saved if one not in wanted and not saved[one].get("folder")}
    undo = [_save(fs, one) for one in [*wanted, *back]] + [{"path": one, "folder": True} for one in folders]
    touched = [posixpath.dirname(one) for one in (*wanted, *back, *folders)]
    times = {one: fs.time(one) for one in touched}  # a folder's time is part of what must stay
    new = {"config": config.decode(), "before": before}
    _write_state(path, {**new, "undo": undo, "times": times, "previous": old})
    try:
        for change in (*back.values(), *changes):
            fs.write(change)
        for one, time in times.items():
            fs.set_time(one, time)
    except BaseException:
        _take_back(path, locked=True)
        raise
    _write_state(path, new)


def _copy(source: Path, target: Path, changes: Sequence[Change], config: bytes) -> None:
    part = target.with_name(f".{target.name}.patchkit-part")
    with writing(target):
        try:
            shutil.rmtree(part, ignore_errors=True)
            done = subprocess.run(["cp", "-a", "--reflink=auto", "--", source, part], capture_output=True, check=False)
            if done.returncode:
                said = done.stderr.decode("utf-8", "replace").strip()[-300:]
                raise Unreachable("cannot-write", f"cannot copy the root: {said}", where=str(target))
            state = _state(source)
            if state is not None:
                _write_state(part, state)
            _change(part, changes, config)
            _state_file(part).replace(_state_file(target))
            part.rename(target)
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            _state_file(part).unlink(missing_ok=True)
            raise


def _take_back(path: Path, *, locked: bool = False) -> None:
    """Undo what a killed run has begun, so that the root is as it was before that run."""
    state = _state(path)
    if state is None or "undo" not in state:
        return
    if not locked:
        with lock(path):
            _take_back(path, locked=True)
        return
    fs = HostFilesystem(str(path))
    for one in state["undo"]:
        if not one.get("folder"):
            fs.write(_saved(one))
    for one in reversed(state["undo"]):
        if one.get("folder"):
            fs.remove_folder(one["path"])
    for folder, time in state["times"].items():
        fs.set_time(folder, time)
    if state["previous"] is None:
        _state_file(path).unlink()
    else:
        _write_state(path, state["previous"])


def _save(fs: Filesystem, path: str) -> dict[str, Any]:
    entry = fs.lstat(path)
    if entry is None or entry.kind != "file":
        return {"path": path}
    data = base64.b64encode(fs.read(path)).decode()
    facts = {"mode": entry.mode, "uid": entry.uid, "gid": entry.gid, "mtime": entry.mtime}
    return {"path": path, "data": data, **facts, "xattrs": {key: value.hex() for key, value in entry.xattrs.items()}}


def _saved(one: Mapping[str, Any]) -> Change:
    if "data" not in one:
        return Change(one["path"], None)
    facts = (one["mode"], one["uid"], one["gid"], one["mtime"])
    attributes = {key: bytes.fromhex(value) for key, value in one["xattrs"].items()}
    return Change(one["path"], base64.b64decode(one["data"]), *facts, attributes)


def _state(path: Path) -> _State | None:
    """What patchkit did to the root; None where it did nothing."""
    place = _state_file(path)
    try:
        raw = place.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Unreachable("cannot-read", f"cannot read: {error.strerror}", where=str(place)) from error
    state = parse(raw, str(place), limit=None)
    if not isinstance(state.get("config"), str) or not isinstance(state.get("before"), list):
        raise Unreachable("bad-state", "this is not what patchkit wrote", where=str(place), remedy=f"remove {place}")
    return state


def _write_state(path: Path, state: _State) -> None:
    write_whole(_state_file(path), json.dumps(state, sort_keys=True).encode())


def _state_file(path: Path) -> Path:
    return _beside(path, ".patchkit.json")


def _beside(path: Path, suffix: str) -> Path:
    """The file of the root's own name with this suffix, in the folder that holds the root."""
    whole = path.resolve()
    if not whole.name:
        raise BadInput(
            "running-root",
            "this is the root of the running system, not an unpacked one: there is no folder around it",
            where=f"rootfs:{path}",
            remedy="name the folder of an unpacked root, or from outside the running container: --container NAME",
        )
    return whole.with_name(whole.name + suffix)


def _config(path: Path) -> bytes:
    beside = _beside(path, ".config.json")
    if beside.is_file():
        return beside.read_bytes()
    system, _, machine = host_platform().partition("/")
    empty = {"architecture": machine, "os": system, "config": {}, "rootfs": {"type": "layers", "diff_ids": []}}
    return dump(empty)


def _user(config: bytes) -> str:
    inner = parse(config, "config").get("config")
    user = inner.get("User") if isinstance(inner, dict) else None
    return user if isinstance(user, str) else ""
