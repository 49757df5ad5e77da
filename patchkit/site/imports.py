"""What this interpreter would import and run, asked of it without importing anything.

Part of programs that travel into containers as text: Python 3.8 or newer, standard library only, ASCII, and as few
imports as the work needs.
"""

import os
import sys
from importlib.machinery import ModuleSpec


def set_first_entry(own: str, form: str, argument: str) -> None:
    """Put in front of sys.path what the launch would, where Python put ``own`` for this program.

    Source: docs.python.org, library/sys_path_init: a folder or archive is an entry whatever the options.
    """
    script = form in ("console-script", "script")
    importer = argument if script and _is_entry(argument) else ""
    if sys.path and sys.path[0] == own:
        sys.path[0] = importer or (os.path.dirname(os.path.realpath(argument)) if script else os.getcwd())
    elif importer:
        sys.path.insert(0, importer)


def _is_entry(path: str) -> bool:
    """Whether Python takes the program for an entry of the search path, as it itself finds out: by asking the hooks."""
    for hook in sys.path_hooks:
        try:
            hook(path)
        except ImportError:
            continue
        return True
    return False


def locations_of(spec: ModuleSpec) -> "list[str] | None":
    """Where the submodules are looked for, None for what is no package."""
    # A namespace's own path is made anew from its parent's when it is looped over, and the parent is not imported.
    found = spec.submodule_search_locations
    found = getattr(found, "_path", found)
    return None if found is None else [str(item) for item in found]


def _ask_finders(name: str, path: "list[str] | None") -> "ModuleSpec | None":
    # For a folder without __init__.py a finder reads the parent's path from sys.modules: a stand-in holds it meanwhile.
    parent = name.rpartition(".")[0]
    stands_in = parent and parent not in sys.modules
    if stands_in:
        sys.modules[parent] = type(sys)(parent)
        sys.modules[parent].__path__ = list(path or ())
    try:
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, None) if hasattr(finder, "find_spec") else None
            if spec is not None:
                return spec
    finally:
        if stands_in:
            del sys.modules[parent]
    return None


def find(name: str) -> "ModuleSpec | None":
    """The spec of a dotted name, segment by segment through the finders; imports nothing."""
    path, spec, done = None, None, ""
    for segment in name.split("."):
        done = done + "." + segment if done else segment
        made = sys.modules.get(done)
        if made is not None and getattr(made, "__path__", None) is not None and getattr(made, "__file__", None) is None:
            # A namespace that a .pth file made at start-up.
            spec = ModuleSpec(done, None, is_package=True)
            spec.submodule_search_locations = list(made.__path__)
        else:
            spec = _ask_finders(done, path)
        if spec is None:
            return None
        path = locations_of(spec)
        if path is None and done != name:
            return None
    return spec


def read(path: str) -> bytes:
    """The bytes of a file."""
    with open(path, "rb") as file:
        return file.read()


def bytecode(path: str, source: bytes, origins: "list[str]") -> "dict[str, object]":
    """Whether a compiled file would run instead of the source (``runs``), whether it is never checked (``unchecked``)
    and whether it is that of this very source (``same``). It is looked for by the names under which finders find the
    source (``origins``) as by its own: by links these differ, and each name has a compiled file of its own.

    Source: PEP 552, and importlib's SourceLoader.get_code.
    """
    named = [path] + [each for each in origins if each != path and os.path.realpath(each) == path]
    told = [_compiled(each, source) for each in named]
    bad = [each for each in told if each["runs"] and not each["same"]]
    good = [each for each in told if each["runs"]]
    return (bad + good + told)[0]


def _compiled(path: str, source: bytes) -> "dict[str, object]":
    import importlib.util
    import marshal
    import warnings

    found = importlib.util.cache_from_source(path)
    no = {"pyc": found, "runs": False}
    try:
        data, status = read(found), os.stat(path)
    except OSError:
        return no
    if data[:4] != importlib.util.MAGIC_NUMBER or len(data) < 16:
        return no
    flags = int.from_bytes(data[4:8], "little")
    if flags & 1:
        import _imp

        checks = _imp.check_hash_based_pycs
        checked = checks == "always" or (checks != "never" and flags & 2)
        runs = not checked or data[8:16] == importlib.util.source_hash(source)
    else:
        mtime = (int(status.st_mtime) & 0xFFFFFFFF).to_bytes(4, "little")
        runs = data[8:16] == mtime + (len(source) & 0xFFFFFFFF).to_bytes(4, "little")
    if not runs:
        return no
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            same = marshal.loads(data[16:]) == compile(source, path, "exec", dont_inherit=True)
    except Exception:
        same = False
    return {"pyc": found, "runs": True, "unchecked": flags & 3 == 1, "same": same}
