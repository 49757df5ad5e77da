"""Install what the whole test-suite needs, and start a Docker engine: `make test SETUP=1`, as root on Debian and kin.

Only what is missing is installed. An engine that answers is used as it is. Where nothing answers, what a killed engine
left behind (pid files, sockets) is cleared away first: dockerd refuses to start beside a pid file, and waits in vain
for a containerd whose socket is only a leftover.
"""

from __future__ import annotations

import argparse
import http.client
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

# Command -> the Debian package that has it.
TOOLS = {
    "busybox": "busybox-static",
    "bwrap": "bubblewrap",
    "chromium": "chromium",
    "docker": "docker.io",
    "docker-registry": "docker-registry",
    "git": "git",
    "openssl": "openssl",
    "patch": "patch",
    "podman": "podman",
    "runc": "runc",
    "skopeo": "skopeo",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine-only", action="store_true", help="install nothing, start an engine if none answers")
    parser.add_argument("--root", type=Path, help="let the engine keep its data, pid file and socket below this folder")
    options = parser.parse_args()
    host = os.environ.get("DOCKER_HOST", "")
    if options.root:
        endpoint = options.root / "docker.sock"
    elif host and not host.startswith("unix://"):
        say(f"DOCKER_HOST is {host}: used as it is")
        return 0
    else:
        endpoint = Path(host.removeprefix("unix://") or "/var/run/docker.sock")
    missing = [] if options.engine_only else missing_packages(bool(answers(endpoint)))
    if not missing and answers(endpoint):
        say(f"engine answers at {endpoint}, and every tool is here: nothing to do")
        return 0
    if os.geteuid() != 0:
        say("setup installs packages and starts an engine: run it as root, or do without SETUP")
        return 1
    if missing:
        install(missing)
    return 0 if answers(endpoint) or start(endpoint, options.root) else 1


def missing_packages(engine_runs: bool) -> list[str]:
    """What to install, by what is not on the PATH (some of it lies in sbin)."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    packages = {package for tool, package in TOOLS.items() if shutil.which(tool, path=path) is None}
    if not engine_runs and shutil.which("dockerd", path=path) is None:
        packages |= {"docker.io", "iptables"}
    if subprocess.run([sys.executable, "-c", "import ensurepip"], capture_output=True).returncode:
        packages.add("python3-venv")
    return sorted(packages)


def install(packages: list[str]) -> None:
    """Install Debian packages, with nothing recommended and no question asked."""
    if shutil.which("apt-get") is None:
        sys.exit(f"setup: no apt-get here; install by hand: {' '.join(packages)}")
    say(f"installing {' '.join(packages)}")
    env = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "-q", "update"], check=True, env=env, stdout=subprocess.DEVNULL)
    if (
        "docker.io" in packages
        and subprocess.run(["apt-cache", "show", "docker-cli"], capture_output=True).returncode == 0
    ):
        packages = [*packages, "docker-cli"]  # since Debian 13 the client is a package of its own
    subprocess.run(
        ["apt-get", "-q", "install", "-y", "--no-install-recommends", *packages],
        check=True,
        env=env,
        stdout=subprocess.DEVNULL,
    )


def answers(endpoint: Path) -> bool:
    """Whether an engine answers a ping at this unix socket."""
    connection = http.client.HTTPConnection("localhost", timeout=5)
    try:
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(5)
        connection.sock.connect(str(endpoint))
        connection.request("GET", "/_ping")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def start(endpoint: Path, root: Path | None) -> bool:
    """Start an engine at ``endpoint`` and wait until it answers."""
    if root is None and Path("/run/systemd/system").is_dir():
        subprocess.run(["systemctl", "start", "docker"], check=False)
        return wait(endpoint, None)
    run = root or Path("/var/run")
    pid_file = run / "docker.pid"
    if not clear_pid_file(pid_file, "dockerd"):
        say(f"dockerd runs by {pid_file} but does not answer at {endpoint}: waiting for it")
        return wait(endpoint, None)
    clear_socket(endpoint)
    executing = run / "docker"
    clear_pid_file(executing / "containerd/containerd.pid", "containerd")
    clear_socket(executing / "containerd/containerd.sock")
    if root is None:
        clear_socket(Path("/run/containerd/containerd.sock"))
    command = ["dockerd", "--host", f"unix://{endpoint}"]
    if root is not None:
        root.mkdir(parents=True, exist_ok=True)
        command += ["--data-root", f"{root}/data", "--exec-root", str(executing), "--pidfile", str(pid_file)]
    log = (root or Path("/var/log")) / "patchkit-dockerd.log"
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    with log.open("wb") as output:
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env=os.environ | {"PATH": path},
        )
    say(f"started dockerd; its log is {log}")
    return wait(endpoint, log)


def wait(endpoint: Path, log: Path | None) -> bool:
    """Give the engine a minute to answer."""
    for _ in range(120):
        if answers(endpoint):
            say(f"engine answers at {endpoint}")
            return True
        time.sleep(0.5)
    say(f"no engine answers at {endpoint}")
    if log is not None:
        sys.stderr.writelines(f"  {line}\n" for line in log.read_text(errors="replace").splitlines()[-20:])
    return False


def clear_pid_file(path: Path, program: str) -> bool:
    """Remove a pid file unless its process is there and is ``program``; whether no such process runs."""
    try:
        pid = int(path.read_text())
        # A killed process that nobody has waited for keeps its /proc entry, but has no program any more.
        if Path(f"/proc/{pid}/exe").readlink().name == program:
            return False
    except (OSError, ValueError):
        pass  # no file, no number in it, or no such process
    path.unlink(missing_ok=True)
    return True


def clear_socket(path: Path) -> None:
    """Remove a unix socket that nobody listens on."""
    if not path.is_socket():
        return
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(5)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
        except OSError:
            pass  # somebody is there, or we cannot tell: leave it


def say(text: str) -> None:
    print(f"setup: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
