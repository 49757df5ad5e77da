"""One program of an image, run so that it can neither reach anything nor outlast its limits.

No network, read-only root, a tmpfs for /tmp, no new privileges, limits on processes, memory, time and output. The
image is hostile until proven otherwise: whatever it does, the run ends in bounded time and nothing of it is left.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping
from typing import Literal

from patchkit.errors import BadInput, Unreachable
from patchkit.images.engine import Engine, EngineError, Json, Streams
from patchkit.images.model import Run, RunResult

#: HOME inside the sandbox. The real one stays visible and read-only: a tmpfs over it would hide a virtual environment
#: or a whole interpreter below /root, and the run would tell of another Python than the one that serves.
HOME = "/tmp"  # noqa: S108 - a tmpfs of the container's own
#: Seconds beyond a run's own limit in which the engine must have ended it.
GRACE = 30.0


def run(engine: Engine, image_id: str, wanted: Run, real_home: str) -> RunResult:
    """Run ``wanted`` in a fresh container of the image; the container is gone when this returns or raises.

    Raises:
        patchkit.errors.Unreachable: the engine is gone, or refuses to start such a container.
    """
    engine.sweep()
    try:
        container = engine.create(_spec(engine, image_id, wanted, real_home))
    except EngineError as error:
        raise _cannot_run(error, wanted) from error
    try:
        return _attended(engine, container, wanted)
    except EngineError as error:
        raise _cannot_run(error, wanted) from error
    finally:
        engine.remove(container)


def _spec(engine: Engine, image_id: str, wanted: Run, real_home: str) -> Json:
    env = {"PYTHONUSERBASE": f"{real_home.rstrip('/')}/.local", **wanted.env, "HOME": HOME}
    host: Json = {
        "NetworkMode": "none",
        "ReadonlyRootfs": True,
        # exec: compilers that torch starts at import load what they wrote; docker's default for a tmpfs is noexec
        "Tmpfs": {HOME: "rw,exec,nosuid,nodev,mode=1777,size=1g"},
        "SecurityOpt": ["no-new-privileges"],
        "PidsLimit": wanted.processes,
        "Memory": wanted.memory,
        "MemorySwap": wanted.memory,
        # What the program writes must not fill the engine's disk; we read it from the attached stream.
        "LogConfig": {"Type": "none"},
        "Mounts": [{"Type": "bind", "Source": m.source, "Target": m.target, "ReadOnly": True} for m in wanted.mounts],
        "Devices": [_device(text) for text in wanted.devices],
        "DeviceRequests": [_gpus(wanted.gpus)] if wanted.gpus else [],
    }
    if engine.kind == "docker":
        # In podman one limit given replaces all of the configured ones, and the built-in rest may exceed our own.
        host["Ulimits"] = [{"Name": "core", "Soft": 0, "Hard": 0}]
    spec: Json = {
        "Image": image_id,
        # All of it as the entrypoint: an image's own ENTRYPOINT would take the program for its arguments.
        "Entrypoint": list(wanted.argv),
        "Cmd": [],
        "Env": [f"{name}={value}" for name, value in env.items()],
        "WorkingDir": wanted.cwd,
        "Healthcheck": {"Test": ["NONE"]},
        "AttachStdout": True,
        "AttachStderr": True,
        "HostConfig": host,
    }
    if wanted.stdin:
        spec.update(AttachStdin=True, OpenStdin=True, StdinOnce=True)
    if wanted.read_all:
        spec["User"] = "0:0"
        host.update(CapDrop=["ALL"], CapAdd=["DAC_READ_SEARCH"])
    elif wanted.user is not None:
        spec["User"] = wanted.user
    return spec


def _attended(engine: Engine, container: str, wanted: Run) -> RunResult:
    """Start the container, feed it, read it, and stop it at its limits."""
    late = threading.Event()

    def stop() -> None:
        late.set()
        # The engine may be gone, or the program over by itself at this very moment.
        with contextlib.suppress(EngineError, Unreachable):
            engine.call("POST", f"/containers/{container}/kill", params={"signal": "KILL"}, timeout=GRACE)

    output = engine.attach(container, stdout=1, stderr=1)
    try:
        stdin = engine.attach(container, stdin=1) if wanted.stdin else None
        engine.call("POST", f"/containers/{container}/start")
        timer = threading.Timer(wanted.timeout, stop)
        timer.start()
        try:
            if stdin is not None:
                threading.Thread(target=_feed, args=(stdin, wanted.stdin), daemon=True).start()
            output.settimeout(wanted.timeout + GRACE)
            stdout, stderr, cut = _read(output, wanted.output_limit)
        except TimeoutError as error:
            raise Unreachable(
                "engine-timeout", "the engine did not stop a container in time", where=container, remedy="docker info"
            ) from error
        finally:
            timer.cancel()
            if stdin is not None:
                stdin.close()
    finally:
        output.close()
    if cut:
        return RunResult(137, stdout, stderr, "output-limit")
    status = _status(engine, container)
    ended: Literal["exit", "timeout"] = "timeout" if late.is_set() else "exit"
    return RunResult(status, stdout, stderr, ended)


def _feed(stdin: Streams, data: bytes) -> None:
    """Write all of the program's input, then end it. A connection of its own, so that closing it is the end of input on
    every kind of connection (TLS knows no half-closed one). A program that does not read ends with its container."""
    with contextlib.suppress(OSError):
        stdin.sendall(data)
    stdin.close()


def _read(output: Streams, limit: int) -> tuple[bytes, bytes, bool]:
    """Both streams to their end, or to ``limit`` bytes together. Frames: one byte stream, three zero, four length
    (Docker Engine API, "Stream format" of ContainerAttach)."""
    streams: dict[int, bytearray] = {1: bytearray(), 2: bytearray()}
    taken = 0
    while header := _exactly(output, 8):
        left = int.from_bytes(header[4:8], "big")
        into = streams[2 if header[0] == 2 else 1]
        while left:
            piece = output.recv(min(left, 1 << 16))
            if not piece:
                return bytes(streams[1]), bytes(streams[2]), False
            left -= len(piece)
            room = limit - taken
            into += piece[:room]
            taken += len(piece)
            if taken > limit:
                return bytes(streams[1]), bytes(streams[2]), True
    return bytes(streams[1]), bytes(streams[2]), False


def _exactly(output: Streams, count: int) -> bytes:
    """``count`` bytes, or none at the stream's end."""
    data = b""
    while len(data) < count:
        piece = output.recv(count - len(data))
        if not piece:
            return b""
        data += piece
    return data


