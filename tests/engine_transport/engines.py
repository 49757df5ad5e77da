"""Further engines to test against, beside the one that is there: Docker 28 with either image store, and podman.

Nothing is installed: Docker 28 comes as Debian packages that are only unpacked below ``.build/engines``, and runs with
its own data, socket and network namespace (a second dockerd without a bridge deletes the first one's). Podman is the
machine's own, with its own storage. Whoever asks first starts an engine, the last one to leave stops it.

    python -m tests.engine_transport.engines containerd     keeps one running until a key is pressed
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from scripts.setup import answers

BUILD = Path(__file__).parents[2] / ".build/engines"
KINDS = ("containerd", "classic28", "podman")

#: Debian's suites that have a Docker with the containerd store, newest first; the first that runs here is taken.
_SUITES = ("sid", "trixie")
_PACKAGES = ("docker.io", "containerd")
_MIRROR = "http://deb.debian.org/debian"

#: Brings up the loopback of a fresh network namespace (SIOCSIFFLAGS with IFF_UP), then becomes the engine.
_WITH_LOOPBACK = """
import fcntl, os, socket, struct, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
    fcntl.ioctl(probe, 0x8914, struct.pack("16sH14x", b"lo", 1))
os.execvp(sys.argv[1], sys.argv[1:])
"""


class CannotStart(Exception):
    """This machine cannot run such an engine; the text says why."""


@contextlib.contextmanager
def running(kind: str) -> Iterator[str]:
    """The host (as in DOCKER_HOST) of a running engine of this kind.

    Raises:
        CannotStart: not root, no Debian, or a tool is missing.
    """
    if os.geteuid() != 0:
        raise CannotStart("a further engine needs root")
    # Sockets have short paths only (unix(7): 108 bytes), and a clone may lie deep.
    home = Path("/run/patchkit-engines") / f"{BUILD.parents[1].stat().st_ino}-{kind}"
    home.mkdir(parents=True, exist_ok=True)
    with (home / "users").open("w") as users:
        with locked(home / "starting"):
            fcntl.flock(users, fcntl.LOCK_SH)
            if not answers(home / "engine.sock"):
                _start(kind, home)
        try:
            yield f"unix://{home}/engine.sock"
        finally:
            with locked(home / "starting"), contextlib.suppress(BlockingIOError):
                fcntl.flock(users, fcntl.LOCK_UN)
                fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _stop(home)


def pid(host: str) -> int:
    """The process of the engine at this host."""
    return int(Path(host.removeprefix("unix://")).with_name("pid").read_text())


def _start(kind: str, home: Path) -> None:
    data = BUILD / f"{kind}-data"
    data.mkdir(parents=True, exist_ok=True)
    command, env = _podman(home, data) if kind == "podman" else _docker(kind, home, data)
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, env=os.environ | env
        )
    (home / "pid").write_text(str(process.pid))
    for _ in range(300):
        if answers(home / "engine.sock"):
            return
        if process.poll() is not None:
            break
        time.sleep(0.2)
    tail = (home / "log").read_text(errors="replace").splitlines()[-5:]
    raise CannotStart(f"{kind} does not start: {' / '.join(tail)}")


def _stop(home: Path) -> None:
    """End the engine that we started, and wait for it, so that the next start finds its data in order."""
    number = int((home / "pid").read_text())
    with contextlib.suppress(ProcessLookupError):
        os.kill(number, signal.SIGTERM)
    for _ in range(150):
        with contextlib.suppress(ChildProcessError):
            os.waitpid(number, os.WNOHANG)
        if not _alive(number):
            break
        time.sleep(0.2)
    else:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(number, signal.SIGKILL)
    (home / "engine.sock").unlink(missing_ok=True)
    # Engines leave their data folders mounted on themselves, and nothing below could be removed.
    data = f"{BUILD}/{home.name.rpartition('-')[2]}-data"
    for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
        place = line.split(" ")[1]
        if f"{place}/".startswith((f"{home}/", f"{data}/")):
            subprocess.run(["umount", "--lazy", place], check=False)


def _alive(number: int) -> bool:
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _docker(kind: str, home: Path, data: Path) -> tuple[list[str], dict[str, str]]:
    root = _unpacked()
    runc = shutil.which("runc", path=_path())
    if runc is None:
        raise CannotStart("runc is missing")
    tls = _certificates(home)
    (home / "daemon.json").write_text(
        json.dumps(
            {
                "features": {"containerd-snapshotter": kind == "containerd"},
                "data-root": str(data),
                "exec-root": str(home / "exec"),
                "pidfile": str(home / "docker.pid"),
                # In its own network namespace, so that every engine can have the same port.
                "hosts": [f"unix://{home}/engine.sock", "tcp://127.0.0.1:2376"],
                "tlsverify": True,
                "tlscacert": str(tls / "ca.pem"),
                "tlscert": str(tls / "server.pem"),
                "tlskey": str(tls / "server.key"),
                "bridge": "none",
                "iptables": False,
                "ip6tables": False,
                "userland-proxy": False,
                "runtimes": {"unpacked": {"path": runc}},
                "default-runtime": "unpacked",
            }
        )
    )
    shutil.rmtree(home / "exec", ignore_errors=True)
    (home / "docker.pid").unlink(missing_ok=True)
    command = ["unshare", "--net", sys.executable, "-I", "-S", "-c", _WITH_LOOPBACK]
    command += [str(root / "usr/sbin/dockerd"), "--config-file", str(home / "daemon.json")]
    return command, {"PATH": f"{root}/usr/bin:{_path()}"}


def _podman(home: Path, data: Path) -> tuple[list[str], dict[str, str]]:
    podman = shutil.which("podman", path=_path())
    if podman is None:
        raise CannotStart("podman is missing")
    # Limits that are no higher than this machine's own, and the runtime that works under any cgroup version.
    (home / "containers.conf").write_text(
        '[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]\n[engine]\nruntime = "runc"\n'
    )
    (home / "storage.conf").write_text(
        f'[storage]\ndriver = "overlay"\ngraphroot = "{data}"\nrunroot = "{home}/storage"\n'
    )
    command = [podman, "--log-level", "warn", "system", "service", "--time", "0", f"unix://{home}/engine.sock"]
    conf = {"CONTAINERS_CONF": f"{home}/containers.conf", "CONTAINERS_STORAGE_CONF": f"{home}/storage.conf"}
    return command, {**conf, "PATH": _path()}


def _unpacked() -> Path:
    """Docker 28 or newer, unpacked from Debian's packages; downloaded once."""
    if shutil.which("apt-get") is None:
        raise CannotStart("a newer Docker comes from Debian's packages, and there is no apt-get")
    faults = []
    for suite in _SUITES:
        root = BUILD / f"docker-{suite}"
        with locked(BUILD / f"docker-{suite}.lock"):
            if not root.exists():
                _unpack(suite, root)
        trial = subprocess.run([root / "usr/sbin/dockerd", "--version"], capture_output=True, text=True)
        if trial.returncode == 0:
            return root
        faults.append(f"{suite}: {trial.stderr.strip()}")
    raise CannotStart(f"no Docker of Debian's runs here: {'; '.join(faults)}")


