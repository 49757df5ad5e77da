# Runs under an image's own interpreter (Python 3.8 or newer, standard library only), given as the text of `-c`.
#
# argv: the question as JSON, cut into pieces because Linux limits one argument to 128 KiB. Answers are lines of
# standard output that carry a proof: a sha256 over the question's nonce and the answer. What else writes there (a .pth
# file, a banner) is no answer.
import hashlib
import importlib.machinery
import importlib.util
import json
import os
import stat
import sys

from patchkit.site.gpus import amd_gpus

QUESTION = json.loads("".join(sys.argv[1:]))
OUT = os.dup(1)
os.dup2(2, 1)


def answer(part):
    text = json.dumps(part, sort_keys=True)
    proof = hashlib.sha256((QUESTION["nonce"] + text).encode()).hexdigest()
    data = ("\npatchkit-answer %s %s\n" % (proof, text)).encode()
    while data:
        data = data[os.write(OUT, data) :]


def set_first_entry():
    """Put in front of sys.path what the launch would, where `-c` put the working folder."""
    form, argument = QUESTION["form"], QUESTION["argument"]
    if form not in ("console-script", "script"):
        if sys.path and sys.path[0] == "":
            sys.path[0] = os.getcwd()
        return
    importer = None
    if os.path.isdir(argument) or argument.endswith((".zip", ".pyz", ".egg", ".pex", ".whl")):
        importer = argument
    if sys.path and sys.path[0] == "":
        sys.path[0] = importer or os.path.dirname(os.path.realpath(argument))
    elif importer:
        sys.path.insert(0, importer)


def locations_of(spec):
    # A namespace's own path is made anew from its parent's when it is looped over, and the parent is not imported.
    found = spec.submodule_search_locations
    return getattr(found, "_path", found)


def ask_finders(name, path):
    # For a folder without __init__.py a finder reads the parent's path from sys.modules: a stand-in holds it meanwhile.
    parent = name.rpartition(".")[0]
    stands_in = parent and parent not in sys.modules
    if stands_in:
        sys.modules[parent] = type(sys)(parent)
        sys.modules[parent].__path__ = list(path)
    try:
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, None) if hasattr(finder, "find_spec") else None
            if spec is not None:
                return spec
    finally:
        if stands_in:
            del sys.modules[parent]
    return None


def find(name):
    """The spec of a dotted name, segment by segment through the finders; imports nothing."""
    path, spec, done = None, None, ""
    for segment in name.split("."):
        done = done + "." + segment if done else segment
        made = sys.modules.get(done)
        if made is not None and getattr(made, "__path__", None) is not None and getattr(made, "__file__", None) is None:
            spec = importlib.machinery.ModuleSpec(done, None, is_package=True)
            spec.submodule_search_locations = list(made.__path__)
        else:
            spec = ask_finders(done, path)
        if spec is None:
            return None
        path = locations_of(spec)
        if path is None and done != name:
            return None
    return spec


def module(name):
    try:
        spec = find(name)
    except Exception as error:
        return {"error": "%s: %s" % (type(error).__name__, error)}
    if spec is None:
        return None
    kinds = (
        ("ExtensionFileLoader", "extension"),
        ("SourcelessFileLoader", "sourceless"),
        ("zipimporter", "zip"),
        ("NamespaceLoader", "namespace"),
        ("_NamespaceLoader", "namespace"),
    )
    loader = type(spec.loader).__name__
    kind = "namespace" if spec.loader is None else dict(kinds).get(loader, "source")
    locations = locations_of(spec)
    return {
        "kind": kind,
        "origin": spec.origin if spec.has_location and kind != "namespace" else "",
        "locations": [str(item) for item in locations] if locations is not None else [],
    }


def read(path):
    with open(path, "rb") as file:
        return file.read()


def file_fact(path):
    try:
        found = os.lstat(path)
        if not stat.S_ISREG(found.st_mode):
            return {"kind": "other"}
        data = read(path)
    except OSError as error:
        return None if isinstance(error, FileNotFoundError) else {"kind": "unreadable", "error": str(error)}
    return {
        "kind": "file",
        "sha256": hashlib.sha256(data).hexdigest(),
        "size": len(data),
        "mode": stat.S_IMODE(found.st_mode),
        "uid": found.st_uid,
        "gid": found.st_gid,
        "mtime": int(found.st_mtime),
    }


def compiled(path):
    """Whether the interpreter compiles the file: an empty text, else the error."""
    import warnings

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(read(path), path, "exec", dont_inherit=True)
    except SyntaxError as error:
        return "line %s: %s" % (error.lineno, error.msg)
    except (OSError, ValueError, MemoryError, RecursionError) as error:
        return "%s: %s" % (type(error).__name__, error)
    return ""


