"""Unusual layouts, all with the small package whose imports really pass: what an image can do to a search path."""

from __future__ import annotations

import io
import zipfile

from tests.images import packages, store
from tests.images.packages import Package
from tests.images.tree import MTIME, Tree
from tests.images.variants import (
    PYTHON,
    SITE,
    VENV,
    Variant,
    checkout,
    config,
    editable_install,
    install,
    serving,
    variant,
    venv,
)

_MODULE = "tinyserve/ops/scale.py"
_STDLIB = "/usr/lib/python3.11"


def _shadow() -> Package:
    """Another copy, which answers otherwise: whoever imports it can be told by the answer."""
    package = packages.tinyserve()
    return package.with_sources({_MODULE: dict(package.sources)[_MODULE].replace(b"by=1", b"by=9")})


def standalone(tree: Tree, prefix: str) -> str:
    """A Python of its own below ``prefix``, as conda's and uv's are: the binary lies there, and site-packages is used
    instead of Debian's dist-packages. Gives the interpreter."""
    # Debian's site module is frozen into the binary; the two names are equally long.
    binary = store.base_file(PYTHON)
    assert b"dist-packages" in binary
    tree.file(f"{prefix}/bin/python3.11", binary.replace(b"dist-packages", b"site-packages"), 0o755)
    tree.symlink(f"{prefix}/bin/python3", "python3.11")
    tree.symlink(f"{prefix}/bin/python", "python3.11")
    for name in store.base_names(_STDLIB):
        if name != "site.py":
            tree.symlink(f"{prefix}/lib/python3.11/{name}", f"{_STDLIB}/{name}")
    site = store.base_file(f"{_STDLIB}/site.py")
    tree.file(f"{prefix}/lib/python3.11/site.py", site.replace(b"dist-packages", b"site-packages"))
    tree.folder(f"{prefix}/lib/python3.11/site-packages")
    return f"{prefix}/bin/python3.11"


@variant("odd")
def conda() -> Variant:
    """An environment of conda: a prefix with its own interpreter, no pyvenv.cfg."""
    tree = Tree()
    prefix = "/opt/conda/envs/serve"
    python = standalone(tree, prefix)
    package = packages.tinyserve()
    install(tree, package, f"{prefix}/lib/python3.11/site-packages", f"{prefix}/bin", python)
    tree.file(f"{prefix}/conda-meta/history", "")
    checkout(tree, package, "/workspace/tinyserve")
    env = {"CONDA_PREFIX": prefix, "CONDA_DEFAULT_ENV": "serve"}
    return Variant((tree,), config(package, bin_folder=f"{prefix}/bin", env=env))


@variant("odd")
def pipx() -> Variant:
    """Installed by pipx: a venv of its own, its script linked into a bin folder."""
    tree = Tree()
    root = "/opt/pipx/venvs/tinyserve"
    package = packages.tinyserve()
    install(tree, package, venv(tree, root), f"{root}/bin", f"{root}/bin/python")
    tree.symlink("/usr/local/bin/tinyserve", f"{root}/bin/tinyserve")
    checkout(tree, package, "/workspace/tinyserve")
    return Variant((tree,), config(package, bin_folder="/usr/local/bin"))


@variant("odd")
def debian() -> Variant:
    """A Debian package: /usr/lib/python3/dist-packages, no RECORD."""
    return Variant((_debian_package(packages.tinyserve()),), config(packages.tinyserve(), bin_folder="/usr/bin"))


@variant("odd")
def debian_and_pip() -> Variant:
    """Debian's package, and a newer one from pip below /usr/local that goes before it."""
    tree = _debian_package(packages.tinyserve("1.1.0"))
    install(tree, packages.tinyserve(), "/usr/local/lib/python3.11/dist-packages", "/usr/local/bin", PYTHON)
    return Variant((tree,), config(packages.tinyserve(), bin_folder="/usr/local/bin"))


