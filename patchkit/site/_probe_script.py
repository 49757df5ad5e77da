# Runs under an image's own interpreter (Python 3.8 or newer, standard library only), given as the text of `-c`.
#
# argv: the question as JSON, cut into pieces because Linux limits one argument to 128 KiB. Answers are lines of
# standard output that carry a proof: a sha256 over the question's nonce and the answer. What else writes there (a .pth
# file, a banner) is no answer.
import hashlib
import importlib.util
import json
import os
import stat
import sys

from patchkit.site.gpus import amd_gpus
from patchkit.site.imports import bytecode, find, locations_of, read, set_first_entry

QUESTION = json.loads("".join(sys.argv[1:]))
OUT = os.dup(1)
os.dup2(2, 1)


def answer(part):
    text = json.dumps(part, sort_keys=True)
    proof = hashlib.sha256((QUESTION["nonce"] + text).encode()).hexdigest()
    data = ("\npatchkit-answer %s %s\n" % (proof, text)).encode()
    while data:
        data = data[os.write(OUT, data) :]


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
    return {
        "kind": kind,
        "origin": spec.origin if spec.has_location and kind != "namespace" else "",
        "locations": locations_of(spec) or [],
    }


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


def told_bytecode(path, origins):
    try:
        return bytecode(path, read(path), origins)
    except OSError:
        return {"pyc": importlib.util.cache_from_source(path), "runs": False}


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
    set_first_entry("", QUESTION["form"], QUESTION["argument"])
    modules = {name: module(name) for name in QUESTION["modules"]}
    origins = [told["origin"] for told in modules.values() if told and told.get("origin")]
    answer(
        {
            "version": list(sys.version_info[:3]),
            "implementation": sys.implementation.name,
            "magic": importlib.util.MAGIC_NUMBER.hex(),
            "executable": sys.executable,
            "prefix": sys.prefix,
            "base_prefix": sys.base_prefix,
            "search_path": [os.getcwd() if entry == "" else str(entry) for entry in sys.path],
            "modules": modules,
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
        spawned, why = start_spawned(task)  # first: it starts a second process besides, and takes the longer
        fresh = start(task)
    answer(
        {
            "compiles": {path: compiled(path) for path in QUESTION["sources"]},
            "bytecode": {path: told_bytecode(path, origins) for path in QUESTION["sources"]},
        }
    )
    if imports:
        answer({"imports": finish(fresh, deadline)})
        answer({"spawned": finish_spawned(spawned, deadline) if spawned else {"not_started": why}})
    for index, task in enumerate(asserts):
        answer({"assert %d" % index: finish(start({"assert": task}), deadline)})


main()
