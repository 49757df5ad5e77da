"""The levels on files of this machine and its own interpreter."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import py_compile
import sys
from pathlib import Path

import pytest

from patchkit.catalog.model import Assert
from patchkit.errors import Unreachable
from patchkit.images.model import Mount, Run, RunResult
from patchkit.plan import ABSENT
from patchkit.proof.model import Expectation, Level, Proof
from patchkit.proof.prove import prove
from patchkit.proof.verdict import verdict
from patchkit.site.model import Launch
from tests.site.host import HostImage
from tests.site.layouts import Layout

Tree = tuple[Layout, Launch]


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """A virtual environment whose package is started by a console script, with a decoy in the working folder."""
    layout = Layout(tmp_path, sys.executable)
    site = layout.venv()
    layout.package(site)
    layout.package("work")
    script = layout.script("venv/bin/serve")
    env = {"PATH": f"{tmp_path}/venv/bin:/usr/bin", "HOME": "/nowhere"}
    return layout, Launch("console-script", layout.python, script, f"{tmp_path}/work", env)


def site_of(layout: Layout) -> Path:
    return next((layout.root / "venv/lib").glob("python3*")) / "site-packages"


def expect(base: Path, relative: str, changed: tuple[int, ...] = ()) -> Expectation:
    path = base / relative
    module = (
        relative.removesuffix(".py").removesuffix("/__init__").replace("/", ".") if relative.endswith(".py") else ""
    )
    found = path.stat()
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    mode = found.st_mode & 0o7777
    return Expectation(str(path), relative, digest, mode, found.st_uid, found.st_gid, module, frozenset(changed))


def states(proof: Proof) -> dict[str, str]:
    return {level.name: level.state for level in proof.levels}


def level(proof: Proof, name: str) -> Level:
    return next(level for level in proof.levels if level.name == name)


MOD = "pkg/sub/mod.py"
ALL_PASSED = dict.fromkeys(("bytes", "resolves", "compiles", "bytecode", "imports", "asserts"), "passed")


def test_a_good_delivery_passes_all_levels_in_one_run(tree: Tree) -> None:
    layout, launch = tree
    image = HostImage()
    proof = prove(image, launch, "pkg", [expect(site_of(layout), MOD), expect(site_of(layout), "pkg/__init__.py")])
    assert states(proof) == ALL_PASSED
    assert proof.disagreements == ()
    assert len(image.runs) == 1
    assert [level.name for level in proof.levels] == list(ALL_PASSED)


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ({"sha256": "0" * 64}, "other bytes"),
        ({"mode": 0o600}, "mode"),
        ({"uid": 4711}, "owner"),
        ({"gid": 4711}, "group"),
        ({"path": "/nowhere/mod.py"}, "missing"),
        ({"path": "/etc"}, "no file"),
        ({"sha256": ABSENT}, "present"),
    ],
)
def test_a_file_that_is_not_as_delivered_fails_at_bytes(tree: Tree, change: dict[str, object], cause: str) -> None:
    layout, launch = tree
    wrong = dataclasses.replace(expect(site_of(layout), MOD), **change)  # type: ignore[arg-type]
    proof = prove(HostImage(), launch, "pkg", [wrong])
    found = level(proof, "bytes")
    assert (found.state, found.cause) == ("failed", cause)
    assert verdict(proof.levels) == 1


def test_a_path_that_became_a_link_fails_at_bytes(tree: Tree) -> None:
    layout, launch = tree
    wanted = expect(site_of(layout), MOD)
    package = site_of(layout) / "pkg"
    package.rename(package.with_name("moved"))
    package.symlink_to("moved")
    assert level(prove(HostImage(), launch, "pkg", [wanted]), "bytes").cause == "moved"


def test_a_module_that_became_a_package_is_found_as_it_should(tree: Tree) -> None:
    layout, launch = tree
    wanted = expect(site_of(layout), MOD)
    gone = dataclasses.replace(wanted, sha256=ABSENT)
    moved = site_of(layout) / "pkg/sub/mod/__init__.py"
    moved.parent.mkdir()
    Path(wanted.path).rename(moved)
    proof = prove(HostImage(), launch, "pkg", [gone, expect(site_of(layout), "pkg/sub/mod/__init__.py")])
    assert states(proof) == ALL_PASSED
    assert level(prove(HostImage(), launch, "pkg", [gone]), "resolves").cause == "still found"


def test_an_unread_import_hook_is_asked_about_or_nothing_is_shown(tree: Tree) -> None:
    layout, launch = tree
    hook = "import sys; exec('sys.path[:0] = [\\'/nothing\\'[:0] or \\'/nothing\\']')\n"
    (site_of(layout) / "hook.pth").write_text(hook)
    wanted = [expect(site_of(layout), MOD)]
    found = level(prove(HostImage(), launch, "pkg", wanted, run=False), "resolves")
    assert (found.state, found.cause) == ("not run", "import hook")
    assert "hook.pth runs a line that may change imports" in found.detail
    assert level(prove(HostImage(), launch, "pkg", wanted), "resolves").state == "passed"


def test_a_start_script_that_brings_another_copy_fails_at_resolves(tree: Tree) -> None:
    layout, launch = tree
    text = f"import sys\nsys.path.insert(0, {str(layout.root / 'work')!r})\nimport pkg\n"
    script = dataclasses.replace(launch, form="script", argument=str(layout.file("app/serve.py", text)))
    found = level(prove(HostImage(), script, "pkg", [expect(site_of(layout), MOD)]), "resolves")
    assert (found.state, found.cause) == ("failed", "another copy")
    assert f"{layout.root}/app/serve.py:2 puts {layout.root}/work in front" in found.detail
    layout.file("app/serve.py", "import pkg\n")
    assert level(prove(HostImage(), script, "pkg", [expect(site_of(layout), MOD)]), "resolves").state == "passed"


def test_a_package_that_moves_its_modules_is_shown_by_its_import_or_not_at_all(tree: Tree) -> None:
    layout, launch = tree
    init = site_of(layout) / "pkg/__init__.py"
    init.write_text(f"__path__.insert(0, {str(layout.root)!r})\n")
    wanted = [expect(site_of(layout), MOD)]
    assert states(prove(HostImage(), launch, "pkg", wanted)) == ALL_PASSED
    assert level(prove(HostImage(), launch, "pkg", wanted, run=False), "resolves").state == "not run"
    init.write_text(f"{init.read_text()}import torch_that_is_not_there\n")
    proof = prove(HostImage(), launch, "pkg", wanted)
    assert (level(proof, "imports").state, level(proof, "resolves").cause) == ("blocked", "__path__")
    assert f"{init}:1" in level(proof, "resolves").detail
    assert verdict(proof.levels) == 1


def test_the_decoy_fails_at_resolves_although_its_bytes_are_right(tree: Tree) -> None:
    layout, launch = tree
    proof = prove(HostImage(), launch, "pkg", [expect(layout.root / "work", MOD)])
    assert level(proof, "bytes").state == "passed"
    found = level(proof, "resolves")
    assert (found.state, found.cause) == ("failed", "another file")
    assert str(site_of(layout) / MOD) in found.detail
    assert level(proof, "imports").state == "failed"


def test_the_decoy_passes_under_the_launch_that_it_serves(tree: Tree) -> None:
    layout, launch = tree
    other = dataclasses.replace(launch, form="module", argument="pkg")
    assert states(prove(HostImage(), other, "pkg", [expect(layout.root / "work", MOD)])) == ALL_PASSED


def test_a_compiled_module_beside_the_source_fails_at_resolves(tree: Tree) -> None:
    layout, launch = tree
    place = site_of(layout) / "pkg/sub/mod.abi3.so"
    place.write_bytes(b"\x7fELF")
    found = level(prove(HostImage(), launch, "pkg", [expect(site_of(layout), MOD)]), "resolves")
    assert found.state == "failed"
    assert str(place) in found.detail


def test_a_removed_module_that_bytecode_alone_still_gives_fails_at_resolves(tree: Tree) -> None:
    layout, launch = tree
    source = site_of(layout) / MOD
    gone = dataclasses.replace(expect(site_of(layout), MOD), sha256=ABSENT)
    py_compile.compile(str(source), cfile=str(source.with_suffix(".pyc")))
    source.unlink()
    proof = prove(HostImage(), launch, "pkg", [gone])
    assert level(proof, "bytes").state == "passed"
    assert (level(proof, "resolves").state, level(proof, "resolves").cause) == ("failed", "still found")


def test_a_removed_module_passes(tree: Tree) -> None:
    layout, launch = tree
    gone = dataclasses.replace(expect(site_of(layout), MOD), sha256=ABSENT)
    (site_of(layout) / MOD).unlink()
    proof = prove(HostImage(), launch, "pkg", [gone, expect(site_of(layout), "pkg/__init__.py")])
    assert states(proof) == ALL_PASSED


def test_a_data_file_is_proven_by_its_place_in_the_package(tree: Tree) -> None:
    layout, launch = tree
    for base in (site_of(layout), layout.root / "work"):
        (base / "pkg/table.json").write_text("{}")
    assert states(prove(HostImage(), launch, "pkg", [expect(site_of(layout), "pkg/table.json")])) == ALL_PASSED
    wrong = prove(HostImage(), launch, "pkg", [expect(layout.root / "work", "pkg/table.json")])
    assert level(wrong, "resolves").state == "failed"


def test_a_file_that_does_not_compile_fails_with_its_line(tree: Tree) -> None:
    layout, launch = tree
    (site_of(layout) / MOD).write_text("x = 1\nf(a=1, a=2)\n")
    proof = prove(HostImage(), launch, "pkg", [expect(site_of(layout), MOD)])
    found = level(proof, "compiles")
    assert found.state == "failed"
    assert "line 2" in found.detail
    assert level(proof, "imports").state == "failed"


@pytest.mark.parametrize("run", [True, False])
def test_stale_bytecode_fails(tree: Tree, run: bool) -> None:
    """The source was replaced by one of equal size under its old time: https://github.com/python/cpython/issues/121376"""
    layout, launch = tree
    source = site_of(layout) / MOD
    py_compile.compile(str(source))
    before = source.stat()
    source.write_text("value = 2\n")
    os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))
    proof = prove(HostImage(), launch, "pkg", [expect(site_of(layout), MOD)], run=run)
    assert level(proof, "bytecode").state == ("failed" if run else "not run")
    assert verdict(proof.levels) == 1


