"""How an engine is found, and what is said when it is not."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from patchkit.errors import PatchkitError, Unreachable
from patchkit.images import open_image, parse_reference
from patchkit.images.engine import Engine, engine
from patchkit.images.model import Run
from tests.engine_transport import engines
from tests.engine_transport.conftest import PYTHON, Place
from tests.engine_transport.users import as_user

_DEFAULT = "unix:///var/run/docker.sock"


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker-config"))
    for name in ("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)


def test_a_socket_that_is_not_there_is_unreachable_and_the_remedy_starts_the_engine(tmp_path: Path) -> None:
    with pytest.raises(Unreachable) as caught:
        engine(f"unix://{tmp_path}/docker.sock")
    assert caught.value.code == "engine-not-running"
    assert caught.value.remedy == "systemctl start docker"


def test_a_socket_nobody_listens_on_is_told_apart_from_a_missing_one(tmp_path: Path) -> None:
    import socket

    with socket.socket(socket.AF_UNIX) as left_over:
        left_over.bind(str(tmp_path / "d.sock"))
    with pytest.raises(Unreachable, match="nothing listens"):
        engine(f"unix://{tmp_path}/d.sock")


def test_where_only_podman_has_a_socket_the_remedy_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "podman").mkdir()
    (tmp_path / "podman/podman.sock").touch()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with pytest.raises(Unreachable) as caught:
        engine(f"unix://{tmp_path}/docker.sock")
    assert caught.value.remedy in (
        f"export DOCKER_HOST=unix://{tmp_path}/podman/podman.sock",
        "export DOCKER_HOST=unix:///run/podman/podman.sock",
    )


def test_a_user_who_may_not_talk_to_the_engine_is_told_which_group_to_join(docker_place: Place) -> None:
    def connect() -> str:
        try:
            engine()
        except PatchkitError as error:
            return f"{error.code}: {error.remedy}"
        return "connected"

    assert as_user(connect, groups=()).startswith("engine-permission: sudo usermod -aG docker")


def test_a_refused_tcp_port_is_unreachable() -> None:
    with pytest.raises(Unreachable, match="refused"):
        engine("tcp://127.0.0.1:1")


def test_a_server_that_is_no_engine_is_unreachable_and_not_a_crash(tmp_path: Path) -> None:
    import http.server
    import threading

    class Other(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"hello")

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Other) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(Unreachable):
            engine(f"tcp://127.0.0.1:{server.server_address[1]}")
        server.shutdown()


def test_docker_host_names_the_engine(hosts: Callable[[str], str | None], monkeypatch: pytest.MonkeyPatch) -> None:
    host = hosts("podman")
    assert host is not None
    monkeypatch.setenv("DOCKER_HOST", host)
    assert engine().kind == "podman"


def test_the_context_in_use_names_the_engine_and_docker_host_overrides_it(
    hosts: Callable[[str], str | None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    host = hosts("podman")
    folder = tmp_path / "docker-config"
    meta = folder / "contexts/meta" / hashlib.sha256(b"elsewhere").hexdigest()
    meta.mkdir(parents=True)
    endpoint = {"docker": {"Host": host, "SkipTLSVerify": False}}
    (meta / "meta.json").write_text(json.dumps({"Name": "elsewhere", "Metadata": {}, "Endpoints": endpoint}))
    (folder / "config.json").write_text(json.dumps({"currentContext": "elsewhere"}))
    assert engine().host == host
    assert engine(context="elsewhere").host == host
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere.sock")
    with pytest.raises(Unreachable, match="not there"):
        engine()


def test_a_context_that_does_not_exist_is_named() -> None:
    with pytest.raises(Unreachable) as caught:
        engine(context="nobody")
    assert caught.value.code == "no-such-context"


def test_without_settings_the_default_socket_is_used(docker_place: Place) -> None:
    assert engine().host == _DEFAULT
    assert not engine().is_remote


def test_the_api_version_is_the_engines_own(place: Place) -> None:
    assert ".".join(map(str, place.engine.api_version)) == place.engine.version["ApiVersion"]


@pytest.mark.parametrize(
    ("host", "remote"),
    [
        ("unix:///var/run/docker.sock", False),
        ("ssh://me@gpu-host", True),
        ("tcp://10.1.2.3:2376", True),
        ("tcp://gpu-host:2376", True),
    ],
)
def test_an_engine_on_another_machine_is_told_by_its_address(host: str, remote: bool) -> None:
    assert Engine(None, host).is_remote is remote


def test_what_an_engine_cannot_do_is_told(place: Place) -> None:
    told = " ".join(place.engine.shortcomings)
    assert ("podman unshare" in told) == (place.kind == "podman")
    assert "another machine" not in told


def test_a_port_on_this_machine_is_remote_when_the_engine_behind_it_has_another_name() -> None:
    class Tunnel(Engine):
        info = {"Name": "gpu-host"}  # noqa: RUF012 - stands for the answer of one engine

    assert Tunnel(None, "tcp://127.0.0.1:2375").is_remote


def test_tls_with_a_client_certificate_reaches_the_engine_and_runs_programs(
    hosts: Callable[[str], str | None],
) -> None:
    """In a process of its own, inside the engine's network namespace."""
    host = hosts("containerd")
    assert host is not None
    place = Place("containerd", engine(host), "patchkit-test-tls")
    try:
        name = place.load("pure")
        tls = Path(host.removeprefix("unix://")).with_name("tls")
        program = f"""
from patchkit.images import open_image, parse_reference
from patchkit.images.model import Run
with open_image(parse_reference({name!r})) as image:
    result = image.run(Run(({PYTHON!r}, "-c", "import sys; print(sys.stdin.read()[:3])"), stdin=b"abc" * 100000))
    print(image.engine.host, image.engine.is_remote, result.status, result.stdout, image.fs.lstat("/opt/venv").kind)
"""
        env = {
            **os.environ,
            "DOCKER_HOST": "tcp://127.0.0.1:2376",
            "DOCKER_TLS_VERIFY": "1",
            "DOCKER_CERT_PATH": str(tls),
        }
        inside = ["nsenter", "--net", "--target", str(engines.pid(host)), sys.executable, "-c", program]
        done = subprocess.run(inside, env=env, capture_output=True, text=True, timeout=120)
        assert done.stdout == "tcp://127.0.0.1:2376 False 0 b'abc\\n' dir\n", done.stderr
    finally:
        place.clean()


