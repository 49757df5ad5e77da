"""The packages that the fixture images hold: a true part of vLLM, and a small package whose imports really pass."""

from __future__ import annotations

import base64
import hashlib
import re
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from patchkit import index

_REPOSITORY = Path(__file__).parents[2]

# What the console script imports first, the model that is patched, and the worker that makes one patch needed.
_VLLM_PART = re.compile(
    r"vllm/(__init__|_version|version|env_override|envs|logger)\.py"
    r"|vllm/(entrypoints|models|platforms|v1|v1/worker)/__init__\.py"
    r"|vllm/entrypoints/cli/[^/]+\.py"
    r"|vllm/models/(flint|common)/.*\.py"
    r"|vllm/platforms/(interface|xpu)\.py"
    r"|vllm/v1/worker/(xpu_model_runner|xpu_worker|worker_base)\.py"
)


@dataclass(frozen=True, slots=True)
class Package:
    """An installable package: sources by path relative to site-packages, and its dist-info files by name."""

    name: str
    version: str
    sources: tuple[tuple[str, bytes], ...]
    dist_info: tuple[tuple[str, bytes], ...]
    script: str
    entry: str
    unlisted: tuple[tuple[str, str], ...] = ()

    @property
    def dist_info_name(self) -> str:
        return f"{self.name}-{self.version}.dist-info"

    def installed(self, script_path: str, *, everything_recorded: bool = False) -> list[tuple[str, bytes]]:
        """All files below site-packages as pip leaves them, with a RECORD of exactly these (or, on request, with the
        lines of the files that this part of the package leaves out). ``script_path`` is the console script's path
        relative to site-packages."""
        info = [
            *((f"{self.dist_info_name}/{name}", data) for name, data in self.dist_info),
            (f"{self.dist_info_name}/INSTALLER", b"pip\n"),
            (f"{self.dist_info_name}/REQUESTED", b""),
        ]
        files = [*self.sources, *info]
        lines = [(path, _record_line(path, hashlib.sha256(data).digest(), len(data))) for path, data in files]
        lines.append((f"{self.dist_info_name}/RECORD", f"{self.dist_info_name}/RECORD,,"))
        lines.append((script_path, f"{script_path},,"))
        if everything_recorded:
            lines.extend(self.unlisted)
        record = "".join(f"{line}\n" for _, line in sorted(lines))
        return [*files, (f"{self.dist_info_name}/RECORD", record.encode())]

    def console_script(self, interpreter: str) -> str:
        """The script that pip writes for the entry point."""
        module, _, function = self.entry.partition(":")
        return (
            f"#!{interpreter}\n# -*- coding: utf-8 -*-\nimport re\nimport sys\nfrom {module} import {function}\n"
            "if __name__ == '__main__':\n"
            "    sys.argv[0] = re.sub(r'(-script\\.pyw|\\.exe)?$', '', sys.argv[0])\n"
            f"    sys.exit({function}())\n"
        )

    def with_version(self, version: str) -> Package:
        """The same package under another version, in METADATA and where the package itself tells it."""
        old, new = self.version.encode(), version.encode()

        def renamed(files: Iterable[tuple[str, bytes]], names: tuple[str, ...]) -> tuple[tuple[str, bytes], ...]:
            return tuple((path, data.replace(old, new) if path.endswith(names) else data) for path, data in files)

        return Package(
            self.name,
            version,
            renamed(self.sources, ("/_version.py",)),
            renamed(self.dist_info, ("METADATA",)),
            self.script,
            self.entry,
            self.unlisted,
        )

    def with_sources(self, changed: dict[str, bytes]) -> Package:
        """The same package with other bytes in some files; new paths are added."""
        sources = dict(self.sources) | changed
        return Package(
            self.name, self.version, tuple(sources.items()), self.dist_info, self.script, self.entry, self.unlisted
        )


