"""A container's streams are read and written at the same time, over TLS as well."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from patchkit.images.engine import Streams, _ClosedError
from patchkit.images.model import Run
from patchkit.images.sandbox import converse

_INPUT = bytes(range(256)) * 8_000
_OUTPUT = bytes(reversed(range(256))) * 8_000
_TIMES = 20


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a key and a certificate that it signs itself."""
    folder = tmp_path_factory.mktemp("tls")
    new = ["openssl", "req", "-newkey", "rsa:2048", "-nodes", "-x509", "-subj", "/CN=localhost", "-days", "3650"]
    subprocess.run([*new, "-keyout", "key.pem", "-out", "cert.pem"], check=True, capture_output=True, cwd=folder)
    both = folder / "both.pem"
    both.write_bytes((folder / "key.pem").read_bytes() + (folder / "cert.pem").read_bytes())
    return both


class Program:
    """A program behind a server: it writes all of its output, in frames, while it reads all of its input."""

    def __init__(self, context: ssl.SSLContext | None) -> None:
        self.context = context
        self.heard: list[bytes] = []
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Program:
        self._thread.start()
        started = asyncio.run_coroutine_threadsafe(
            asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self.context), self._loop
        )
        self.port = started.result(30).sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def listen() -> None:
            self.heard.append(await reader.readexactly(len(_INPUT)))

        async def talk() -> None:
            for at in range(0, len(_OUTPUT), 3000):
                piece = _OUTPUT[at : at + 3000]
                writer.write(b"\x01\0\0\0" + len(piece).to_bytes(4, "big") + piece)
                await writer.drain()

        await asyncio.gather(listen(), talk())
        writer.close()


@pytest.fixture(params=["plain", "tls"])
def program(request: pytest.FixtureRequest, certificate: Path) -> Iterator[tuple[Program, ssl.SSLContext | None]]:
    """The program, and what a client needs to talk to it."""
    if request.param == "plain":
        with Program(None) as found:
            yield found, None
        return
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate)
    client = ssl.create_default_context(cafile=str(certificate))
    client.check_hostname = False
    with Program(server) as found:
        yield found, client


def test_no_byte_is_lost_while_both_sides_talk(program: tuple[Program, ssl.SSLContext | None]) -> None:
    served, context = program

    def give_up() -> None:
        raise AssertionError("it did not end")

    for _ in range(_TIMES):
        raw: Any = socket.create_connection(("127.0.0.1", served.port))
        streams = Streams(context.wrap_socket(raw) if context else raw)
        done = converse(streams, Run(("program",), stdin=_INPUT, timeout=60, output_limit=1 << 30), give_up)
        streams.close()
        assert done == (_OUTPUT, b"", "exit")
    assert served.heard == [_INPUT] * _TIMES


def test_whoever_closes_ends_the_reading_of_another_thread() -> None:
    ours, theirs = socket.socketpair()
    streams = Streams(ours)
    threading.Timer(0.2, streams.close).start()
    assert streams.recv(1) == b""
    assert streams.recv(1) == b""
    with pytest.raises(_ClosedError):
        streams.sendall(b"x")
    theirs.close()


def test_nothing_that_comes_is_told_after_the_time_given() -> None:
    ours, theirs = socket.socketpair()
    streams = Streams(ours)
    streams.settimeout(0.05)
    with pytest.raises(TimeoutError):
        streams.recv(1)
    theirs.sendall(b"x")
    assert streams.recv(8) == b"x"
    theirs.close()
    streams.close()