def test_bytecode_that_is_never_checked_fails(tree: Tree) -> None:
    layout, launch = tree
    source = site_of(layout) / MOD
    py_compile.compile(str(source), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    source.write_text("value = 'longer than before'\n")
    found = level(prove(HostImage(), launch, "pkg", [expect(site_of(layout), MOD)]), "bytecode")
    assert (found.state, found.cause) == ("failed", "stale bytecode")
    assert "never checked" in found.detail


@pytest.mark.parametrize(
    ("flags", "env", "level", "state"),
    [
        (("-O",), {}, 1, "failed"),
        (("-O", "-O"), {}, 2, "failed"),
        ((), {"PYTHONOPTIMIZE": "2"}, 2, "failed"),
        (("-E",), {"PYTHONOPTIMIZE": "2"}, 2, "passed"),
        ((), {}, 1, "passed"),
        (("-O",), {}, 0, "passed"),
        ((), {"PYTHONPYCACHEPREFIX": "/nowhere"}, 0, "passed"),
        (("-Xpycache_prefix=/nowhere",), {}, 0, "passed"),
    ],
)
def test_only_bytecode_that_this_launch_looks_at_counts(
    tree: Tree, flags: tuple[str, ...], env: dict[str, str], level: int, state: str
) -> None:
    layout, launch = tree
    source = site_of(layout) / MOD
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(source), optimize=level, invalidation_mode=unchecked)
    source.write_text("value = 2\n")
    other = dataclasses.replace(launch, flags=flags, env={**launch.env, **env})
    proof = prove(HostImage(), other, "pkg", [expect(site_of(layout), MOD)])
    assert {level.name: level.state for level in proof.levels}["bytecode"] == state


