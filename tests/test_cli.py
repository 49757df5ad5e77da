"""The edges of the command line itself."""

from __future__ import annotations

import ast
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from patchkit import errors

COMMAND = [sys.executable, "-m", "patchkit"]


def test_a_reader_that_leaves_a_pipe_is_no_error_to_complain_about():
    done = subprocess.run(
        ["sh", "-c", f"{' '.join(COMMAND)} manifest schema | head -c 1"], capture_output=True, text=True
    )
    assert done.stderr == ""


def test_a_disk_error_is_told_with_its_place_and_not_as_a_traceback(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    done = subprocess.run(
        [*COMMAND, "init", str(blocked / "x"), "--package", "p", "--image", "p:*"], capture_output=True
    )
    assert done.returncode in (1, 2, 3)
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize(
    "arguments", [["apply"], ["status", "--no-such-option"], ["no-such-command"], ["verify"], ["apply", "--mode", "x"]]
)
def test_a_wrong_call_with_json_is_one_document_too(arguments):
    done = subprocess.run([*COMMAND, *arguments, "--json"], capture_output=True)
    assert done.returncode == 2
    assert [finding["severity"] for finding in json.loads(done.stdout)["findings"]] == ["error"]
    assert done.stderr


def test_an_image_without_its_option_is_told_where_it_goes():
    done = subprocess.run([*COMMAND, "status", "vllm-xpu:nightly"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "An image is named with --image." in done.stderr
    other = subprocess.run([*COMMAND, "status", "--image", "x:1", "more"], capture_output=True, text=True)
    assert "named with --image" not in other.stderr


def test_a_wrong_call_names_the_help_of_the_command_that_was_called():
    done = subprocess.run([*COMMAND, "patch", "apply", "--json"], capture_output=True)
    (finding,) = json.loads(done.stdout)["findings"]
    assert finding["remedy"] == "patchkit patch apply --help"


@pytest.mark.parametrize("arguments", [["status", "--image", "oci:none", "--json"], ["verify", "--json"], ["--help"]])
def test_a_full_disk_behind_standard_output_is_told_and_no_traceback(arguments):
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([*COMMAND, *arguments], stdout=full, stderr=subprocess.PIPE)
    assert done.returncode in (2, 3)
    assert done.stderr.startswith(b"error: ")


@pytest.mark.engine
@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
@pytest.mark.parametrize("moment", ["at any moment", "while it is created", "while it is removed"])
def test_a_run_that_is_ended_takes_its_containers_away(end, moment, engine, fixture_image, scratch):
    image = scratch.tagged(fixture_image("pure"), "tinyserve:1")
    program = "pass" if "removed" in moment else "import time; time.sleep(60)"
    run = subprocess.Popen([sys.executable, "-c", _RUN, image, program, moment, str(int(end))])
    label = {"label": "dev.patchkit.temporary"}

    def own():
        found = engine.api.containers(all=True, filters={**label, "ancestor": image})
        return [item for item in found if f".{run.pid}." in item["Labels"]["dev.patchkit.temporary"]]

    if moment == "at any moment":
        deadline = time.monotonic() + 60
        while not own() and time.monotonic() < deadline:
            time.sleep(0.1)
        assert own(), "the run never started"
        run.send_signal(end)
    assert run.wait(120) == (130 if end == signal.SIGINT else 128 + end)
    assert own() == []


#: One run in a container, and where it is asked for, the signal at the moment at which the engine has done a thing and
#: patchkit has not heard of it.
_RUN = """
import os, signal, sys
import click
import patchkit.cli as cli
from patchkit.images import open_image, parse_reference
from patchkit.images.engine import Engine
from patchkit.images.model import Run

image, program, moment, number = sys.argv[1:]
real = Engine.call
# Whoever runs the tests in the background may have let these be ignored, which a child takes over.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)

def call(self, method, path, **rest):
    answer = real(self, method, path, **rest)
    if moment == "while it is created" and path == "/containers/create":
        os.kill(os.getpid(), int(number))
    if moment == "while it is removed" and method == "DELETE":
        os.kill(os.getpid(), int(number))
    return answer

Engine.call = call

@click.command()
def command():
    with open_image(parse_reference(image)) as opened:
        opened.run(Run(argv=("/opt/venv/bin/python3", "-c", program)))

cli.root.main = command.main
cli.main([])
"""


def test_every_command_of_the_list_can_be_loaded_and_has_help():
    from patchkit.cli import COMMANDS

    for name in COMMANDS:
        done = subprocess.run([*COMMAND, name, "--help"], capture_output=True, text=True)
        assert done.returncode == 0, name
        assert done.stdout.startswith("Usage:"), name


def told(*arguments):
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True)
    assert "Traceback" not in done.stderr
    return done


def test_a_command_that_is_nearly_one_is_told_the_one_that_was_meant():
    assert "Did you mean apply?" in told("aply").stderr
    assert "Did you mean" not in told("zzzzzz").stderr
    assert "did you mean --hardware b70x4?" in told("recipe", "flint", "--hardware", "b70").stderr


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ("apply --container vllm --mode bind", "--mode"),
        ("apply --container vllm --tag a --guard", "--tag, --guard"),
        ("apply --container vllm --device /dev/dri --dry-run", "--device"),
        ("apply --image vllm --restart", "--restart"),
        ("verify --container vllm --gpus all", "--gpus"),
        ("verify --container vllm --host ssh://a --receipt receipt.json", "--receipt"),
    ],
)
def test_an_option_that_would_have_no_effect_is_refused_before_anything_is_done(arguments, named):
    done = told(*arguments.split())
    assert done.returncode == 2
    assert f"{named}: without effect beside --" in done.stderr


def test_a_catalog_is_not_started_in_a_folder_that_nobody_named(tmp_path):
    done = subprocess.run(
        [*COMMAND, "init", "", "--package", "p", "--image", "p:*"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "name a folder" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_overlay_cannot_be_taken_back(tmp_path):
    (tmp_path / "passwd").write_text("root")
    done = told("revert", "--compose", str(tmp_path / "passwd"))
    assert done.returncode == 1
    assert "it is no overlay" in done.stderr
    assert "next: " in done.stderr


@pytest.mark.parametrize("port", ["1", "not-there.invalid"])
def test_a_registry_out_of_reach_is_told_in_words(port):
    place = f"docker://127.0.0.1:{port}/vllm:1" if port.isdigit() else f"docker://{port}/vllm:1"
    done = told("status", "--image", place)
    assert done.returncode == 3
    assert "cannot be reached: " in done.stderr
    assert "Pool" not in done.stderr
    assert "Error" not in done.stderr


def test_every_error_has_a_next_step():
    """By its own words, or by those of its code."""
    missing = []
    for path in sorted((Path(__file__).parents[1] / "patchkit").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args):
                continue
            kinds = {"Refused": errors.Refused, "BadInput": errors.BadInput, "Unreachable": errors.Unreachable}
            code = node.args[0]
            if node.func.id in kinds and isinstance(code, ast.Constant) and isinstance(code.value, str):
                given = any(keyword.arg == "remedy" for keyword in node.keywords)
                if not given and not kinds[node.func.id](code.value, "what").remedy:
                    missing.append(f"{path}:{node.lineno} {code.value}")
    assert missing == []
