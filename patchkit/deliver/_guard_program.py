# Stands in front of a server in a container: starts it only if what was proven is what it will import.
#
# Runs under the server's own interpreter (Python 3.8 or newer, standard library only), as any user, on a read-only
# root, as process 1. It is replaced by the server (exec), which finds arguments, environment, working folder, streams
# and signals as if nothing had stood before it. It imports nothing of the package. Exit status 78 (EX_CONFIG of
# sysexits.h) where something moved, where it is given a GPU that the patches are not for, or where its environment has
# a setting under which they must not be used.
import os
import signal
import sys

from patchkit.catalog.settings import refused_settings, setting_remedy
from patchkit.site.gpus import amd_gpus, gpu_remedy, refused_gpus
from patchkit.site.imports import bytecode, find, locations_of, read, set_first_entry
from patchkit.site.shipped import parse_record

SPEC: "dict[str, object]" = {}


def program_of(name):
    """The path that a program's name leads to, as execvp(3) finds it."""
    if "/" not in name:
        for folder in os.environ.get("PATH", "").split(":"):
            candidate = os.path.join(folder, name)
            if os.path.isfile(candidate) and os.access(candidate, os.X_OK):
                return candidate
    return name


def wrong_entry(command):
    """Why the command would start another program, or another Python, than was proven; empty where it would not."""
    if not SPEC["program"] or not command or command[0] != SPEC["command"]:
        return ""
    found = program_of(command[0])
    if os.path.realpath(found) != os.path.realpath(SPEC["program"]):
        return "%s starts %s, proven was %s (was PATH changed?)" % (command[0], found, SPEC["program"])
    with open(found, "rb") as file:
        words = file.readline(256).decode("utf-8", "surrogateescape").split()
    # A virtual environment's Python is often a link: its folder is what makes it that environment's.
    if len(words) == 2 and words[0].startswith("#!") and os.path.basename(words[0]) == "env":
        python = program_of(words[1])
        if os.path.realpath(os.path.dirname(python)) != os.path.realpath(os.path.dirname(SPEC["interpreter"])):
            return "%s runs under %s, proven was %s (was PATH changed?)" % (found, python, SPEC["interpreter"])
    return ""


def wrong_shipped(file, record):
    """Why the file as shipped is not the one that the patch was made for; empty where it is, or nobody knows."""
    if not file["shipped"]:
        return ""
    if record is None:
        return "%s is gone: another version of the package was installed" % SPEC["record"]
    digest = record.get(file["relative"])
    if digest is None:
        return "RECORD does not know it any more"
    if digest == file["shipped"]:
        return ""
    return "the image ships it as sha256:%s, the patch was made for sha256:%s" % (digest, file["shipped"])


def expected():
    """The paths of all files that should be there: where x.py became x/__init__.py the name is still found."""
    return [file["path"] for file in SPEC["files"] if file["post"] != "absent"]


def wrong_module(file, spec):
    """Why the server would import something else than it should; empty where it would not."""
    name = file["module"]
    if not name:
        return ""
    if file["post"] == "absent":
        still = spec is not None and spec.has_location and os.path.realpath(spec.origin) not in expected()
        return "import %s still finds %s" % (name, spec.origin) if still else ""
    if spec is None:
        return "import %s finds nothing" % name
    if not spec.has_location or os.path.realpath(spec.origin) != file["path"]:
        return "import %s finds %s, not %s" % (name, spec.origin or locations_of(spec), file["path"])
    return ""


def wrong_bytecode(path, source, spec):
    """Why a compiled file would run instead of the source; empty where none would, or it is of this very source."""
    told = bytecode(path, source, [spec.origin] if spec and spec.origin else [])
    return "%s would run instead of it" % told["pyc"] if told["runs"] and not told["same"] else ""


