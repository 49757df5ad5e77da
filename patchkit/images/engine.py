"""A container engine: Docker, or podman through its Docker-compatible socket. Connection and plain calls only.

The docker SDK makes the connection (``DOCKER_HOST``, contexts, TLS) and is imported only here, when an engine is first
used: it costs 160 ms. What the SDK's own methods lack (BuildKit, ``platform``, stream errors) goes through its session.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import json
import os
import platform
import select
import socket
import threading
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal, TypeVar

from patchkit.errors import PatchkitError, Unreachable
from patchkit.images.signals import held

Json = dict[str, Any]
_T = TypeVar("_T")

#: Seconds that one answer may take. The SDK's 60 s are too short for a big image; an engine that hangs must still end.
READ_TIMEOUT = 600
#: Label of every container and tag that patchkit makes for a moment: what a killed run leaves is found by it.
TEMPORARY_LABEL = "dev.patchkit.temporary"
#: How often what another process's change of the engine's images undid is tried.
_LISTINGS = _TAGGINGS = 5

#: What the SDK wants to be given before the engine has been asked; such a path is never called.
_ANY_VERSION = "1.41"
#: The most that one step writes, so that reading gets its turn.
_PIECE = 1 << 16
_DEFAULT_SOCKET = "/var/run/docker.sock"
#: Where an engine's service puts its socket: if it is not there, the service does not run.
_USUAL_SOCKETS = (_DEFAULT_SOCKET, "/run/docker.sock", "/run/podman/podman.sock", "/var/run/podman/podman.sock")


class EngineError(PatchkitError):
    """The engine answered, and the answer is a refusal. ``http`` is its HTTP status (0 for an error in a stream)."""

    status = 3

    def __init__(self, http: int, message: str, *, where: str, remedy: str | None = None) -> None:
        super().__init__("engine-error", f"the engine answered: {message}", where=where, remedy=remedy)
        self.http = http


class _ClosedError(OSError):
    """Our own side has ended the connection."""


class Streams:
    """A container's streams as the engine gives them: one socket, framed. One thread may read while another writes.

    A TLS connection cannot do both at once (cpython#143756: bytes are lost), and neither may wait for the other: a
    program may stop reading until its output is read. So the socket never blocks, and the waiting is done outside.
    """

    def __init__(self, raw: Any) -> None:
        self._raw = raw
        self._socket: socket.socket = getattr(raw, "_sock", raw)
        self._socket.setblocking(False)
        self._seconds: float = READ_TIMEOUT
        self._alone = threading.Lock()

    def settimeout(self, seconds: float) -> None:
        """How long one ``recv`` may wait; TimeoutError after that."""
        self._seconds = seconds

    def recv(self, size: int) -> bytes:
        """At most ``size`` bytes; none at the end, and after ``close``. Podman resets a connection whose input was not
        read to its end: what the program wrote has come by then, and an engine that died is noticed by the next call.
        """
        try:
            return self._done(partial(self._socket.recv, size), select.POLLIN)
        except (ConnectionResetError, _ClosedError):
            return b""

    def sendall(self, data: bytes) -> None:
        """All of ``data``. Raises OSError when the other side, or ``close``, ends the connection before."""
        left = memoryview(data)
        while left:
            left = left[self._done(partial(self._socket.send, left[:_PIECE]), select.POLLOUT) :]

    def end_of_input(self) -> None:
        """Tell the other side that no more comes, and go on reading. Done below TLS, whose Python object cannot be
        half-closed: the engine takes the end of the connection for the end of input."""
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(self._socket.fileno())) as plain:
            plain.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """End the connection for both sides at once; the SDK's response would keep a merely closed socket open."""
        with self._alone:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            self._raw.close()
            self._socket.close()

    def _done(self, step: Callable[[], _T], event: int) -> _T:
        """One step of reading or writing, tried again as soon as the connection is ready for it."""
        import ssl

        while True:
            try:
                with self._alone:
                    descriptor = self._socket.fileno()
                    if descriptor < 0:
                        raise _ClosedError
                    return step()
            except ssl.SSLWantReadError:
                needed = select.POLLIN
            except ssl.SSLWantWriteError:
                needed = select.POLLOUT
            except BlockingIOError:
                needed = event
            ready = select.poll()
            ready.register(descriptor, needed)
            if not ready.poll(self._seconds * 1000):
                raise TimeoutError


class Engine:
    """One engine. Nothing is asked of it before it is needed; what does not change while we run is asked once.

    Attributes:
        host: where it is, as ``DOCKER_HOST`` spells it (``unix:///var/run/docker.sock``).
    """

    def __init__(self, api: Any, host: str) -> None:
        self._api = api
        self.host = host

    # -- what it is ------------------------------------------------------------------------------------------------

    @cached_property
    def version(self) -> Json:
        """The engine's own account of its version (``GET /version``)."""
        return self.get("/version")

    @cached_property
    def info(self) -> Json:
        """The engine's own account of itself (``GET /info``)."""
        return self.get("/info")

    @cached_property
    def kind(self) -> Literal["docker", "podman"]:
        """Whose engine answers. Podman names its first component so; Docker never does."""
        names = [part.get("Name", "") for part in self.version.get("Components") or []]
        return "podman" if any("Podman" in name for name in names) else "docker"

    @cached_property
    def store(self) -> Literal["classic", "containerd", "podman"]:
        """How images are kept, which decides what an image ID means: the config's digest on the classic store and in
        podman, the manifest's or index's digest on the containerd store (moby#48401, docker/cli#5526)."""
        if self.kind == "podman":
            return "podman"
        status = {str(pair[0]): str(pair[1]) for pair in self.info.get("DriverStatus") or [] if len(pair) == 2}
        return "containerd" if status.get("driver-type", "").startswith("io.containerd.snapshotter") else "classic"

    @property
    def api_version(self) -> tuple[int, int]:
        """The API version in use, as negotiated: never pinned, since Docker 29 refuses versions below 1.44."""
        major, _, minor = str(self._api.api_version).partition(".")
        return int(major), int(minor)

    @cached_property
    def is_remote(self) -> bool:
        """Whether the engine runs on another machine, so that its bind mounts do not show this machine's files."""
        scheme, _, rest = self.host.partition("://")
        if scheme == "ssh":
            return True
        if scheme not in ("tcp", "http", "https"):
            return False
        name = urllib.parse.urlsplit(f"//{rest}").hostname or ""
        # A port on this machine may be the near end of a tunnel: the engine's own host name tells.
        return not _is_loopback(name) or self.info.get("Name") != platform.node()

    @cached_property
    def is_rootless(self) -> bool:
        """Whether owners inside containers are shifted against those on the host (rootless, or user namespaces)."""
        options = " ".join(str(option) for option in self.info.get("SecurityOptions") or [])
        return "name=rootless" in options or "name=userns" in options or bool(self.info.get("Rootless"))

    @property
    def shortcomings(self) -> tuple[str, ...]:
        """What this engine cannot do for patchkit that others can, a sentence each, for a person to read."""
        found = []
        if self.is_remote:
            found.append("it runs on another machine: bind mounts would show that machine's files, so only images")
        if self.kind == "podman":
            found.append("its API does not tell who owns a file: images are derived as root or in podman unshare only")
        elif self.store == "classic" and self.api_version < (1, 43):
            found.append("reading an image's files as another user than root takes 40 ms a file before Docker 24")
        return tuple(found)

    # -- what it holds ---------------------------------------------------------------------------------------------

    def inspect_image(self, name: str) -> Json | None:
        """The engine's account of one image, or None where it has none of that name or ID."""
        try:
            return self.get(f"/images/{_quote(name)}/json")
        except EngineError as error:
            if error.http == 404:
                return None
            raise

    def images(self, *labels: str) -> list[Json]:
        """The images (short form) that carry every one of ``labels`` (``key`` or ``key=value``); all without labels."""
        for _ in range(_LISTINGS - 1):
            try:
                return self.get_list("/images/json", params=_filters(label=list(labels)))
            except EngineError as error:
                # The containerd store: somebody has just removed an image that was being listed (moby#52688).
                if error.http != 404:
                    raise
        return self.get_list("/images/json", params=_filters(label=list(labels)))

    def containers(self, *labels: str, ancestor: str | None = None, running: bool = False) -> list[Json]:
        """The containers (short form) with all ``labels``, made from image ``ancestor``; stopped ones too unless
        ``running``."""
        filters = _filters(label=list(labels), ancestor=[ancestor] if ancestor else [])
        return self.get_list("/containers/json", params={"all": "0" if running else "1", **filters})

    def inspect_container(self, name: str) -> Json | None:
        """The engine's account of one container, or None where there is none of that name or ID."""
        try:
            return self.get(f"/containers/{_quote(name)}/json")
        except EngineError as error:
            if error.http == 404:
                return None
            raise

    def logs(self, container: str, tail: int) -> list[str]:
        """The last ``tail`` lines that a container wrote, both streams in the order of the engine."""
        params = {"stdout": "1", "stderr": "1", "tail": str(tail)}
        raw: bytes = self.call("GET", f"/containers/{_quote(container)}/logs", params=params).content
        inspected = self.inspect_container(container) or {}
        if not (inspected.get("Config") or {}).get("Tty"):
            raw = b"".join(_frames(raw))
        return raw.decode("utf-8", "replace").splitlines()

    # -- containers and tags that we make --------------------------------------------------------------------------

    def create(self, spec: Mapping[str, Any]) -> str:
        """Create a container, not started, and return its ID. It is labelled as temporary. Call it with signals
        ``held`` until the ID is where its removal will look for it."""
        labels = {**spec.get("Labels", {}), TEMPORARY_LABEL: owner()}
        answer = self.call("POST", "/containers/create", body={**spec, "Labels": labels}).json()
        return str(answer["Id"])

    def remove(self, container: str) -> None:
        """Remove a container, running or not, with its anonymous volumes. One that is gone already is no error."""
        with held():
            try:
                self.call("DELETE", f"/containers/{container}", params={"force": "1", "v": "1"})
            except EngineError as error:
                if error.http not in (404, 409):  # 409: its removal is under way
                    raise

    def tag(self, image_id: str, name: str) -> None:
        """Let ``name`` (``repository:tag``) stand for the image."""
        repository, tag = split_tag(name)
        for _ in range(_TAGGINGS):
            self.call("POST", f"/images/{_quote(image_id)}/tag", params={"repo": repository, "tag": tag or "latest"})
            # Podman before 4.8 writes an image's whole list of names: of two at once one is lost (podman#17515).
            if self.kind == "docker" or self.inspect_image(name) is not None:
                return
        raise EngineError(0, "the name was given and is not there", where=f"{self.host}: {name}", remedy="run again")

    def remove_image(self, name: str) -> None:
        """Remove a tag, or an image without one, but not its untagged parents. One that is gone is no error."""
        try:
            self.call("DELETE", f"/images/{_quote(name)}", params={"noprune": "1"})
        except EngineError as error:
            if error.http != 404:
                raise

    def remove_untagged(self, image_id: str) -> None:
        """Remove an image unless a tag stands for it: then it is somebody's."""
        found = self.inspect_image(image_id)
        if found is not None and not found.get("RepoTags"):
            self.remove_image(image_id)

    def leftovers(self) -> list[Json]:
        """Containers that a killed patchkit left behind: temporary ones whose process no longer runs here. One made on
        another machine, or in another process namespace, cannot be judged and is not listed."""
        return [item for item in self.containers(TEMPORARY_LABEL) if _is_dead(item["Labels"].get(TEMPORARY_LABEL, ""))]

    def sweep(self) -> None:
        """Remove what ``leftovers`` lists."""
        for item in self.leftovers():
            self.remove(item["Id"])

    # -- calls -----------------------------------------------------------------------------------------------------

    def get(self, path: str, params: Mapping[str, Any] | None = None) -> Json:
        """One JSON object."""
        answer: Json = self._asked(path, params, dict)
        return answer

    def get_list(self, path: str, params: Mapping[str, Any] | None = None) -> list[Json]:
        """One JSON list."""
        answer: list[Json] = self._asked(path, params, list)
        return answer

    def _asked(self, path: str, params: Mapping[str, Any] | None, kind: type) -> Any:
        answer = self.call("GET", path, params=params)
        try:
            value = answer.json()
        except ValueError:
            value = None
        if not isinstance(value, kind):
            raise EngineError(0, f"no JSON {kind.__name__} but {answer.text[:100]!r}", where=f"GET {path}")
        return value

    def call(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        body: Any = None,
        data: Any = None,
        headers: Mapping[str, str] | None = None,
        stream: bool = False,
        timeout: float = READ_TIMEOUT,
    ) -> Any:
        """One request to the versioned API; returns the ``requests`` response. ``body`` goes out as JSON, ``data`` as
        it is. With ``stream`` the caller reads the body and closes the response.

        Raises:
            EngineError: the engine refused.
            patchkit.errors.Unreachable: it does not answer.
        """
        import requests

        url = f"{self._api.base_url}/v{self._api.api_version}{path}"
        try:
            response = self._api.request(
                method, url, params=params, json=body, data=data, headers=headers, stream=stream, timeout=timeout
            )
            if response.status_code >= 400:
                raise EngineError(response.status_code, _message(response), where=f"{method} {path}")
        except requests.exceptions.RequestException as error:
            raise _unreachable(self.host, error) from error
        return response

    def attach(self, container: str, **streams: int) -> Streams:
        """The raw connection to a container's streams (``stdin=1, stdout=1, stderr=1`` or some of them)."""
        return self._raw(lambda: self._api.attach_socket(container, params={**streams, "stream": 1}))

    def exec(self, container: str, spec: Mapping[str, Any]) -> tuple[str, Streams]:
        """Start a program in a running container (``spec`` as in ``ExecConfig``); its ID and its streams."""
        name = str(self.call("POST", f"/containers/{container}/exec", body=dict(spec)).json()["Id"])
        return name, self._raw(lambda: self._api.exec_start(name, socket=True))

    def _raw(self, connect: Callable[[], Any]) -> Streams:
        """What an SDK call that takes over the connection gives."""
        import requests
        from docker.errors import APIError, DockerException

        try:
            return Streams(connect())
        except APIError as error:
            raise EngineError(error.status_code or 0, str(error.explanation), where=self.host) from error
        except (requests.exceptions.RequestException, DockerException) as error:
            raise _unreachable(self.host, error) from error

    def stream(self, method: str, path: str, **call: Any) -> Iterator[Json]:
        """A request whose answer is a stream of JSON lines; an ``error`` line is raised, which the SDK does not do.

        Raises:
            EngineError: as the line says.
        """
        import requests

        response = self.call(method, path, stream=True, **call)
        try:
            for line in response.iter_lines():
                item = json.loads(line) if line.strip() else {}
                if "error" in item:
                    raise EngineError(0, str(item["error"]).strip(), where=f"{method} {path}")
                yield item
        except (requests.exceptions.RequestException, ValueError) as error:
            raise _unreachable(self.host, error) from error
        finally:
            response.close()


def engine(host: str | None = None, context: str | None = None) -> Engine:
    """Connect as the Docker command line would: ``host`` or ``context``, else ``DOCKER_HOST``, else the context in
    use, else the default socket.

    Raises:
        patchkit.errors.Unreachable: nobody answers there; the remedy says what to start or change.
    """
    import requests
    from docker.api.client import APIClient
    from docker.context import ContextAPI
    from docker.errors import DockerException
    from docker.utils import kwargs_from_env

    connect: dict[str, Any] = dict(kwargs_from_env())
    if host is not None:
        connect["base_url"] = host
    elif context is not None:
        connect = dict(ContextAPI.kwargs_from_context(name=context))
        if not connect:
            raise Unreachable(
                "no-such-context", f"there is no Docker context named {context!r}", remedy="docker context ls"
            )
    elif "base_url" not in connect:
        connect = {**ContextAPI.kwargs_from_context(), **connect}
    address = str(connect.pop("base_url", "") or f"unix://{_DEFAULT_SOCKET}")
    address = address.replace("http+unix://", "unix://")  # how the SDK's default context spells it

    def client(version: str) -> APIClient:
        if address.startswith("ssh://"):
            from patchkit.images.engine_ssh import ssh_client

            made = ssh_client(address, version, READ_TIMEOUT)
        else:
            made = APIClient(base_url=address, version=version, timeout=READ_TIMEOUT, **connect)
        # requests prefers a proxy or CA bundle of the environment to what it was given (psf/requests#3829).
        made.trust_env = False
        return made

    try:
        asked = client(_ANY_VERSION).version(api_version=False)
        found = Engine(client(str(asked["ApiVersion"])), address)
        found.version = asked
        return found
    except (DockerException, requests.exceptions.RequestException, KeyError, ValueError, OSError) as error:
        raise _unreachable(address, error) from error


def split_tag(name: str) -> tuple[str, str]:
    """``repository:tag`` in two; the tag is empty where there is none (a port's colon is no tag's)."""
    repository, colon, tag = name.rpartition(":")
    return (repository, tag) if colon and "/" not in tag else (name, "")


def as_digest(name: str) -> str:
    """An ID as digests are spelled; podman leaves ``sha256:`` off in places."""
    return name if name.startswith("sha256:") else f"sha256:{name}"


def image_id(inspected: Json) -> str:
    """The ID in an engine's account of an image."""
    return as_digest(str(inspected["Id"]))


def owner() -> str:
    """This process, named so that another patchkit on the same machine can tell whether it still runs."""
    return f"{_here()}.{os.getpid()}.{_started(os.getpid())}"


def _here() -> str:
    """This boot of this machine and this process namespace: a PID means something only there."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    namespace = Path("/proc/self/ns/pid")
    try:
        return f"{boot.read_text().strip()}.{namespace.stat().st_ino}"
    except OSError:
        return platform.node() or "unknown"


def _started(pid: int) -> str:
    """The process's start in clock ticks since boot (proc(5), field 22), or empty: PIDs are used again."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def _is_dead(label: str) -> bool:
    """Whether the process that ``owner`` named so has ended; False where that cannot be told."""
    process, _, started = label.rpartition(".")
    here, _, pid = process.rpartition(".")
    if here != _here() or not pid.isdigit() or not started:
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass  # another user's, which /proc may hide (proc(5), hidepid)
    return _started(int(pid)) not in (started, "")


def _frames(raw: bytes) -> Iterator[bytes]:
    """The payloads of a multiplexed stream: frames of stream number, three zeros, length as four bytes, payload (Docker
    Engine API, "Attach to a container", stream format)."""
    at = 0
    while at + 8 <= len(raw):
        length = int.from_bytes(raw[at + 4 : at + 8], "big")
        yield raw[at + 8 : at + 8 + length]
        at += 8 + length


def _is_loopback(name: str) -> bool:
    try:
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _quote(name: str) -> str:
    return urllib.parse.quote(name, safe="/:@")


def _filters(**wanted: Sequence[str]) -> dict[str, str]:
    chosen = {key: list(values) for key, values in wanted.items() if values}
    return {"filters": json.dumps(chosen)} if chosen else {}


def _message(response: Any) -> str:
    try:
        answer = response.json()
        return str(answer.get("message") or answer.get("cause") or answer)
    except ValueError:
        return f"HTTP {response.status_code} {response.text[:200]}".strip()


def _unreachable(host: str, error: BaseException) -> Unreachable:
    """Why nobody answers, told from the lowest error in the chain, with what to do about it."""
    import requests

    causes = list(_chain(error))
    numbers = {cause.errno for cause in causes if isinstance(cause, OSError)}
    path = host.partition("unix://")[2]
    if any(isinstance(cause, requests.exceptions.Timeout | socket.timeout) for cause in causes):
        return Unreachable(
            "engine-timeout", f"the engine did not answer within {READ_TIMEOUT} s", where=host, remedy="docker info"
        )
    if any(isinstance(cause, PermissionError) for cause in causes):
        return Unreachable(
            "engine-permission",
            "this user may not talk to the engine",
            where=host,
            remedy="sudo usermod -aG docker $USER, then log in again (or run patchkit as root)",
        )
    if path and (errno.ENOENT in numbers or errno.ECONNREFUSED in numbers):
        there = "nothing listens at the engine's socket" if Path(path).exists() else "the engine's socket is not there"
        other = _podman_socket(path)
        if other:
            return Unreachable(
                "engine-not-running",
                f"{there}; a podman socket is",
                where=host,
                remedy=f"export DOCKER_HOST=unix://{other}",
            )
        start = "systemctl start podman.socket" if "podman" in path else "systemctl start docker"
        if os.environ.get("DOCKER_HOST") == host and path not in _USUAL_SOCKETS:
            start = f"DOCKER_HOST names this socket: set it to the right one, or unset it for {_DEFAULT_SOCKET}"
        return Unreachable("engine-not-running", there, where=host, remedy=start)
    last = causes[-1] if causes else error
    ask = f"docker -H {host} info"
    if os.environ.get("DOCKER_HOST") == host:
        ask += "  # DOCKER_HOST names it: unset it for this machine's engine"
    return Unreachable("engine-unreachable", f"the engine cannot be reached: {last}", where=host, remedy=ask)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and what it was raised from; ``requests`` and ``urllib3`` also hide causes in ``args`` and
    ``reason``."""
    seen: list[BaseException] = []
    todo: list[BaseException] = [error]
    while todo:
        here = todo.pop(0)
        if here in seen:
            continue
        seen.append(here)
        yield here
        hidden = [*here.args, getattr(here, "reason", None), here.__cause__, here.__context__]
        todo.extend(item for item in hidden if isinstance(item, BaseException))


def _podman_socket(instead_of: str) -> str:
    """A podman socket of root's or of this user's that exists, or empty."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    places = ["/run/podman/podman.sock", *([f"{runtime}/podman/podman.sock"] if runtime else [])]
    return next((place for place in places if place != instead_of and Path(place).exists()), "")
