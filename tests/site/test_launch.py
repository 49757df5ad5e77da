from __future__ import annotations

from pathlib import Path

import pytest

from patchkit.errors import BadInput, Refused
from patchkit.site.launch import launch_of, require_known, service_config
from tests.site.host import HostFiles
from tests.site.roots import ELF, config, link, put, small_root


@pytest.fixture
def fs(tmp_path: Path) -> HostFiles:
    return small_root(tmp_path)


VENV = "/opt/venv/bin/python3"


@pytest.mark.parametrize(
    ("entrypoint", "form", "interpreter", "argument"),
    [
        (["serve", "x"], "console-script", VENV, "/opt/venv/bin/serve"),
        (["/opt/venv/bin/serve"], "console-script", VENV, "/opt/venv/bin/serve"),
        (["python3", "-m", "app.cli"], "module", VENV, "app.cli"),
        (["python", "-mapp.cli"], "module", "/opt/venv/bin/python", "app.cli"),
        (["/usr/bin/python3.11", "-u", "-m", "app"], "module", "/usr/bin/python3.11", "app"),
        (["python3", "-c", "import app"], "command", VENV, "import app"),
        (["python3", "-uc", "import app"], "command", VENV, "import app"),
        (["python3", "/opt/venv/bin/serve"], "script", VENV, "/opt/venv/bin/serve"),
        (["python3", "../opt/venv/bin/serve"], "script", VENV, "/opt/venv/bin/serve"),
        (["tini", "-g", "--", "serve"], "console-script", VENV, "/opt/venv/bin/serve"),
        (["tini", "-e", "143", "serve"], "console-script", VENV, "/opt/venv/bin/serve"),
        (["dumb-init", "-r", "15:2", "serve"], "console-script", VENV, "/opt/venv/bin/serve"),
        (["env", "A=1", "serve"], "console-script", VENV, "/opt/venv/bin/serve"),
        (["env", "-u", "A", "-S", "python3 -m app"], "module", VENV, "app"),
        (["timeout", "-k", "5", "60", "serve"], "console-script", VENV, "/opt/venv/bin/serve"),
        (["nice", "-n", "5", "serve"], "console-script", VENV, "/opt/venv/bin/serve"),
        (["sh", "-c", "exec serve --port 1"], "console-script", VENV, "/opt/venv/bin/serve"),
        (["/bin/sh", "-c", "serve"], "console-script", VENV, "/opt/venv/bin/serve"),
        (["bash", "-c", 'exec "$@"', "bash", "serve"], "console-script", VENV, "/opt/venv/bin/serve"),
        (["bash", "-ec", "cd / && exec python3 -m app"], "module", VENV, "app"),
    ],
)
def test_a_plain_start_is_followed(
    fs: HostFiles, entrypoint: list[str], form: str, interpreter: str, argument: str
) -> None:
    launch = launch_of(config(entrypoint), fs)
    assert (launch.form, launch.interpreter, launch.argument) == (form, interpreter, argument), launch.source


@pytest.mark.parametrize(
    ("entrypoint", "reason"),
    [
        ([], "neither entrypoint nor command"),
        (["nothing"], "not on the image's PATH"),
        (["/srv/nothing"], "no program in the image"),
        (["python3"], "interactive"),
        (["python3", "-"], "standard input"),
        (["env", "-S", "python3 'half"], "cannot be split"),
        (["python3", "-V"], "print and end"),
        (["python3", "gone.py"], "not in the image"),
        (["bash"], "interactive"),
        (["bash", "-l", "-c", "serve"], "start-up files"),
        (["bash", "gone.sh"], "not in the image"),
        (["sh", "-c", "if test -f /x; then exec serve; else exec python3 -m app; fi"], "under a condition"),
        (["sh", "-c", "test -f /x && exec serve"], "under a condition"),
        (["sh", "-c", 'eval "$START"'], "eval"),
        (["sh", "-c", "exec $(cat /command)"], "only running tells"),
        (["sh", "-c", "export PATH=$(cat /path); exec serve"], "PATH is set"),
        (["sh", "-c", "export __PYVENV_LAUNCHER__=$(which python3); exec serve"], "__PYVENV_LAUNCHER__ is set"),
        (["sh", "-c", "echo 'never ends"], "never ends"),
        (["/usr/bin/python3.11", "--version"], "print and end"),
    ],
)
def test_what_is_not_plain_is_unknown_with_its_reason(fs: HostFiles, entrypoint: list[str], reason: str) -> None:
    launch = launch_of(config(entrypoint), fs)
    assert launch.form == "unknown"
    assert reason in launch.source
    with pytest.raises(Refused) as refused:
        require_known(launch)
    assert refused.value.code == "launch-unknown"
    assert "--launch" in (refused.value.remedy or "")


