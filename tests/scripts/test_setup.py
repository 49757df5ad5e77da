"""What a killed engine leaves behind is cleared away; what is alive is left alone."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def setup() -> ModuleType:
    spec = importlib.util.spec_from_file_location("setup", Path(__file__).parents[2] / "scripts/setup.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_pid_file_of_another_program_is_stale(setup: ModuleType, tmp_path: Path) -> None:
    file = tmp_path / "docker.pid"
    file.write_text(str(os.getpid()))
    assert setup.clear_pid_file(file, "dockerd")
    assert not file.exists()


def test_a_pid_file_without_a_number_is_stale(setup: ModuleType, tmp_path: Path) -> None:
    file = tmp_path / "docker.pid"
    file.write_text("")
    assert setup.clear_pid_file(file, "dockerd")
    assert not file.exists()


def test_a_pid_file_of_a_killed_process_that_nobody_waited_for_is_stale(setup: ModuleType, tmp_path: Path) -> None:
    program = Path(sys.executable).resolve().name
    file = tmp_path / "docker.pid"
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as process:
        file.write_text(str(process.pid))
        assert not setup.clear_pid_file(file, program)
        process.send_signal(signal.SIGKILL)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert setup.clear_pid_file(file, program)
    assert not file.exists()


def test_a_pid_file_of_the_running_program_is_kept(setup: ModuleType, tmp_path: Path) -> None:
    file = tmp_path / "docker.pid"
    file.write_text(str(os.getpid()))
    assert not setup.clear_pid_file(file, Path("/proc/self/exe").readlink().name)
    assert file.exists()


def test_a_socket_that_nobody_listens_on_is_removed(setup: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "docker.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
    assert not setup.answers(path)
    setup.clear_socket(path)
    assert not path.exists()


def test_a_socket_with_a_listener_is_kept(setup: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "docker.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        setup.clear_socket(path)
    assert path.exists()


def test_a_plain_file_in_the_sockets_place_is_kept(setup: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "docker.sock"
    path.touch()
    setup.clear_socket(path)
    assert path.exists()
