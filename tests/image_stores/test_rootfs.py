from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import tarfile
import time
from pathlib import Path

import pytest

from patchkit.errors import BadInput, Refused, Unreachable
from patchkit.images import open_image, parse_reference
from patchkit.images.hostfs import HostFilesystem
from patchkit.images.layers import LayeredFilesystem
from patchkit.images.model import Change, Derivation, Mount, Run

from .killed import derive_killed, moments
from .test_layers import filesystem
from .trees import NORM, SITE, base_layers, config_for, derivation

PYC = f"/{SITE}/pkg/__pycache__/norm.cpython-311.pyc"


@pytest.fixture
def root(tmp_path):
    """The small image unpacked."""
    return unpack(tmp_path / "root")


def unpack(path: Path) -> Path:
    path.mkdir()
    path.chmod(0o755)
    for layer in base_layers():
        with tarfile.open(fileobj=io.BytesIO(layer)) as archive:
            members = [info for info in archive if "/.wh." not in info.name]
            archive.extractall(path, members, numeric_owner=True, filter="fully_trusted")
    (path / "opt/gone").unlink()
    os.utime(path / "opt", (1700000000, 1700000000))
    return path


def at(path: Path):
    return parse_reference(f"rootfs:{path}")


def tree(path: Path) -> dict[str, tuple]:
    """Everything that is to be the same: kind, mode, owner, time, bytes."""
    found = {}
    for one in sorted(path.rglob("*")):
        facts = one.lstat()
        data = one.read_bytes() if one.is_file() and not one.is_symlink() else b""
        found[str(one.relative_to(path))] = (facts.st_mode, facts.st_uid, facts.st_gid, facts.st_mtime, data)
    return found


def test_a_root_reads_as_its_layers_do(root):
    layered: LayeredFilesystem = filesystem(*base_layers())
    with open_image(at(root)) as image:
        assert image.fs.lstat("/opt/venv/lib64").target == "lib"
        for path in (NORM, f"/{SITE}", f"/{SITE}/pkg", "/etc/passwd", "/nowhere", "/etc/passwd/x"):
            assert image.fs.lstat(path) == layered.lstat(path)
        assert image.fs.read(NORM) == b"x = 1\n"
        assert image.fs.listdir(f"/{SITE}/pkg") == layered.listdir(f"/{SITE}/pkg")
        assert image.fs.listdir("/etc/passwd") == []
        assert image.fs.lstat("/").kind == "dir"


def test_links_in_a_root_never_lead_to_the_host(root, tmp_path):
    (tmp_path / "secret").write_text("host")
    (root / "up").symlink_to(tmp_path)
    fs = HostFilesystem(str(root))
    assert fs.lstat("/up/secret") is None
    assert fs.listdir("/up") == []
    with pytest.raises(FileNotFoundError):
        fs.read("/up/secret")
    with pytest.raises(FileNotFoundError):
        fs.read("/up")
    with pytest.raises(Unreachable):
        fs.write(Change("/up/secret", b"overwritten"))
    assert (tmp_path / "secret").read_text() == "host"


def test_a_pipe_in_a_root_does_not_hold_up_the_reader(root):
    os.mkfifo(root / "pipe")
    with pytest.raises(FileNotFoundError):
        HostFilesystem(str(root)).read("/pipe")


def test_a_derived_root_is_a_copy_with_the_patched_file(root, tmp_path):
    before = tree(root)
    with open_image(at(root)) as image:
        target = image.default_target()
        done = image.derive(derivation(), target)
        assert image.named("/x") == at(Path("/x"))
    assert target == at(tmp_path / "root-patchkit")
    assert tree(root) == before
    after = tree(tmp_path / "root-patchkit")
    assert after.pop(PYC[1:], None) is None
    before.pop(PYC[1:])
    assert {path for path in before if before[path] != after[path]} == {NORM[1:]}
    with open_image(target) as image:
        assert image.identity == done.identity
        assert image.default_target() == target
        assert image.origin().fs.read(NORM) == b"x = 1\n"
        assert image.origin().fs.lstat(PYC) is not None
        assert "norm.cpython-311.pyc" in image.origin().fs.listdir(f"/{SITE}/pkg/__pycache__")
        assert image.derive(derivation(), target).existed


def test_the_layer_is_the_same_as_over_layers(root, tmp_path):
    from patchkit.images.layer import build_layer

    with open_image(at(root)) as image:
        done = image.derive(derivation(), image.default_target())
    assert done.identity.diff_ids[-1] == build_layer(filesystem(*base_layers()), derivation().changes).diff_id


