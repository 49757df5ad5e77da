"""A container that is already there: what it runs, what is mounted where in it, programs and files put into it."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import posixpath
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from patchkit.errors import BadInput, Refused, Unreachable
from patchkit.images import paths, sandbox
from patchkit.images.daemon_files import ArchiveFilesystem
from patchkit.images.engine import Engine, EngineError, Json, as_digest
from patchkit.images.hostfs import HostFilesystem
from patchkit.images.model import Change, Filesystem, Reference, Run, RunResult

#: Runs in the container, reads the changes from standard input: everything is written under temporary names first, then
#: renamed, so that a reader sees old or new and a failure before the renames leaves the old.
_PUT = """
import base64, json, os, sys
changes = json.load(sys.stdin)
made, folders = [], []
try:
    for change in changes:
        if change["data"] is None:
            continue
        folder = os.path.dirname(change["path"])
        missing = []
        while not os.path.isdir(folder):
            missing.append(folder)
            folder = os.path.dirname(folder)
        for folder in reversed(missing):
            os.mkdir(folder)
            folders.append(folder)
            os.chown(folder, change["uid"], change["gid"])
            os.chmod(folder, 0o755)
        part = os.path.join(os.path.dirname(change["path"]), ".patchkit-" + change["name"])
        made.append(part)
        with open(part, "wb") as file:
            file.write(base64.b64decode(change["data"]))
            file.flush()
            os.fsync(file.fileno())
        os.chown(part, change["uid"], change["gid"])
        os.chmod(part, change["mode"])
        os.utime(part, (change["mtime"], change["mtime"]))
    parts = iter(list(made))
    for change in changes:
        if change["data"] is not None:
            os.replace(next(parts), change["path"])
    for change in changes:
        if change["data"] is None and os.path.lexists(change["path"]):
            os.unlink(change["path"])
except BaseException:
    for part in made:
        if os.path.lexists(part):
            os.unlink(part)
    for folder in reversed(folders):
        if not os.listdir(folder):
            os.rmdir(folder)
    raise
"""

#: Ends every process that carries the mark of one program started by us, whatever it forked.
_END = """
import os, signal, sys
mark = os.fsencode(sys.argv[1])
for _ in range(50):
    found = False
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                with open("/proc/" + name + "/environ", "rb") as file:
                    if mark in file.read().split(b"\\0"):
                        os.kill(int(name), signal.SIGKILL)
                        found = True
            except OSError:
                pass
    if not found:
        break
