"""A derived image in a Docker engine, against a build with COPY of the same files and against a commit; a bounded run
against a bare one. All over the engine's API from this one process, so that no program's start is measured, except
``docker run``, which is what people know.

    python -m benchmarks.engine            the image like Intel's nightly
    python -m benchmarks.engine --large    3 GB, and 60 000 small files: the cost must not grow with the image
"""

from __future__ import annotations

import io
import os
import sys
import tarfile
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.harness import Aim, Case, measure, report, run
from patchkit.images.daemon import DaemonImage
from patchkit.images.engine import engine
from patchkit.images.model import Change, Derivation, Derived, Reference, Run
from tests import images
from tests.images.variants import SITE, VENV

_FILES = ("vllm/models/flint/ops/norm.py", "vllm/models/flint/ops/moe.py", "vllm/models/flint/model.py")
_NOBODY = 65534
_TAR = {"Content-Type": "application/x-tar"}


class Bench:
    """One image under a name of its own, and the ways to put three patched files into it."""

    def __init__(self, variant: str) -> None:
        self.engine = engine()
        self.prefix = f"patchkit-bench-{uuid.uuid4().hex[:8]}"
        self.image = images.load(variant, f"{self.prefix}:nightly")
        with self.open() as image:
            entries = {f"{SITE}/{name}": image.fs.lstat(f"{SITE}/{name}") for name in _FILES}
            self.changes = tuple(
                Change(path, image.fs.read(path) + b"\n# patched\n", entry.mode, entry.uid, entry.gid)
                for path, entry in entries.items()
                if entry is not None
            )

    def open(self) -> DaemonImage:
        return DaemonImage(self.engine, Reference("docker-daemon", self.image))

    def derive(self) -> Derived:
        labels = {
            "dev.patchkit.origin.kind": "docker-daemon",
            "dev.patchkit.origin.name": self.image,
            "dev.patchkit.fingerprint": "0" * 64,
        }
        with self.open() as image:
            plan = Derivation(self.changes, labels, "patchkit apply bench@1")
            return image.derive(plan, Reference("docker-daemon", f"{self.prefix}:derived"))

    def derive_as_a_member_of_the_docker_group(self) -> Derived:
        with _group_member():
            return self.derive()

    def forget(self) -> None:
        self.engine.remove_image(f"{self.prefix}:derived")

    def build(self, version: str) -> None:
        lines = [f"FROM {self.image}", *(f"COPY {n} {change.path}" for n, change in enumerate(self.changes))]
        # Something new each time, else the builder answers from its cache and builds nothing.
        files = {"Dockerfile": "\n".join([*lines, "COPY salt /salt", ""]).encode(), "salt": uuid.uuid4().bytes}
        files |= {str(n): change.data or b"" for n, change in enumerate(self.changes)}
        params = {"version": version, "t": f"{self.prefix}:built"}
        for _ in self.engine.stream("POST", "/build", params=params, data=_tar(files), headers=_TAR):
            pass

    def commit(self) -> None:
        created = self.engine.create({"Image": self.image})
        try:
            data = _tar({change.path.lstrip("/"): change.data or b"" for change in self.changes})
            self.engine.call("PUT", f"/containers/{created}/archive", params={"path": "/"}, data=data, headers=_TAR)
            params = {"container": created, "repo": self.prefix, "tag": "committed"}
            self.engine.call("POST", "/commit", params=params, body={})
        finally:
            self.engine.remove(created)

    def run(self) -> None:
        with self.open() as image:
            result = image.run(Run((f"{VENV}/bin/python3", "-c", "pass"), read_all=True))
        assert result.status == 0, result.stderr

    def bare_run(self) -> None:
        run("docker", "run", "--rm", "--entrypoint", f"{VENV}/bin/python3", self.image, "-c", "pass")

    def clean(self) -> None:
        for tag in ("nightly", "derived", "built", "committed"):
            self.engine.remove_image(f"{self.prefix}:{tag}")


def main() -> None:
    variants = ("big", "manyfiles") if "--large" in sys.argv[1:] else ("xpu",)
    for variant in variants:
        with tempfile.TemporaryDirectory() as cache:
            Path(cache).chmod(0o777)
            os.environ["PATCHKIT_CACHE"] = cache
            _measure(variant)


def _measure(variant: str) -> None:
    bench = Bench(variant)
    try:
        derived = bench.derive()
        cases = [
            Case("derive", bench.derive, bench.forget),
            Case("derive, equal image there", bench.derive),
            Case("build with COPY (BuildKit)", lambda: bench.build("2")),
            Case("build with COPY (classic)", lambda: bench.build("1")),
            Case("create, put, commit", bench.commit),
            Case("one bounded run", bench.run),
            Case("docker run", bench.bare_run),
        ]
        aims = [
            Aim("derive", "build with COPY (BuildKit)", 0.5),
            Aim("derive", "create, put, commit", 1.0),
            Aim("one bounded run", "docker run", 1.1),
        ]
        if os.geteuid() == 0:
            cases.insert(1, Case("derive, as docker group", bench.derive_as_a_member_of_the_docker_group, bench.forget))
        result = measure(f"engine-{variant}", cases)
        report(result, aims, {"road": derived.road, "bytes of the new layer": derived.layer_size})
    finally:
        bench.clean()


@contextmanager
def _group_member() -> Iterator[None]:
    """Be an ordinary user of the docker group for a while, in this very process."""
    groups = os.getgroups()
    os.setgroups([Path("/var/run/docker.sock").stat().st_gid])
    os.setegid(_NOBODY)
    os.seteuid(_NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)


def _tar(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(data), 0o644
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


if __name__ == "__main__":
    main()