def test_a_compiled_program_that_is_no_python_is_unknown(fs: HostFiles, tmp_path: Path) -> None:
    put(tmp_path, "/usr/bin/server", ELF, 0o755)
    assert "compiled program" in launch_of(config(["server"]), fs).source


def test_the_override_stands_for_entrypoint_and_command(fs: HostFiles) -> None:
    launch = launch_of(config(["nothing"]), fs, "python3 -I -m app")
    assert (launch.form, launch.argument, launch.flags) == ("module", "app", ("-I",))
    assert launch.source.startswith("--launch")


@pytest.mark.parametrize("text", ["", "serve 'half"])
def test_an_override_that_is_no_command_line_is_bad_input(fs: HostFiles, text: str) -> None:
    with pytest.raises(BadInput):
        launch_of(config(["serve"]), fs, text)


def test_the_command_follows_the_entrypoint(fs: HostFiles) -> None:
    assert launch_of(config(["python3"], ["-m", "app"]), fs).argument == "app"


def test_options_that_change_the_search_path_are_kept_and_others_are_not(fs: HostFiles) -> None:
    launch = launch_of(config(["python3", "-uIOB", "-W", "error", "-X", "pycache_prefix=/c", "-m", "app"]), fs)
    assert launch.flags == ("-I", "-O", "-Xpycache_prefix=/c")


def test_env_in_a_shebang_looks_on_the_path(fs: HostFiles, tmp_path: Path) -> None:
    put(tmp_path, "/srv/run.py", "#!/usr/bin/env python3\n", 0o755)
    launch = launch_of(config(["/srv/run.py"]), fs)
    assert (launch.form, launch.interpreter) == ("console-script", VENV)


def test_env_with_s_in_a_shebang_splits_its_words(fs: HostFiles, tmp_path: Path) -> None:
    put(tmp_path, "/srv/run.py", "#!/usr/bin/env -S python3 -E -s\n", 0o755)
    launch = launch_of(config(["/srv/run.py"]), fs)
    assert (launch.interpreter, launch.flags) == (VENV, ("-E", "-s"))


def test_without_s_all_of_a_shebangs_words_are_one(fs: HostFiles, tmp_path: Path) -> None:
    put(tmp_path, "/srv/run.py", "#!/usr/bin/env python3 -E\n", 0o755)
    assert launch_of(config(["/srv/run.py"]), fs).form == "unknown"


@pytest.mark.parametrize(
    "head",
    [
        "#!/bin/sh\n'''exec' /opt/venv/bin/python3 \"$0\" \"$@\"\n' '''\n",
        "#!/bin/sh\n'''exec' \"$(dirname -- \"$(realpath -- \"$0\")\")\"/'python3' \"$0\" \"$@\"\n' '''\n",
        '#!/bin/sh\n"exec" "$(dirname $(readlink -f $0))/python3" "$0" "$@"\n',
        '#!/bin/sh\n"true" \'\'\'\\\'\nexec "$(cd "$(dirname "$0")" && pwd)/python3" "$0" "$@"\n\'\'\'\n',
    ],
)
def test_the_long_and_the_relocatable_shebang_are_seen_through(fs: HostFiles, tmp_path: Path, head: str) -> None:
    put(tmp_path, "/opt/venv/bin/long", head + "import sys\nx = '''(\n'''\n", 0o755)
    launch = launch_of(config(["long"]), fs)
    assert (launch.form, launch.interpreter) == ("console-script", VENV), launch.source
    assert launch.argument == "/opt/venv/bin/long"


def test_a_relocatable_script_is_found_through_a_link_to_it(fs: HostFiles, tmp_path: Path) -> None:
    head = "#!/bin/sh\n'''exec' \"$(dirname -- \"$(realpath -- \"$0\")\")\"/'python3' \"$0\" \"$@\"\n' '''\n"
    put(tmp_path, "/opt/venv/bin/long", head, 0o755)
    link(tmp_path, "/usr/bin/linked", "/opt/venv/bin/long")
    launch = launch_of(config(["/usr/bin/linked"]), fs)
    assert launch.interpreter == VENV, launch.source


