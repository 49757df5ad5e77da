"""Every patch and merge case, through the command line in this process.

The driver ``tests/cases/run_cases.py 'TOOL ...'`` runs the patch cases against any tool, in
processes of its own; for us that is ``patchkit patch apply --fuzz 2 -p {strip} {reverse} {patch} {tree}``. The judge is
the same.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from patchkit.cli import main
from patchkit.diff import merge3
from tests.cases import run_cases

HERE = Path(__file__).parents[1] / "cases"
PATCHES = sorted(path.name for path in (HERE / "patch").iterdir())
MERGES = sorted(path.name for path in (HERE / "merge").iterdir())


def patchkit(*arguments: str) -> int:
    with pytest.raises(SystemExit) as stop:
        main(["patch", *arguments])
    assert isinstance(stop.value.code, int)
    return stop.value.code


def run(case: Path, work: Path, *options: str) -> tuple[dict, int, dict]:
    """Apply a case's patches to a copy of its tree: what the case says, the exit status, and the tree afterwards."""
    meta = json.loads((case / "meta.json").read_text())
    tree = work / "tree"
    shutil.copytree(case / "before", tree, symlinks=True)
    if meta["has_outside"]:
        shutil.copytree(case / "outside", work / "outside", symlinks=True)
    status = 0
    for patch in meta["patches"]:
        backwards = ["-R"] if meta["reverse"] else []
        status = patchkit("apply", "-p", str(meta["strip"]), *backwards, *options, str(case / patch), str(tree))
        if status:
            break
    return meta, status, run_cases.load(tree)


@pytest.mark.parametrize("name", PATCHES)
def test_a_patch_case_ends_as_its_policy_says(name: str, tmp_path: Path) -> None:
    case = HERE / "patch" / name
    meta, status, tree = run(case, tmp_path, "--fuzz", "2")
    assert run_cases.judge("policy", str(case), meta, status, tree, False) is None
    outside = tmp_path / "outside"
    assert sorted(path.name for path in tmp_path.iterdir()) == (["outside", "tree"] if outside.exists() else ["tree"])
    if outside.exists():
        assert run_cases.load(outside) == run_cases.load(case / "outside")


@pytest.mark.parametrize("name", PATCHES)
def test_without_fuzz_a_case_is_never_written_wrong(name: str, tmp_path: Path) -> None:
    case = HERE / "patch" / name
    meta, status, tree = run(case, tmp_path)
    if meta["category"] == "fuzz" and status:
        assert tree == run_cases.load(case / "before")
    else:
        assert run_cases.judge("policy", str(case), meta, status, tree, False) is None


# A dry run of a later patch would need the earlier one's result.
@pytest.mark.parametrize("name", [name for name in PATCHES if "-series-" not in name])
def test_a_dry_run_says_the_same_and_writes_nothing(name: str, tmp_path: Path) -> None:
    case = HERE / "patch" / name
    (tmp_path / "dry").mkdir()
    (tmp_path / "wet").mkdir()
    _, dry, tree = run(case, tmp_path / "dry", "--dry-run")
    _, wet, _ = run(case, tmp_path / "wet")
    assert dry == wet
    assert tree == run_cases.load(case / "before")


@pytest.mark.parametrize("name", MERGES)
def test_a_merge_case_ends_as_git_merges_it(name: str) -> None:
    case = HERE / "merge" / name
    meta = json.loads((case / "meta.json").read_text())
    base, theirs, ours = ((case / side).read_bytes() for side in ("base", "theirs", "ours"))
    merged = merge3(base, theirs, ours)
    assert merged.data == (case / "expected").read_bytes()
    assert merged.conflicts == meta["conflicts"]
