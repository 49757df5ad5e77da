"""The fixture images by name: what each holds beyond the Debian root, and its config."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.images import packages
from tests.images.packages import Package
from tests.images.tree import Tree

PYTHON = "/usr/bin/python3.11"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
VENV = "/opt/venv"
SITE = f"{VENV}/lib/python3.11/site-packages"


@dataclass(frozen=True, slots=True)
class Variant:
    """One image: its layers above the root, bottom first, the ``config`` part of its image config, and what else the
    image config says at its top level. The root is Debian's unless the variant brings its own."""

    layers: tuple[Tree, ...]
    config: Mapping[str, Any]
    top: Mapping[str, Any] = field(default_factory=dict)
    root: Tree | None = None


Maker = Callable[[], Variant]
VARIANTS: dict[str, Maker] = {}
_KINDS: dict[str, str] = {}


def variant(kind: str) -> Callable[[Maker], Maker]:
    """Register a maker under its function's name. Kinds: ``plain``, ``odd`` (an unusual layout that works or fails as
    a true one would), ``hostile`` (an interpreter that attacks), ``large`` (for benchmarks, built on demand)."""

    def register(make: Maker) -> Maker:
        VARIANTS[make.__name__] = make
        _KINDS[make.__name__] = kind
        return make

    return register


def names(*kinds: str) -> list[str]:
    """The names of all images of these kinds, in the order of their definition."""
    return [name for name, kind in _KINDS.items() if kind in kinds]


def venv(tree: Tree, root: str = VENV, python: str = PYTHON, *, system_site: bool = False) -> str:
    """A virtual environment as ``python -m venv`` makes it; gives its site-packages."""
    tree.symlink(f"{root}/bin/python3.11", python)
    tree.symlink(f"{root}/bin/python3", "python3.11")
    tree.symlink(f"{root}/bin/python", "python3.11")
    tree.symlink(f"{root}/lib64", "lib")
    home = python.rpartition("/")[0]
    tree.file(
        f"{root}/pyvenv.cfg",
        f"home = {home}\ninclude-system-site-packages = {str(system_site).lower()}\nversion = 3.11.2\n"
        f"executable = {python}\ncommand = {python} -m venv {root}\n",
    )
    site = f"{root}/lib/python3.11/site-packages"
    tree.folder(site)
    return site


def install(
    tree: Tree, package: Package, site: str, scripts: str, interpreter: str, *, record_all: bool = False
) -> None:
    """Install the package as pip does: sources, dist-info with RECORD, console script."""
    script = posixpath.relpath(f"{scripts}/{package.script}", site)
    tree.files(site, package.installed(script, everything_recorded=record_all))
    tree.file(f"{scripts}/{package.script}", package.console_script(interpreter), 0o755)


def checkout(tree: Tree, package: Package, root: str) -> None:
    """A source checkout: the package's folder beside what a repository holds."""
    tree.files(root, package.sources)
    tree.file(f"{root}/pyproject.toml", f'[project]\nname = "{package.name}"\ndynamic = ["version"]\n')
    tree.file(f"{root}/.git/HEAD", "ref: refs/heads/main\n")


def config(package: Package, *, bin_folder: str = f"{VENV}/bin", **changes: Any) -> dict[str, Any]:
    env = changes.pop("env", {})
    settings = {"PATH": f"{bin_folder}:{_PATH}", **env}
    made: dict[str, Any] = {
        "Env": [f"{name}={value}" for name, value in settings.items()],
        "Entrypoint": [package.script, "serve"],
        "WorkingDir": f"/workspace/{package.name}",
    }
    return made | changes


def serving(
    package: Package,
    *,
    decoy: Package | None = None,
    record_all: bool = False,
    env: Mapping[str, str] | None = None,
    **changes: Any,
) -> Variant:
    """The plain case: a venv at /opt/venv, and a source checkout of the same package in the working folder."""
    python, app = Tree(), Tree()
    install(python, package, venv(python), f"{VENV}/bin", f"{VENV}/bin/python3", record_all=record_all)
    checkout(app, decoy or package, f"/workspace/{package.name}")
    settings = {"VIRTUAL_ENV": VENV, **(env or {})}
    if package.name == "vllm":
        settings["VLLM_TARGET_DEVICE"] = "xpu"
    return Variant((python, app), config(package, env=settings, **changes))


