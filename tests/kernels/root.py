"""An unpacked root like the XPU image, in which vLLM's modules really import.

It is made of this machine's own Python and libraries, of a CPU build of torch and what else vLLM needs from the
kernels' environment, and of vLLM's sources as the wheel records them.

Nothing of it is copied where a hard link will do, so it is read only for everybody.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from tests.kernels import trees

_NOT_SERVED = ("pip", "pytest", "patchkit", "_pytest")
_SCRIPT = """#!/opt/venv/bin/python
import sys
from vllm.entrypoints.cli.main import main
if __name__ == '__main__':
    sys.exit(main())
"""


def build(root: Path) -> None:
    """Make the root in the folder ``root``, which is not there yet, and its config beside it."""
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    python, venv = root / "opt/python", root / "opt/venv"
    _python(python, version)
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / version).symlink_to(f"/opt/python/bin/{version}")
    for name in ("python", "python3"):
        (venv / "bin" / name).symlink_to(version)
    (venv / "pyvenv.cfg").write_text("home = /opt/python/bin\ninclude-system-site-packages = false\n")
    site = venv / "lib" / version / "site-packages"
    _link(Path(sysconfig.get_paths()["purelib"]), site, _not_served)
    _link(trees.pristine(), site)
    (site / f"vllm-{trees.VERSION}.dist-info/entry_points.txt").write_text(
        "[console_scripts]\nvllm = vllm.entrypoints.cli.main:main\n"
    )
    (venv / "bin/vllm").write_text(_SCRIPT)
    (venv / "bin/vllm").chmod(0o755)
    _libraries(root, python, site)
    (root / "etc").mkdir(exist_ok=True)
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    for name in ("dev", "proc", "sys", "tmp", "root", "usr", "workspace/vllm"):
        (root / name).mkdir(parents=True, exist_ok=True)
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {
            "Env": ["PATH=/opt/venv/bin:/usr/bin:/bin", "VIRTUAL_ENV=/opt/venv"],
            "Entrypoint": ["vllm", "serve"],
            "WorkingDir": "/workspace/vllm",
        },
        "rootfs": {"type": "layers", "diff_ids": []},
    }
    Path(f"{root}.config.json").write_text(json.dumps(config))


def _not_served(folder: str, names: list[str]) -> set[str]:
    if Path(folder).name != "site-packages":
        return set()
    return {name for name in names if name.lower().startswith(_NOT_SERVED) or name.endswith((".pth", ".egg-link"))}


def _link(source: Path, target: Path, ignore: object = None) -> None:
    shutil.copytree(source, target, copy_function=_linked, dirs_exist_ok=True, ignore=ignore)  # type: ignore[arg-type]


def _linked(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)


def _python(target: Path, version: str) -> None:
    (target / "bin").mkdir(parents=True)
    shutil.copy2(Path(sys.base_prefix) / "bin" / version, target / "bin" / version)
    _link(
        Path(sys.base_prefix) / "lib" / version,
        target / "lib" / version,
        shutil.ignore_patterns("site-packages", "dist-packages", "test", "idlelib", "config-*", "__pycache__"),
    )


def _libraries(root: Path, python: Path, site: Path) -> None:
    """The shared libraries that the interpreter and all modules need, where the loader looks for them."""
    wanted = [*python.glob("bin/python*"), *python.rglob("*.so"), *site.glob("torch/lib/*.so*"), *site.rglob("_C/*.so")]
    wanted += [*site.glob("numpy/*core/*.so"), *site.glob("torch/*.so"), *site.glob("*.so"), *site.glob("*/*.so")]
    listed = subprocess.run(["ldd", *map(str, wanted)], capture_output=True, text=True, check=False).stdout
    found = {word for line in listed.splitlines() for word in line.split() if word.startswith("/") and ".so" in word}
    for name in sorted(found):
        path = Path(name.rstrip(":"))
        if path.is_file() and not path.resolve().is_relative_to(root.resolve()):
            place = root / path.relative_to("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            if not place.exists():
                shutil.copy2(path.resolve(), place)
