"""Our engine beside GNU patch and git apply, on patches and files that nobody chose.

Each trial makes a file, a patch for it, and a target that has drifted from it (or holds the patch already, in whole or
in part), lets all three do their work, and compares. Three rules:

1. Where GNU patch succeeds without fuzz, every hunk's old text stands once in the target, and its new text does not
   stand there, we write the same bytes.
2. The same where git apply succeeds, unless it is known to be wrong: hunks without context, which it appends at the
   end of the file, and hunks whose last line has no line feed, which it glues to what follows.
3. We write nothing where both refuse, and where we and GNU patch both write, we write the same.
"""

from __future__ import annotations

import difflib
import random
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from patchkit.diff import FilePatch, evaluate, parse, write
from patchkit.diff.filepatch import blob_id

Lines = list[bytes]
PATH = "pkg/mod.py"


@dataclass(frozen=True)
class Trial:
    """A patch and the file that it meets; ``how`` tells how they were made."""

    how: str
    patch: bytes
    target: bytes


@dataclass(frozen=True)
class Outcome:
    """What a tool did: whether it succeeded, and the file afterwards."""

    ok: bool
    data: bytes | None
    said: str


# Trials


@cache
def real_files() -> tuple[Path, ...]:
    """Python files of the standard library that are long enough to drift and short enough to be quick."""
    library = Path(sysconfig.get_paths()["stdlib"])
    found = (path for path in sorted(library.glob("*.py")) if 2_000 < path.stat().st_size < 60_000)
    return tuple(found)


def trials(seed: int, runs: int) -> Iterator[Trial]:
    """The trials of one seed: always the same ones."""
    for number in range(runs):
        yield trial(random.Random(f"{seed}/{number}"))


def trial(chance: random.Random) -> Trial:
    kind = chance.choice(["real", "real", "small", "repeated"])
    if kind == "real":
        source = chance.choice(real_files())
        old = [line + b"\n" for line in source.read_bytes().split(b"\n")[:-1]]
        kind = source.name
        pool = old
    else:
        pool = [b"line %d\n" % i for i in range(4 if kind == "small" else 12)] + [b"\n", b"    pass\n"]
        old = [chance.choice(pool) for _ in range(chance.randrange(1, 40))]
        if kind == "repeated":
            old = old[:7] * chance.randrange(1, 6) + old[7:]
    new = edited(old, chance, pool, chance.randrange(1, 5))
    while new == old:
        new = edited(old, chance, pool, 2)
    old, new = ragged(old, chance), ragged(new, chance)
    context = chance.choice([0, 1, 2, 3, 3, 3, 3, 5])
    patch, by = written(old, new, context, chance)
    target = drifted(old, new, chance, pool)
    return Trial(f"{kind}, {by}, {context} lines of context", patch, b"".join(target))


def edited(lines: Sequence[bytes], chance: random.Random, pool: Sequence[bytes], edits: int) -> Lines:
    """Some lines replaced, added, removed, doubled or moved."""
    made = list(lines)
    for _ in range(edits):
        at = chance.randrange(len(made) + 1)
        end = min(len(made), at + chance.randrange(4))
        match chance.randrange(5):
            case 0:
                made[at:end] = [chance.choice(pool) for _ in range(chance.randrange(4))]
            case 1:
                made[at:at] = [b"added %d\n" % chance.randrange(1000) for _ in range(chance.randrange(1, 4))]
            case 2:
                del made[at:end]
            case 3:
                made[at:at] = made[at : at + chance.randrange(1, 6)]
            case 4:
                block = made[at:end]
                del made[at:end]
                elsewhere = chance.randrange(len(made) + 1)
                made[elsewhere:elsewhere] = block
    return made


def ragged(lines: Lines, chance: random.Random) -> Lines:
    """Sometimes without the last line feed."""
    if lines and chance.random() < 0.1:
        return [*lines[:-1], lines[-1].removesuffix(b"\n") or b"x"]
    return lines


def written(old: Lines, new: Lines, context: int, chance: random.Random) -> tuple[bytes, str]:
    """A patch by our own writer or by Python's difflib: two hands, two styles."""
    if chance.random() < 0.5:
        return write({PATH: b"".join(old)}, {PATH: b"".join(new)}, context=context), "patchkit"
    names = (f"a/{PATH}".encode(), f"b/{PATH}".encode())
    lines = difflib.diff_bytes(difflib.unified_diff, old, new, *names, n=context, lineterm=b"\n")
    return b"".join(
        line if line.endswith(b"\n") else line + b"\n\\ No newline at end of file\n" for line in lines
    ), "difflib"


