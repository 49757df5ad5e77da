"""The command line as a person calls it, and a small catalog for the package whose imports really pass."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.conftest import leave_out

TINY = Path(__file__).parents[1] / "catalogs/tiny"


def tiny_with(folder: Path, keys: str) -> list[str]:
    """The options for a copy of the small catalog, made in ``folder``, whose manifest has these keys too."""
    root = folder / "tiny"
    shutil.copytree(TINY, root)
    manifest = root / "manifests/tinyserve.yaml"
    manifest.write_text(f"{manifest.read_text()}{keys}")
    return ["--catalog", str(root), "--manifest", "tinyserve"]


class Outcome(NamedTuple):
    """How a command ended."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def levels(self) -> dict[str, str]:
        """Level -> its state, from a ``--json`` answer."""
        return {level["name"]: level["state"] for level in self.json["levels"]}


@pytest.fixture
def patchkit(tmp_path: Path) -> Callable[..., Outcome]:
    """Run ``patchkit`` in an empty folder of the test's own, which is also where the output folder appears."""

    def run(
        *arguments: str, env: dict[str, str] | None = None, prefix: Sequence[str] = (), status: int | None = None
    ) -> Outcome:
        done = subprocess.run(
            [*prefix, sys.executable, "-m", "patchkit", *map(str, arguments)],
            cwd=tmp_path,
            env=os.environ | (env or {}),
            capture_output=True,
            text=True,
            timeout=300,
        )
        outcome = Outcome(done.returncode, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr, done.stderr
        if status is not None:
            assert outcome.status == status, f"{outcome.out}\n{outcome.err}"
        return outcome

    return run


@pytest.fixture
def tiny() -> list[str]:
    """Options that name the small catalog and its manifest."""
    return ["--catalog", str(TINY), "--manifest", "tinyserve"]


@pytest.fixture
def tree_of() -> Callable[[Path], dict[str, bytes]]:
    """All files below a folder with their bytes, to show that a command left nothing behind."""

    def look(folder: Path) -> dict[str, bytes]:
        return {
            str(path.relative_to(folder)): path.read_bytes()
            for path in sorted(folder.rglob("*"))
            if path.is_file() and not path.is_symlink()
        }

    return look


@pytest.fixture
def compose() -> Callable[..., str]:
    """Run the real Compose v2 in a folder and give its output."""
    from patchkit.stack.compose_model import compose_command

    def run(folder: Path, *arguments: object) -> str:
        command = [*compose_command(), "-p", "patchkit-test", *map(str, arguments)]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.fixture
def elsewhere() -> list[str]:
    """Prefix of a command that makes it run on a machine of another name, as far as it can tell (needs root)."""
    if os.geteuid() != 0:
        leave_out("a host name of one's own needs root", "run the tests as root")
    return ["unshare", "--uts", "sh", "-c", 'hostname another-machine && exec "$@"', "sh"]


class _Relay(socketserver.BaseRequestHandler):
    """One connection to a TCP port, passed on to the engine's socket."""

    def handle(self) -> None:
        with socket.socket(socket.AF_UNIX) as engine:
            engine.connect("/var/run/docker.sock")
            back = threading.Thread(target=self._copy, args=(engine, self.request), daemon=True)
            back.start()
            self._copy(self.request, engine)
            back.join()

    @staticmethod
    def _copy(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)


@pytest.fixture
def engine_by_tcp(engine: Any) -> Iterator[str]:
    """The engine's address by TCP, as a tunnel to another machine would have it."""
    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Relay)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"tcp://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def running(engine, scratch):
    """Start an image's own server and leave it running."""

    def start(image, **options):
        env = {"TINYSERVE_SECONDS": "600", "TINYSERVE_WORKERS": "1", **options.pop("environment", {})}
        container = engine.containers.run(
            image, name=scratch.name("server"), detach=True, environment=env, stop_signal="SIGKILL", **options
        )
        for _ in range(100):
            if b'"worker 0"' in container.logs():
                return container
            time.sleep(0.1)
        raise AssertionError(container.logs().decode())

    return start
