"""Where builds are kept, one lock a build, and the Debian root that nearly all images stand on."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import shutil
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from tests.images import debian, tree

REPOSITORY = Path(__file__).parents[2]
BUILD = REPOSITORY / ".build/fixtures"
_held: set[str] = set()


def base() -> Path:
    """The Debian root's tar, shared by all variants."""
    key = hashlib.sha256(Path(debian.__file__).read_bytes() + Path(tree.__file__).read_bytes()).hexdigest()[:12]
    target = BUILD / f"debian-{key}.tar"
    with locked("_root"):
        if not target.exists():
            part = target.with_suffix(".part")
            debian.write_root(part, BUILD / "debian")
            part.rename(target)
    return target


@cache
def base_file(path: str) -> bytes:
    """One file of the Debian root."""
    with tarfile.open(base()) as archive:
        stream = archive.extractfile(path.lstrip("/"))
        assert stream is not None
        return stream.read()


@cache
def base_names(folder: str) -> tuple[str, ...]:
    """The names in one folder of the Debian root."""
    prefix = folder.strip("/") + "/"
    with tarfile.open(base()) as archive:
        return tuple(
            name.removeprefix(prefix)
            for name in archive.getnames()
            if name.startswith(prefix) and name.count("/") == prefix.count("/")
        )


def pycs(sources: Mapping[str, bytes], mtime: int, mode: str) -> dict[str, bytes]:
    """Compile by the root's own Python: path in the image -> the bytes of its .pyc. ``mode`` is TIMESTAMP or
    UNCHECKED_HASH; a timestamp pyc names ``mtime`` and the source's size."""
    root = base().with_suffix(".root")
    with locked("_unpacked_root"):
        if not root.exists():
            part = root.with_suffix(".part")
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir()
            subprocess.run(["tar", "-x", "--no-same-owner", "-C", part, "-f", base()], check=True)
            part.rename(root)
    program = ["/usr/bin/python3.11", "-I", "-S", "-c", _COMPILE]
    if shutil.which("bwrap"):
        inside = ["bwrap", "--ro-bind", root, "/", "--tmpfs", "/tmp", "--dev", "/dev", "--unshare-all", *program]
    else:
        inside = ["chroot", root, *program]
    job = {"mode": mode, "mtime": mtime, "sources": {path: data.decode() for path, data in sources.items()}}
    answer = subprocess.run(inside, input=json.dumps(job), check=True, capture_output=True, text=True).stdout
    return {path: bytes.fromhex(pyc) for path, pyc in json.loads(answer).items()}


_COMPILE = """
import json, os, py_compile, sys
job = json.load(sys.stdin)
done = {}
for path, source in job["sources"].items():
    with open("/tmp/source.py", "w") as stream:
        stream.write(source)
    os.utime("/tmp/source.py", (job["mtime"], job["mtime"]))
    mode = py_compile.PycInvalidationMode[job["mode"]]
    py_compile.compile("/tmp/source.py", "/tmp/out.pyc", dfile=path, doraise=True, invalidation_mode=mode)
    with open("/tmp/out.pyc", "rb") as stream:
        done[path] = stream.read().hex()
print(json.dumps(done))
"""


@contextlib.contextmanager
def locked(name: str) -> Iterator[None]:
    """One process at a time builds a thing; the kernel frees the lock of a killed one."""
    assert name not in _held, f"{name} is locked already: a second lock would wait for ever"
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / f"{name}.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        _held.add(name)
        try:
            yield
        finally:
            _held.discard(name)
