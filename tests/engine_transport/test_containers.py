"""Containers that are there already: looked into, run beside, and changed whole or not at all."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from patchkit.errors import BadInput, Refused, Unreachable
from patchkit.images.containers import Container, Mounted
from patchkit.images.daemon_files import ArchiveFilesystem
from patchkit.images.model import Change, Mount, Run
from tests.engine_transport.conftest import PYTHON, SITE, Place

_FILE = f"{SITE}/tinyserve/__init__.py"
#: The processes of the container; an ended one that its parent has not waited for is none.
_ALIVE = """
import os
alive = []
for name in os.listdir("/proc"):
    if name.isdigit():
        try:
            if open(f"/proc/{name}/stat").read().rpartition(")")[2].split()[0] != "Z":
                alive.append(int(name))
        except OSError:
            pass
print(alive)
"""
_SLEEP = [PYTHON, "-c", "import time; time.sleep(3600)"]


@contextlib.contextmanager
def _running(place: Place, variant: str = "pure", **spec: Any) -> Iterator[Container]:
    """A container whose main process sleeps."""
    host: Mapping[str, Any] = {"NetworkMode": "none", **spec.pop("HostConfig", {})}
    body = {"Image": place.load(variant), "Entrypoint": _SLEEP, "Cmd": [], "HostConfig": host, **spec}
    answer = place.engine.call("POST", "/containers/create", params={"name": f"{place.prefix}-c"}, body=body)
    name = answer.json()["Id"]
    try:
        place.engine.call("POST", f"/containers/{name}/start")
        yield Container(place.engine, name)
    finally:
        place.engine.remove(name)


def test_a_container_tells_what_it_runs_and_what_is_mounted_where(place: Place, tmp_path: Path) -> None:
    mounts = [{"Type": "bind", "Source": str(tmp_path), "Target": "/opt/shown", "ReadOnly": True}]
    with _running(place, HostConfig={"Mounts": mounts}) as container:
        image = place.engine.inspect_image(place.name("nightly"))
        assert image is not None
        assert container.image.name == (image["Id"] if image["Id"].startswith("sha256:") else f"sha256:{image['Id']}")
        assert place.name("nightly") in container.image_name
        assert container.cwd == "/workspace/tinyserve"
        assert container.mounts == (Mounted("bind", str(tmp_path), "/opt/shown", read_only=True),)
        assert container.mount_over("/opt/shown/deep/file") == container.mounts[0]
        assert container.mount_over("/opt/shownnot") is None
        assert container.can_run


def test_its_files_are_read_as_they_are_now_and_through_its_mounts(docker_place: Place, tmp_path: Path) -> None:
    (tmp_path / "file.py").write_text("from the host")
    mounts = [{"Type": "bind", "Source": str(tmp_path), "Target": "/opt/shown", "ReadOnly": True}]
    with _running(docker_place, HostConfig={"Mounts": mounts}) as container, container:
        container.run(Run((PYTHON, "-c", f"open({_FILE!r}, 'a').write('# by hand')"), user="0"))
        assert container.fs.read(_FILE).endswith(b"# by hand")
        assert container.fs.read("/opt/shown/file.py") == b"from the host"


def test_the_kernel_and_the_engine_tell_the_same_of_its_files(docker_place: Place, tmp_path: Path) -> None:
    (tmp_path / "file.py").write_text("from the host")
    mounts = [{"Type": "bind", "Source": str(tmp_path), "Target": "/opt/shown", "ReadOnly": True}]
    with _running(docker_place, HostConfig={"Mounts": mounts}) as container:
        archive = ArchiveFilesystem.of_container(container.engine, container.id)
        assert not isinstance(container.fs, ArchiveFilesystem), "these tests run as root beside the engine"
        for path in (_FILE, SITE, PYTHON, "/opt/shown/file.py", "/opt/shown", "/opt/none", f"{_FILE}/none"):
            assert container.fs.lstat(path) == archive.lstat(path)
        assert container.fs.listdir(SITE) == list(archive.listdir(SITE))
        assert container.fs.read("/opt/shown/file.py") == archive.read("/opt/shown/file.py")
        container.engine.call("POST", f"/containers/{container.id}/kill")
        assert isinstance(Container(container.engine, container.id).fs, ArchiveFilesystem)


def test_a_program_runs_beside_the_server_as_its_user_with_input_and_status(place: Place) -> None:
    with _running(place, User="1000") as container:
        program = "import os, sys; print(os.getuid(), os.getcwd(), os.environ['X'], sys.stdin.read()); sys.exit(3)"
        result = container.run(Run((PYTHON, "-c", program), env={"X": "y"}, cwd="/usr", stdin=b"input"))
        assert (result.status, result.stdout, result.ended) == (3, b"1000 /usr y input\n", "exit")
        assert container.run(Run((PYTHON, "-c", program), env={"X": ""}, read_all=True)).stdout.startswith(b"0 ")


@pytest.mark.parametrize(
    ("program", "limits", "ended"),
    [
        ("import os, time\nfor _ in range(3): os.fork()\ntime.sleep(600)", {"timeout": 1.0}, "timeout"),
        ("while True: print('x' * 1000)", {"output_limit": 100_000}, "output-limit"),
    ],
    ids=["forks-and-sleeps", "floods"],
)
def test_a_program_beside_the_server_ends_at_its_limits_with_all_that_it_started(
    program: str, limits: dict[str, Any], ended: str, place: Place
) -> None:
    with _running(place, User="1000") as container:
        result = container.run(Run((PYTHON, "-c", program), **limits))
        assert (result.ended, result.status) == (ended, 137)
        alive = json.loads(container.run(Run((PYTHON, "-c", _ALIVE))).stdout)
        assert len(alive) == 2  # the server, and who counts
        assert container.engine.inspect_container(container.id)["State"]["Running"]  # type: ignore[index]


def test_a_program_that_is_not_there_gives_the_engines_words(place: Place) -> None:
    with _running(place) as container:
        result = container.run(Run(("/opt/no/python",)))
        assert result.status in (126, 127)
        assert b"/opt/no/python" in result.stdout + result.stderr


def test_a_container_that_is_not_there_or_does_not_run_is_unreachable(place: Place) -> None:
    with pytest.raises(Unreachable) as caught:
        Container(place.engine, "patchkit-test-no-such-container")
    assert caught.value.code == "no-such-container"
    with _running(place) as container:
        place.engine.call("POST", f"/containers/{container.id}/stop", params={"t": "0"})
        stopped = Container(place.engine, container.id)
        assert not stopped.can_run
        assert stopped.fs.read(_FILE)
        with pytest.raises(Unreachable, match="does not run"):
            stopped.run(Run((PYTHON, "-c", "pass")))


def test_a_running_container_gets_no_new_mounts_or_devices(docker_place: Place) -> None:
    with _running(docker_place) as container:
        with pytest.raises(BadInput):
            container.run(Run((PYTHON,), mounts=(Mount("/a", "/b"),)))
        with pytest.raises(BadInput):
            container.run(Run((PYTHON,), gpus="all"))


def test_files_are_put_with_mode_owner_and_time_and_others_removed(place: Place) -> None:
    gone = f"{SITE}/tinyserve/cli.py"
    new = f"{SITE}/tinyserve/added.py"
    changes = (
        Change(_FILE, b"VALUE = 1\n", 0o640, 1000, 1001, 1_700_000_000),
        Change(new, b"NEW = 1\n", 0o644, 0, 0, 1_700_000_001),
        Change(gone, None),
    )
    with _running(place) as container:
        names = set(container.fs.listdir(f"{SITE}/tinyserve"))
        container.put(changes, PYTHON)
        program = (
            f"import os; s = os.stat({_FILE!r}); print(oct(s.st_mode & 0o7777), s.st_uid, s.st_gid, int(s.st_mtime))"
        )
        assert container.run(Run((PYTHON, "-c", program))).stdout == b"0o640 1000 1001 1700000000\n"
        assert container.fs.read(_FILE) == b"VALUE = 1\n"
        assert set(container.fs.listdir(f"{SITE}/tinyserve")) == (names | {"added.py"}) - {"cli.py"}


def test_a_put_that_fails_leaves_everything_as_it_was(place: Place) -> None:
    with _running(place) as container:
        before = container.fs.read(_FILE)
        names = container.fs.listdir(f"{SITE}/tinyserve")
        with pytest.raises(Refused) as caught:
            container.put([Change(_FILE, b"new"), Change("/proc/new", b"never")], PYTHON)
        assert caught.value.code == "cannot-write"
        container.close()
        assert container.fs.read(_FILE) == before
        assert container.fs.listdir(f"{SITE}/tinyserve") == names


def test_a_read_only_container_is_refused_with_the_reason(docker_place: Place) -> None:
    with (
        _running(docker_place, HostConfig={"ReadonlyRootfs": True}) as container,
        pytest.raises(Refused, match="Read-only file system"),
    ):
        container.put([Change(_FILE, b"new")], PYTHON)


@pytest.mark.parametrize(
    ("target", "real"), [("/opt/shown", "/opt/shown"), (f"{SITE.replace('/lib/', '/lib64/')}/shown", f"{SITE}/shown")]
)
def test_a_file_on_a_mount_is_not_changed_since_that_would_reach_the_host(
    docker_place: Place, tmp_path: Path, target: str, real: str
) -> None:
    (tmp_path / "file.py").write_text("the host's")
    mounts = [{"Type": "bind", "Source": str(tmp_path), "Target": target}]
    with _running(docker_place, HostConfig={"Mounts": mounts}) as container:
        with pytest.raises(Refused) as caught:
            container.put([Change(f"{real}/file.py", b"ours")], PYTHON)
        assert caught.value.code == "on-a-mount"
    assert (tmp_path / "file.py").read_text() == "the host's"


def test_a_put_that_the_container_did_not_take_is_noticed(docker_place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("patchkit.images.containers._PUT", "import sys; sys.stdin.read()")
    with _running(docker_place) as container:
        with pytest.raises(Refused) as caught:
            container.put([Change(_FILE, b"new")], PYTHON)
        assert caught.value.code == "read-back"