def _debian_package(package: Package) -> Tree:
    tree = Tree()
    site = "/usr/lib/python3/dist-packages"
    install(tree, package, site, "/usr/bin", "/usr/bin/python3")
    del tree.nodes[f"{site}/{package.dist_info_name}/RECORD"]
    tree.file(f"{site}/{package.dist_info_name}/INSTALLER", "debian")
    tree.folder("/workspace/tinyserve")
    return tree


@variant("odd")
def uv_hardlinks() -> Variant:
    """Installed by uv: the venv's files are hard links to uv's cache, and a second venv shares them."""
    tree = Tree()
    package = packages.tinyserve()
    cached = "/root/.cache/uv/archive-v0/Jk2nQ8"
    tree.folder("/root", 0o700)
    tree.files(cached, package.sources)
    for root in (VENV, "/opt/other"):
        site = venv(tree, root)
        install(tree, package, site, f"{root}/bin", f"{root}/bin/python")
        for path, _ in package.sources:
            tree.hardlink(f"{site}/{path}", f"{cached}/{path}")
    checkout(tree, package, "/workspace/tinyserve")
    return Variant((tree,), config(package, env={"VIRTUAL_ENV": VENV}))


@variant("odd")
def relocatable() -> Variant:
    """A script without a fixed interpreter: /bin/sh starts the python beside it."""
    image = serving(packages.tinyserve())
    head = "#!/bin/sh\n'''exec' \"$(dirname -- \"$(realpath -- \"$0\")\")\"/'python' \"$0\" \"$@\"\n' '''\n"
    body = packages.tinyserve().console_script("x").partition("\n")[2]
    image.layers[0].file(f"{VENV}/bin/tinyserve", head + body, 0o755)
    return image


@variant("odd")
def long_shebang() -> Variant:
    """pip's way out where the interpreter's path is too long for a first line."""
    image = serving(packages.tinyserve())
    head = f"#!/bin/sh\n'''exec' {VENV}/bin/python3 \"$0\" \"$@\"\n' '''\n"
    body = packages.tinyserve().console_script("x").partition("\n")[2]
    image.layers[0].file(f"{VENV}/bin/tinyserve", head + body, 0o755)
    return image


@variant("odd")
def env_shebang() -> Variant:
    """The script asks PATH for its interpreter."""
    image = serving(packages.tinyserve())
    script = packages.tinyserve().console_script("/usr/bin/env python3")
    image.layers[0].file(f"{VENV}/bin/tinyserve", script, 0o755)
    return image


@variant("odd")
def nested_venv() -> Variant:
    """A venv inside another that holds an older copy; the inner one serves."""
    tree = Tree()
    inner = f"{VENV}/tools/inner"
    install(tree, packages.tinyserve("1.1.0"), venv(tree), f"{VENV}/bin", f"{VENV}/bin/python3")
    install(tree, packages.tinyserve(), venv(tree, inner), f"{inner}/bin", f"{inner}/bin/python3")
    tree.folder("/workspace/tinyserve")
    env = {"VIRTUAL_ENV": VENV}
    return Variant((tree,), config(packages.tinyserve(), bin_folder=f"{inner}/bin:{VENV}/bin", env=env))


@variant("odd")
def system_site() -> Variant:
    """A venv that also sees the system's packages, where the package is."""
    tree = Tree()
    venv(tree, system_site=True)
    package = packages.tinyserve()
    install(tree, package, "/usr/local/lib/python3.11/dist-packages", f"{VENV}/bin", f"{VENV}/bin/python3")
    tree.folder("/workspace/tinyserve")
    return Variant((tree,), config(package, env={"VIRTUAL_ENV": VENV}))


@variant("odd")
def user_site() -> Variant:
    """Installed with ``pip install --user`` for user 1000, before the system's own copy."""
    tree = _debian_package(packages.tinyserve("1.1.0"))
    package = packages.tinyserve()
    home = "/home/app"
    tree.folder(home, 0o750)
    install(tree, package, f"{home}/.local/lib/python3.11/site-packages", f"{home}/.local/bin", PYTHON)
    tree.own(home, 1000)
    settings = config(package, bin_folder=f"{home}/.local/bin", env={"HOME": home}, User="app")
    return Variant((tree,), settings)


