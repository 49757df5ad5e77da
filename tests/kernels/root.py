"""A root like the XPU image's, in which vLLM's modules really import: unpacked, or as an image in the Docker engine.

It is made of this machine's own Python and libraries, of a CPU build of torch and what else vLLM needs from the
kernels' environment, and of vLLM's sources as the wheel records them; and it has the checkout in the working folder
that a launch by ``python -m`` would import.

Nothing of it is copied where a hard link will do, so it is read only for everybody.
"""

from __future__ import annotations

import compileall
import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from tests.kernels import trees

CHECKOUT = "/workspace/vllm"
#: How paths below site-packages begin that a server does not need: tools, and what only compilers or CUDA ask for.
_NOT_SERVED = (
    *("pip", "pytest", "_pytest", "patchkit", "compose"),
    *("torch/include/", "torch/test/", "torch/bin/test_"),
    *("triton/backends/nvidia/bin/", "triton/backends/nvidia/include/", "triton/backends/nvidia/lib/cupti"),
)
_SCRIPT = """#!/opt/venv/bin/python
import sys
from vllm.entrypoints.cli.main import main
if __name__ == '__main__':
    sys.exit(main())
"""


@contextlib.contextmanager
def built(name: str) -> Iterator[Path]:
    """A root of that name for one user at a time, gone afterwards; what a killed run left is cleared away."""
    root = trees.BUILD / name  # beside what it links to
    trees.BUILD.mkdir(parents=True, exist_ok=True)
    with (trees.BUILD / f".{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.rmtree(root, ignore_errors=True)
        try:
            build(root)
            yield root
        finally:
            shutil.rmtree(root, ignore_errors=True)
            Path(f"{root}.config.json").unlink(missing_ok=True)


def load(root: Path, reference: str) -> None:
    """Give the Docker engine the root as an image of one layer. It keeps nothing of the hard links: there a file has
    one name, as in other images."""
    config = json.loads(Path(f"{root}.config.json").read_text())["config"]
    changes = [*(f"ENV {pair}" for pair in config["Env"]), f"WORKDIR {config['WorkingDir']}"]
    changes.append(f"ENTRYPOINT {json.dumps(config['Entrypoint'])}")
    options = [word for change in changes for word in ("--change", change)]
    pack = ["tar", "--create", "--hard-dereference", "--owner=0", "--group=0", "--directory", str(root), "."]
    with subprocess.Popen(pack, stdout=subprocess.PIPE) as packed:
        command = ["docker", "import", *options, "-", reference]
        subprocess.run(command, stdin=packed.stdout, stdout=subprocess.DEVNULL, check=True)
    assert packed.returncode == 0, f"tar ended with status {packed.returncode}"


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
    _link(trees.pristine(), site, shutil.ignore_patterns("__pycache__"))
    # Compiled as shipped, like what an installer leaves: it must not run in the patched files' place.
    compileall.compile_dir(site / "vllm/models/flint", quiet=1, stripdir=str(root), prependdir="/")
    (site / f"vllm-{trees.VERSION}.dist-info/entry_points.txt").write_text(
        "[console_scripts]\nvllm = vllm.entrypoints.cli.main:main\n"
    )
    (venv / "bin/vllm").write_text(_SCRIPT)
    (venv / "bin/vllm").chmod(0o755)
    _libraries(root, python, site)
    (root / "etc").mkdir(exist_ok=True)
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    for name in ("dev", "proc", "sys", "tmp", "root", "usr"):
        (root / name).mkdir(parents=True, exist_ok=True)
    checkout = root / CHECKOUT.lstrip("/")
    _link(trees.pristine() / "vllm", checkout / "vllm", shutil.ignore_patterns("__pycache__"))
    (checkout / "pyproject.toml").write_text('[project]\nname = "vllm"\ndynamic = ["version"]\n')
    (checkout / ".git").mkdir()
    (checkout / ".git/HEAD").write_text("ref: refs/heads/main\n")
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {
            "Env": ["PATH=/opt/venv/bin:/usr/bin:/bin", "VIRTUAL_ENV=/opt/venv"],
            "Entrypoint": ["vllm", "serve"],
            "WorkingDir": CHECKOUT,
        },
        "rootfs": {"type": "layers", "diff_ids": []},
    }
    Path(f"{root}.config.json").write_text(json.dumps(config))


def _not_served(folder: str, names: list[str]) -> set[str]:
    below = folder.rpartition("/site-packages")[2].lstrip("/")
    paths = {name: f"{below}/{name}".lstrip("/").lower() for name in names}
    linked = () if below else (".pth", ".egg-link")
    return {name for name, path in paths.items() if path.startswith(_NOT_SERVED) or path.endswith(linked)}


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