def _status(engine: Engine, container: str) -> int:
    answer = engine.call("POST", f"/containers/{container}/wait", timeout=GRACE).json()
    return int(answer["StatusCode"])


def _device(text: str) -> Mapping[str, str]:
    """docker's ``--device HOST[:CONTAINER[:PERMISSIONS]]``."""
    host, _, rest = text.partition(":")
    inside, _, permissions = rest.partition(":")
    return {"PathOnHost": host, "PathInContainer": inside or host, "CgroupPermissions": permissions or "rwm"}


def _gpus(text: str) -> Json:
    """docker's ``--gpus``: ``all``, a number, or ``device=ID[,ID]``.

    Raises:
        patchkit.errors.BadInput: it is none of these.
    """
    request: Json = {"Driver": "", "Capabilities": [["gpu"]], "Options": {}}
    if text == "all":
        return {**request, "Count": -1}
    if text.isdigit():
        return {**request, "Count": int(text)}
    if text.startswith("device="):
        return {**request, "DeviceIDs": text.removeprefix("device=").strip('"').split(",")}
    raise BadInput("bad-gpus", f"{text!r} is no choice of GPUs", remedy="--gpus all, --gpus 2 or --gpus device=0,1")


def _cannot_run(error: EngineError, wanted: Run) -> Unreachable:
    program = wanted.argv[0]
    return Unreachable("cannot-run", f"the engine cannot run {program}: {error.what}", remedy="docker info")


__all__ = ["GRACE", "HOME", "run"]