SCRIPT = """#!/bin/bash
set -euo pipefail
# a vendor's start script
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$(nproc)}
export PYTHONPATH="/srv/extra:${PYTHONPATH:-}"
if [ -n "${DEBUG:-}" ]; then
    echo "debugging"
    export LOG=debug
fi
log() { echo "$@"; }
log "starting $*"
cat <<EOF >/dev/null
exec nothing
EOF
cd /srv/work
exec "$@"
"""


def test_a_start_script_is_followed_with_its_environment_and_folder(fs: HostFiles, tmp_path: Path) -> None:
    put(tmp_path, "/entrypoint.sh", SCRIPT, 0o755)
    (tmp_path / "srv/work").mkdir()
    launch = launch_of(config(["/entrypoint.sh"], ["python3", "-m", "app"], PYTHONPATH="/old"), fs)
    assert launch.form == "module", launch.source
    assert launch.env["PYTHONPATH"] == "/srv/extra:/old"
    assert launch.cwd == "/srv/work"
    assert "LOG" not in launch.env
    assert "OMP_NUM_THREADS" not in launch.env


def test_a_sourced_activate_script_puts_the_environment_first(fs: HostFiles, tmp_path: Path) -> None:
    put(tmp_path, "/opt/venv/bin/activate", "garbage that is never read (\n")
    put(tmp_path, "/entrypoint.sh", "#!/bin/sh\n. /opt/venv/bin/activate\nexec python3 -m app\n", 0o755)
    launch = launch_of({"Entrypoint": ["/entrypoint.sh"], "Env": ["PATH=/usr/bin"]}, fs)
    assert (launch.interpreter, launch.env["VIRTUAL_ENV"]) == (VENV, "/opt/venv")


def test_a_sourced_file_is_followed(fs: HostFiles, tmp_path: Path) -> None:
    put(tmp_path, "/srv/env.sh", "export PYTHONPATH=/from/env\n")
    put(tmp_path, "/entrypoint.sh", "#!/bin/sh\n. ./env.sh\nexec python3 -m app\n", 0o755)
    assert launch_of(config(["/entrypoint.sh"]), fs).env["PYTHONPATH"] == "/from/env"


def test_commands_before_the_server_are_told(fs: HostFiles, tmp_path: Path) -> None:
    put(tmp_path, "/entrypoint.sh", "#!/bin/sh\nsed -i s/a/b/ /x.py\nserve | tee /log &\nwait\n", 0o755)
    launch = launch_of(config(["/entrypoint.sh"]), fs)
    assert launch.form == "console-script", launch.source
    assert "`sed -i s/a/b/ /x.py` runs" in launch.source


def test_a_variable_changed_under_a_condition_is_not_guessed(fs: HostFiles, tmp_path: Path) -> None:
    script = "#!/bin/sh\nif [ -d /x ]; then export PYTHONPATH=/x; fi\nexec serve\n"
    put(tmp_path, "/entrypoint.sh", script, 0o755)
    assert "PYTHONPATH is set" in launch_of(config(["/entrypoint.sh"]), fs).source


def test_arguments_replaced_under_a_condition_are_not_guessed(fs: HostFiles, tmp_path: Path) -> None:
    script = '#!/bin/sh\nif [ "${1#-}" != "$1" ]; then set -- serve "$@"; fi\nexec "$@"\n'
    put(tmp_path, "/entrypoint.sh", script, 0o755)
    assert launch_of(config(["/entrypoint.sh"], ["serve"]), fs).form == "unknown"