NEVER = ("--check-hash-based-pycs", "never")
ALWAYS = ("--check-hash-based-pycs", "always")
CHECKED = py_compile.PycInvalidationMode.CHECKED_HASH
UNCHECKED = py_compile.PycInvalidationMode.UNCHECKED_HASH


@pytest.mark.parametrize("run", [True, False])
@pytest.mark.parametrize(
    ("flags", "mode", "stale"),
    [
        (NEVER, CHECKED, True),
        (NEVER, UNCHECKED, True),
        ((*ALWAYS, *NEVER), CHECKED, True),
        ((*NEVER, *ALWAYS), CHECKED, False),
        (ALWAYS, UNCHECKED, False),
    ],
)
def test_the_launch_says_whether_stale_bytecode_with_a_hash_is_checked(
    tree: Tree, flags: tuple[str, ...], mode: py_compile.PycInvalidationMode, stale: bool, run: bool
) -> None:
    layout, launch = tree
    source = site_of(layout) / MOD
    py_compile.compile(str(source), invalidation_mode=mode)
    source.write_text("value = 2\n")
    other = dataclasses.replace(launch, flags=flags)
    proof = prove(HostImage(), other, "pkg", [expect(site_of(layout), MOD)], run=run)
    wanted = ("failed" if run else "not run") if stale else "passed"
    assert level(proof, "bytecode").state == wanted