@variant("odd")
def pythonpath() -> Variant:
    """PYTHONPATH puts an override folder before site-packages."""
    image = serving(packages.tinyserve(), env={"PYTHONPATH": "/opt/overrides"})
    image.layers[1].files("/opt/overrides", _shadow().sources)
    return image


@variant("odd")
def safe_path() -> Variant:
    """``-m`` with PYTHONSAFEPATH: the working folder is not searched, so the installed copy serves."""
    launch = ["python3", "-m", "tinyserve", "serve"]
    return serving(packages.tinyserve(), decoy=_shadow(), env={"PYTHONSAFEPATH": "1"}, Entrypoint=launch)


@variant("odd")
def module_launch() -> Variant:
    """``python3 -m`` from the checkout's folder: the decoy is what serves."""
    return serving(packages.tinyserve(), decoy=_shadow(), Entrypoint=["python3", "-m", "tinyserve", "serve"])


@variant("odd")
def isolated() -> Variant:
    """``python3 -I``: neither PYTHONPATH nor the working folder count."""
    image = serving(
        packages.tinyserve(),
        env={"PYTHONPATH": "/opt/overrides"},
        Entrypoint=["python3", "-I", "-m", "tinyserve", "serve"],
    )
    image.layers[1].files("/opt/overrides", _shadow().sources)
    return image


@variant("odd")
def namespace_split() -> Variant:
    """A namespace package in two roots: site-packages, and a folder that a .pth file adds."""
    tree = Tree()
    package = packages.tinyserve()
    portions = {
        path: data for path, data in package.sources if path != "tinyserve/__init__.py" and "models" not in path
    }
    first = Package(
        package.name, package.version, tuple(portions.items()), package.dist_info, package.script, package.entry
    )
    install(tree, first, venv(tree), f"{VENV}/bin", f"{VENV}/bin/python3")
    tree.files("/opt/plugins", [(path, data) for path, data in package.sources if "models" in path])
    tree.file(f"{SITE}/plugins.pth", "/opt/plugins\n")
    tree.folder("/workspace/tinyserve")
    return Variant((tree,), config(package, env={"VIRTUAL_ENV": VENV}))


@variant("odd")
def namespace_shadow() -> Variant:
    """An editable install by finder, started one folder above the checkout: the checkout's own folder is taken for a
    namespace package before the finder is asked, and the server does not start."""
    image = editable_install(packages.tinyserve(), finder=True)
    launch = {"WorkingDir": "/workspace", "Entrypoint": ["python3", "-m", "tinyserve", "serve"]}
    return Variant(image.layers, {**image.config, **launch})


@variant("odd")
def zipped() -> Variant:
    """The package inside a zip file on PYTHONPATH, before the installed one."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for path, data in _shadow().sources:
            archive.writestr(zipfile.ZipInfo(path), data)
    image = serving(packages.tinyserve(), env={"PYTHONPATH": "/opt/bundle.zip"})
    image.layers[1].file("/opt/bundle.zip", stream.getvalue())
    return image


@variant("odd")
def vendored() -> Variant:
    """Another package carries a copy of its own, which nobody imports by the plain name."""
    image = serving(packages.tinyserve())
    image.layers[0].file(f"{SITE}/bundle/__init__.py", "")
    image.layers[0].file(f"{SITE}/bundle/_vendor/__init__.py", "")
    image.layers[0].files(f"{SITE}/bundle/_vendor", _shadow().sources)
    return image


@variant("odd")
def so_beside() -> Variant:
    """A compiled module of the same name beside the source: Python takes the compiled one."""
    image = serving(packages.tinyserve())
    name = _MODULE.removesuffix(".py") + ".cpython-311-x86_64-linux-gnu.so"
    image.layers[0].file(f"{SITE}/{name}", b"\x7fELF: stands for a compiled module\n", 0o755)
    return image


@variant("odd")
def unchecked_pyc() -> Variant:
    """A compiled file that is never compared with its source, made from the source as shipped."""
    return _compiled(packages.tinyserve(), dict(packages.tinyserve().sources)[_MODULE], "UNCHECKED_HASH")


@variant("odd")
def stale_pyc() -> Variant:
    """A compiled file of another source with this source's size and time: Python runs the other one."""
    return _compiled(packages.tinyserve(), dict(_shadow().sources)[_MODULE], "TIMESTAMP")


