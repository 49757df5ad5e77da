"""Small unpacked roots for tests that only read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.site.host import HostFiles

ELF = b"\x7fELF\x02\x01\x01\x00"


def put(root: Path, path: str, data: bytes | str = b"", mode: int = 0o644) -> None:
    """Write one file below the root."""
    target = root / path.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data.encode() if isinstance(data, str) else data)
    target.chmod(mode)


def link(root: Path, path: str, target: str) -> None:
    """Make one symlink below the root."""
    place = root / path.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(target)


def small_root(root: Path) -> HostFiles:
    """A Debian-like root with Python 3.11 and a virtual environment with a console script ``serve``."""
    for program in ("/usr/bin/python3.11", "/usr/bin/env", "/usr/bin/dash", "/usr/bin/bash", "/usr/bin/tini"):
        put(root, program, ELF, 0o755)
    for program in ("nohup", "timeout", "numactl", "gosu", "dumb-init", "nice"):
        put(root, f"/usr/bin/{program}", ELF, 0o755)
    link(root, "/bin", "usr/bin")
    link(root, "/usr/bin/sh", "dash")
    link(root, "/usr/bin/python3", "python3.11")
    put(root, "/usr/lib/python3.11/os.py")
    put(root, "/usr/lib/python3.11/site.py", "sitepackages.append('dist-packages')\n")
    put(root, "/usr/lib/python3.11/lib-dynload/_x.cpython-311-x86_64-linux-gnu.so", ELF)
    put(root, "/etc/passwd", "root:x:0:0::/root:/bin/sh\napp:x:1000:1000::/home/app:/bin/sh\n")
    put(root, "/opt/venv/pyvenv.cfg", "home = /usr/bin\ninclude-system-site-packages = false\nversion = 3.11.2\n")
    link(root, "/opt/venv/bin/python3", "/usr/bin/python3.11")
    link(root, "/opt/venv/bin/python", "python3")
    put(root, "/opt/venv/bin/serve", "#!/opt/venv/bin/python3\nfrom app.cli import main\nmain()\n", 0o755)
    (root / "opt/venv/lib/python3.11/site-packages").mkdir(parents=True)
    (root / "srv").mkdir()
    return HostFiles(root)


def config(
    entrypoint: Sequence[str] = (), cmd: Sequence[str] = (), cwd: str = "/srv", user: str = "", **env: str
) -> dict[str, Any]:
    """An image config with the virtual environment first on PATH."""
    settings: Mapping[str, str] = {"PATH": "/opt/venv/bin:/usr/bin:/bin", **env}
    return {
        "config": {
            "Entrypoint": list(entrypoint) or None,
            "Cmd": list(cmd) or None,
            "Env": [f"{name}={value}" for name, value in settings.items()],
            "WorkingDir": cwd,
            "User": user,
        }
    }