@pytest.mark.parametrize("run", [True, False])
@pytest.mark.parametrize(
    ("flags", "env", "stale"),
    [
        (("-Xpycache_prefix={}/tree",), {}, True),
        ((), {"PYTHONPYCACHEPREFIX": "{}/tree/"}, True),
        ((), {"PYTHONPYCACHEPREFIX": "../tree"}, True),
        (("-Xpycache_prefix={}/tree", "-Xpycache_prefix=/nowhere"), {}, True),
        (("-Xpycache_prefix=",), {"PYTHONPYCACHEPREFIX": "{}/tree"}, False),
        (("-E",), {"PYTHONPYCACHEPREFIX": "{}/tree"}, False),
    ],
)
def test_stale_bytecode_in_a_tree_of_its_own_does_not_pass(
    tree: Tree, flags: tuple[str, ...], env: dict[str, str], stale: bool, run: bool
) -> None:
    layout, launch = tree
    root = layout.root
    source = site_of(layout) / MOD
    place = root / f"tree{source.parent}" / f"mod.{sys.implementation.cache_tag}.pyc"
    py_compile.compile(str(source), cfile=str(place), invalidation_mode=UNCHECKED)
    source.write_text("value = 2\n")
    told = {name: value.format(root) for name, value in env.items()}
    other = dataclasses.replace(launch, flags=tuple(f.format(root) for f in flags), env={**launch.env, **told})
    proof = prove(HostImage(), other, "pkg", [expect(site_of(layout), MOD)], run=run)
    wanted = ("failed" if run else "not run") if stale else "passed"
    assert level(proof, "bytecode").state == wanted


def linked(layout: Layout, kind: str) -> Path:
    """Let the package, or the module alone, lie elsewhere behind a link; its real place."""
    base, real = site_of(layout), layout.root / "real"
    if kind == "folder":
        (base / "pkg").rename(real)
        (base / "pkg").symlink_to(real)
        return real / "sub/mod.py"
    real.mkdir()
    (base / MOD).rename(real / "a1b2")
    (base / MOD).symlink_to(real / "a1b2")
    return real / "a1b2"


@pytest.mark.parametrize("run", [True, False])
@pytest.mark.parametrize(("kind", "tree_of_its_own"), [("folder", True), ("module", True), ("module", False)])
def test_stale_bytecode_by_the_name_that_an_import_takes_does_not_pass(
    tree: Tree, kind: str, tree_of_its_own: bool, run: bool
) -> None:
    layout, launch = tree
    real = linked(layout, kind)
    folder = site_of(layout) / "pkg/sub"
    place = Path(f"{layout.root}/tree{folder}") if tree_of_its_own else folder / "__pycache__"
    pyc = place / f"mod.{sys.implementation.cache_tag}.pyc"
    py_compile.compile(str(real), cfile=str(pyc), invalidation_mode=UNCHECKED)
    real.write_text("value = 2\n")
    flags = (f"-Xpycache_prefix={layout.root}/tree",) if tree_of_its_own else ()
    wanted = dataclasses.replace(expect(site_of(layout), MOD), path=str(real))
    told = level(prove(HostImage(), dataclasses.replace(launch, flags=flags), "pkg", [wanted], run=run), "bytecode")
    assert told.state == ("failed" if run else "not run")
    assert f"{pyc} would run instead" in told.detail


