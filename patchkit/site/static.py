"""How an interpreter of the image would look for a module, worked out by reading files only.

What CPython does at start-up (Modules/getpath.py, Lib/site.py and the finders of importlib) is repeated here over the
image's files, for CPython 3.8 and newer on Linux. Nothing is run and nothing imported.
"""

from __future__ import annotations

import io
import posixpath
import re
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from patchkit.errors import Refused
from patchkit.images.model import Filesystem
from patchkit.site.hooks import Finder, PthImport, read_import_line
from patchkit.site.launch import home_of, require_known
from patchkit.site.model import Launch
from patchkit.site.view import View, as_view

ModuleKind = Literal["source", "extension", "sourceless", "namespace", "zip"]

_MODULE_NAME = re.compile(r"\w+(\.\w+)*")


@dataclass(frozen=True, slots=True)
class Python:
    """One interpreter as the image holds it.

    ``version`` is (major, minor, micro), micro 0 where only running tells. ``prefix`` is the virtual environment's or
    the base's, ``stdlib`` the folder of the standard library, ``extension_tags`` the suffixes of compiled modules that
    it loads, best first.
    """

    interpreter: str
    real: str
    version: tuple[int, int, int]
    prefix: str
    base_prefix: str
    stdlib: str
    extension_tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Module:
    """Where an import of ``name`` ends. ``origin`` is the file that is executed (empty for a namespace package) as the
    interpreter names it, ``locations`` the folders its submodules are looked for in, ``entry`` the search path entry
    (or finder) that gave the last segment."""

    name: str
    kind: ModuleKind
    origin: str
    locations: tuple[str, ...]
    entry: str


@dataclass(frozen=True, slots=True)
class Search:
    """All that decides an import: the interpreter, its search path in order (an empty entry told as the working
    folder), the finders that ``.pth`` files install, the packages that they make namespaces of (name -> folders), and
    ``notes`` about what reading alone cannot tell."""

    python: Python
    path: tuple[str, ...]
    finders: tuple[Finder, ...] = ()
    namespaces: tuple[tuple[str, tuple[str, ...]], ...] = ()
    notes: tuple[str, ...] = ()


def search_of(fs: Filesystem | View, launch: Launch) -> Search:
    """The search that a process started by ``launch`` makes.

    Raises:
        patchkit.errors.Refused: ``launch-unknown``, or ``interpreter-unknown`` where it is no CPython that can be read.
    """
    require_known(launch)
    view = as_view(fs)
    layout = _layout(view, launch)
    builder = _SysPath(view, layout, launch)
    builder.build()
    first = first_entry(view, launch, layout.version)
    path = builder.path if first is None else [first, *builder.path]
    return Search(
        layout.python(builder.prefix, view),
        tuple(path),
        tuple(builder.finders),
        tuple(builder.namespaces.items()),
        tuple(builder.notes),
    )


def first_entry(view: View, launch: Launch, version: tuple[int, int]) -> str | None:
    """What Python puts in front of the search path: the script's folder, or the working folder. None where an option
    keeps it away. Source: docs.python.org, library/sys_path_init; ``-P`` and PYTHONSAFEPATH came with 3.11."""
    if launch.form in ("console-script", "script"):
        entry = view.stat(launch.argument)
        # A folder or a zip archive with a __main__ is itself the entry, whatever the options.
        if entry is not None and (entry.kind == "dir" or _is_zip(view, launch.argument)):
            return launch.argument
    safe = "-P" in launch.flags or launch.heeded.get("PYTHONSAFEPATH")
    if "-I" in launch.flags or (version >= (3, 11) and safe):
        return None
    if launch.form in ("console-script", "script"):
        return posixpath.dirname(view.real(launch.argument))
    return launch.cwd


def _is_zip(view: View, path: str) -> bool:
    """Whatever it is called: zipapp, shiv and pex write archives without a suffix, with a ``#!`` line in front."""
    return zipfile.is_zipfile(io.BytesIO(view.read(path) or b""))


