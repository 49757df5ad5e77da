"""Programs of an image run bounded: what they cannot reach, and that whatever they do, they end and leave nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from patchkit.errors import BadInput, Unreachable
from patchkit.images import Access, daemon_files, open_image, parse_reference, sandbox
from patchkit.images.model import Mount, Run, RunResult
from tests.engine_transport.conftest import PYTHON, SITE, Place

_SELF = """
import json, os, sys
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
def may_write(path):
    try:
        with open(path, "w"):
            return True
    except OSError:
        return False
print(json.dumps({
    "uid": os.getuid(), "gid": os.getgid(), "cwd": os.getcwd(), "env": dict(os.environ),
    "capabilities": status["CapEff"], "no_new_privileges": status["NoNewPrivs"],
    "networks": sorted(os.listdir("/sys/class/net")), "root": may_write("/new"), "etc": may_write("/etc/passwd"),
    "tmp": may_write("/tmp/new"), "home": may_write(os.path.expanduser("~/new")), "argv": sys.argv[1:],
}))
"""


def _of_itself(place: Place, name: str = "", **wanted: object) -> dict[str, object]:
    with place.open(name or place.load("pure")) as image:
        result = image.run(Run((PYTHON, "-I", "-c", _SELF, "a b", "$x"), **wanted))  # type: ignore[arg-type]
    assert result.status == 0, result.stderr
    found: dict[str, object] = json.loads(result.stdout)
    return found


def test_a_run_reaches_no_network_writes_no_root_and_gains_no_privileges(place: Place) -> None:
    seen = _of_itself(place)
    assert seen["networks"] == ["lo"]
    assert (seen["root"], seen["etc"], seen["tmp"], seen["home"]) == (False, False, True, True)
    assert seen["no_new_privileges"] == "1"
    assert seen["argv"] == ["a b", "$x"]


def test_reading_facts_has_one_capability_only(place: Place) -> None:
    seen = _of_itself(place, read_all=True, user="1000")
    assert (seen["uid"], seen["gid"]) == (0, 0)
    assert int(str(seen["capabilities"]), 16) == 1 << 2  # CAP_DAC_READ_SEARCH, linux/capability.h


def test_reading_facts_enters_folders_of_another_user_that_plain_root_without_capabilities_cannot(
    place: Place,
) -> None:
    with place.open(place.load("nonroot")) as image:
        run = Run((PYTHON, "-I", "-c", "import os; print(len(os.listdir('/opt/venv/lib')))"), read_all=True)
        assert image.run(run).stdout == b"1\n"


def test_a_run_is_the_images_user_or_the_one_asked_for_in_the_folder_asked_for(place: Place) -> None:
    assert _of_itself(place)["uid"] == 0
    assert _of_itself(place, place.load("nonroot"))["uid"] == 1000
    seen = _of_itself(place, user="65534:100", cwd="/usr")
    assert (seen["uid"], seen["gid"], seen["cwd"]) == (65534, 100, "/usr")


def test_the_environment_is_the_images_with_ours_on_top_and_a_home_that_hides_nothing(place: Place) -> None:
    env = _of_itself(place, env={"VIRTUAL_ENV": "/other", "NEW": "a=b c"})["env"]
    assert isinstance(env, dict)
    assert env["VIRTUAL_ENV"] == "/other"
    assert env["NEW"] == "a=b c"
    assert env["PATH"].startswith("/opt/venv/bin:")
    assert env["HOME"] == "/tmp"
    assert env["PYTHONUSERBASE"] == "/root/.local"


def test_mounts_are_shown_read_only(place: Place, tmp_path: Path) -> None:
    source = tmp_path / "shown.py"
    source.write_text("shown")
    program = "print(open('/opt/shown.py').read()); open('/opt/shown.py', 'a')"
    with place.open(place.load("pure")) as image:
        result = image.run(Run((PYTHON, "-c", program), mounts=(Mount(str(source), "/opt/shown.py"),)))
    assert result.stdout == b"shown\n"
    assert b"Read-only file system" in result.stderr


def test_a_mount_whose_source_is_missing_is_an_error_and_no_empty_folder(docker_place: Place, tmp_path: Path) -> None:
    with docker_place.open(docker_place.load("pure")) as image, pytest.raises(Unreachable, match="cannot run"):
        image.run(Run((PYTHON, "-c", "pass"), mounts=(Mount(str(tmp_path / "no"), "/opt/no"),)))


def test_status_output_and_input_pass_unchanged(place: Place) -> None:
    data = bytes(range(256)) * 4000
    program = (
        "import sys; d = sys.stdin.buffer.read(); sys.stdout.buffer.write(d[::-1]); sys.stderr.write('e'); sys.exit(7)"
    )
    with place.open(place.load("pure")) as image:
        assert image.run(Run((PYTHON, "-c", program), stdin=data)) == RunResult(7, data[::-1], b"e")


def test_input_that_the_program_does_not_read_harms_nothing(place: Place) -> None:
    with place.open(place.load("pure")) as image:
        result = image.run(Run((PYTHON, "-c", "print('done')"), stdin=b"x" * 3_000_000))
    assert result.status == 0
    # Podman's server ends the whole connection at the first byte of input that it cannot hand on, and may do so before
    # it has sent the output.
    assert result.stdout in ([b"done\n", b""] if place.kind == "podman" else [b"done\n"])


def test_a_signal_is_told_as_128_and_its_number(place: Place) -> None:
    with place.open(place.load("pure")) as image:
        result = image.run(Run((PYTHON, "-c", "import ctypes, os; os._exit(0) if os.getpid() != 1 else os.abort()")))
    assert result.status in (134, 139)


@pytest.mark.parametrize(
    ("program", "limits", "ended"),
    [
        ("import signal, time\nsignal.signal(15, signal.SIG_IGN)\ntime.sleep(600)", {"timeout": 1.0}, "timeout"),
        ("while True: pass", {"timeout": 1.0}, "timeout"),
        ("while True: print('x' * 1000)", {"output_limit": 100_000}, "output-limit"),
        ("import sys\nwhile True: sys.stderr.write('x' * 1000)", {"output_limit": 100_000}, "output-limit"),
        (
            "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass",
            {"timeout": 2.0, "processes": 50},
            "timeout",
        ),
        ("x = bytearray(400_000_000); print(len(x))", {"memory": 64 * 1024 * 1024}, "exit"),
    ],
    ids=["ignores-signals", "never-ends", "floods", "floods-stderr", "forks", "eats-memory"],
)
def test_a_hostile_program_ends_and_leaves_nothing(
    program: str, limits: dict[str, object], ended: str, place: Place
) -> None:
    with place.open(place.load("pure")) as image:
        result = image.run(Run((PYTHON, "-c", program), **limits))  # type: ignore[arg-type]
    assert result.ended == ended
    assert result.status == 137
    assert len(result.stdout) + len(result.stderr) <= 100_000
    assert place.temporary() == []


@pytest.mark.parametrize("variant", ["hostile_hangs", "hostile_floods", "hostile_forks", "hostile_deletes"])
def test_an_image_whose_interpreter_attacks_ends_and_leaves_nothing(variant: str, docker_place: Place) -> None:
    with docker_place.open(docker_place.load(variant)) as image:
        result = image.run(Run((PYTHON, "-c", "pass"), timeout=3, output_limit=1_000_000, processes=100))
        assert result.ended in ("timeout", "output-limit", "exit")
        assert docker_place.temporary() == []
        assert image.fs.listdir("/workspace")


def test_a_program_that_is_not_there_is_told_with_its_path(place: Place) -> None:
    with place.open(place.load("pure")) as image, pytest.raises(Unreachable) as caught:
        image.run(Run(("/opt/no/python",)))
    assert caught.value.code == "cannot-run"
    assert "/opt/no/python" in caught.value.what
    assert place.temporary() == []


def test_the_images_entrypoint_command_and_health_check_do_not_run(place: Place) -> None:
    with place.open(place.load("richconfig")) as image:
        assert image.run(Run((PYTHON, "-c", "import sys; print(sys.argv)"))).stdout == b"['-c']\n"


def test_where_running_was_ruled_out_nothing_runs(docker_place: Place) -> None:
    from patchkit.images.daemon import DaemonImage
    from patchkit.images.model import Reference

    reference = Reference("docker-daemon", docker_place.load("pure"))
    with DaemonImage(docker_place.engine, reference, no_run=True) as image:
        assert not image.can_run
        with pytest.raises(Unreachable, match="ruled out"):
            image.run(Run((PYTHON, "-c", "pass")))


def test_reading_with_running_ruled_out_lists_huge_folders_by_their_archive(
    docker_place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATCHKIT_CACHE", str(tmp_path))
    monkeypatch.setattr("patchkit.images.daemon.overlay_folders", lambda *_: None)
    monkeypatch.setattr(daemon_files, "LIST_BUDGET", 600)
    reference = parse_reference(docker_place.load("pure"))
    with open_image(reference, access=Access(run=False)) as image:
        assert not image.can_run
        with monkeypatch.context() as patch:
            patch.setattr(sandbox, "run", lambda *_: pytest.fail("something of the image was run"))
            assert "tinyserve" in image.fs.listdir(SITE)


def test_devices_are_passed_and_one_that_is_missing_is_told(docker_place: Place) -> None:
    with docker_place.open(docker_place.load("pure")) as image:
        program = "import os; print(os.path.exists('/dev/given'))"
        assert image.run(Run((PYTHON, "-c", program), devices=("/dev/null:/dev/given:r",))).stdout == b"True\n"
        with pytest.raises(Unreachable, match="no-such-device"):
            image.run(Run((PYTHON, "-c", "pass"), devices=("/dev/no-such-device",)))


def test_gpus_reach_the_engine_and_nonsense_does_not(docker_place: Place) -> None:
    with docker_place.open(docker_place.load("pure")) as image:
        with pytest.raises(Unreachable, match="gpu"):  # this machine has none
            image.run(Run((PYTHON, "-c", "pass"), gpus="all"))
        with pytest.raises(BadInput):
            image.run(Run((PYTHON, "-c", "pass"), gpus="many"))


def test_what_a_killed_run_left_running_is_gone_after_the_next_run(docker_place: Place) -> None:
    name = docker_place.load("pure")
    program = f"""