def test_bytecode_of_this_very_source_passes(tree: Tree) -> None:
    layout, launch = tree
    py_compile.compile(str(site_of(layout) / MOD))
    assert states(prove(HostImage(), launch, "pkg", [expect(site_of(layout), MOD)])) == ALL_PASSED


def test_checked_bytecode_of_another_source_is_harmless(tree: Tree) -> None:
    layout, launch = tree
    source = site_of(layout) / MOD
    py_compile.compile(str(source), invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH)
    source.write_text("value = 2\n")
    assert states(prove(HostImage(), launch, "pkg", [expect(site_of(layout), MOD)])) == ALL_PASSED


def test_an_import_that_lacks_another_package_is_blocked_in_both_processes(tree: Tree) -> None:
    layout, launch = tree
    (site_of(layout) / MOD).write_text("import torch_absent\nvalue = 1\n")
    proof = prove(HostImage(), launch, "pkg", [expect(site_of(layout), MOD, changed=(2,))])
    found = level(proof, "imports")
    assert (found.state, found.cause) == ("blocked", "torch_absent")
    assert [file.name for file in found.files] == ["pkg.sub.mod", "pkg.sub.mod (spawned child)"]
    assert verdict(proof.levels) == 0
    assert verdict(proof.levels, ["imports"]) == 1


def test_an_import_that_fails_on_a_changed_line_is_failed(tree: Tree) -> None:
    layout, launch = tree
    (site_of(layout) / MOD).write_text("import torch_absent\nvalue = 1\n")
    proof = prove(HostImage(), launch, "pkg", [expect(site_of(layout), MOD, changed=(1,))])
    assert level(proof, "imports").state == "failed"


def test_a_program_is_not_imported(tree: Tree) -> None:
    layout, launch = tree
    (site_of(layout) / "pkg/__main__.py").write_text(f"open('{layout.root}/ran', 'w')\n")
    proof = prove(HostImage(), launch, "pkg", [expect(site_of(layout), "pkg/__main__.py")])
    assert states(proof) == ALL_PASSED
    assert "not imported" in level(proof, "imports").detail
    assert not (layout.root / "ran").exists()


def test_asserts_run_after_what_they_need_before(tree: Tree) -> None:
    layout, launch = tree
    (site_of(layout) / MOD).write_text("import os\nvalue = os.sep.marker()\n")
    good = Assert(
        "pkg.sub.mod", "assert module.value == 5", "import os\nclass S:\n    marker = lambda s: 5\nos.sep = S()"
    )
    bad = Assert("pkg.sub.mod", "assert module.value == 6", good.before)
    wanted = expect(site_of(layout), "pkg/__init__.py")
    assert level(prove(HostImage(), launch, "pkg", [wanted], [good]), "asserts").state == "passed"
    found = level(prove(HostImage(), launch, "pkg", [wanted], [good, bad]), "asserts")
    assert (found.state, found.cause) == ("failed", "AssertionError")
    assert [file.state for file in found.files] == ["passed", "failed"]


def test_an_assert_that_needs_what_is_not_there_is_not_a_pass(tree: Tree) -> None:
    layout, launch = tree
    wanted = expect(site_of(layout), MOD)
    gpu, torch = Assert("pkg", "assert 0", needs=("gpu",)), Assert("pkg", "assert 0", needs=("torch",))
    plain = Assert("pkg", "assert 1")
    found = level(prove(HostImage(), launch, "pkg", [wanted], [gpu, plain]), "asserts")
    assert [(file.state, file.cause) for file in found.files] == [("not run", "gpu"), ("passed", "")]
    # Nobody passed a card through: what can be shown without one was shown, and the rest is told.
    assert found.state == "passed"
    assert "1 more need a GPU" in found.detail
    assert level(prove(HostImage(), launch, "pkg", [wanted], [gpu]), "asserts").state == "not run"
    found = level(prove(HostImage(), launch, "pkg", [wanted], [torch, plain]), "asserts")
    assert [(file.state, file.cause) for file in found.files] == [("blocked", "torch"), ("passed", "")]
    with_hardware = prove(HostImage(), launch, "pkg", [wanted], [gpu], gpus="all")
    assert level(with_hardware, "asserts").state == "failed"