@dataclass(frozen=True, slots=True)
class _Layout:
    """What getpath works out: where the standard library lies."""

    executable: str
    real: str
    version: tuple[int, int]
    micro: int
    abi: str
    platlibdir: str
    prefix: str
    exec_prefix: str

    @property
    def name(self) -> str:
        return f"python{self.version[0]}.{self.version[1]}{self.abi}"

    @property
    def stdlib(self) -> str:
        return posixpath.join(self.prefix, self.platlibdir, self.name)

    @property
    def dynload(self) -> str:
        return posixpath.join(self.exec_prefix, self.platlibdir, self.name, "lib-dynload")

    @property
    def archive(self) -> str:
        name = f"python{self.version[0]}{self.version[1]}{self.abi}.zip"
        return posixpath.join(self.prefix, self.platlibdir, name)

    def python(self, prefix: str, view: View) -> Python:
        tag = f".cpython-{self.version[0]}{self.version[1]}{self.abi}-"
        found = {
            "." + name.split(".", 1)[1]
            for name in view.names(self.dynload)
            if name.endswith(".so") and tag in name and name.split(".", 1)[1].count(".") == 1
        }
        tags = (*sorted(found), ".abi3.so", ".so")
        version = (*self.version, self.micro)
        return Python(self.executable, self.real, version, prefix, self.prefix, self.stdlib, tags)


def _layout(view: View, launch: Launch) -> _Layout:
    """Where the standard library lies. A Python 3.11 or newer takes itself for the interpreter that a variable names,
    whatever its options; which version it is the files tell. Source: CPython, Modules/getpath.py."""
    layout = _layout_as(view, launch, "")
    taken = launch.env.get("PYTHONEXECUTABLE") or launch.env.get("__PYVENV_LAUNCHER__")
    return _layout_as(view, launch, taken) if taken and layout.version >= (3, 11) else layout


def _layout_as(view: View, launch: Launch, taken: str) -> _Layout:
    started = posixpath.normpath(posixpath.join(launch.cwd, launch.interpreter))
    if not view.is_file(started):
        raise Refused(
            "interpreter-unknown",
            "the interpreter is not in the image",
            where=started,
            remedy="name another: --launch '/path/to/python -m package'",
        )
    real = view.real(started)
    executable = posixpath.normpath(posixpath.join(launch.cwd, taken)) if taken else started
    home = launch.heeded.get("PYTHONHOME", "")
    folder = posixpath.dirname(executable if taken else real)
    stated = ""
    if home:
        folder = posixpath.normpath(home.partition(":")[0])
    else:
        for config in (f"{posixpath.dirname(posixpath.dirname(executable))}", f"{posixpath.dirname(executable)}"):
            values = read_pyvenv(view, posixpath.join(config, "pyvenv.cfg"))
            if values is not None:
                folder = values.get("home", folder)
                stated = values.get("version", values.get("version_info", ""))
                break
    if posixpath.basename(real).startswith("pypy"):
        raise _no_cpython(executable, "it is PyPy; only CPython is known here")
    where = [folder] if home else list(_upwards(folder))
    name = re.fullmatch(r"python(\d+)\.(\d+)(t?)d?", posixpath.basename(real))
    wanted = f"python{name[1]}.{name[2]}{name[3]}" if name else ""
    given = launch.heeded.get("PYTHONPLATLIBDIR")
    libraries = [given] if given else ["lib", "lib64"]
    # Where nothing lies above, CPython falls back to the prefix that it was built for: as good as always its own.
    built_for = list(_upwards(posixpath.dirname(real)))
    found = next(
        (
            found
            for places in (where, built_for)
            for landmark in ("os.py", "os.pyc")
            if (found := _search(view, places, libraries, wanted, landmark))
        ),
        None,
    )
    if found is None:
        raise _no_cpython(executable, f"no standard library belongs to it ({wanted or 'python3.*'} above {folder})")
    prefix, library, name_found = found
    version, abi = _version_of(name_found)
    if home:
        _, _, second = home.partition(":")
        exec_prefix = second or prefix
    else:
        dynload = f"{library}/{name_found}/lib-dynload"
        exec_prefix = next((up for up in (*where, *built_for) if view.is_dir(posixpath.join(up, dynload))), prefix)
    micro = _micro(view, prefix, version, stated)
    return _Layout(executable, real, version, micro, abi, library, prefix, exec_prefix)