def test_in_place_must_be_asked_for_and_starts_from_the_origin_each_time(root):
    pristine = tree(root)
    with open_image(at(root)) as image:
        with pytest.raises(Refused) as refused:
            image.derive(derivation(), image.reference)
        assert refused.value.code == "target-is-source"
        assert tree(root) == pristine
        image.derive(derivation(), image.reference, in_place=True)
    with open_image(at(root)) as image:
        other = Derivation((Change(f"/{SITE}/pkg/new/x.py", b"new"),), {}, "x")
        image.derive(other, image.reference)
    after = tree(root)
    for path in (f"{SITE}/pkg/new", f"{SITE}/pkg/new/x.py"):
        assert after.pop(path)
    assert after == pristine
    with open_image(at(root)) as image:
        assert image.origin().fs.lstat(f"/{SITE}/pkg/new") is None


def test_a_folder_that_is_there_is_not_replaced(root, tmp_path):
    (tmp_path / "there").mkdir()
    with open_image(at(root)) as image:
        with pytest.raises(Refused) as refused:
            image.derive(derivation(), at(tmp_path / "there"), force=True)
        assert refused.value.code == "target-tag-taken"
        with pytest.raises(BadInput):
            image.derive(derivation(), parse_reference("oci:/x:y"))


@pytest.mark.parametrize(("in_place", "derived"), [(True, False), (True, True), (False, False)])
def test_a_run_killed_at_any_moment_leaves_the_old_root_or_the_new_one(tmp_path, in_place, derived):
    seen = set()
    for moment in moments():
        root = unpack(tmp_path / f"root{moment}")
        if derived:
            with open_image(at(root)) as image:
                image.derive(derivation(b"x = 0\n"), image.reference, in_place=True)
        old = tree(root)
        target = root if in_place else tmp_path / f"new{moment}"
        status = derive_killed(at(root), at(target), moment, in_place=in_place)
        content = None
        if target.exists():
            with open_image(at(target)) as image:
                content = image.fs.read(NORM)
        seen.add((status, content))
        assert content in ((old[NORM[1:]][-1], b"x = 2\n") if in_place else (None, b"x = 2\n"))
        if content != b"x = 2\n":
            assert tree(root) == old
        with open_image(at(root)) as image:
            assert image.origin().fs.read(NORM) == b"x = 1\n"
        if status == 0:
            break
    before = old[NORM[1:]][-1] if in_place else None
    assert seen >= {(-signal.SIGKILL, before), (0, b"x = 2\n")}


def test_a_config_beside_the_root_is_the_images(root, tmp_path):
    (tmp_path / "root.config.json").write_bytes(config_for(base_layers()))
    with open_image(at(root)) as image:
        assert json.loads(image.config)["config"]["Entrypoint"] == ["serve"]
        done = image.derive(derivation(), image.default_target())
    with open_image(done.reference) as image:
        assert json.loads(image.config)["config"]["Entrypoint"] == ["serve"]
        assert image.origin().config == config_for(base_layers())


@pytest.mark.parametrize("name", ["missing", "root/etc/passwd"])
def test_what_is_no_folder_is_told(root, tmp_path, name):
    with pytest.raises(Unreachable) as error:
        open_image(at(tmp_path / name))
    assert error.value.code == "no-such-image"


def test_a_state_file_of_somebody_else_is_told(root, tmp_path):
    (tmp_path / "root.patchkit.json").write_text("{}")
    with pytest.raises(Unreachable) as error:
        open_image(at(root))
    assert error.value.code == "bad-state"


@pytest.fixture(scope="module")
def python_image():
    from tests import images

    with open_image(at(images.rootfs("pure"))) as image:
        yield image


def python(image, code: str, **keywords):
    result = image.run(Run(("/usr/bin/python3", "-c", code), **keywords))
    assert result.ended == "exit", result
    return result


FACTS = """
import json, os, socket, sys
def tries(call):
    try:
        call()
    except OSError as error:
        return type(error).__name__
    return "done"
caps = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("CapEff"))
print(json.dumps({
    "ids": [os.getuid(), os.getgid(), os.getgroups()],
    "caps": int(caps, 16),
    "write": tries(lambda: open("/etc/x", "w")),
    "tmp": tries(lambda: open("/tmp/x", "w")),
    "net": tries(lambda: socket.create_connection(("192.0.2.1", 80), 1)),
    "env": dict(os.environ),
    "cwd": os.getcwd(),
    "host": os.path.exists("/work") or os.path.exists("/root/.bashrc_of_host"),
    "processes": len([name for name in os.listdir("/proc") if name.isdigit()]),
}))
"""