from patchkit.images import open_image, parse_reference
from patchkit.images.model import Run
print("opened", flush=True)
open_image(parse_reference({name!r})).run(Run(({PYTHON!r}, "-c", "import time; time.sleep(600)")))
"""
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    found: list[str] = []
    try:
        while not found and process.poll() is None:
            running = docker_place.engine.containers("dev.patchkit.temporary", running=True)
            found = [item["Id"] for item in running if f".{process.pid}." in item["Labels"]["dev.patchkit.temporary"]]
    finally:
        process.kill()
        process.wait()
    assert found
    with docker_place.open(name) as image:
        image.run(Run((PYTHON, "-c", "pass")))
    assert docker_place.engine.inspect_container(found[0]) is None


def test_an_interrupted_run_removes_its_container(docker_place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sandbox, "_read", interrupt)
    with docker_place.open(docker_place.load("pure")) as image, pytest.raises(KeyboardInterrupt):
        image.run(Run((PYTHON, "-c", "import time; time.sleep(600)")))
    assert docker_place.temporary() == []


def test_without_a_gpu_runtime_the_remedy_is_what_helps(docker_place: Place) -> None:
    reached = docker_place.engine
    if "nvidia" in reached.info.get("Runtimes", {}):
        pytest.skip("this engine passes GPUs through")
    with docker_place.open(docker_place.load("pure")) as image, pytest.raises(Unreachable) as caught:
        image.run(Run((PYTHON, "-c", "pass"), gpus="all"))
    assert caught.value.code == "no-gpu-runtime"
    assert "nvidia-container-toolkit" in (caught.value.remedy or "")