def _no_cpython(executable: str, why: str) -> Refused:
    return Refused(
        "interpreter-unknown",
        f"this interpreter cannot be read: {why}",
        where=executable,
        remedy="name another: --launch '/path/to/python -m package'",
    )


def _upwards(folder: str) -> Iterable[str]:
    """The folder and those above it, but for the root, where CPython does not look."""
    folder = posixpath.normpath(folder)
    while folder.strip("/"):
        yield folder
        folder = posixpath.dirname(folder)


def _search(
    view: View, where: list[str], libraries: list[str], wanted: str, landmark: str
) -> tuple[str, str, str] | None:
    """The nearest of ``where`` that holds a standard library: (folder, lib or lib64, python3.x)."""
    for up in where:
        for library in libraries:
            base = posixpath.join(up, library)
            names = [wanted] if wanted else sorted(n for n in view.names(base) if re.fullmatch(r"python3\.\d+t?", n))
            found = [name for name in names if view.is_file(posixpath.join(base, name, landmark))]
            if len(found) > 1:
                raise _no_cpython(up, f"several standard libraries lie there: {', '.join(found)}")
            if found:
                return up, library, found[0]
    return None


def _version_of(name: str) -> tuple[tuple[int, int], str]:
    match = re.fullmatch(r"python(\d+)\.(\d+)(t?)", name)
    assert match, name
    return (int(match[1]), int(match[2])), match[3]


def _micro(view: View, prefix: str, version: tuple[int, int], stated: str) -> int:
    header = posixpath.join(prefix, "include", f"python{version[0]}.{version[1]}", "patchlevel.h")
    match = re.search(r"#define\s+PY_MICRO_VERSION\s+(\d+)", view.text(header) or "")
    if match:
        return int(match[1])
    match = re.match(rf"{version[0]}\.{version[1]}\.(\d+)", stated)
    return int(match[1]) if match else 0


def read_pyvenv(view: View, path: str) -> dict[str, str] | None:
    """The settings of a ``pyvenv.cfg``, None where there is none. Keys in lower case. Source: PEP 405."""
    text = view.text(path)
    if text is None:
        return None
    values: dict[str, str] = {}
    for line in text.splitlines():
        key, equal, value = line.partition("=")
        if equal:
            values[key.strip().lower()] = value.strip()
    return values