def bytecode(path):
    """Whether a compiled file would run instead of the source, and whether it is that of another source."""
    import marshal
    import warnings

    import _imp

    found = importlib.util.cache_from_source(path)
    try:
        data, source, status = read(found), read(path), os.stat(path)
    except OSError:
        return {"pyc": found, "runs": False}
    flags = int.from_bytes(data[4:8], "little")
    if data[:4] != importlib.util.MAGIC_NUMBER or len(data) < 16:
        return {"pyc": found, "runs": False}
    if flags & 1:
        checks = _imp.check_hash_based_pycs
        checked = checks == "always" or (checks != "never" and flags & 2)
        runs = not checked or data[8:16] == importlib.util.source_hash(source)
    else:
        mtime = (int(status.st_mtime) & 0xFFFFFFFF).to_bytes(4, "little")
        runs = data[8:16] == mtime + (len(source) & 0xFFFFFFFF).to_bytes(4, "little")
    if not runs:
        return {"pyc": found, "runs": False}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            same = marshal.loads(data[16:]) == compile(source, path, "exec", dont_inherit=True)
    except Exception:
        same = False
    return {"pyc": found, "runs": True, "unchecked": flags & 3 == 1, "same": same}


def child_arguments(task):
    task = dict(task, first=sys.path[0])
    text = ascii(task)
    pieces = [text[at : at + 100000] for at in range(0, len(text), 100000)]
    return [QUESTION["interpreter"], *QUESTION["flags"], "-c", QUESTION["child"], *pieces]


def start(task):
    """A fresh process of the same interpreter; its answer comes through a pipe of its own."""
    import subprocess

    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    try:
        process = subprocess.Popen(
            child_arguments(dict(task, fd=writer)),
            stdin=subprocess.DEVNULL,
            stdout=2,
            stderr=2,
            close_fds=True,
            pass_fds=(writer,),
            start_new_session=True,
        )
    except OSError as error:
        os.close(reader)
        return None, str(error)
    finally:
        os.close(writer)
    return process, reader


def finish(started, deadline):
    """What the process answered, or how it ended without an answer."""
    if started[0] is None:
        return {"not_started": started[1]}
    import select
    import signal
    import time

    process, reader = started
    data = b""
    while len(data) < 4000000:
        left = deadline - time.monotonic()
        ready = select.select([reader], [], [], max(left, 0))[0]
        if not ready:
            break
        piece = os.read(reader, 65536)
        if not piece:
            break
        data += piece
    os.close(reader)
    late = time.monotonic() >= deadline
    if late:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except OSError:
            pass
    else:
        # A process that answered and does not end is stopped: what it says no longer changes.
        try:
            process.wait(10)
        except Exception:
            process.kill()
    status = process.wait()
    try:
        return json.loads(data.decode())
    except ValueError:
        return {"ended": "timeout" if late else status}


def start_spawned(task):
    """The same task in a child as multiprocessing spawns it. None, and why, where that cannot be done here."""
    try:
        import multiprocessing

        context = multiprocessing.get_context("spawn")
        mine, theirs = context.Pipe(duplex=False)
        task = dict(task, connection=theirs)
        process = context.Process(target=exec, args=(QUESTION["child"], {"__name__": "patchkit_child", "TASK": task}))
        process.start()
        theirs.close()
    except Exception as error:
        return None, "%s: %s" % (type(error).__name__, error)
    return (process, mine), ""


def finish_spawned(started, deadline):
    import time

    process, mine = started
    result = None
    try:
        if mine.poll(max(deadline - time.monotonic(), 0)):
            result = json.loads(mine.recv_bytes(4000000).decode())
    except (EOFError, OSError, ValueError):
        pass
    late = time.monotonic() >= deadline
    process.join(0 if late else 10)
    if process.exitcode is None:
        process.kill()
        process.join(10)
    return result if result is not None else {"ended": "timeout" if late else process.exitcode}


def main():
    # A true answer to what only this interpreter knows comes first; what may hang or crash comes last.
    set_first_entry()
    answer(
        {
            "version": list(sys.version_info[:3]),
            "implementation": sys.implementation.name,
            "magic": importlib.util.MAGIC_NUMBER.hex(),
            "executable": sys.executable,
            "prefix": sys.prefix,
            "base_prefix": sys.base_prefix,
            "search_path": [os.getcwd() if entry == "" else str(entry) for entry in sys.path],
            "modules": {name: module(name) for name in QUESTION["modules"]},
            "files": {path: file_fact(path) for path in QUESTION["files"]},
            "gpus": amd_gpus(),
        }
    )
    imports, asserts = QUESTION["imports"], QUESTION["asserts"]
    if not (QUESTION["sources"] or imports or asserts):
        return
    import time

    deadline = time.monotonic() + QUESTION["timeout"]
    fresh = spawned = None
    why = ""
    if imports:
        task = {"imports": imports}
        fresh = start(task)
        spawned, why = start_spawned(task)
    answer(
        {
            "compiles": {path: compiled(path) for path in QUESTION["sources"]},
            "bytecode": {path: bytecode(path) for path in QUESTION["sources"]},
        }
    )
    if imports:
        answer({"imports": finish(fresh, deadline)})
        answer({"spawned": finish_spawned(spawned, deadline) if spawned else {"not_started": why}})
    for index, task in enumerate(asserts):
        answer({"assert %d" % index: finish(start({"assert": task}), deadline)})


main()
