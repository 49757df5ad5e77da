"""Which processes of a container are judged: those that run Python, whatever became of the interpreter's file."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from patchkit.proof.processes import Inside, Process, judge, look_inside
from patchkit.site.model import Launch
from tests.site.host import HostImage

LAUNCH = Launch("module", "/bin/python3", "p", "/", {})


@pytest.mark.parametrize(
    ("exe", "older"),
    [
        ("/usr/bin/python3.12", True),
        ("/usr/bin/python3.13t", True),  # free-threaded
        ("/usr/bin/python3.12 (deleted)", True),  # the package was upgraded below it
        ("/usr/bin/bash", False),
        ("/usr/bin/python3-config", False),
    ],
)
def test_an_older_python_is_found_and_other_programs_are_not(exe: str, older: bool) -> None:
    process = Process(7, exe, (exe, "-m", "p"), "/", 0.0, {})
    found = judge(Inside((process,), changed={"/p/a.py": 100.0}), LAUNCH, "c")
    assert [finding.id for finding in found] == ["process-older"] * older


@contextmanager
def started(argv: list[str], env: dict[str, str]) -> Iterator[int]:
    """A Python of this machine that says something once it runs, and waits; its process number."""
    process = subprocess.Popen(argv, executable=sys.executable, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline()
        yield process.pid
    finally:
        process.communicate(b"\n")


def told_of(argv: list[str], env: dict[str, str]) -> list[str]:
    """What is found about the environment of such a process, against a launch with ``ENV``."""
    launch = Launch("module", sys.executable, "p", "/", ENV)
    with started(argv, env) as pid:
        inside = look_inside(HostImage(), launch, ())
    assert inside is not None
    own = tuple(process for process in inside.processes if process.pid == pid)
    assert own
    return [finding.what for finding in judge(dataclasses.replace(inside, processes=own, hidden=()), launch, "c")]


ENV = {"PATH": "/usr/bin:/bin", "HOME": "/root"}
WAIT = "print(1, flush=True); input()"


@pytest.mark.parametrize(
    ("name", "value", "was"),
    [
        ("PATH", "/elsewhere/bin:/usr/bin", "/usr/bin:/bin"),
        ("HOME", "/elsewhere", "/root"),
        ("PYTHONUSERBASE", "/elsewhere", "none"),
        ("__PYVENV_LAUNCHER__", "/elsewhere/bin/python", "none"),
        ("VIRTUAL_ENV", "/elsewhere", "none"),
    ],
)
def test_a_process_with_another_setting_that_decides_imports_is_told(name: str, value: str, was: str) -> None:
    found = told_of(["python3", "-Sc", WAIT], ENV | {name: value, "SECRET": "x"})
    assert found == [f"{name} is {value}, the launch has {was}"]


def test_the_search_for_programs_does_not_concern_a_process_that_was_started_by_a_path() -> None:
    assert told_of([sys.executable, "-Sc", WAIT], ENV | {"PATH": "/elsewhere/bin"}) == []


def test_a_process_that_wrote_over_its_environment_is_not_told_as_one_without_any() -> None:
    # As setproctitle leaves it, and with it every engine process of vLLM.
    over = "import ctypes as c; names = c.c_void_p.from_address(c.c_void_p.in_dll(c.CDLL(None), 'environ').value).value"
    clear = "c.memset(names, 0, len(open('/proc/self/environ').read()))"
    assert told_of([sys.executable, "-c", f"{over}; {clear}; {WAIT}"], ENV | {"VIRTUAL_ENV": "/venv"}) == []