@variant("plain")
def xpu() -> Variant:
    """Like Intel's nightly: vLLM in a venv, and a decoy checkout in the working folder."""
    return serving(packages.vllm())


@variant("plain")
def demo() -> Variant:
    """The same image on a root that only looks like one: to be read, on any machine, without Debian's packages."""
    image = xpu()
    root = Tree()
    for name in ("bin", "lib", "lib64", "sbin"):
        root.folder(f"/usr/{name}")
        root.symlink(f"/{name}", f"usr/{name}")
    root.file(PYTHON, "a stand-in: nothing of this image is run\n", 0o755)
    root.symlink("/usr/bin/python3", "python3.11")
    for module in ("os.py", "site.py", "encodings/__init__.py"):  # by these Python finds its own library
        root.file(f"/usr/lib/python3.11/{module}", "")
    root.folder("/usr/lib/python3.11/lib-dynload")
    root.file("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\n")
    return Variant(image.layers, image.config, root=root)


@variant("plain")
def pure() -> Variant:
    """The same shape with a package whose imports really pass."""
    return serving(packages.tinyserve())


@variant("plain")
def fullrecord() -> Variant:
    """RECORD lists files that are not there, as after somebody slimmed the image."""
    return serving(packages.vllm(), record_all=True)


@variant("plain")
def fixed() -> Variant:
    """Upstream has taken the patches: the image as shipped holds them."""
    return serving(packages.vllm_with_fix(), decoy=packages.vllm())


@variant("plain")
def oldvllm() -> Variant:
    """A release from before the model that the patches are for."""
    return serving(packages.vllm("0.32.0"))


@variant("plain")
def nightly() -> Variant:
    """The shipped files under a version that falls outside any plain range."""
    return serving(packages.vllm().with_version("0.33.0rc1.dev812+gabc.xpu"))


@variant("plain")
def absent() -> Variant:
    """The interpreter is there, the package is not; only its console script's name is."""
    python = Tree()
    venv(python)
    python.file(f"{VENV}/bin/vllm", packages.vllm().console_script(f"{VENV}/bin/python3"), 0o755)
    return Variant((python,), config(packages.vllm(), env={"VIRTUAL_ENV": VENV}) | {"WorkingDir": "/"})


@variant("plain")
def distpackages() -> Variant:
    """Installed with Debian's Python: /usr/local, dist-packages, no venv."""
    python, app = Tree(), Tree()
    package = packages.vllm()
    install(python, package, "/usr/local/lib/python3.11/dist-packages", "/usr/local/bin", PYTHON)
    checkout(app, package, "/workspace/vllm")
    return Variant((python, app), config(package, bin_folder="/usr/local/bin", env={"VLLM_TARGET_DEVICE": "xpu"}))


@variant("plain")
def editable() -> Variant:
    """``pip install -e`` with a finder in site-packages, as setuptools writes it: the checkout serves."""
    return editable_install(packages.vllm(), finder=True)


@variant("plain")
def editable_pth() -> Variant:
    """``pip install -e`` with a path in a .pth file: the checkout serves."""
    return editable_install(packages.vllm(), finder=False)


@variant("plain")
def nonroot() -> Variant:
    """Everything belongs to user 1000, in folders that nobody else may enter."""
    image = serving(packages.vllm(), User="1000")
    for tree, root in zip(image.layers, (VENV, "/workspace"), strict=True):
        tree.own(root, 1000, 0o750)
    return image


