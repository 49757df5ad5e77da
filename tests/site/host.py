"""This machine as an image: its own files, and programs run directly. Real interpreters without an engine."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Sequence
from pathlib import Path

from patchkit.images.model import MAX_READ, Entry, EntryKind, Identity, Reference, Run, RunResult


class HostFiles:
    """Files below ``root``, read as an image's files are."""

    def __init__(self, root: Path | str = "/") -> None:
        self.root = str(root).rstrip("/")

    def lstat(self, path: str) -> Entry | None:
        try:
            found = os.lstat(self.root + path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        kind: EntryKind = "other"
        for test, name in ((stat.S_ISREG, "file"), (stat.S_ISDIR, "dir"), (stat.S_ISLNK, "symlink")):
            if test(found.st_mode):
                kind = name  # type: ignore[assignment]
        target = str(Path(self.root + path).readlink()) if kind == "symlink" else ""
        mode = stat.S_IMODE(found.st_mode)
        return Entry(path, kind, mode, found.st_uid, found.st_gid, found.st_size, int(found.st_mtime), target)

    def read(self, path: str, limit: int = MAX_READ) -> bytes:
        found = self.lstat(path)
        if found is None or found.kind != "file":
            raise FileNotFoundError(path)
        return Path(self.root + path).read_bytes()

    def listdir(self, path: str) -> Sequence[str]:
        try:
            return sorted(place.name for place in Path(self.root + path).iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return []


class HostImage:
    """Runs what it is told on this machine, with exactly the environment given."""

    reference = Reference("rootfs", "/")
    identity = Identity("sha256:" + "0" * 64, (), "linux/amd64")
    config = b"{}"
    can_run = True

    def __init__(self) -> None:
        self.fs = HostFiles()
        self.runs: list[Run] = []

    def run(self, run: Run) -> RunResult:
        self.runs.append(run)
        process = subprocess.Popen(
            run.argv,
            env=dict(run.env),
            cwd=run.cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            out, err = process.communicate(run.stdin, timeout=run.timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            out, err = process.communicate()
            return RunResult(137, out, err, "timeout")
        status = process.returncode if process.returncode >= 0 else 128 - process.returncode
        return RunResult(status, out, err)
