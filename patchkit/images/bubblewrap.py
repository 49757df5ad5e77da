"""One program of an unpacked root, run under bubblewrap: no network, read-only, nothing of the host in sight."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Literal

from patchkit.errors import Unreachable
from patchkit.images import paths
from patchkit.images.model import DEFAULT_PATH, Filesystem, Run, RunResult

#: HOME inside the sandbox is its tmpfs, as it is in a container that patchkit starts.
_HOME = "/tmp"  # noqa: S108
#: Docker's default capabilities, for a launch whose user is root.
_ROOT_CAPABILITIES = (
    "CHOWN DAC_OVERRIDE FOWNER FSETID KILL SETGID SETUID SETPCAP NET_BIND_SERVICE SYS_CHROOT MKNOD AUDIT_WRITE SETFCAP"
)
_NAMESPACES = ("--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try")
_LIFE = ("--die-with-parent", "--new-session")


def is_here() -> bool:
    """Whether bubblewrap is installed."""
    return shutil.which("bwrap") is not None


def run(root: Path, fs: Filesystem, wanted: Run, image_user: str) -> RunResult:
    """Run ``wanted`` in the root; nothing of it is left when this returns.

    Started by root, the program has the very user and groups that it would have in a container. Started by somebody
    else it only believes so, and can read what that person can read.

    Raises:
        patchkit.errors.Unreachable: ``cannot-run``: bubblewrap is missing or is not allowed to work here.
    """
    if not is_here():
        raise Unreachable("cannot-run", "bubblewrap is missing", where=str(root), remedy="apt-get install bubblewrap")
    if wanted.gpus:
        what = "bubblewrap cannot pass GPUs by number"
        raise Unreachable("cannot-run", what, where=str(root), remedy="name the devices (--device), or use an engine")
    user = "0:0" if wanted.read_all else wanted.user if wanted.user is not None else image_user
    uid, gid = _ids(fs, user)
    home = str(root.resolve())
    if os.geteuid() != 0:
        argv = ["bwrap", "--unshare-user", *_NAMESPACES, *_LIFE, "--uid", str(uid), "--gid", str(gid)]
        argv += [*_mounts(home, wanted), "--proc", "/proc"]
    elif uid == 0:
        kept = "DAC_READ_SEARCH" if wanted.read_all else _ROOT_CAPABILITIES
        argv = ["bwrap", *_NAMESPACES, *_LIFE, "--cap-drop", "ALL"]
        argv += [word for name in kept.split() for word in ("--cap-add", f"CAP_{name}")]
        argv += [*_mounts(home, wanted), "--proc", "/proc"]
    else:
        argv = _as_user(home, wanted, uid, gid)
    argv += ["--clearenv", *(word for key, value in _env(wanted).items() for word in ("--setenv", key, value))]
    argv += ["--chdir", wanted.cwd or "/", "--", *wanted.argv]
    limits = ["prlimit", f"--data={wanted.memory}", f"--nproc={wanted.processes}", "--core=0", "--"]
    with _process_group(wanted.processes) as join:
        return _attended([*join, *limits, *argv], wanted, root)


@contextlib.contextmanager
def _process_group(processes: int) -> Iterator[list[str]]:
    """The start of a command that joins a control group of so many processes, since RLIMIT_NPROC does not bind root
    (setrlimit(2)); nothing where there is no such group to be made."""
    for parent in (Path("/sys/fs/cgroup/pids"), Path("/sys/fs/cgroup")) if os.geteuid() == 0 else ():
        group = parent / f"patchkit-{os.getpid()}-{time.monotonic_ns()}"
        try:
            group.mkdir()
            (group / "pids.max").write_text(str(processes))
        except OSError:
            with contextlib.suppress(OSError):
                group.rmdir()
            continue
        try:
            yield ["sh", "-c", 'echo 0 >"$0" && exec "$@"', str(group / "cgroup.procs")]
        finally:
            for _ in range(100):  # the last process leaves a moment after it is dead
                with contextlib.suppress(OSError):
                    group.rmdir()
                    break
                time.sleep(0.02)
        return
    yield []


def _as_user(home: str, wanted: Run, uid: int, gid: int) -> list[str]:
    """bubblewrap in bubblewrap: the outer one, as root, brings the root to where the user may reach it and makes the
    namespaces; the inner one, as the user, makes it the root. (A user namespace alone would let the program read what
    host root may, and not what the image's user may.)"""
    outer = ["bwrap", *_NAMESPACES, *_LIFE, "--ro-bind", "/", "/", "--dev-bind", "/dev", "/dev", "--proc", "/proc"]
    outer += ["--tmpfs", "/mnt", "--ro-bind", home, "/mnt/root", "--cap-add", "ALL"]
    mounts = []
    for number, mount in enumerate(wanted.mounts):
        outer += ["--ro-bind", mount.source, f"/mnt/{number}"]
        mounts += ["--ro-bind", f"/mnt/{number}", mount.target]
    switch = ["setpriv", "--reuid", str(uid), "--regid", str(gid), "--clear-groups", "--no-new-privs"]
    inner = ["bwrap", "--unshare-user", "--die-with-parent", "--ro-bind", "/mnt/root", "/", "--dev", "/dev"]
    return [*outer, "--", *switch, *inner, "--bind", "/proc", "/proc", "--tmpfs", _HOME, *mounts, *_devices(wanted)]


def _mounts(home: str, wanted: Run) -> list[str]:
    found = ["--ro-bind", home, "/", "--dev", "/dev", "--tmpfs", _HOME]
    for mount in wanted.mounts:
        found += ["--ro-bind", mount.source, mount.target]
    return found + _devices(wanted)


def _devices(wanted: Run) -> list[str]:
    found = []
    for device in wanted.devices:
        source, _, rest = device.partition(":")
        found += ["--dev-bind", source, rest.partition(":")[0] or source]
    return found


def _env(wanted: Run) -> dict[str, str]:
    return {"PATH": DEFAULT_PATH, **wanted.env, "HOME": _HOME}


def _ids(fs: Filesystem, user: str) -> tuple[int, int]:
    """The numbers of ``user[:group]`` by the image's own lists.

    Raises:
        patchkit.errors.Unreachable: ``cannot-run``: the image knows no such user.
    """
    name, _, group = user.partition(":")
    found = next((row for row in paths.rows(fs, "/etc/passwd") if len(row) > 3 and name in (row[0], row[2])), None)
    uid, gid = (found[2], found[3]) if found else (name or "0", "0")
    if group:
        rows = paths.rows(fs, "/etc/group")
        gid = next((row[2] for row in rows if len(row) > 2 and group == row[0]), group)
    if not (uid.isdecimal() and gid.isdecimal()):
        raise Unreachable("cannot-run", f"the image has no user {user!r}", remedy="name a user by its numbers")
    return int(uid), int(gid)


def _attended(argv: list[str], wanted: Run, root: Path) -> RunResult:
    try:
        process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )
    except OSError as error:
        raise Unreachable("cannot-run", f"cannot start {argv[0]}: {error.strerror}", where=str(root)) from error
    ended: Literal["exit", "timeout", "output-limit"] = "exit"

    def stop(why: Literal["timeout", "output-limit"]) -> None:
        nonlocal ended
        if process.poll() is None:
            ended = why
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    room = [wanted.output_limit]
    pieces: tuple[list[bytes], list[bytes]] = ([], [])

    def collect(stream: IO[bytes], into: list[bytes]) -> None:
        while piece := os.read(stream.fileno(), 1 << 16):
            into.append(piece[: max(room[0], 0)])
            room[0] -= len(piece)
            if room[0] < 0:
                stop("output-limit")

    def feed() -> None:
        assert process.stdin is not None
        with contextlib.suppress(OSError), process.stdin as stream:
            stream.write(wanted.stdin)

    assert process.stdout is not None
    assert process.stderr is not None
    threads = [
        threading.Thread(target=feed, daemon=True),
        threading.Thread(target=collect, args=(process.stdout, pieces[0]), daemon=True),
        threading.Thread(target=collect, args=(process.stderr, pieces[1]), daemon=True),
    ]
    timer = threading.Timer(wanted.timeout, stop, args=("timeout",))
    timer.daemon = True
    timer.start()
    try:
        for thread in threads:
            thread.start()
        status = process.wait()
        for thread in threads:
            thread.join(10)
    finally:
        timer.cancel()
        stop("timeout")
    stdout, stderr = b"".join(pieces[0]), b"".join(pieces[1])
    if ended == "exit" and status and stderr.startswith(b"bwrap: "):
        what = "bubblewrap cannot run it: " + stderr.decode("utf-8", "replace").strip()[:300]
        raise Unreachable("cannot-run", what, where=str(root), remedy="allow user namespaces, or use an engine")
    return RunResult(128 - status if status < 0 else status, stdout, stderr, ended)
