"""Real drift: the changes between two releases of a package, carried to a third one.

The judge is git merge-file: where it merges without conflict and we write, both must give the same file; where we say
that a patch is there already, the merge must change nothing.
"""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from patchkit.diff import merge3, write
from tests.fuzz.differential import PATH, Trial, complaints, ours

RELEASES = {
    "docker": ("5.0.0", "6.0.0", "6.1.0", "7.0.0", "7.1.0"),
    "urllib3": ("1.26.0", "1.26.10", "1.26.18", "2.0.2", "2.1.0"),
    "requests": ("2.25.0", "2.28.0", "2.30.0", "2.32.3"),
    "click": ("8.0.0", "8.1.0", "8.1.7"),
    "rich": ("12.0.0", "12.6.0", "13.0.0", "13.5.0", "13.9.0"),
    "jinja2": ("3.0.0", "3.1.0", "3.1.4"),
}


def run(work: Path) -> int:
    """Fetch, try every carried change, print a line for each package, and give the number of wrong ones."""
    wrong = 0
    for name, versions in RELEASES.items():
        tried = 0
        for old, new, target, path, theirs in carried([fetch(name, version, work) for version in versions]):
            tried += 1
            for found in judge(old, new, target, work):
                wrong += 1
                print(f"{name}: {path}, carried to {theirs}: {found}")
        print(f"{name}: {tried} changes carried")
    return wrong


def fetch(name: str, version: str, work: Path) -> Path:
    """The wheel of a release. pip says where it comes from."""
    folder = work / "wheels" / f"{name}-{version}"
    if not folder.exists():
        command = ["pip", "-qqq", "download", "--no-deps", "--only-binary", ":all:", "-d", folder, f"{name}=={version}"]
        subprocess.run([sys.executable, "-m", *command], check=True)
    return next(folder.iterdir())


def carried(wheels: list[Path]) -> Iterator[tuple[bytes, bytes, bytes, str, str]]:
    """Old, new and target text of every file that changed between two releases and is another in a third."""
    trees = [
        {name: archive.read(name) for name in archive.namelist() if name.endswith(".py")}
        for archive in map(zipfile.ZipFile, wheels)
    ]
    for one, two in pairwise(trees):
        for path in sorted(set(one) & set(two)):
            for wheel, tree in zip(wheels, trees, strict=True):
                if one[path] != two[path] and tree.get(path) not in (None, one[path], two[path]):
                    yield one[path], two[path], tree[path], path, wheel.name


def judge(old: bytes, new: bytes, target: bytes, work: Path) -> list[str]:
    """What is wrong with what we do."""
    patch = write({PATH: old}, {PATH: new})
    patch = b"".join(line for line in patch.splitlines(keepends=True) if not line.startswith((b"diff", b"index")))
    one = Trial("release", patch, target)
    found = complaints(one, work)
    for name, data in (("base", old), ("theirs", new), ("ours", target)):
        (work / name).write_bytes(data)
    git = subprocess.run(["git", "merge-file", "-p", "ours", "base", "theirs"], cwd=work, capture_output=True)
    merged = merge3(old, new, target)
    we = ours(one, context_free=True)
    if git.returncode == 0:
        if not merged.conflicts and merged.data != git.stdout:
            found.append("our merge is clean and another than git's")
        if we.said.startswith("applied") and git.stdout != target:
            found.append("we say that it is there, and merging it changes the file")
        if we.ok and we.data != git.stdout:
            found.append("we write another file than merging does")
    return found
