# Runs under an image's own interpreter (Python 3.8 or newer) in a process of its own: imports modules, or runs one
# assert, and tells what came of it. As few modules as possible are imported before the work: a module that only works
# because somebody else imported `os.path` must fail here as it would in the server.
import sys


def told(error):
    """The exception and those behind it: type, text, missing module, and each frame's file and line."""
    chain, seen = [], set()
    while error is not None and id(error) not in seen and len(chain) < 10:
        seen.add(id(error))
        frames, trace = [], error.__traceback__
        while trace is not None:
            frames.append([trace.tb_frame.f_code.co_filename, trace.tb_lineno])
            trace = trace.tb_next
        if isinstance(error, SyntaxError):
            frames.append([str(error.filename), error.lineno or 0])
        chain.append(
            {
                "type": type(error).__name__,
                "kinds": [kind.__name__ for kind in type(error).__mro__],
                "text": str(error)[:2000],
                "name": getattr(error, "name", None) if isinstance(error, ImportError) else None,
                "frames": frames[:50] + frames[50:][-150:],
                "link": "cause" if error.__cause__ else "context",
            }
        )
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return chain


def imported(name):
    try:
        __import__(name)
        module = sys.modules[name]
    except BaseException as error:
        return {"error": told(error)}
    return {"file": getattr(module, "__file__", None)}


def with_bytes(result):
    """The result with the real path and the hash of the file that was imported."""
    file = result.get("file")
    if file:
        import hashlib
        import os

        result["real"] = os.path.realpath(file)
        try:
            with open(file, "rb") as source:
                result["sha256"] = hashlib.sha256(source.read()).hexdigest()
        except OSError as error:
            result["unreadable"] = str(error)
    return result


def versions():
    """What the assert ran on: libraries, and the drivers of the cards where the kernel tells them."""
    found = {}
    for name in ("torch", "triton"):
        if name in sys.modules:
            found[name] = str(getattr(sys.modules[name], "__version__", ""))
    if "torch" in sys.modules:
        for name in ("cuda", "hip", "xpu"):
            found["torch.version." + name] = str(getattr(sys.modules["torch"].version, name, None) or "")
    for path in ("/proc/driver/nvidia/version", "/sys/module/amdgpu/version", "/sys/module/xe/version"):
        try:
            with open(path) as file:
                found[path] = file.readline().strip()
        except OSError:
            pass
    return found


def asserted(task):
    names = {"__name__": "patchkit_assert"}
    said = []

    class Listening:
        """Standard output of the assert: what it measured is part of the evidence."""

        def write(self, text):
            said.append(text)
            return len(text)

        def flush(self):
            pass

    out = sys.stdout
    try:
        if task["before"]:
            exec(compile(task["before"], "<before>", "exec", dont_inherit=True), names)
        __import__(task["module"])
        names["module"] = sys.modules[task["module"]]
        top = task["module"].partition(".")[0]
        names[top] = sys.modules[top]
        sys.stdout = Listening()
        exec(compile(task["code"], "<assert>", "exec", dont_inherit=True), names)
    except BaseException as error:
        return {"error": told(error), "output": "".join(said)[-4000:], "versions": versions()}
    finally:
        sys.stdout = out
    return {"output": "".join(said)[-4000:], "versions": versions()}


def work(task):
    if task.get("first") is not None and sys.path and sys.path[0] == "":
        sys.path[0] = task["first"]
    if "assert" in task:
        result = asserted(task["assert"])
    else:
        result = {name: imported(name) for name in task["imports"]}
        result = {name: with_bytes(found) for name, found in result.items()}
    import json

    data = json.dumps(result).encode()
    if "connection" in task:
        task["connection"].send_bytes(data)
        task["connection"].close()
        return
    import os

    while data:
        data = data[os.write(task["fd"], data) :]
    os.close(task["fd"])
    # What the package left running (threads, atexit hooks) does not belong to the proof.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def arguments():
    # A literal from our own side; json and ast would be modules that the server may not have loaded.
    return eval("".join(sys.argv[1:]), {"__builtins__": {}})


work(globals()["TASK"] if "TASK" in globals() else arguments())
