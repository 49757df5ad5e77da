"""Delivery by mounts: which compiled files are covered."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from patchkit.deliver.bind import write_mounts
from patchkit.deliver.output import content_mtime
from patchkit.images.model import Entry
from patchkit.plan import PlannedFile, digest_of
from patchkit.site.model import Compiled

SOURCE = b"value = 2\n"
POST = digest_of(SOURCE)
PATH = "/site/pkg/mod.py"
PYC = "/site/pkg/__pycache__/mod.cpython-311.pyc"
FITS = content_mtime(POST.removeprefix("sha256:"))


def header(flags: int, mtime: int = 0) -> bytes:
    return b"\xa7\r\r\n" + b"".join(number.to_bytes(4, "little") for number in (flags, mtime, len(SOURCE)))


@pytest.mark.parametrize(
    ("head", "covered"),
    [
        (header(0b01), True),
        (header(0b11), True),  # run unchecked under --check-hash-based-pycs never
        (header(0, FITS), True),
        (header(0, FITS + 1), False),
        (header(0b01)[:15], False),
    ],
)
def test_a_compiled_file_that_some_python_would_run_is_covered_with_an_empty_one(
    tmp_path: Path, head: bytes, covered: bool
) -> None:
    entry = Entry(PATH, "file", 0o644, 0, 0)
    file = PlannedFile("pkg/mod.py", PATH, SOURCE, entry, digest_of(b"value = 1\n"), POST)
    plan = SimpleNamespace(changed=(file,), site=SimpleNamespace(pycs={PYC: Compiled(PATH, head)}))
    mounts = {mount.target: Path(mount.source).read_bytes() for mount in write_mounts(plan, tmp_path)}
    assert mounts == {PATH: SOURCE, **({PYC: b""} if covered else {})}