@pytest.mark.parametrize(
    ("script", "module"),
    [
        (': "${MOD:=app}"\nexec python3 -m "$MOD"', "app"),
        ('X=app\nexec python3 -m "${X}"', "app"),
        ('set -- -m app "$@"\nexec python3 "$@"', "app"),
        ('set -- a -m app\nshift\nexec python3 "$@"', "app"),
        ("PYTHON=python3 exec env python3 -m app", "app"),
        ("until false; do sleep 1; done\nexec python3 -m app", "app"),
        ("cd /nowhere || exit 1\ncd /srv\nexec python3 -m app", "app"),
        ("read MOD <x\nexec python3 -m $MOD", ""),
        ("for MOD in a b; do echo $MOD; done\nexec python3 -m $MOD", ""),
        ("f() { MOD=other; }\nMOD=app\nf\nexec python3 -m $MOD", ""),
        ("python3 -m one &\nexec python3 -m two", ""),
        ("serve & python3 -m two", ""),
        ("(exec python3 -m app)", ""),
        ("{ exec python3 -m app; }", ""),
        ("exec -a name python3 -m app", ""),
        ("false || exec python3 -m app", ""),
        ("alias python3=other\n$(echo exec) python3 -m app", ""),
    ],
)
def test_a_script_is_followed_as_a_shell_would_or_not_at_all(
    fs: HostFiles, tmp_path: Path, script: str, module: str
) -> None:
    put(tmp_path, "/entrypoint.sh", f"#!/bin/sh\n{script}\n", 0o755)
    launch = launch_of(config(["/entrypoint.sh"]), fs)
    assert (launch.form, launch.argument) == (("module", module) if module else ("unknown", "")), launch.source


def test_what_runs_before_an_exec_is_told(fs: HostFiles, tmp_path: Path) -> None:
    put(tmp_path, "/entrypoint.sh", "#!/bin/sh\npip install x && exec serve\n", 0o755)
    assert "`pip install x` runs" in launch_of(config(["/entrypoint.sh"]), fs).source


def test_scripts_that_start_each_other_end(fs: HostFiles, tmp_path: Path) -> None:
    put(tmp_path, "/a.sh", '#!/bin/sh\nexec /a.sh "$@"\n', 0o755)
    assert "more wrappers" in launch_of(config(["/a.sh"]), fs).source


def test_a_script_as_sourced_by_itself_ends(fs: HostFiles, tmp_path: Path) -> None:
    put(tmp_path, "/a.sh", "#!/bin/sh\n. /a.sh\nexec serve\n", 0o755)
    assert launch_of(config(["/a.sh"]), fs).form == "unknown"


def test_home_is_the_users_where_the_image_sets_none(fs: HostFiles, tmp_path: Path) -> None:
    assert launch_of(config(["serve"], user="1000"), fs).env["HOME"] == "/home/app"
    assert launch_of(config(["serve"], user="app:app"), fs).env["HOME"] == "/home/app"
    assert launch_of(config(["serve"], user="4711"), fs).env["HOME"] == "/"
    assert launch_of(config(["serve"]), fs).env["HOME"] == "/root"
    (tmp_path / "etc/passwd").unlink()
    assert launch_of(config(["serve"]), fs).env["HOME"] == "/"


def test_gosu_changes_the_user(fs: HostFiles) -> None:
    launch = launch_of(config(["gosu", "app", "serve"]), fs)
    assert (launch.user, launch.env["HOME"]) == ("app", "/home/app")


def test_the_working_folder_is_a_real_path(fs: HostFiles, tmp_path: Path) -> None:
    link(tmp_path, "/work", "srv")
    assert launch_of(config(["serve"], cwd="/work/"), fs).cwd == "/srv"


def test_the_boot_guard_is_looked_through(fs: HostFiles) -> None:
    launch = launch_of(config([VENV, "/.patchkit/guard.py", "python3", "-m", "app"]), fs)
    assert (launch.form, launch.argument) == ("module", "app"), launch.source


@pytest.mark.parametrize("broken", [{"config": None}, {"config": {"Entrypoint": 5, "Env": {"a": 1}, "User": 1}}, {}])
def test_a_config_that_holds_nonsense_starts_nothing(fs: HostFiles, broken: dict[str, object]) -> None:
    assert launch_of(broken, fs).form == "unknown"


def test_a_service_changes_what_its_image_starts(fs: HostFiles) -> None:
    service = {"command": "-m app --x 'a b'", "environment": {"PYTHONPATH": "/x", "OFF": None}, "working_dir": "/"}
    changed = service_config(service, config(["python3"], ["-m", "other"]))
    launch = launch_of(changed, fs)
    assert (launch.argument, launch.env["PYTHONPATH"], launch.cwd) == ("app", "/x", "/")


def test_a_services_entrypoint_drops_the_images_command(fs: HostFiles) -> None:
    changed = service_config({"entrypoint": ["serve"], "environment": ["A=1"]}, config(["python3"], ["-m", "other"]))
    assert changed["Cmd"] == []
    assert launch_of(changed, fs).form == "console-script"