@variant("odd")
def fresh_pyc() -> Variant:
    """Every module compiled as pip does it, with times that agree."""
    image = serving(packages.tinyserve())
    compiled = store.pycs({f"{SITE}/{path}": data for path, data in packages.tinyserve().sources}, MTIME, "TIMESTAMP")
    for path, data in compiled.items():
        image.layers[0].file(_pyc_path(path), data)
    return image


@variant("odd")
def sourceless() -> Variant:
    """A module of which only the compiled file is there."""
    image = serving(packages.tinyserve())
    source = f"{SITE}/{_MODULE}"
    compiled = store.pycs({source: image.layers[0].nodes.pop(source).data}, MTIME, "TIMESTAMP")
    image.layers[0].file(source + "c", compiled[source])
    return image


def _compiled(package: Package, source: bytes, mode: str) -> Variant:
    image = serving(package)
    path = f"{SITE}/{_MODULE}"
    image.layers[0].file(_pyc_path(path), store.pycs({path: source}, MTIME, mode)[path])
    return image


def _pyc_path(source: str) -> str:
    folder, _, name = source.rpartition("/")
    return f"{folder}/__pycache__/{name.removesuffix('.py')}.cpython-311.pyc"


@variant("odd")
def tini() -> Variant:
    """An init in front: ``tini -- tinyserve serve``."""
    return serving(packages.tinyserve(), Entrypoint=["/usr/bin/tini", "--", "tinyserve", "serve"])


@variant("odd")
def shell_exec() -> Variant:
    """A shell in front that gives way: ``sh -c 'exec tinyserve serve'``, in Docker's string form."""
    return serving(packages.tinyserve(), Entrypoint=["/bin/sh", "-c", "exec tinyserve serve --port 8000"])


@variant("odd")
def shell_script() -> Variant:
    """``bash script.sh``-like: a script as argument, which prepares and then execs the server."""
    image = serving(packages.tinyserve(), Entrypoint=["/bin/sh", "/opt/start.sh"])
    image.layers[1].file("/opt/start.sh", "# start the server\nexport TINYSERVE_WORKERS=1\nexec tinyserve serve\n")
    return image


@variant("odd")
def shell_unclear() -> Variant:
    """A start script whose command is only known when it runs."""
    image = serving(packages.tinyserve(), Entrypoint=["/bin/sh", "/opt/start.sh"])
    script = 'case "$MODE" in\n  worker) exec tinyserve work ;;\n  *) exec $(cat /opt/command) ;;\nesac\n'
    image.layers[1].file("/opt/start.sh", script)
    image.layers[1].file("/opt/command", "tinyserve serve\n")
    return image


@variant("odd")
def script_file() -> Variant:
    """A script of the image's own starts the server; its folder goes before site-packages."""
    image = serving(packages.tinyserve(), Entrypoint=["python3", "/app/run.py", "serve"])
    image.layers[1].file("/app/run.py", "import sys\n\nfrom tinyserve.cli import main\n\nsys.exit(main())\n")
    return image


@variant("odd")
def hidden_interpreter() -> Variant:
    """The venv's python is a link below /root, which the container's user may not enter: the server does not start."""
    tree = Tree()
    tree.folder("/root", 0o700)
    python = standalone(tree, "/root/.local/share/uv/python/cpython-3.11")
    package = packages.tinyserve()
    install(tree, package, venv(tree, python=python), f"{VENV}/bin", f"{VENV}/bin/python3")
    tree.folder("/workspace/tinyserve")
    return Variant((tree,), config(package, env={"VIRTUAL_ENV": VENV}, User="1000"))
