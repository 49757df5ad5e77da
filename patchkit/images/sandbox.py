"""One program of an image, run so that it can neither reach anything nor outlast its limits.

No network, read-only root, a tmpfs for /tmp, no new privileges, limits on processes, memory, time and output. The
image is hostile until proven otherwise: whatever it does, the run ends in bounded time and nothing of it is left.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from typing import Literal

from patchkit.errors import BadInput, Unreachable
from patchkit.images.engine import Engine, EngineError, Json, Streams
from patchkit.images.model import Run, RunResult
from patchkit.images.signals import held

#: HOME inside the sandbox. The real one stays visible and read-only: a tmpfs over it would hide a virtual environment
#: or a whole interpreter below /root, and the run would tell of another Python than the one that serves.
HOME = "/tmp"  # noqa: S108 - a tmpfs of the container's own
Ended = Literal["exit", "timeout", "output-limit"]
#: Seconds beyond a run's own limit in which the engine must have ended it.
GRACE = 30.0


def run(engine: Engine, image_id: str, wanted: Run, real_home: str) -> RunResult:
    """Run ``wanted`` in a fresh container of the image; the container is gone when this returns or raises.

    Raises:
        patchkit.errors.Unreachable: the engine is gone, or refuses to start such a container.
    """
    engine.sweep()
    with contextlib.ExitStack() as stack:
        try:
            with held():
                container = engine.create(_spec(engine, image_id, wanted, real_home))
                stack.callback(engine.remove, container)
            return _attended(engine, container, wanted)
        except EngineError as error:
            raise _cannot_run(error, wanted) from error


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

    def stop() -> None:
        # The engine may be gone, or the program over by itself at this very moment.
        with contextlib.suppress(EngineError, Unreachable):
            engine.call("POST", f"/containers/{container}/kill", params={"signal": "KILL"}, timeout=GRACE)

    wishes = {"stdin": 1} if wanted.stdin else {}
    streams = engine.attach(container, stdout=1, stderr=1, **wishes)
    try:
        engine.call("POST", f"/containers/{container}/start")
        stdout, stderr, ended = converse(streams, wanted, stop)
    finally:
        streams.close()
    if ended == "output-limit":
        return RunResult(137, stdout, stderr, ended)
    answer = engine.call("POST", f"/containers/{container}/wait", timeout=GRACE).json()
    return RunResult(int(answer["StatusCode"]), stdout, stderr, ended)


def converse(streams: Streams, wanted: Run, stop: Callable[[], None]) -> tuple[bytes, bytes, Ended]:
    """Feed a started program its input and read what it writes, within its limits of time and output; ``stop`` is
    called when its time is over and must end it.

    Raises:
        patchkit.errors.Unreachable: ``engine-timeout``: ``stop`` did not end it.
    """
    late = threading.Event()

    def time_is_over() -> None:
        late.set()
        stop()

    timer = threading.Timer(wanted.timeout, time_is_over)
    timer.daemon = True
    timer.start()
    try:
        if wanted.stdin:
            threading.Thread(target=_feed, args=(streams, wanted.stdin), daemon=True).start()
        streams.settimeout(wanted.timeout + GRACE)
        stdout, stderr, cut = _read(streams, wanted.output_limit)
    except TimeoutError as error:
        raise Unreachable(
            "engine-timeout", "the engine did not stop a program in time", where=wanted.argv[0], remedy="docker info"
        ) from error
    finally:
        timer.cancel()
    return stdout, stderr, "output-limit" if cut else "timeout" if late.is_set() else "exit"


def _feed(streams: Streams, data: bytes) -> None:
    """Write all of the program's input, then end it; a program that does not read it is left alone."""
    with contextlib.suppress(OSError):
        streams.sendall(data)
    streams.end_of_input()


def _read(streams: Streams, limit: int) -> tuple[bytes, bytes, bool]:
    """Both streams to their end, or to ``limit`` bytes together. Frames: one byte stream, three zero, four length
    (Docker Engine API, "Stream format" of ContainerAttach)."""
    pieces: dict[int, bytearray] = {1: bytearray(), 2: bytearray()}
    taken = 0
    while header := _exactly(streams, 8):
        left = int.from_bytes(header[4:8], "big")
        while left:
            piece = streams.recv(min(left, 1 << 16))
            if not piece:
                break
            left -= len(piece)
            pieces[2 if header[0] == 2 else 1] += piece[: limit - taken]
            taken += len(piece)
            if taken > limit:
                return bytes(pieces[1]), bytes(pieces[2]), True
    return bytes(pieces[1]), bytes(pieces[2]), False


def _exactly(streams: Streams, count: int) -> bytes:
    """``count`` bytes, or none at the stream's end."""
    data = b""
    while len(data) < count:
        piece = streams.recv(count - len(data))
        if not piece:
            return b""
        data += piece
    return data


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
    if wanted.gpus and "device driver" in error.what:  # moby: could not select device driver "" with capabilities
        return Unreachable(
            "no-gpu-runtime",
            f"this engine can pass no GPU through: {error.what}",
            remedy="without --gpus the proof runs on the CPU. For NVIDIA: install nvidia-container-toolkit, then "
            "nvidia-ctk runtime configure --runtime=docker and restart the engine; others take --device (/dev/dri)",
        )
    return Unreachable("cannot-run", f"the engine cannot run {program}: {error.what}", remedy="docker info")