@cache
def vllm(version: str = "0.33.0") -> Package:
    """A part of the real vLLM, read from the package index by ranges and checked against RECORD.

    Raises:
        patchkit.errors.PatchkitError: the index cannot be reached or altered what it sent.
    """
    with index.configured().wheel("vllm", version) as wheel:
        record = wheel.record()
        prefix = f"{wheel.dist_info}/"
        sources = tuple((path, wheel.read(path)) for path in sorted(record) if _VLLM_PART.fullmatch(path))
        names = ("METADATA", "WHEEL", "entry_points.txt", "top_level.txt")
        info = tuple((name, wheel.read(prefix + name)) for name in names)
        here = {path for path, _ in sources}
        unlisted = tuple(
            (path, _record_line(path, bytes.fromhex(line.digest), line.size or 0))
            for path, line in record.items()
            if line.digest and path not in here and not path.startswith(prefix)
        )
    return Package("vllm", version, sources, info, "vllm", "vllm.entrypoints.cli.main:main", unlisted)


def vllm_with_fix() -> Package:
    """vLLM as if upstream had taken the patches of ``patches/xpu``."""
    package = vllm()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for path, data in package.sources:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(data)
        for patch in sorted((_REPOSITORY / "patches/xpu").glob("*.patch")):
            subprocess.run(["git", "apply", "--whitespace=nowarn", patch], cwd=root, check=True)
        return package.with_sources({path: (root / path).read_bytes() for path, _ in package.sources})


def tinyserve(version: str = "1.2.0") -> Package:
    """A pure-Python server of 60 lines: ``tinyserve serve`` says which file serves and what it computes."""
    sources = {
        "tinyserve/__init__.py": f'"""A very small server."""\n\n__version__ = "{version}"\n',
        "tinyserve/__main__.py": "import sys\n\nfrom tinyserve.cli import main\n\nsys.exit(main())\n",
        "tinyserve/cli.py": _TINYSERVE_CLI,
        "tinyserve/ops/__init__.py": "",
        "tinyserve/ops/scale.py": _TINYSERVE_SCALE,
        "tinyserve/models/__init__.py": "",
        "tinyserve/models/one.py": _TINYSERVE_MODEL,
    }
    info = {
        "METADATA": f"Metadata-Version: 2.1\nName: tinyserve\nVersion: {version}\nRequires-Python: >=3.8\n",
        "WHEEL": "Wheel-Version: 1.0\nGenerator: hatchling 1.25.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "entry_points.txt": "[console_scripts]\ntinyserve = tinyserve.cli:main\n",
    }
    return Package(
        "tinyserve",
        version,
        tuple((path, text.encode()) for path, text in sources.items()),
        tuple((name, text.encode()) for name, text in info.items()),
        "tinyserve",
        "tinyserve.cli:main",
    )


_TINYSERVE_CLI = '''"""The command line: serve until told to stop."""

import json
import multiprocessing
import os
import signal
import sys
import time

from tinyserve.models import one


def report(who):
    print(json.dumps({"who": who, "pid": os.getpid(), "file": one.__file__, "answer": one.answer(3)}), flush=True)


def work(number):
    report("worker %d" % number)
    time.sleep(float(os.environ.get("TINYSERVE_SECONDS", "0")))


def main():
    arguments = sys.argv[1:]
    if arguments[:1] != ["serve"]:
        print("usage: tinyserve serve [ARGUMENT...]", file=sys.stderr)
        return 2
    print(json.dumps({"arguments": arguments[1:]}), flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(43))
    report("server")
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=work, args=(n,)) for n in range(int(os.environ.get("TINYSERVE_WORKERS", "0")))]
    for worker in workers:
        worker.start()
    time.sleep(float(os.environ.get("TINYSERVE_SECONDS", "0")))
    for worker in workers:
        worker.join()
    return 0
'''

_TINYSERVE_SCALE = '''"""Scaling."""


def scale(value, factor=2):
    """The value times the factor."""
    return value * factor


def shift(value, by=1):
    """The value moved up."""
    return value + by
'''

_TINYSERVE_MODEL = '''"""A model: one number in, one number out."""

from tinyserve.ops.scale import scale, shift


def answer(value):
    """What the server answers."""
    return shift(scale(value))
'''


def _record_line(path: str, digest: bytes, size: int) -> str:
    quoted = f'"{path}"' if "," in path else path
    return f"{quoted},sha256={base64.urlsafe_b64encode(digest).rstrip(b'=').decode()},{size}"