@pytest.mark.parametrize("user", ["root", "nobody", "2000:3000"])
def test_a_program_runs_as_its_user_without_network_and_read_only(python_image, user):
    result = python(python_image, FACTS, user=user, env={"A": "b"}, cwd="/usr")
    assert result.status == 0, result.stderr
    facts = json.loads(result.stdout)
    assert facts["ids"] == {"root": [0, 0, [0]], "nobody": [65534, 65534, []], "2000:3000": [2000, 3000, []]}[user] or (
        user == "root" and facts["ids"][:2] == [0, 0]
    )
    assert facts["write"] in ("OSError", "PermissionError")
    assert facts["tmp"] == "done"
    assert facts["net"] == "OSError"
    assert facts["env"]["A"] == "b"
    assert facts["env"]["HOME"] == "/tmp"
    assert not set(facts["env"]) - {"A", "HOME", "PATH", "LC_CTYPE", "PWD"}
    assert facts["cwd"] == "/usr"
    assert not facts["host"]
    assert facts["processes"] < 6
    assert (facts["caps"] == 0) == (user != "root")


def test_facts_are_read_with_one_capability(python_image):
    facts = json.loads(python(python_image, FACTS, read_all=True).stdout)
    assert facts["ids"][0] == 0
    assert facts["caps"] == 1 << 2


def test_input_mounts_and_exit_status_arrive(python_image, tmp_path):
    (tmp_path / "f").write_text("mounted")
    code = "import sys; print(sys.stdin.read(), open('/etc/passwd').read()); sys.exit(7)"
    for user in ("0", "2000"):  # numbers, since the list of names is what is mounted over
        result = python(python_image, code, stdin=b"in", user=user, mounts=(Mount(str(tmp_path / "f"), "/etc/passwd"),))
        assert (result.status, result.stdout) == (7, b"in mounted\n")


@pytest.mark.parametrize("user", ["0", "2000"])
def test_a_program_is_stopped_at_its_limits(python_image, user):
    sleep = Run(("/usr/bin/python3", "-c", "import time; time.sleep(60)"), timeout=1.0, user=user)
    start = time.monotonic()
    assert python_image.run(sleep).ended == "timeout"
    flood = Run(("/usr/bin/python3", "-c", "while True: print('x' * 10000)"), output_limit=100_000, user=user)
    result = python_image.run(flood)
    assert result.ended == "output-limit"
    assert len(result.stdout) == 100_000
    eat = Run(("/usr/bin/python3", "-c", "x = bytearray(500_000_000)"), memory=200_000_000, user=user)
    assert b"MemoryError" in python_image.run(eat).stderr
    assert time.monotonic() - start < 50
    left = subprocess.run(["pgrep", "-f", "time.sleep\\(60\\)"], capture_output=True, check=False)
    assert left.returncode == 1


FORKS = """
import os, sys, time
for count in range(400):
    try:
        if os.fork() == 0:
            time.sleep(60)
    except BlockingIOError:
        print("stopped", count)
        break
else:
    print("free")
sys.stdout.flush()
os._exit(0)
"""


@pytest.mark.parametrize("user", ["0", "2000"])
def test_a_program_that_multiplies_is_stopped(python_image, user):
    result = python(python_image, FORKS, processes=50, user=user)
    assert result.stdout.startswith(b"stopped "), (result.stdout, result.stderr)
    groups = [path for base in ("/sys/fs/cgroup/pids", "/sys/fs/cgroup") for path in Path(base).glob("patchkit-*")]
    assert not [path for path in groups if f"-{os.getpid()}-" in path.name]


def test_gpus_by_number_are_refused_and_not_left_out(python_image):
    with pytest.raises(Unreachable) as error:
        python_image.run(Run(("/usr/bin/python3", "-c", "pass"), gpus="all"))
    assert error.value.code == "cannot-run"


def test_a_program_that_is_not_there_is_told(python_image):
    with pytest.raises(Unreachable) as error:
        python_image.run(Run(("/no/such/python",)))
    assert error.value.code == "cannot-run"
    with pytest.raises(Unreachable):
        python_image.run(Run(("/usr/bin/python3",), user="nobody-of-the-kind"))
