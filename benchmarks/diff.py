"""The patch engine against GNU patch, git apply, patch-ng and whatthepatch.

Big: one patch of about 1 MB with 5,000 hunks on one file, read and applied. Catalog: 200 small patches classified
against a tree of 3,000 files in memory, against one ``patch --dry-run`` process each. And the most memory that reading
and applying a patch of 10 MB takes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import patch_ng
import whatthepatch

from benchmarks.harness import Aim, Case, measure, report, run
from patchkit.diff import evaluate, parse, write

_MEMORY = """
import re, sys
from pathlib import Path
from patchkit.diff import evaluate, parse
# Not ru_maxrss: a new process starts with its parent's.
most = lambda: re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text()).group(1)
folder = Path(sys.argv[1])
patch = parse((folder / "big.patch").read_bytes())
read = most()
result = evaluate(patch, lambda path: (folder / path).read_bytes())
assert result.ok
print(read, most())
"""


def big(hunks: int) -> tuple[bytes, bytes, bytes]:
    """A file, a patch with so many hunks of one changed line each, and the patched file."""
    old = [b"    value_%05d = compute(%d)\n" % (i, i) for i in range(hunks * 15)]
    new = list(old)
    parts = [b"--- a/big.py\n+++ b/big.py\n"]
    for at in range(7, hunks * 15, 15):
        new[at] = b"    value_%05d = compute_anew(%d)\n" % (at, at)
        parts.append(b"@@ -%d,7 +%d,7 @@\n" % (at - 2, at - 2))
        parts += [b" " + line for line in old[at - 3 : at]]
        parts += [b"-" + old[at], b"+" + new[at]]
        parts += [b" " + line for line in old[at + 1 : at + 4]]
    return b"".join(old), b"".join(parts), b"".join(new)


def bench_big(work: Path) -> None:
    old, patch, new = big(5000)
    target, patch_file = work / "big.py", work / "big.patch"
    patch_file.write_bytes(patch)
    environment = os.environ | {"GIT_CEILING_DIRECTORIES": str(work.parent)}

    def fresh() -> None:
        target.write_bytes(old)

    def checked(tool: str) -> None:
        if target.read_bytes() != new:
            raise SystemExit(f"{tool} made another file")

    def ours() -> None:
        result = evaluate(parse(patch_file.read_bytes()), lambda path: target.read_bytes())
        target.write_bytes(result.changes["big.py"] or b"")

    def with_whatthepatch() -> None:
        (diff,) = whatthepatch.parse_patch(patch_file.read_text())
        lines = whatthepatch.apply_diff(diff, target.read_text().splitlines())
        target.write_text("\n".join(lines) + "\n")

    def with_patch_ng() -> None:
        if not patch_ng.fromfile(str(patch_file)).apply(strip=0, root=str(work)):
            raise SystemExit("patch-ng failed")

    cases = [
        Case("GNU patch", lambda: run("patch", "-p1", "-s", "-i", patch_file, cwd=work), fresh),
        Case("patchkit", ours, fresh),
        Case("patchkit, parse alone", lambda: parse(patch)),
        Case("patchkit patch apply (process)", lambda: run(PATCHKIT, "patch", "apply", patch_file, work), fresh),
        Case("patch-ng", with_patch_ng, fresh),
        Case("whatthepatch", with_whatthepatch, fresh),
        Case("git apply", lambda: run("git", "apply", patch_file, cwd=work, env=environment), fresh),
    ]
    for case in cases:
        if case.name != "patchkit, parse alone":
            fresh()
            case.run()
            checked(case.name)
    result = measure("diff-big", cases, rounds=5, warm=0)
    report(
        result,
        [
            Aim("patchkit", "GNU patch", 2.0),
            Aim("patchkit", "patch-ng", 1.0),
            Aim("patchkit", "whatthepatch", 1.0),
            Aim("patchkit", "git apply", 1.0),
        ],
        {"patch bytes": len(patch), "hunks": 5000, "file bytes": len(old)},
    )


def bench_catalog(work: Path) -> None:
    tree = {
        f"pkg/part_{i // 100:02d}/module_{i:04d}.py": b"".join(
            b"def function_%d_%d(x):\n    return x + %d\n\n\n" % (i, j, j) for j in range(60)
        )
        for i in range(3000)
    }
    patches = []
    for i in range(0, 3000, 15):
        path = f"pkg/part_{i // 100:02d}/module_{i:04d}.py"
        new = tree[path].replace(b"return x + 20\n", b"return x * 20\n").replace(b"return x + 50\n", b"return x * 50\n")
        patch = write({path: tree[path]}, {path: new})
        # Without blob ids, and after a few lines of drift: the hunks must be looked for.
        patches.append(b"".join(line for line in patch.splitlines(keepends=True) if not line.startswith(b"index ")))
        tree[path] = b"# drift\n" * (i % 4) + tree[path]
    for path, data in tree.items():
        (work / path).parent.mkdir(parents=True, exist_ok=True)
        (work / path).write_bytes(data)
    names = []
    for number, patch in enumerate(patches):
        names.append(work / f"{number}.patch")
        names[-1].write_bytes(patch)

    def ours() -> None:
        for patch in patches:
            if not evaluate(parse(patch), tree.get).ok:
                raise SystemExit("a patch does not apply")

    def theirs() -> None:
        for name in names:
            subprocess.run(["patch", "-p1", "-s", "--dry-run", "-i", name], cwd=work, check=True)

    result = measure("diff-catalog", [Case("patch --dry-run each", theirs), Case("patchkit", ours)], rounds=5)
    report(result, [Aim("patchkit", "patch --dry-run each", 1 / 20)], {"patches": len(patches), "files": len(tree)})


def bench_memory(work: Path) -> None:
    for count in (1, 100):
        old, patch, _ = big(33_500 // count)
        names = [f"big{number}.py" for number in range(count)]
        for name in names:
            (work / name).write_bytes(old)
        whole = b"".join(patch.replace(b"/big.py", b"/" + name.encode()) for name in names)
        (work / "big.patch").write_bytes(whole)
        read, applied = (int(kib) * 1024 / 1e6 for kib in run(sys.executable, "-c", _MEMORY, work).split())
        print(f"\ndiff-memory, {count} files of {len(old) / 1e6:.1f} MB each")
        print(f"  a patch of {len(whole) / 1e6:.1f} MB: {read:.0f} MB to read it (aim: under 200), ", end="")
        print(f"{applied:.0f} MB to apply it, files included")


PATCHKIT = Path(sys.executable).with_name("patchkit")


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="patchkit-bench-") as folder:
        bench_big(Path(folder))
    with tempfile.TemporaryDirectory(prefix="patchkit-bench-") as folder:
        bench_catalog(Path(folder))
    with tempfile.TemporaryDirectory(prefix="patchkit-bench-") as folder:
        bench_memory(Path(folder))


if __name__ == "__main__":
    main()