def wrong_file(file, record):
    """The first thing that is wrong with one file."""
    import hashlib

    shipped = wrong_shipped(file, record)
    if shipped:
        return shipped
    spec = find(file["module"]) if file["module"] else None
    try:
        source = read(file["path"])
    except OSError as error:
        if file["post"] != "absent" or not isinstance(error, FileNotFoundError):
            return "%s cannot be read: %s" % (file["path"], error.strerror)
        return wrong_module(file, spec)
    if file["post"] == "absent":
        return "%s should not be there" % file["path"]
    digest = hashlib.sha256(source).hexdigest()
    if digest != file["post"]:
        return "%s has sha256:%s, proven was sha256:%s" % (file["path"], digest, file["post"])
    wrong = wrong_module(file, spec)
    return wrong or (wrong_bytecode(file["path"], source, spec) if file["relative"].endswith(".py") else "")


def check():
    """All that is wrong, a line each."""
    set_first_entry(os.path.dirname(os.path.realpath(__file__)), SPEC["form"], SPEC["argument"])
    record = None
    if SPEC["record"]:
        try:
            record = parse_record(read(SPEC["record"]))
        except OSError:
            pass
    found = []
    for file in SPEC["files"]:
        wrong = wrong_file(file, record)
        if wrong:
            found.append("%s: %s" % (file["relative"], wrong))
    return found


def check_as_started(env):
    """The check in a process with the environment and working folder that a start script gives the server."""
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        return status == 0
    if SPEC["cwd"]:
        os.chdir(SPEC["cwd"])
    changed = dict(env)
    for name in SPEC["unset"]:
        changed.pop(os.fsencode(name), None)
    changed.update({os.fsencode(name): os.fsencode(value) for name, value in SPEC["env"].items()})
    program = os.path.abspath(__file__)
    os.execve(SPEC["interpreter"], [SPEC["interpreter"], *SPEC["flags"], program, "--patchkit-check"], changed)
    return False


def tell(lines, why="it would not run the code that was proven", remedy=None):
    text = "patchkit guard: the server is not started, because %s\n" % why
    text += "".join("  %s\n" % line for line in lines)
    text += "next: %s\n" % (remedy or SPEC["remedy"])
    os.write(2, text.encode("utf-8", "backslashreplace"))


def environment():
    """The environment as this process was given it: Python adds LC_CTYPE to its own (PEP 538)."""
    try:
        pairs = [item.partition(b"=") for item in read("/proc/self/environ").split(b"\0") if b"=" in item]
    except OSError:
        return dict(os.environb)
    return {name: value for name, _, value in pairs}


def main(command):
    # As process 1 a stop request would be lost until the server has its own handler.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
    if command == ["--patchkit-check"]:
        lines = check()
        if lines:
            tell(lines)
        os._exit(78 if lines else 0)
    wanted = SPEC["gpus"]
    if wanted:
        gpus = amd_gpus()
        lines = refused_gpus(gpus, wanted["only"], wanted["why"])
        if lines:
            tell(lines, "its GPU is not one that the patches are for", gpu_remedy(gpus, wanted["only"]))
            os._exit(78)
    env = environment()
    found = refused_settings({os.fsdecode(name): os.fsdecode(env[name]) for name in env}, SPEC["refused_env"])
    if found:
        why = "its environment has a setting under which the patches must not be used"
        tell([said for _, said in found], why, "; ".join([setting_remedy(name) for name, _ in found]))
        os._exit(78)
    wrong = wrong_entry(command)
    if wrong:
        lines = [wrong]
    elif SPEC["env"] or SPEC["unset"] or SPEC["cwd"]:
        if not check_as_started(env):
            os._exit(78)
        lines = []
    else:
        lines = check()
    if lines:
        tell(lines)
        os._exit(78)
    # Python ignores these two, and an ignored signal stays ignored through exec.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    if hasattr(signal, "SIGXFSZ"):
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        os.execvpe(command[0], command, env)
    except (OSError, IndexError) as error:
        what = command[0] if command else "nothing"
        os.write(2, ("patchkit guard: cannot start %s: %s\n" % (what, error)).encode("utf-8", "backslashreplace"))
        # As a shell and an engine say it: not found, or not to be executed.
        os._exit(127 if isinstance(error, FileNotFoundError) or not command else 126)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except Exception as error:
        tell(["the guard itself failed: %s: %s" % (type(error).__name__, error)])
        os._exit(78)