def drifted(old: Lines, new: Lines, chance: random.Random, pool: Sequence[bytes]) -> Lines:
    """The file as the patch meets it."""
    match chance.randrange(8):
        case 0:
            return old
        case 1:
            return new
        case 2:
            return edited(new, chance, pool, 1)
        case 3:
            return [b"# drift %d\n" % i for i in range(chance.randrange(1, 60))] + old
        case 4:
            half = len(old) // 2
            return new[:half] + old[half:]
        case _:
            return edited(old, chance, pool, chance.randrange(1, 4))


# The three tools


def ours(one: Trial, **allowed: object) -> Outcome:
    result = evaluate(parse(one.patch), lambda path: one.target if path == PATH else None, **allowed)  # type: ignore
    return Outcome(
        result.ok and result.state != "applied", result.changes.get(PATH, one.target) if result.ok else one.target,
        f"{result.state}: {'; '.join(file.why for file in result.files)}",
    )  # fmt: skip


def gnu(one: Trial, folder: Path, fuzz: int) -> Outcome:
    command = ["patch", "-p1", "-N", "-f", f"-F{fuzz}", "--no-backup-if-mismatch", "-r", "-", "-i", "../change.patch"]
    return _run(one, folder, command)


def git(one: Trial, folder: Path) -> Outcome:
    return _run(one, folder, ["git", "apply", "-p1", "../change.patch"])


def _run(one: Trial, folder: Path, command: list[str]) -> Outcome:
    tree = folder / "tree"
    shutil.rmtree(tree, ignore_errors=True)
    (tree / PATH).parent.mkdir(parents=True)
    (tree / PATH).write_bytes(one.target)
    (folder / "change.patch").write_bytes(one.patch)
    environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "GIT_CEILING_DIRECTORIES": str(folder), "HOME": "/"}
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, timeout=60)
    file = tree / PATH
    return Outcome(
        done.returncode == 0,
        file.read_bytes() if file.exists() else None,
        (done.stdout + done.stderr).decode("utf-8", "replace"),
    )


# The judgement


def places(side: Sequence[bytes], lines: Sequence[bytes]) -> list[int]:
    """Where a run of lines stands in a file, the plain way."""
    return [at for at in range(len(lines) - len(side) + 1) if tuple(lines[at : at + len(side)]) == tuple(side)]


def is_plain(section: FilePatch, target: bytes) -> bool:
    """Whether nothing about the patch's places is in doubt: the file is not its result, every old side has more than
    blank lines and stands once, in the order of the hunks, no new side stands at all, and where a side ends without a
    line feed the file does end."""
    if section.new_blob and blob_id(target) == section.new_blob:
        return False
    lines = [line + b"\n" for line in target.split(b"\n")]
    lines[-1] = lines[-1][:-1]
    lines = lines if lines[-1] else lines[:-1]
    found = []
    for hunk in section.hunks:
        here = places(hunk.old, lines) if hunk.old else []
        if len(here) != 1 or not b"".join(hunk.old).strip() or (hunk.new and places(hunk.new, lines)):
            return False
        if not b"".join(hunk.new).endswith(b"\n") and here[0] + len(hunk.old) != len(lines):
            return False
        found += here
    return found == sorted(found)


def complaints(one: Trial, folder: Path) -> list[str]:
    """What is wrong with what we did, by the three rules."""
    (section,) = parse(one.patch).files
    strict, lenient, by_git = gnu(one, folder, 0), gnu(one, folder, 2), git(one, folder)
    we = ours(one, context_free=True)
    found = []
    plain = is_plain(section, one.target)
    if strict.ok and plain and (not we.ok or we.data != strict.data):
        found.append(f"GNU patch succeeds without fuzz at unique places, we do not do the same ({we.said})")
    with_context = all(hunk.prefix or hunk.suffix for hunk in section.hunks)
    if by_git.ok and plain and with_context and (not we.ok or we.data != by_git.data):
        found.append(f"git apply succeeds at unique places, we do not do the same ({we.said})")
    if we.ok and not lenient.ok and not by_git.ok:
        found.append(f"we write where GNU patch and git apply both refuse ({we.said}; {lenient.said.strip()})")
    if we.ok and strict.ok and we.data != strict.data:
        found.append(f"we and GNU patch write different files ({we.said})")
    return found


def run(seed: int, runs: int) -> tuple[list[tuple[int, Trial, list[str]]], dict[str, int]]:
    """All trials of a seed: those with complaints, and how many there were of each kind."""
    failures = []
    tally: dict[str, int] = {}
    with tempfile.TemporaryDirectory(prefix="patchkit-fuzz-") as work:
        for number, one in enumerate(trials(seed, runs)):
            found = complaints(one, Path(work))
            state = ours(one).said.partition(":")[0]
            tally[state] = tally.get(state, 0) + 1
            if found:
                failures.append((number, one, found))
    return failures, tally
