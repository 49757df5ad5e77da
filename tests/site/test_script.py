"""What a start script leaves to the program that it ends in: as bash leaves it, or said to be unknown."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from patchkit.site.launch import launch_of
from patchkit.site.script import ending_of
from patchkit.site.shell import NotPlain
from tests.site.host import HostFiles
from tests.site.roots import config, put, small_root

BASH = shutil.which("bash") or "/bin/bash"
SERVE = '#!/bin/sh\necho "${PYTHONPATH-unset}"\npwd -P\necho "$*"\n'

#: These are plain: reading must tell what they leave.
TOLD = [
    'export "PYTHONPATH=/o"',
    "export 'PYTHONPATH'=/o",
    'X=/o; export "PYTHONPATH=$X/lib:$X"',
    "X=PYTHONPATH=/o; export $X",
    "X=PYTHONPATH; export $X=/o",
    "declare -x PYTHONPATH=/o",
    "typeset -rx PYTHONPATH=/o",
    "declare PYTHONPATH=/o; export PYTHONPATH",
    "export PYTHONPATH=/o; export -n PYTHONPATH",
    "export PYTHONPATH=/o; declare +x PYTHONPATH",
    "export PYTHONPATH=/o; unset -f PYTHONPATH",
    "export PYTHONPATH=/a; PYTHONPATH+=:/o",
    "export PYTHONPATH=/a; export PYTHONPATH+=:/o",
    "export PYTHONPATH=$PWD",
    "cd one; export PYTHONPATH=$PWD/lib",
    'export PYTHONPATH="$(cd one && pwd)"',
    "export PYTHONPATH=~/x:~/y",
    'X=/a; export PYTHONPATH=$X:~/y:"~/z"',
    "set -eao pipefail; PYTHONPATH=/o",
    "command cd one",
    "builtin cd one; command export PYTHONPATH=/o",
    "mkdir -p one && cd one && export PYTHONPATH=/o",
    "[ -n '' ] && export FOO",
    "IFS=$'\\n\\t'; export PYTHONPATH=/o",
    "export PYTHONPATH=/o && :",
]
#: And these depend on what only running tells; to say so is right, and so is what bash does.
HIDDEN = [
    "export $(echo PYTHONPATH=/o)",
    "export $(cat env | xargs)",
    "PYTHONPATH=/o; [ -d / ] && export PYTHONPATH",
    "PYTHONPATH=/o; if [ -d / ]; then export PYTHONPATH; fi",
    "export PYTHONPATH=/o; if [ -d / ]; then export -n PYTHONPATH; fi",
    "ls /nothing && export PYTHONPATH=/o",
    "ls / >/dev/null && export PYTHONPATH=/o",
    "ls /nothing && cd one",
    "pushd one >/dev/null; popd >/dev/null",
    "pushd one >/dev/null; pushd >/dev/null",
    'cd one; cd "$OLDPWD"',
    "CDPATH=$PWD/one; cd two >/dev/null",
    "printf -v PYTHONPATH %s /o; export PYTHONPATH",
    "f() { : ${PYTHONPATH:=/o}; }; export PYTHONPATH=; f",
    "echo() { export PYTHONPATH=/o; }; echo",
    "cd() { builtin cd one; }; cd /",
    "export PYTHONPATH=/$UID",
    "export PYTHONPATH=/$HOSTNAME",
    "export PYTHONPATH=${BASH_SOURCE[0]}",
    "export PYTHONPATH=$(dirname $BASH)",
    "declare -n P=PYTHONPATH; P=/o; export PYTHONPATH",
    "IFS=,; X=/a,/b; export $X PYTHONPATH=/o",
]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    put(tmp_path, "/bin/serve", SERVE, 0o755)
    put(tmp_path, "/srv/env", "PYTHONPATH=/from/file\n")
    (tmp_path / "srv/one/two").mkdir(parents=True)
    (tmp_path / "srv/two").mkdir()
    return tmp_path


def left_by_bash(root: Path, text: str) -> list[str]:
    env = {"PATH": f"{root}/bin:{os.defpath}", "HOME": "/root"}
    done = subprocess.run(
        [BASH, "-c", text, "start.sh"], cwd=root / "srv", env=env, capture_output=True, text=True, timeout=10
    )
    return done.stdout.splitlines()


def read(root: Path, text: str) -> list[str]:
    """The same three lines by reading; a NotPlain where it does not tell."""
    env = {"PATH": f"{root}/bin:{os.defpath}", "HOME": "/root"}
    end = ending_of(HostFiles(Path("/")), text, "start.sh", [], env, os.path.realpath(root / "srv"))
    assert end.argv[0] == "serve"
    return [end.env.get("PYTHONPATH", "unset"), end.cwd, " ".join(word or "?" for word in end.argv[1:])]


@pytest.mark.parametrize("script", TOLD)
def test_what_a_plain_script_leaves_is_what_bash_leaves(root: Path, script: str) -> None:
    text = f"{script}\nexec serve x"
    assert read(root, text) == left_by_bash(root, text)


@pytest.mark.parametrize("script", HIDDEN)
def test_what_only_running_tells_is_not_guessed(root: Path, script: str) -> None:
    text = f"{script}\nexec serve x"
    said = left_by_bash(root, text)
    try:
        assert read(root, text) == said
    except NotPlain:
        assert len(said) == 3, "bash starts it"


def test_an_exec_behind_a_command_that_may_fail_is_followed_where_nothing_else_is_started(root: Path) -> None:
    assert read(root, "ls / && exec serve a || exit 1")[2] == "a"
    with pytest.raises(NotPlain, match="under a condition"):
        read(root, "ls /nothing && exec serve a\nexec serve b")


@pytest.fixture
def fs(tmp_path: Path) -> HostFiles:
    return small_root(tmp_path)


@pytest.mark.parametrize("start", [["bash", "/start.sh"], ["/start.sh"], ["bash", "-c", "exec serve"]])
def test_what_bash_reads_before_a_script_counts(fs: HostFiles, tmp_path: Path, start: list[str]) -> None:
    put(tmp_path, "/start.sh", "#!/bin/bash\nexec serve\n", 0o755)
    put(tmp_path, "/etc/before.sh", "export PYTHONPATH=/from/before\n")
    launch = launch_of(config(start, BASH_ENV="/etc/before.sh"), fs)
    assert launch.env.get("PYTHONPATH") == "/from/before", launch.source
    put(tmp_path, "/etc/before.sh", 'eval "$(activate)"\n')
    assert launch_of(config(start, BASH_ENV="/etc/before.sh"), fs).form == "unknown"


@pytest.mark.parametrize("start", [["sh", "-c", "exec serve"], ["bash", "-p", "-c", "exec serve"]])
def test_a_shell_that_does_not_read_it_is_not_changed_by_it(fs: HostFiles, tmp_path: Path, start: list[str]) -> None:
    put(tmp_path, "/etc/before.sh", "export PYTHONPATH=/from/before\n")
    launch = launch_of(config(start, BASH_ENV="/etc/before.sh"), fs)
    assert (launch.form, launch.env.get("PYTHONPATH")) == ("console-script", None)
