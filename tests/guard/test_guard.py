"""The boot guard as a program of this machine, in front of a real Python."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from patchkit.deliver.guard import Guard, GuardedFile, make_guard
from patchkit.errors import Refused
from patchkit.plan import ABSENT
from patchkit.site.launch import GUARD_PATH, launch_of
from tests.site.host import HostFiles
from tests.site.layouts import Layout, interpreters
from tests.site.test_record import row

MOD = "pkg/sub/mod.py"
STALE = "value = 1\n"
PATCHED = "value = 2\n"


@dataclass
class Place:
    """A virtual environment with a patched package, its server, and a folder to start it in."""

    layout: Layout
    site: Path
    settings: dict[str, Any]
    env: dict[str, str] = field(default_factory=dict)

    @property
    def module(self) -> Path:
        return self.site / MOD

    def guard(self, files: Sequence[GuardedFile] | None = None, **config: object) -> Guard:
        wanted = [guarded(self.site)] if files is None else files
        record = str(self.site / "pkg-1.0.dist-info/RECORD")
        remedy = "patchkit apply --image x --guard"
        return make_guard({**self.settings, **config}, HostFiles(), wanted, record=record, remedy=remedy)

    def start(
        self, guard: Guard, *arguments: str, cwd: Path | None = None, stdin: str = "", **env: str
    ) -> subprocess.CompletedProcess[str]:
        place = self.layout.file("guard/guard.py", guard.program.decode())
        command = [str(place) if word == GUARD_PATH else word for word in (*guard.entrypoint, *guard.command)]
        settings = {"PATH": f"{self.layout.root}/venv/bin:/usr/bin:/bin", "HOME": "/nowhere", **self.env, **env}
        folder = cwd or self.layout.root / "work"
        return subprocess.run(
            [*command, *arguments], env=settings, cwd=folder, input=stdin, capture_output=True, text=True
        )


def guarded(site: Path, **changes: str) -> GuardedFile:
    digest = hashlib.sha256(PATCHED.encode()).hexdigest()
    shipped = hashlib.sha256(STALE.encode()).hexdigest()
    values = {"path": str(site / MOD), "relative": MOD, "module": "pkg.sub.mod", "post": digest, "shipped": shipped}
    return GuardedFile(**{**values, **changes})


SERVER = """{head}
import os, sys
from pkg.sub.mod import value
print("serving", value, sys.argv[1:], b"LC_CTYPE" in open("/proc/self/environ", "rb").read(), sys.stdin.read())
sys.exit(7)
"""


@pytest.fixture(params=interpreters())
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Place:
    layout = Layout(tmp_path, request.param)
    site = tmp_path / layout.venv()
    layout.package(str(site.relative_to(tmp_path)))
    (site / MOD).write_text(PATCHED)
    layout.file(f"{site.relative_to(tmp_path)}/pkg-1.0.dist-info/RECORD", row(MOD, STALE.encode()) + "\n")
    layout.file("venv/bin/serve", SERVER.format(head="#!" + layout.python)).chmod(0o755)
    layout.package("work")
    settings = {
        "Entrypoint": ["serve", "run"],
        "Cmd": ["--model", "a b"],
        "Env": [f"PATH={tmp_path}/venv/bin:/usr/bin:/bin", "HOME=/nowhere"],
        "WorkingDir": f"{tmp_path}/work",
    }
    return Place(layout, site, settings)


def refused(done: subprocess.CompletedProcess[str], reason: str) -> None:
    assert done.returncode == 78, done.stderr
    assert done.stdout == ""
    assert reason in done.stderr
    assert "the server is not started" in done.stderr
    assert done.stderr.endswith("next: patchkit apply --image x --guard\n")


def test_the_server_starts_as_if_nothing_had_stood_before_it(place: Place) -> None:
    done = place.start(place.guard(), "--more", "c  d", stdin="input")
    assert done.stderr == ""
    assert done.stdout == "serving 2 ['run', '--model', 'a b', '--more', 'c  d'] False input\n"
    assert done.returncode == 7


def test_the_same_delivery_gives_the_same_guard(place: Place) -> None:
    assert place.guard() == place.guard()


def test_other_bytes_stop_the_start(place: Place) -> None:
    place.module.write_text("value = 3\n")
    refused(place.start(place.guard()), f"{MOD}: {place.module} has sha256:")


def test_a_missing_file_stops_the_start(place: Place) -> None:
    place.module.unlink()
    refused(place.start(place.guard()), "cannot be read: No such file or directory")


def test_a_nightly_that_moved_under_the_mount_stops_the_start(place: Place) -> None:
    record = place.site / "pkg-1.0.dist-info/RECORD"
    record.write_text(row(MOD, b"upstream changed it\n") + "\n")
    refused(place.start(place.guard()), "the image ships it as sha256:")


def test_another_version_of_the_package_stops_the_start(place: Place) -> None:
    guard = place.guard()
    (place.site / "pkg-1.0.dist-info").rename(place.site / "pkg-1.1.dist-info")
    refused(place.start(guard), "another version of the package was installed")


def test_a_module_that_became_a_package_starts(place: Place) -> None:
    place.module.unlink()
    moved = place.site / "pkg/sub/mod/__init__.py"
    moved.parent.mkdir()
    moved.write_text(PATCHED)
    gone = guarded(place.site, post=ABSENT, shipped="")
    there = guarded(place.site, path=str(moved), relative="pkg/sub/mod/__init__.py", shipped="")
    assert place.start(place.guard([gone, there])).returncode == 7
    refused(place.start(place.guard([gone])), "still finds")


@pytest.mark.parametrize("form", ["./{row}", '"{path}"{rest}', "{row}\r", "{path},,\n{row}", "{other}\n{row}"])
def test_record_is_read_as_installers_write_it(place: Place, form: str) -> None:
    line = row(MOD, STALE.encode())
    said = form.format(row=line, path=MOD, rest=line[len(MOD) :], other=row(MOD, b"an older row\n"))
    (place.site / "pkg-1.0.dist-info/RECORD").write_text(f"{said}\n")
    assert place.start(place.guard()).returncode == 7


def test_a_file_that_record_forgot_stops_the_start(place: Place) -> None:
    (place.site / "pkg-1.0.dist-info/RECORD").write_text(row("pkg/other.py") + "\n")
    refused(place.start(place.guard()), "RECORD does not know it any more")


def test_a_module_in_a_folder_without_init_is_found_as_the_server_finds_it(place: Place) -> None:
    inner = place.site / "pkg/bare/deep/mod.py"
    inner.parent.mkdir(parents=True)
    inner.write_text(PATCHED)
    name = "pkg/bare/deep/mod.py"
    file = guarded(place.site, path=str(inner), relative=name, module="pkg.bare.deep.mod", shipped="")
    done = place.start(place.guard([file]))
    assert (done.returncode, done.stderr) == (7, "")
    inner.rename(inner.with_name("other.py"))
    inner.symlink_to(inner.with_name("other.py"))
    refused(place.start(place.guard([file])), f"import pkg.bare.deep.mod finds {inner}, not {inner}")


def test_without_a_shipped_hash_record_is_not_asked(place: Place) -> None:
    guard = place.guard([guarded(place.site, shipped="")])
    (place.site / "pkg-1.0.dist-info/RECORD").unlink()
    assert place.start(guard).returncode == 7


def test_pythonpath_set_at_start_is_seen(place: Place) -> None:
    place.layout.package("shadow")
    refused(place.start(place.guard(), PYTHONPATH=f"{place.layout.root}/shadow"), "import pkg.sub.mod finds")


def test_another_path_is_seen(place: Place) -> None:
    place.layout.file("other/serve", "#!/bin/sh\necho wrong\n").chmod(0o755)
    done = place.start(place.guard(), PATH=f"{place.layout.root}/other:/usr/bin")
    refused(done, "proven was")


def test_a_script_that_asks_the_path_for_its_python_is_followed(place: Place) -> None:
    text = SERVER.format(head="#!/usr/bin/env python3")
    place.layout.file("venv/bin/serve", text).chmod(0o755)
    guard = place.guard()
    assert place.start(guard).returncode == 7
    place.layout.file("other/python3", "#!/bin/sh\necho wrong\n").chmod(0o755)
    path = f"{place.layout.root}/other:{place.layout.root}/venv/bin:/usr/bin"
    refused(place.start(guard, PATH=path), "runs under")


def test_a_module_launch_in_another_folder_is_seen(place: Place) -> None:
    (place.layout.root / "empty").mkdir()
    run = "from pkg.sub.mod import value\nprint(value)\n"
    (place.site / "pkg/__main__.py").write_text(run)
    settings = {"Entrypoint": [place.layout.python, "-m", "pkg"], "Cmd": [], "WorkingDir": f"{place.layout.root}/empty"}
    guard = place.guard(**settings)
    assert place.start(guard, cwd=place.layout.root / "empty").stdout == "2\n"
    refused(place.start(guard, cwd=place.layout.root / "work"), "import pkg.sub.mod finds")


def test_a_compiled_module_beside_it_stops_the_start(place: Place) -> None:
    (place.site / "pkg/sub/mod.abi3.so").write_bytes(b"\x7fELF")
    refused(place.start(place.guard()), "mod.abi3.so")


def stale_bytecode(place: Place, unchecked: bool) -> None:
    mode = "UNCHECKED_HASH" if unchecked else "TIMESTAMP"
    stale = place.layout.file("stale.py", STALE)
    before = place.module.stat()
    os.utime(stale, ns=(before.st_atime_ns, before.st_mtime_ns))
    code = (
        "import importlib.util, py_compile, sys\n"
        f"py_compile.compile({str(stale)!r}, cfile=importlib.util.cache_from_source({str(place.module)!r}), "
        f"dfile={str(place.module)!r}, invalidation_mode=py_compile.PycInvalidationMode.{mode})"
    )
    subprocess.run([place.layout.python, "-c", code], check=True)


@pytest.mark.parametrize("unchecked", [True, False])
def test_bytecode_that_would_run_instead_stops_the_start(place: Place, unchecked: bool) -> None:
    stale_bytecode(place, unchecked)
    refused(place.start(place.guard()), ".pyc would run instead of it")


def test_bytecode_beside_a_link_to_the_module_stops_the_start(place: Place) -> None:
    real = place.layout.root / "store-of-files"
    real.mkdir()
    place.module.rename(real / "a1b2")
    place.module.symlink_to(real / "a1b2")
    guard = place.guard([guarded(place.site, path=str(real / "a1b2"))])
    assert place.start(guard).stdout.startswith("serving 2")
    stale_bytecode(place, unchecked=True)
    refused(place.start(guard), ".pyc would run instead of it")


def test_bytecode_of_this_very_source_does_not(place: Place) -> None:
    code = f"import py_compile; py_compile.compile({str(place.module)!r})"
    subprocess.run([place.layout.python, "-c", code], check=True)
    assert place.start(place.guard()).returncode == 7


def test_a_removed_module_must_be_gone(place: Place) -> None:
    guard = place.guard([guarded(place.site, post=ABSENT, shipped="")])
    refused(place.start(guard), "should not be there")
    place.module.unlink()
    place.layout.file(
        "venv/bin/serve",
        SERVER.format(head="#!" + place.layout.python).replace("from pkg.sub.mod import value", "value = 0"),
    )
    assert place.start(guard).returncode == 7
    place.module.with_suffix(".abi3.so").write_bytes(b"")
    refused(place.start(guard), "still finds")


def test_nothing_of_the_package_is_imported_before_the_server(place: Place) -> None:
    (place.site / "pkg/__init__.py").write_text("print('imported')\n")
    place.module.write_text("value = 3\n")
    done = place.start(place.guard())
    assert (done.returncode, done.stdout) == (78, "")


def test_a_start_script_is_guarded_under_what_it_sets(place: Place) -> None:
    root = place.layout.root
    place.layout.package("extra")
    (root / "extra" / MOD).write_text(PATCHED)
    script = f'#!/bin/sh\nexport PYTHONPATH={root}/extra\ncd {root}/guard\nexec serve "$@"\n'
    place.layout.file("start.sh", script).chmod(0o755)
    place.layout.file("guard/x")
    wanted = guarded(root / "extra", shipped="")
    guard = place.guard([wanted], Entrypoint=[f"{root}/start.sh"], Cmd=["x"])
    done = place.start(guard, stdin="input")
    assert done.stdout == "serving 2 ['x'] False input\n"
    (root / "extra" / MOD).write_text(STALE)
    refused(place.start(guard), "has sha256")


@pytest.mark.parametrize("name", ["PYTHONEXECUTABLE", "__PYVENV_LAUNCHER__"])
def test_a_start_script_that_names_another_interpreter_by_a_variable_is_seen(place: Place, name: str) -> None:
    other = Layout(place.layout.root, place.layout.python)
    other.package(other.venv("other"))
    script = f'#!/bin/sh\nexport {name}={other.python}\nexec serve "$@"\n'
    place.layout.file("start.sh", script).chmod(0o755)
    done = place.start(place.guard(Entrypoint=[f"{place.layout.root}/start.sh"], Cmd=["x"]))
    code = "import sys; print(sys.version_info >= (3, 11))"
    heeds = subprocess.run([other.python, "-c", code], capture_output=True, text=True).stdout == "True\n"
    if heeds:
        refused(done, "import pkg.sub.mod finds")
    else:
        assert done.stdout == "serving 2 ['x'] False \n"


def test_the_guard_writes_nothing(place: Place) -> None:
    before = sorted(path for path in place.site.rglob("*"))
    place.start(place.guard(), PYTHONDONTWRITEBYTECODE="1")
    assert sorted(path for path in place.site.rglob("*")) == before


def test_a_command_that_is_not_there_ends_as_a_shell_says_it(place: Place) -> None:
    guard = place.guard(Entrypoint=[place.layout.python, "-m", "pkg"], Cmd=[])
    program = place.layout.file("guard/guard.py", guard.program.decode())
    done = subprocess.run(
        [place.layout.python, program, "/nowhere/server"], capture_output=True, text=True, cwd=place.site
    )
    assert (done.returncode, "cannot start /nowhere/server" in done.stderr) == (127, True)


def test_its_own_fault_does_not_start_the_server(place: Place) -> None:
    broken = place.guard().program.decode().replace("'files'", "'lost'", 1)
    program = place.layout.file("guard/guard.py", broken)
    done = subprocess.run([place.layout.python, program, "/bin/echo", "started"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (78, "")


def test_whatever_a_name_holds_it_stays_a_text(tmp_path: Path) -> None:
    layout = Layout(tmp_path, sys.executable)
    site = tmp_path / layout.venv()
    nasty = "a\"'\\\n{}\u2028\ud800\x00'''); import os; os.abort()"
    file = guarded(site, relative=nasty, path=f"/nowhere/{nasty}".replace("\0", ""), shipped="")
    settings = {"Entrypoint": [layout.python, "-m", "pkg"]}
    guard = make_guard(settings, HostFiles(), [file], record="", remedy="x")
    program = layout.file("guard.py")
    program.write_bytes(guard.program)
    done = subprocess.run([layout.python, program, "/bin/true"], capture_output=True, check=False)
    assert done.returncode == 78
    guard.program.decode("ascii")


def test_an_unknown_launch_cannot_be_guarded() -> None:
    with pytest.raises(Refused):
        make_guard({"Entrypoint": ["/nowhere"]}, HostFiles(), [], record="", remedy="x")


def test_the_launch_is_seen_through_the_guard(place: Place) -> None:
    guard = place.guard()
    config = {**place.settings, "Entrypoint": list(guard.entrypoint), "Cmd": list(guard.command)}
    seen, plain = launch_of(config, HostFiles()), launch_of(place.settings, HostFiles())
    assert (seen.form, seen.interpreter, seen.argument, seen.env) == (
        plain.form,
        plain.interpreter,
        plain.argument,
        plain.env,
    )