class _SysPath:
    """Lib/site.py over the image's files. Paths are kept as the interpreter would write them."""

    def __init__(self, view: View, layout: _Layout, launch: Launch) -> None:
        self.view = view
        self.layout = layout
        self.launch = launch
        self.prefix = layout.prefix
        self.path: list[str] = []
        self.known: set[str] = set()
        self.finders: list[Finder] = []
        self.namespaces: dict[str, tuple[str, ...]] = {}
        self.notes: list[str] = []
        self.debian = b"dist-packages" in (view.read(posixpath.join(layout.stdlib, "site.py")) or b"")

    def build(self) -> None:
        layout, launch, env = self.layout, self.launch, self.launch.heeded
        if env.get("PYTHONPATH"):
            for entry in env["PYTHONPATH"].split(":"):
                self.add(posixpath.normpath(posixpath.join(launch.cwd, entry)))
        for entry in (layout.archive, layout.stdlib, layout.dynload):
            self.add(posixpath.normpath(entry))
        if "-S" in launch.flags:
            return
        user_site = not {"-s", "-I"} & set(launch.flags) and not env.get("PYTHONNOUSERSITE")
        prefixes = [layout.prefix, layout.exec_prefix]
        folder = posixpath.dirname(layout.executable)
        above = posixpath.dirname(folder)
        for place in (folder, above):
            values = read_pyvenv(self.view, posixpath.join(place, "pyvenv.cfg"))
            if values is None:
                continue
            self.prefix = above
            self.add_site_packages([above])
            if values.get("include-system-site-packages", "true").lower() == "true":
                prefixes.insert(0, above)
            else:
                prefixes, user_site = [above], False
            break
        if user_site:
            home = launch.env.get("HOME", home_of(self.view.fs, launch.user))
            base = launch.env.get("PYTHONUSERBASE") or f"{home}/.local"
            site = posixpath.join(launch.cwd, base, "lib", layout.name, "site-packages")
            if self.view.is_dir(site):
                self.add_site(site)
        self.add_site_packages(prefixes)
        for name in ("sitecustomize", *(("usercustomize",) if user_site else ())):
            self.note_customize(name)

    def add(self, entry: str) -> None:
        if entry not in self.known:
            self.known.add(entry)
            self.path.append(entry)

    def add_site_packages(self, prefixes: list[str]) -> None:
        for folder in self.site_packages(prefixes):
            if self.view.is_dir(folder):
                self.add_site(folder)

    def site_packages(self, prefixes: list[str]) -> list[str]:
        layout = self.layout
        libraries = [layout.platlibdir, *(["lib"] if layout.platlibdir != "lib" else [])]
        found: list[str] = []
        for prefix in dict.fromkeys(prefixes):
            if not self.debian:
                found += [posixpath.join(prefix, library, layout.name, "site-packages") for library in libraries]
                continue
            # As Debian and Ubuntu patch site.py; a virtual environment keeps site-packages.
            if self.prefix != layout.prefix:
                found.append(posixpath.join(prefix, "lib", layout.name, "site-packages"))
            found.append(posixpath.join(prefix, "local/lib", layout.name, "dist-packages"))
            found.append(posixpath.join(prefix, "lib", "python3", "dist-packages"))
            found += [posixpath.join(prefix, library, layout.name, "dist-packages") for library in libraries]
        return found

    def add_site(self, folder: str) -> None:
        self.add(posixpath.normpath(folder))
        for name in self.view.sorted_names(folder):
            if name.endswith(".pth") and not name.startswith("."):
                self.read_pth(folder, name)
            elif name.endswith(".start") and self.layout.version >= (3, 15):
                # PEP 829: entry points that run at every start.
                self.notes.append(f"{posixpath.join(folder, name)} runs at every start and may change imports")

    def read_pth(self, folder: str, name: str) -> None:
        source = posixpath.join(folder, name)
        mark = 0
        text = self.view.text(source) or ""
        if self.layout.version >= (3, 13):
            text = text.removeprefix("\ufeff")
        for line in re.split(r"\r\n|\r|\n", text):
            if line.startswith("#") or not line.strip():
                continue
            if line.startswith(("import ", "import\t")):
                effect = read_import_line(self.view, line, folder, source)
                if effect.moves_to_front == "mark":
                    mark = len(self.path)
                elif effect.moves_to_front == "move":
                    # What easy_install wrote: all that this file added goes to the front.
                    self.path[:] = [*self.path[mark:], *self.path[:mark]]
                self.take(effect)
                continue
            entry = posixpath.normpath(posixpath.join(folder, line.rstrip()))
            if entry not in self.known and self.view.exists(entry):
                self.add(entry)

    def take(self, effect: PthImport) -> None:
        if effect.finder is not None and effect.finder in self.finders:
            # A site folder is read once as the environment's and once as the prefix's; a hook installs itself once.
            return
        for folder in effect.site_dirs:
            if self.view.is_dir(folder):
                self.add_site(folder)
        for entry in effect.path_first:
            self.path.insert(0, entry)
        for entry in effect.path_last:
            self.path.append(entry)
        if effect.finder is not None:
            self.finders.append(effect.finder)
        self.namespaces.update(effect.namespaces)
        self.notes.extend(effect.notes)

    def note_customize(self, name: str) -> None:
        for entry in self.path:
            file = posixpath.join(entry, f"{name}.py")
            if self.view.is_file(file):
                # Debian's own installs an exception hook and leaves imports alone.
                if not self.view.real(file).startswith("/etc/python3"):
                    self.notes.append(f"{file} runs at every start and may change imports")
                return


def find_module(fs: Filesystem | View, search: Search, name: str) -> Module | None:
    """What ``import name`` (dotted) would execute, None where nothing is found. Walks segment by segment."""
    if not _MODULE_NAME.fullmatch(name):
        return None
    view = as_view(fs)
    found: Module | None = None
    done = ""
    for segment in name.split("."):
        if found is not None and not found.locations:
            return None
        done = f"{done}.{segment}".lstrip(".")
        found = _find(view, search, done, search.path if found is None else found.locations)
        if found is None:
            return None
    return found