def _unpack(suite: str, root: Path) -> None:
    part = root.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    for folder in ("lists/partial", "debs"):
        (part / folder).mkdir(parents=True)
    (part / "sources.list").write_text(f"deb {_MIRROR} {suite} main\n")
    apt = ["apt-get", "-q", "-o", f"Dir::Etc::sourcelist={part}/sources.list", "-o", "Dir::Etc::sourceparts=-"]
    apt += ["-o", f"Dir::State::lists={part}/lists", "-o", "Dir::Cache::pkgcache=", "-o", "Dir::Cache::srcpkgcache="]
    apt += ["-o", "Acquire::Languages=none", "-o", "APT::Sandbox::User=root"]
    try:
        subprocess.run([*apt, "update"], check=True, capture_output=True)
        wanted = [f"{package}/{suite}" for package in _PACKAGES]
        subprocess.run([*apt, "download", *wanted], check=True, capture_output=True, cwd=part / "debs")
        for deb in sorted((part / "debs").glob("*.deb")):
            subprocess.run(["dpkg-deb", "-x", deb, part / "root"], check=True)
    except subprocess.CalledProcessError as error:
        raise CannotStart(f"Debian {suite}: {error.stderr.decode(errors='replace').strip()[-300:]}") from error
    (part / "root").rename(root)
    shutil.rmtree(part)


def _certificates(home: Path) -> Path:
    """A CA, the engine's certificate and a client's, as DOCKER_CERT_PATH wants them (ca.pem, cert.pem, key.pem)."""
    folder = home / "tls"
    if (folder / "cert.pem").exists():
        return folder
    folder.mkdir(exist_ok=True)

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, cwd=folder)

    new = ("req", "-newkey", "rsa:2048", "-nodes", "-batch")
    openssl(*new, "-x509", "-keyout", "ca.key", "-out", "ca.pem", "-days", "3650", "-subj", "/CN=test ca")
    for name, stem in (("server", "server"), ("client", "key")):
        key = f"{stem}.key" if name == "server" else "key.pem"
        certificate = "server.pem" if name == "server" else "cert.pem"
        openssl(*new, "-keyout", key, "-out", f"{name}.csr", "-subj", f"/CN={name}")
        (folder / "names").write_text("subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n")
        sign = ("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial")
        openssl(*sign, "-days", "3650", "-extfile", "names", "-out", certificate)
    return folder


def _path() -> str:
    return f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """One process, and one thread of it, at a time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    with running(sys.argv[1]) as address:
        input(f"export DOCKER_HOST={address}\nstops at a key: ")