@variant("plain")
def symlinkvenv() -> Variant:
    """/opt/venv is a link, and so is the package's folder's parent: real paths lie elsewhere."""
    python, app = Tree(), Tree()
    package = packages.vllm()
    site = venv(python, "/opt/venvs/2026.11")
    install(python, package, site, "/opt/venvs/2026.11/bin", f"{VENV}/bin/python3")
    python.symlink(VENV, "venvs/2026.11")
    checkout(app, package, "/workspace/vllm")
    return Variant((python, app), config(package, env={"VIRTUAL_ENV": VENV, "VLLM_TARGET_DEVICE": "xpu"}))


@variant("plain")
def wrapper() -> Variant:
    """A shell script stands in front of the server, as vendors ship it."""
    image = serving(packages.vllm(), Entrypoint=["/usr/local/bin/entrypoint.sh"], Cmd=["vllm", "serve"])
    script = '#!/bin/sh\nset -e\nexport OMP_NUM_THREADS=1\nexec "$@"\n'
    image.layers[-1].file("/usr/local/bin/entrypoint.sh", script, 0o755)
    return image


@variant("plain")
def richconfig() -> Variant:
    """A config with everything in it, and keys that today's tools do not know."""
    return Variant(
        pure().layers,
        {
            **pure().config,
            "Healthcheck": {
                "Test": ["CMD", "true"],
                "Interval": 3_600_000_000_000,
                "StartInterval": 5_000_000_000,
                "Future": [1],
            },
            "ExposedPorts": {"8000/tcp": {}},
            "Volumes": {"/root/.cache": {}},
            "Labels": {"org.opencontainers.image.base.name": "intel/base:1", "price": "$5 ${X}"},
            "StopSignal": "SIGINT",
            "Shell": ["/bin/sh", "-c"],
            "FutureSetting": {"kept": True},
        },
        {"author": "somebody", "variant_notes": "kept", "os.version": "12"},
    )


def editable_install(package: Package, *, finder: bool) -> Variant:
    python, app = Tree(), Tree()
    root = f"/workspace/{package.name}"
    site = venv(python)
    info = f"{site}/{package.dist_info_name}"
    dist_info = dict(package.dist_info)
    files = {f"{package.dist_info_name}/{name}": data for name, data in dist_info.items()}
    files[f"{package.dist_info_name}/direct_url.json"] = (
        f'{{"dir_info": {{"editable": true}}, "url": "file://{root}"}}'.encode()
    )
    if finder:
        module = f"__editable___{package.name}_{package.version.replace('.', '_')}_finder"
        files[f"__editable__.{package.name}-{package.version}.pth"] = f"import {module}; {module}.install()".encode()
        files[f"{module}.py"] = _FINDER.format(name=package.name, root=root).encode()
    else:
        files[f"__editable__.{package.name}-{package.version}.pth"] = f"{root}\n".encode()
    shell = Package(package.name, package.version, tuple(files.items()), (), package.script, package.entry)
    install(python, shell, site, f"{VENV}/bin", f"{VENV}/bin/python3")
    assert f"{info}/RECORD" in python.nodes
    checkout(app, package, root)
    # Started elsewhere: else the working folder would hide that the finder is at work.
    return Variant((python, app), config(package, env={"VIRTUAL_ENV": VENV}) | {"WorkingDir": "/"})


# The form of setuptools' editable finder: a mapping from top-level names to folders, asked by a meta path finder.
_FINDER = """from __future__ import annotations
import sys
from importlib.machinery import ModuleSpec, PathFinder
from importlib.machinery import all_suffixes as module_suffixes
from importlib.util import spec_from_file_location
from pathlib import Path

MAPPING: dict[str, str] = {{{name!r}: '{root}/{name}'}}
NAMESPACES: dict[str, list[str]] = {{}}


class _EditableFinder:
    @classmethod
    def find_spec(cls, fullname, path=None, target=None):
        if fullname in MAPPING:
            return spec_from_file_location(fullname, Path(MAPPING[fullname], "__init__.py"))
        return None


def install():
    if not any(finder == _EditableFinder for finder in sys.meta_path):
        sys.meta_path.append(_EditableFinder)
"""