def _find(view: View, search: Search, name: str, path: tuple[str, ...]) -> Module | None:
    made = dict(search.namespaces).get(name)
    if made:
        return Module(name, "namespace", "", made, made[0])
    for finder in search.finders:
        if finder.first and (found := _by_finder(view, search.python, finder, name)):
            return found
    portions: list[tuple[str, str]] = []
    segment = name.rpartition(".")[2]
    for entry in path:
        module = find_in(view, search.python, entry, segment)
        if module is None:
            for finder in search.finders:
                portions += [(entry, folder) for folder in finder.portions_at(entry, name)]
        elif module.kind == "namespace":
            portions.append((entry, module.locations[0]))
        else:
            return replace(module, name=name)
    if portions:
        return Module(name, "namespace", "", tuple(folder for _, folder in portions), portions[0][0])
    for finder in search.finders:
        if not finder.first and (found := _by_finder(view, search.python, finder, name)):
            return found
    return None


def _by_finder(view: View, python: Python, finder: Finder, name: str) -> Module | None:
    path = finder.path_of(name)
    if path is None:
        return None
    entry = f"finder of {finder.source}"
    if view.is_file(path):
        package = posixpath.basename(path).startswith("__init__.")
        return Module(name, "source", path, (posixpath.dirname(path),) if package else (), entry)
    module = find_in(view, python, posixpath.dirname(path), posixpath.basename(path))
    if module is None or (module.kind == "namespace" and finder.reach != "children"):
        return None
    return replace(module, name=name, entry=entry)


def find_in(view: View, python: Python, entry: str, name: str) -> Module | None:
    """What one entry of a search path gives for the last segment of a name; ``namespace`` for a bare folder.

    The order is that of importlib.machinery.FileFinder: a package before a module, and in each compiled before source
    before bytecode alone.
    """
    if not view.is_dir(entry):
        return _find_in_zip(view, entry, name)
    names = view.names(entry)
    folder = posixpath.join(entry, name)
    is_folder = name in names and view.is_dir(folder)
    if is_folder:
        inside = view.names(folder)
        for suffix, kind in _suffixes(python, inside, "__init__"):
            if view.is_file(posixpath.join(folder, f"__init__{suffix}")):
                return Module(name, kind, posixpath.join(folder, f"__init__{suffix}"), (folder,), entry)
    for suffix, kind in _suffixes(python, names, name):
        if view.is_file(posixpath.join(entry, f"{name}{suffix}")):
            return Module(name, kind, posixpath.join(entry, f"{name}{suffix}"), (), entry)
    return Module(name, "namespace", "", (folder,), entry) if is_folder else None


def _suffixes(python: Python, names: frozenset[str], stem: str) -> list[tuple[str, ModuleKind]]:
    kinds: list[tuple[str, ModuleKind]] = [(tag, "extension") for tag in python.extension_tags]
    kinds += [(".py", "source"), (".pyc", "sourceless")]
    return [(suffix, kind) for suffix, kind in kinds if f"{stem}{suffix}" in names]


def _find_in_zip(view: View, entry: str, name: str) -> Module | None:
    """As Lib/zipimport.py: the entry is an archive or a folder in one; a package before a module, in each bytecode
    before source."""
    archive = entry
    while archive not in ("/", "") and not view.exists(archive):
        archive = posixpath.dirname(archive)
    if not view.is_file(archive):
        return None
    try:
        with zipfile.ZipFile(io.BytesIO(view.read(archive) or b"")) as opened:
            names = set(opened.namelist())
    except (zipfile.BadZipFile, Refused, ValueError, OSError, NotImplementedError):
        return None
    inside = f"{posixpath.relpath(entry, archive)}/".removeprefix("./")
    for suffix in ("/__init__.pyc", "/__init__.py", ".pyc", ".py"):
        if f"{inside}{name}{suffix}" in names:
            origin = posixpath.join(entry, f"{name}{suffix}")
            return Module(name, "zip", origin, (posixpath.join(entry, name),) if "/" in suffix else (), entry)
    return None
