"""A container's processes are judged by what each was really started as, whatever launch a person named."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchkit.proof.model import Expectation
from patchkit.proof.processes import Inside, Process
from patchkit.proof.started import started_findings
from patchkit.site.launch import launch_of
from tests.site.host import HostFiles
from tests.site.roots import config, put, small_root

SITE = "/opt/venv/lib/python3.11/site-packages"
VENV = "/opt/venv/bin/python3"
ENV = {"PATH": "/opt/venv/bin:/usr/bin:/bin", "HOME": "/root"}
WANTED = [Expectation(f"{SITE}/app/cli.py", "app/cli.py", "0" * 64, module="app.cli")]


@pytest.fixture
def fs(tmp_path: Path) -> HostFiles:
    files = small_root(tmp_path)
    for base in (SITE, "/srv"):
        put(tmp_path, f"{base}/app/__init__.py")
        put(tmp_path, f"{base}/app/cli.py")
    put(tmp_path, "/srv/front.py", "import sys\nsys.path.insert(0, '/srv')\n")
    return files


def process(*argv: str, cwd: str = "/", exe: str = "/usr/bin/python3.11") -> Process:
    return Process(7, exe, argv, cwd, 0.0, ENV)


SERVES = process(VENV, "/opt/venv/bin/serve", "x", cwd="/srv")
OTHER = process("/usr/bin/python3", "-m", "app.cli", cwd="/srv")
WORKER = process(VENV, "-c", "from multiprocessing.spawn import spawn_main; spawn_main(5)", cwd="/srv")
RENAMED = process("APP::Worker", "", "", cwd="/srv")
SHELL = process("/bin/sh", "-c", "x", exe="/usr/bin/dash")


@pytest.mark.parametrize(
    ("processes", "hidden", "said"),
    [
        ([SERVES, WORKER, SHELL], (), []),
        ([process(VENV, "-m", "app.cli")], (), []),
        ([OTHER], (), [("process-other-copy", "error")]),
        ([OTHER, WORKER], (), [("process-other-copy", "error")]),
        ([process(VENV, "/srv/front.py", cwd="/")], (), [("process-other-copy", "error")]),
        ([OTHER, SERVES], (), [("process-other-copy", "warning")]),
        ([OTHER, RENAMED], (), [("process-other-copy", "warning")]),
        ([OTHER], (9,), [("process-other-copy", "warning")]),
        ([RENAMED, SHELL], (), []),
        ([SHELL], (), [("not-serving", "error")]),
        ([SHELL], (9,), []),
    ],
)
def test_what_no_process_imports_is_an_error(
    fs: HostFiles, processes: list[Process], hidden: tuple[int, ...], said: list[tuple[str, str]]
) -> None:
    launch = launch_of(config(["serve"]), fs)
    found = list(started_findings(fs, Inside(tuple(processes), hidden), launch, WANTED, "c"))
    assert [(finding.id, finding.severity) for finding in found] == said


def test_a_server_that_changed_its_folder_is_judged_by_that_of_its_start(fs: HostFiles) -> None:
    launch = launch_of(config([VENV, "-m", "app.cli"], cwd="/"), fs)
    moved = process(VENV, "-m", "app.cli", cwd="/srv")
    assert list(started_findings(fs, Inside((moved,)), launch, WANTED, "c")) == []