def test_ssh_uses_the_persons_own_client_and_docker_dial_stdio(
    docker_place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The program named ssh here joins its standard streams to the engine's socket, as the far side would."""
    ssh = tmp_path / "bin/ssh"
    ssh.parent.mkdir()
    ssh.write_text(f"""#!{sys.executable} -IS
import os, socket, sys, threading
with open({str(tmp_path / "calls")!r}, "a") as calls:
    print(*sys.argv[1:], file=calls)
far = socket.socket(socket.AF_UNIX)
far.connect("/var/run/docker.sock")
def up():
    while data := os.read(0, 65536):
        far.sendall(data)
    far.shutdown(socket.SHUT_WR)
threading.Thread(target=up, daemon=True).start()
while data := far.recv(65536):
    os.write(1, data)
""")
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", str(ssh.parent), prepend=":")
    monkeypatch.setenv("DOCKER_HOST", "ssh://me@gpu-host:2222")
    with open_image(parse_reference(docker_place.load("pure"))) as image:
        run = Run((PYTHON, "-c", "import sys; print(len(sys.stdin.read()))"), stdin=b"x" * 100_000)
        assert image.run(run).stdout == b"100000\n"
    calls = (tmp_path / "calls").read_text().splitlines()
    assert set(calls) == {"-p 2222 -l me -T -- gpu-host docker system dial-stdio"}


def test_an_ssh_that_fails_is_unreachable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ssh = tmp_path / "bin/ssh"
    ssh.parent.mkdir()
    ssh.write_text("#!/bin/sh\necho 'Permission denied (publickey).' >&2\nexit 255\n")
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", str(ssh.parent), prepend=":")
    with pytest.raises(Unreachable):
        engine("ssh://gpu-host")


def test_an_image_that_the_engine_has_not_is_unreachable_with_the_pull_that_brings_it(place: Place) -> None:
    with pytest.raises(Unreachable) as caught:
        place.open("patchkit-test/nobody-has-this:1")
    assert caught.value.remedy == "docker pull patchkit-test/nobody-has-this:1"


def test_where_docker_host_names_the_socket_the_remedy_is_about_docker_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nope.sock")
    with pytest.raises(Unreachable) as caught:
        engine()
    assert "DOCKER_HOST" in (caught.value.remedy or "")
    assert "systemctl" not in (caught.value.remedy or "")
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    with pytest.raises(Unreachable) as caught:
        engine()
    assert "unset it" in (caught.value.remedy or "")


@pytest.mark.engine
def test_an_image_that_is_nearly_there_is_told_by_its_name(docker_place: Place) -> None:
    name = docker_place.load("pure")
    with pytest.raises(Unreachable) as caught:
        docker_place.open(f"{name}x")
    assert f"did you mean {name}" in (caught.value.remedy or "")