def test_without_running_each_level_says_what_it_rests_on(tree: Tree) -> None:
    layout, launch = tree
    image = HostImage()
    proof = prove(image, launch, "pkg", [expect(site_of(layout), MOD)], [Assert("pkg", "pass")], run=False)
    assert image.runs == []
    assert states(proof) == {**ALL_PASSED, "imports": "not run", "asserts": "not run"}
    assert "by reading alone" in level(proof, "resolves").detail
    assert "not allowed" in level(proof, "imports").detail
    assert verdict(proof.levels) == 0


def test_nothing_expected_is_nothing_proven(tree: Tree) -> None:
    proof = prove(HostImage(), tree[1], "pkg", [])
    assert set(states(proof).values()) == {"not run"}
    assert verdict(proof.levels) == 1


def test_an_unknown_launch_proves_nothing_but_bytes(tree: Tree) -> None:
    layout, _ = tree
    unknown = Launch("unknown", "", "", "/", {}, source="why")
    proof = prove(HostImage(), unknown, "pkg", [expect(site_of(layout), MOD)])
    assert states(proof) == {**dict.fromkeys(ALL_PASSED, "not run"), "bytes": "passed", "asserts": "passed"}
    assert verdict(proof.levels) == 1


def test_mounted_files_are_read_at_their_targets(tree: Tree, tmp_path: Path) -> None:
    layout, launch = tree
    patched = tmp_path / "patched.py"
    patched.write_text("value = 2\n")
    target = site_of(layout) / MOD
    wanted = Expectation(str(target), MOD, hashlib.sha256(b"value = 2\n").hexdigest(), module="pkg.sub.mod")
    mounts = [Mount(str(patched), str(target))]
    assert level(prove(HostImage(), launch, "pkg", [wanted], mounts=mounts, run=False), "bytes").state == "passed"
    # This machine mounts nothing: a process inside sees the old bytes, and that must not pass.
    proof = prove(HostImage(), launch, "pkg", [wanted], mounts=mounts)
    assert level(proof, "bytes").cause == "other bytes inside"


def test_a_mount_whose_source_is_gone_fails(tree: Tree, tmp_path: Path) -> None:
    layout, launch = tree
    wanted = expect(site_of(layout), MOD)
    mounts = [Mount(str(tmp_path / "gone.py"), wanted.path)]
    assert level(prove(HostImage(), launch, "pkg", [wanted], mounts=mounts, run=False), "bytes").cause == "no file"


class Refusing(HostImage):
    """An engine that cannot start the program, for the reason given."""

    def __init__(self, what: str, code: str = "cannot-run") -> None:
        super().__init__()
        self.error = Unreachable(code, what)

    def run(self, run: Run) -> RunResult:
        raise self.error


def test_an_interpreter_that_the_user_may_not_start_fails(tree: Tree) -> None:
    layout, launch = tree
    image = Refusing('exec: "/opt/venv/bin/python3": permission denied')
    proof = prove(image, dataclasses.replace(launch, user="1000"), "pkg", [expect(site_of(layout), MOD)])
    assert states(proof) == {
        **dict.fromkeys(ALL_PASSED, "failed"),
        "bytes": "passed",
        "bytecode": "passed",
        "asserts": "passed",
    }
    assert "as user 1000" in level(proof, "imports").detail


def test_another_architectures_program_is_not_run(tree: Tree) -> None:
    layout, launch = tree
    proof = prove(Refusing("exec /usr/bin/python3: exec format error"), launch, "pkg", [expect(site_of(layout), MOD)])
    assert states(proof) == {**ALL_PASSED, "imports": "not run"}


@pytest.mark.parametrize(
    ("what", "code"), [("the daemon is gone", "engine-gone"), ("no such runtime: x", "cannot-run")]
)
def test_an_engine_that_is_gone_is_no_verdict(tree: Tree, what: str, code: str) -> None:
    layout, launch = tree
    with pytest.raises(Unreachable):
        prove(Refusing(what, code), launch, "pkg", [expect(site_of(layout), MOD)])