"""
_MARK = "PATCHKIT_RUN"


@dataclass(frozen=True, slots=True)
class Mounted:
    """One mount of a container. ``source`` is the path on the engine's machine, or a volume's name."""

    kind: str
    source: str
    target: str
    read_only: bool


class Container:
    """One container of an engine, running or not. Its files are read through the engine, mounts included."""

    def __init__(self, engine: Engine, name: str) -> None:
        inspected = engine.inspect_container(name)
        if inspected is None:
            raise Unreachable(
                "no-such-container", "the engine has no such container", where=name, remedy="docker ps --all"
            )
        self.engine = engine
        self.inspected: Json = inspected
        self.id = str(inspected["Id"])
        self.name = str(inspected.get("Name") or name).lstrip("/")
        self._config: Json = inspected.get("Config") or {}
        self._files: ArchiveFilesystem | HostFilesystem | None = None

    # -- what it is ------------------------------------------------------------------------------------------------

    @property
    def image(self) -> Reference:
        """The image that it was made from, by ID: its tag may stand for another one by now."""
        return Reference("docker-daemon", as_digest(str(self.inspected["Image"])))

    @property
    def image_name(self) -> str:
        """The name that the image was called by when the container was made."""
        return str(self._config.get("Image") or "")

    @property
    def cwd(self) -> str:
        """The folder in which its main process started."""
        return str(self._config.get("WorkingDir") or "/")

    @property
    def labels(self) -> dict[str, str]:
        """Its labels, the image's among them."""
        return dict(self._config.get("Labels") or {})

    @cached_property
    def mounts(self) -> tuple[Mounted, ...]:
        """What is mounted where, in the engine's order."""
        return tuple(
            Mounted(
                kind=str(one.get("Type") or ""),
                source=str(one.get("Source") or one.get("Name") or ""),
                target=str(one.get("Destination") or ""),
                read_only=not one.get("RW", True),
            )
            for one in self.inspected.get("Mounts") or []
        )

    def mount_over(self, path: str) -> Mounted | None:
        """The mount that a real path inside belongs to: what is there is not the image's."""
        around = [each for each in self._places if path == each[0] or path.startswith(each[0].rstrip("/") + "/")]
        return max(around, key=lambda each: len(each[0]), default=(path, None))[1]

    @cached_property
    def _places(self) -> list[tuple[str, Mounted]]:
        """Where each mount really lies: engines follow links in a mount's target, and tell it as it was given."""
        return [(paths.realpath(self.fs, one.target), one) for one in self.mounts]

    # -- its files and programs ------------------------------------------------------------------------------------

    @property
    def fs(self) -> Filesystem:
        if self._files is None:
            root = self._root_here()
            self._files = HostFilesystem(root) if root else ArchiveFilesystem.of_container(self.engine, self.id)
        return self._files

    def _root_here(self) -> str:
        """The running container's files as its main process sees them, mounts included, through the kernel of this
        machine: microseconds, where the engine's archive API takes 50 ms a file. Empty where they cannot be had so: a
        stopped container, another machine, shifted owners, or no right to look into the process."""
        pid = (self.inspected.get("State") or {}).get("Pid") or 0
        if not self.can_run or not pid or self.engine.is_remote or self.engine.is_rootless:
            return ""
        root = f"/proc/{pid}/root"
        try:
            # The number may be another process's by now, or one of an engine in a process namespace of its own.
            theirs = self.id in Path(f"/proc/{pid}/cgroup").read_text("utf-8")
            return root if theirs and os.listdir(root) else ""  # noqa: PTH208 - a link that only the kernel follows
        except OSError:
            return ""

    @property
    def can_run(self) -> bool:
        return bool((self.inspected.get("State") or {}).get("Running"))

    def stopped(self) -> Unreachable:
        """The error for work that needs the container to run."""
        state: Json = self.inspected.get("State") or {}
        what, remedy = "the container does not run", f"docker start {self.name}"
        if state.get("Status") in ("exited", "dead") and state.get("ExitCode"):
            what = f"{what}: it ended with status {state['ExitCode']}"
            remedy = f"see why: docker logs --tail 50 {self.name}; then {remedy}"
        return Unreachable("not-running", what, where=self.name, remedy=remedy)

    def run(self, run: Run) -> RunResult:
        """Run a program in the container beside its main process, as ``docker exec`` does: with the container's own
        network, files, devices and limits; only time and output are bounded here.

        Raises:
            patchkit.errors.BadInput: ``no-mounts``: a container that is there gets no new mounts or devices.
            patchkit.errors.Unreachable: it does not run, or the program cannot be started.
        """
        if run.mounts or run.devices or run.gpus:
            raise BadInput("no-mounts", "a running container gets no new mounts or devices", where=self.name)
        if not self.can_run:
            raise self.stopped()
        mark = f"{_MARK}={secrets.token_hex(16)}"
        spec: Json = {
            "AttachStdin": bool(run.stdin),
            "AttachStdout": True,
            "AttachStderr": True,
            "Cmd": list(run.argv),
            "Env": [*(f"{name}={value}" for name, value in run.env.items()), mark],
            "WorkingDir": run.cwd,
        }
        if run.read_all or run.user is not None:
            spec["User"] = "0:0" if run.read_all else run.user

        def end() -> None:
            self._end(run.argv[0], mark, str(spec.get("User", "")))

        try:
            name, streams = self.engine.exec(self.id, spec)
        except EngineError as error:
            raise Unreachable("cannot-run", error.what, where=self.name, remedy=f"docker logs {self.name}") from error
        try:
            stdout, stderr, ended = sandbox.converse(streams, run, end)
        finally:
            streams.close()
        if ended == "output-limit":
            end()
            return RunResult(137, stdout, stderr, ended)
        told = self.engine.get(f"/exec/{name}/json").get("ExitCode")
        return RunResult(int(told) if told is not None else 137, stdout, stderr, ended)

    def _end(self, interpreter: str, mark: str, user: str) -> None:
        """End a program and all that it started. The engine has no call for this: another run of the same interpreter,
        as the same user, finds them by the mark in their environment. What hides from it goes with the container."""
        spec = {"Cmd": [interpreter, "-I", "-S", "-c", _END, mark], "User": user, "AttachStdout": True}
        with contextlib.suppress(EngineError, Unreachable):
            _, streams = self.engine.exec(self.id, spec)
            streams.settimeout(sandbox.GRACE)
            with contextlib.suppress(OSError):
                while streams.recv(1 << 16):
                    pass
            streams.close()

    def put(self, changes: Sequence[Change], interpreter: str) -> None:
        """Make the changes in the running container's own files, by its ``interpreter``: all of them, or on a failure
        before the last step none. They last as long as the container. Read back and compared before it returns.

        Raises:
            patchkit.errors.Refused: ``on-a-mount`` where a path lies on a mount (the change would reach the host or a
                volume), ``cannot-write`` (read-only root, no rights), ``read-back``.
            patchkit.errors.Unreachable: the container does not run.
        """
        for change in changes:
            mounted = self.mount_over(change.path)
            if mounted is not None:
                raise Refused(
                    "on-a-mount",
                    f"the file lies on a mount ({mounted.kind} {mounted.source}), not in the container",
                    where=f"{self.name}:{change.path}",
                    remedy="change it at its source, or take the mount away",
                )
        sent = [
            {
                "path": change.path,
                "name": f"{number}-{posixpath.basename(change.path)}",
                "data": None if change.data is None else base64.b64encode(change.data).decode("ascii"),
                "mode": change.mode,
                "uid": change.uid,
                "gid": change.gid,
                "mtime": change.mtime,
            }
            for number, change in enumerate(changes)
        ]
        argv = (interpreter, "-I", "-S", "-c", _PUT)
        result = self.run(Run(argv=argv, stdin=json.dumps(sent).encode("ascii"), user="0:0", timeout=120))
        if result.status != 0 or result.ended != "exit":
            last = result.stderr.decode("utf-8", "replace").strip().splitlines()
            raise Refused(
                "cannot-write",
                f"the container's files could not be changed: {last[-1] if last else result.ended}",
                where=self.name,
                remedy="patch the image instead: patchkit apply --image",
            )
        self.close()  # what was read before is not true any more
        wrong = [difference for change in changes for difference in self._differences(change)]
        if wrong:
            raise Refused(
                "read-back",
                "the container has other files than those that were written",
                where=self.name,
                remedy=f"docker restart does not undo it; recreate {self.name}",
                details=wrong,
            )

    def _differences(self, change: Change) -> Sequence[str]:
        entry = self.fs.lstat(change.path)
        if change.data is None:
            return [f"{change.path}: is still there"] if entry is not None else []
        if entry is None or entry.kind != "file":
            return [f"{change.path}: is not there"]
        if self.fs.read(change.path) != change.data or entry.mode != change.mode:
            return [f"{change.path}: other content or mode"]
        return []

    def restart(self) -> None:
        """Restart the main process and wait until it was started; what was put into the container's files stays.

        Raises:
            patchkit.errors.Unreachable: the engine refuses, or the container is gone.
        """
        self.engine.call("POST", f"/containers/{self.id}/restart")
        self.inspected = self.engine.inspect_container(self.id) or self.inspected
        self.close()

    def close(self) -> None:
        """Forget what was read."""
        self._files = None

    def __enter__(self) -> Container:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
