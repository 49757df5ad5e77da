"""vLLM 0.33.0's Python files as a wheel installs them, pristine and patched, in folders that can be imported from."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

from patchkit import index
from patchkit.catalog.load import load_catalog
from patchkit.diff import evaluate_series, parse

REPOSITORY = Path(__file__).parents[2]
BUILD = REPOSITORY / ".build/kernels"
VERSION = "0.33.0"
#: Built against torch's stable interface, so that they run with other releases of torch than the wheel asks for.
COMPILED = ("vllm/_C_stable_libtorch.abi3.so", "vllm/_moe_C_stable_libtorch.abi3.so")


def pristine() -> Path:
    """A folder to put on the search path: every file that RECORD names and the source distribution holds.

    The wheel has ten times the size for the same sources, each of them is compared with the wheel's RECORD.
    """
    return _made(f"vllm-{VERSION}", _unpack)


def patched(manifest: str, without: str = "") -> Path:
    """The same with the series of one of the shipped manifests, applied by patchkit, one patch left out where asked;
    unchanged files are hard links."""
    series = next(each for each in load_catalog(REPOSITORY).manifests if each.name == manifest)
    entries = [entry for entry in series.patches if entry.id != without]
    diffs = [(REPOSITORY / entry.file).read_bytes() for entry in entries]
    source = pristine()

    def make(folder: Path) -> None:
        result = evaluate_series(
            [parse(data, entry.file) for data, entry in zip(diffs, entries, strict=True)],
            lambda path: (source / path).read_bytes() if (source / path).is_file() else None,
            pre=[entry.pre for entry in entries],
            post=[entry.post for entry in entries],
        )
        assert result.ok, result
        shutil.copytree(source, folder, copy_function=os.link, ignore=shutil.ignore_patterns("__pycache__"))
        for path, data in result.changes.items():
            assert data is not None
            (folder / path).unlink()
            (folder / path).write_bytes(data)

    return _made(f"{manifest}-{hashlib.sha256(b''.join(diffs)).hexdigest()[:12]}", make)


def complete(manifest: str) -> Path:
    """``patched`` with what the wheel has beyond the sources: the compiled operations that Flint's stock path calls on
    CUDA, and the Python files that only a build makes."""
    source = patched(manifest)

    def make(folder: Path) -> None:
        shutil.copytree(source, folder, copy_function=os.link, ignore=shutil.ignore_patterns("__pycache__"))
        with index.configured().wheel("vllm", VERSION) as wheel:
            for path in wheel.record():
                if path in COMPILED or (path.endswith(".py") and not (source / path).exists()):
                    (folder / path).parent.mkdir(parents=True, exist_ok=True)
                    (folder / path).write_bytes(wheel.read(path, limit=1 << 30))

    return _made(f"{source.name}-complete", make)


def triton_xpu() -> Path:
    """Intel's build of Triton, in a folder of its own: it has the same module name as the other."""

    def make(folder: Path) -> None:
        wanted = ["--no-deps", "--target", str(folder), "triton-xpu==3.3.0b1"]
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", *wanted], check=True)

    return _made("triton-xpu-3.3.0b1", make)


def _made(name: str, make: Callable[[Path], None]) -> Path:
    target = BUILD / name
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / f".{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            part = Path(tempfile.mkdtemp(dir=BUILD, prefix=".part-"))
            try:
                make(part / name)
                (part / name).rename(target)
            finally:
                shutil.rmtree(part)
    return target


def _unpack(folder: Path) -> None:
    indexes = index.configured()
    with indexes.wheel("vllm", VERSION) as wheel:
        record = wheel.record()
        for name in ("METADATA", "RECORD"):
            place = folder / wheel.dist_info / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(wheel.read(f"{wheel.dist_info}/{name}"))
    with tarfile.open(indexes.download(indexes.sdist("vllm", VERSION).file)) as archive:
        for member in archive:
            path = member.name.partition("/")[2]
            line = record.get(path)
            if line is None or not line.algorithm or not member.isfile():
                continue
            stream = archive.extractfile(member)
            assert stream is not None
            data = stream.read()
            assert hashlib.new(line.algorithm, data).hexdigest() == line.digest, f"{path} is not what the wheel holds"
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(data)
