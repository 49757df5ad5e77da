"""Writing a plain folder: all or nothing, nothing outside of it, and files keep what was theirs."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from patchkit.deliver.tree import Tree
from patchkit.errors import Refused


def write(root: Path, changes: dict[str, bytes | None], modes: dict[str, str] | None = None, **more) -> None:
    Tree(root).write(changes, modes or {}, more.get("like", {}), dry_run=more.get("dry_run", False))


def listing(root: Path) -> dict[str, tuple]:
    """Everything below the folder: kind, mode, inode and content."""
    found = {}
    for path in sorted(root.rglob("*")):
        entry = path.lstat()
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else None
        found[str(path.relative_to(root))] = (stat.S_IFMT(entry.st_mode), entry.st_mode, entry.st_ino, content)
    return found


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "p").mkdir(parents=True)
    (root / "p/m.py").write_bytes(b"old\n")
    (root / "p/m.py").chmod(0o640)
    (root / "k.py").write_bytes(b"keep\n")
    return root


def test_a_changed_file_keeps_mode_and_owner(root: Path) -> None:
    if os.geteuid() == 0:
        os.chown(root / "p/m.py", 12, 34)
    before = (root / "p/m.py").stat()
    write(root, {"p/m.py": b"new\n"})
    after = (root / "p/m.py").stat()
    assert (root / "p/m.py").read_bytes() == b"new\n"
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)


def test_a_hard_link_is_broken_and_its_other_name_keeps_the_old_text(root: Path) -> None:
    (root.parent / "cache.py").hardlink_to(root / "p/m.py")
    write(root, {"p/m.py": b"new\n"})
    assert (root.parent / "cache.py").read_bytes() == b"old\n"
    assert (root / "p/m.py").stat().st_nlink == 1


def test_new_files_and_folders_are_readable_for_all_whatever_the_umask(root: Path) -> None:
    before = os.umask(0o077)
    try:
        write(root, {"q/r/n.py": b"new\n"})
    finally:
        os.umask(before)
    assert stat.S_IMODE((root / "q/r/n.py").stat().st_mode) == 0o644
    assert stat.S_IMODE((root / "q/r").stat().st_mode) == stat.S_IMODE((root / "q").stat().st_mode) == 0o755


def test_git_modes_change_the_executable_bits_alone(root: Path) -> None:
    write(root, {"p/m.py": b"new\n"}, {"p/m.py": "100755"})
    assert stat.S_IMODE((root / "p/m.py").stat().st_mode) == 0o750
    write(root, {}, {"p/m.py": "100644"})
    assert stat.S_IMODE((root / "p/m.py").stat().st_mode) == 0o640
    write(root, {"n.sh": b"x\n"}, {"n.sh": "100755"})
    assert stat.S_IMODE((root / "n.sh").stat().st_mode) == 0o755


def test_a_renamed_file_takes_the_mode_of_its_source(root: Path) -> None:
    write(root, {"p/m.py": None, "p/n.py": b"old\n"}, like={"p/n.py": "p/m.py"})
    assert stat.S_IMODE((root / "p/n.py").stat().st_mode) == 0o640
    assert not (root / "p/m.py").exists()


def test_a_folder_that_ends_up_empty_goes_and_the_root_stays(root: Path) -> None:
    write(root, {"p/m.py": None, "k.py": None})
    assert list(root.iterdir()) == []


def test_a_dry_run_writes_nothing_and_refuses_the_same(root: Path) -> None:
    before = listing(root)
    write(root, {"p/m.py": b"new\n", "q/n.py": b"x\n"}, dry_run=True)
    with pytest.raises(Refused):
        write(root, {"p": b"x\n"}, dry_run=True)
    with pytest.raises(Refused):
        write(root, {"k.py/n.py": b"x\n"}, dry_run=True)
    assert listing(root) == before


@pytest.mark.parametrize("fails", ["link", "rename", "fsync", "fchmod", "mkdir"])
@pytest.mark.parametrize("nth", range(1, 6))
def test_a_failure_anywhere_leaves_every_file_as_it_was(
    fails: str, nth: int, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = listing(root)
    calls = 0
    real = getattr(os, fails)

    def failing(*arguments, **keywords):
        nonlocal calls
        calls += 1
        if calls == nth:
            raise OSError(28, "No space left on device")
        return real(*arguments, **keywords)

    monkeypatch.setattr(os, fails, failing)
    refusal = None
    try:
        write(root, {"k.py": None, "p/m.py": b"new\n", "q/r/n.py": b"n\n", "a.py": b"a\n"})
    except Refused as error:
        refusal = error
    if refusal is not None:
        assert refusal.code == "not-written"
        assert listing(root) == before
    else:  # the call never came, or there was another way
        files = {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}
        assert files == {"a.py": b"a\n", "p/m.py": b"new\n", "q/r/n.py": b"n\n"}


def test_an_interrupted_run_leaves_every_file_as_it_was(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = listing(root)
    real = os.fsync

    def interrupted(handle: int) -> None:
        real(handle)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write(root, {"p/m.py": b"new\n", "q/n.py": b"n\n"})
    assert listing(root) == before


@pytest.mark.parametrize("target", ["../outside", "p"], ids=["out", "inside"])
def test_no_folder_that_is_a_link_is_followed(target: str, root: Path) -> None:
    (root.parent / "outside").mkdir()
    (root.parent / "outside/m.py").write_bytes(b"outside\n")
    (root / "link").symlink_to(target)
    tree = Tree(root)
    for attempt in (lambda: tree.read("link/m.py"), lambda: write(root, {"link/m.py": b"x\n"})):
        with pytest.raises(Refused) as error:
            attempt()
        assert error.value.code == "symlink"
    with pytest.raises(Refused):
        write(root, {"link/new/n.py": b"x\n"})
    assert (root.parent / "outside/m.py").read_bytes() == b"outside\n"
    assert sorted(path.name for path in (root.parent / "outside").iterdir()) == ["m.py"]


def test_a_file_that_is_a_link_or_no_file_is_refused(root: Path) -> None:
    (root / "l.py").symlink_to("k.py")
    os.mkfifo(root / "pipe")
    for path, code in (("l.py", "symlink"), ("pipe", "not-a-file")):
        with pytest.raises(Refused) as error:
            Tree(root).read(path)
        assert error.value.code == code
        with pytest.raises(Refused):
            write(root, {path: b"x\n"})
        with pytest.raises(Refused):
            write(root, {path: None})
    assert (root / "k.py").read_bytes() == b"keep\n"


def test_a_folder_or_file_in_the_way_is_told(root: Path) -> None:
    with pytest.raises(Refused) as error:
        write(root, {"p": b"x\n"})
    assert error.value.code == "folder-in-the-way"
    with pytest.raises(Refused) as error:
        write(root, {"k.py/n.py": b"x\n"})
    assert error.value.code == "file-in-the-way"


def test_what_is_no_file_reads_as_nothing(root: Path) -> None:
    tree = Tree(root)
    assert tree.read("p") is None
    assert tree.read("none/at/all") is None
    assert tree.read("k.py/below") is None
    assert tree.read("p/m.py") == b"old\n"
    assert tree.mode("p/m.py") == 0o640
    assert tree.mode("p") is None


def test_a_file_that_somebody_else_has_changed_since_it_was_read_is_left_alone(root: Path) -> None:
    tree = Tree(root)
    assert tree.read("p/m.py") == b"old\n"
    assert tree.read("n.py") is None
    write(root, {"p/m.py": b"theirs\n", "n.py": b"theirs\n"})
    for path in ("p/m.py", "n.py"):
        with pytest.raises(Refused) as error:
            tree.write({path: b"ours\n"}, {}, {}, dry_run=False)
        assert error.value.code == "changed-meanwhile"
        assert (root / path).read_bytes() == b"theirs\n"
