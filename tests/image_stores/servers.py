"""Debian's docker-registry as a server of its own, a token server for it, and a proxy that makes faults."""

from __future__ import annotations

import base64
import contextlib
import http.client
import http.server
import json
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

# user "patch", password "kit"
HTPASSWD = "patch:$2y$05$abcdefghijklmnopqrstuuO0.5xcvqv9yPrWjQMOQ4hqER2N8coc6\n"
BASIC = base64.b64encode(b"patch:kit").decode()


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def certificate(folder: Path) -> tuple[Path, Path]:
    """A self-signed certificate for 127.0.0.1 and its key."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "3650", "-subj", "/CN=test"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
    subprocess.run(command, check=True, capture_output=True)
    return cert, key


@contextlib.contextmanager
def registry(
    folder: Path, *, htpasswd: bool = False, tls: tuple[Path, Path] | None = None, token: dict | None = None
) -> Iterator[str]:
    """A running registry; gives ``host:port``."""
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    config: dict = {
        "version": "0.1",
        "log": {"level": "error", "accesslog": {"disabled": True}},
        "storage": {"filesystem": {"rootdirectory": str(folder / "data")}, "delete": {"enabled": True}},
        "http": {"addr": f"127.0.0.1:{port}"},
    }
    if htpasswd:
        (folder / "htpasswd").write_text(HTPASSWD)
        config["auth"] = {"htpasswd": {"realm": "test", "path": str(folder / "htpasswd")}}
    if token:
        config["auth"] = {"token": token}
    if tls:
        config["http"]["tls"] = {"certificate": str(tls[0]), "key": str(tls[1])}
    (folder / "config.yml").write_text(json.dumps(config))
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(["docker-registry", "serve", folder / "config.yml"], stdout=log, stderr=log)
    try:
        for _ in range(200):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.05)
        yield f"127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


def push(layout: Path, ref: str, target: str, *options: str) -> None:
    """Put an image of a layout into a registry, as skopeo does."""
    command = ["skopeo", "copy", "-q", "--all", "--preserve-digests", *options]
    subprocess.run([*command, f"oci:{layout}:{ref}", f"docker://{target}"], check=True)


class TokenServer:
    """The token server of distribution's token.md: signs what is asked for, and remembers who asked for what."""

    def __init__(self, folder: Path) -> None:
        self.cert, self._key = certificate(folder)
        self.asked: list[tuple[str, list[str], str]] = []
        self._server = _serve(self._answer)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/token"

    @property
    def config(self) -> dict:
        return {"realm": self.url, "service": "test", "issuer": "test", "rootcertbundle": str(self.cert)}

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, request: http.server.BaseHTTPRequestHandler) -> None:
        if request.command == "POST":
            fields = parse_qs(request.rfile.read(int(request.headers["Content-Length"])).decode())
            who = "refresh:" + fields["refresh_token"][0]
            scopes = fields.get("scope", [""])[0].split()
        else:
            fields = parse_qs(urlsplit(request.path).query)
            who = base64.b64decode(request.headers.get("Authorization", "Basic ").split(" ")[1]).decode()
            scopes = fields.get("scope", [])
        self.asked.append((request.command, scopes, who))
        if who not in ("patch:kit", "refresh:secret", ""):
            _reply(request, 401, b'{"errors":[{"code":"UNAUTHORIZED","message":"wrong password"}]}')
            return
        access = []
        for scope in scopes:
            kind, _, rest = scope.partition(":")
            name, _, actions = rest.rpartition(":")
            access.append({"type": kind, "name": name, "actions": actions.split(",") if who else ["pull"]})
        _reply(request, 200, json.dumps({"token": self._sign(access)}).encode())

    def _sign(self, access: list) -> str:
        now = int(time.time())
        der = subprocess.run(["openssl", "x509", "-in", self.cert, "-outform", "DER"], check=True, capture_output=True)
        head = {"typ": "JWT", "alg": "RS256", "x5c": [base64.b64encode(der.stdout).decode()]}
        claims = {"iss": "test", "sub": "patch", "aud": "test", "exp": now + 300, "nbf": now - 10, "iat": now}
        text = b".".join(
            _b64(json.dumps(one).encode()) for one in (head, {**claims, "jti": str(now), "access": access})
        )
        signed = subprocess.run(
            ["openssl", "dgst", "-sha256", "-sign", self._key], input=text, check=True, capture_output=True
        ).stdout
        return (text + b"." + _b64(signed)).decode()


Fault = Callable[[str, str, int], object]


class Proxy:
    """Passes everything on to a registry and notes it. ``fault(method, path, n)`` may return, for the n-th request of
    all, a status to answer with, ``(status, headers)``, ``("cut", bytes)`` to break off the answer's body, or a
    function that changes the body."""

    def __init__(self, upstream: str, fault: Fault | None = None) -> None:
        self._upstream, self.fault = upstream, fault
        self.seen: list[tuple[str, str]] = []
        self.sent = self.received = 0
        self.authorizations: list[str | None] = []
        self._lock = threading.Lock()
        self._server = _serve(self._pass)
        self.address = f"127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _pass(self, request: http.server.BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        with self._lock:
            self.seen.append((request.command, request.path))
            self.received += len(body)
            self.authorizations.append(request.headers.get("Authorization"))
            count = len(self.seen)
        fault = self.fault(request.command, request.path, count) if self.fault else None
        if isinstance(fault, int):
            _reply(request, fault, b'{"errors":[{"code":"TEST","message":"made up"}]}')
            return
        if isinstance(fault, tuple) and fault[0] != "cut":
            _reply(request, fault[0], b"{}", fault[1])
            return
        upstream = http.client.HTTPConnection(self._upstream)
        headers = {key: value for key, value in request.headers.items() if key.lower() != "host"}
        upstream.request(request.command, request.path, body=body, headers={**headers, "Host": self.address})
        answer = upstream.getresponse()
        data = answer.read()
        length = answer.headers.get("Content-Length", str(len(data)))
        if callable(fault):
            data = fault(data)
            length = str(len(data))
        request.send_response(answer.status)
        for key, value in answer.headers.items():
            if key.lower() not in ("content-length", "transfer-encoding", "connection"):
                request.send_header(key, value)
        request.send_header("Content-Length", length)
        request.end_headers()
        if isinstance(fault, tuple):
            data = data[: fault[1]]
            request.close_connection = True
        self.sent += len(data)
        request.wfile.write(data)


def _serve(answer: Callable[[http.server.BaseHTTPRequestHandler], None]) -> http.server.ThreadingHTTPServer:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *arguments: object) -> None:
            pass

        def handle_any(self) -> None:
            answer(self)

        do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    return server


def _reply(request: http.server.BaseHTTPRequestHandler, status: int, body: bytes, headers: dict | None = None) -> None:
    request.send_response(status)
    for key, value in (headers or {}).items():
        request.send_header(key, value)
    request.send_header("Content-Length", str(len(body)))
    request.end_headers()
    if request.command != "HEAD":
        request.wfile.write(body)


def _b64(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")
