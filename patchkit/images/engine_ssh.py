"""The road to an engine behind ``ssh://``: the person's own ssh client, as the Docker command line uses it.

The SDK's ssh transport needs paramiko even where it starts the ssh program, and its sockets know no time limit. Here
the program's standard streams are one end of a socket pair, so everything else sees an ordinary socket.
"""

from __future__ import annotations

import socket
import subprocess
import urllib.parse
from typing import Any

import urllib3.connection
import urllib3.connectionpool
from docker.api.client import APIClient
from docker.transport.basehttpadapter import BaseHTTPAdapter


def ssh_client(address: str, version: str, timeout: int) -> APIClient:
    """An SDK client whose every connection is one ``ssh HOST docker system dial-stdio``."""
    # An address that the SDK has no transport of its own for; it connects nowhere before it is asked something.
    client = APIClient(base_url="http://localhost:1", version=version, timeout=timeout)
    client.base_url = "http+docker://localhost"
    client.mount("http+docker://", _Adapter(_command(address), timeout))
    return client


def _command(address: str) -> list[str]:
    """The ssh command of an ``ssh://[user@]host[:port][/socket]`` address."""
    url = urllib.parse.urlsplit(address)
    # "--" ends the options: a host name that begins with a dash must not become one.
    port = ["-p", str(url.port)] if url.port else []
    user = ["-l", url.username] if url.username else []
    host = ["-H", f"unix://{url.path}"] if url.path.strip("/") else []
    return ["ssh", *port, *user, "-T", "--", url.hostname or "", "docker", *host, "system", "dial-stdio"]


class _Connection(urllib3.connection.HTTPConnection):
    def __init__(self, command: list[str], timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._command = command
        self._seconds = timeout
        self._process: subprocess.Popen[bytes] | None = None

    def connect(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(self._command, stdin=theirs.fileno(), stdout=theirs.fileno())
        ours.settimeout(self._seconds)
        self.sock = ours

    def close(self) -> None:
        super().close()
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._process = None


class _Pool(urllib3.connectionpool.HTTPConnectionPool):
    def __init__(self, command: list[str], timeout: float) -> None:
        super().__init__("localhost", timeout=timeout, maxsize=4)
        self._command = command
        self._seconds = timeout

    def _new_conn(self) -> Any:
        return _Connection(self._command, self._seconds)


class _Adapter(BaseHTTPAdapter):
    def __init__(self, command: list[str], timeout: float) -> None:
        super().__init__()
        self._pool = _Pool(command, timeout)

    def get_connection(self, url: str | bytes, proxies: Any = None) -> Any:
        return self._pool

    def request_url(self, request: Any, proxies: Any) -> str:
        return str(request.path_url)

    def close(self) -> None:
        self._pool.close()
        super().close()
