from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from patchkit.cli import root


def run(*arguments: str) -> Result:
    return CliRunner().invoke(root, ["resolve", *arguments], standalone_mode=False)


def test_the_winner_the_others_and_the_reason_are_shown(fixture_layout: Callable[[str], Path]) -> None:
    done = run("--image", f"oci:{fixture_layout('xpu')}:latest", "--no-run", "vllm")
    assert done.return_value == 0, done.output
    assert "vllm: /opt/venv/lib/python3.11/site-packages/vllm, by entry 5 of the search path" in done.output
    assert "(read only)" in done.output
    lines = done.output.splitlines()
    assert any(line.startswith("serves  /opt/venv/lib") and "0.33.0" in line for line in lines)
    assert any("/workspace/vllm/vllm" in line and line.endswith("-m, -c") for line in lines)


def test_the_json_answer_is_the_common_envelope(fixture_layout: Callable[[str], Path]) -> None:
    done = run("--image", f"oci:{fixture_layout('xpu')}:latest", "--no-run", "--json", "vllm")
    answer = json.loads(done.output)
    assert (answer["schema"], answer["version"]) == ("patchkit.resolve", 1)
    assert set(answer) == {"schema", "version", "image", "files", "copies", "levels", "findings"}
    assert answer["image"]["interpreter"] == "/opt/venv/bin/python3"
    assert [copy["serves"] for copy in answer["copies"]] == [True, False]


def test_an_absent_package_is_exit_status_one(fixture_layout: Callable[[str], Path]) -> None:
    done = run("--image", f"oci:{fixture_layout('xpu')}:latest", "--no-run", "nothing")
    assert done.return_value == 1
    assert "package-absent" in done.output


def test_another_launch_finds_another_copy(fixture_layout: Callable[[str], Path]) -> None:
    done = run("--image", f"oci:{fixture_layout('xpu')}:latest", "--no-run", "--launch", "python3 -m vllm", "vllm")
    assert "vllm: /workspace/vllm/vllm, by entry 1" in done.output


@pytest.mark.engine
def test_reading_and_asking_are_both_told(fixture_image: Callable[[str], str]) -> None:
    done = run("--image", fixture_image("editable"), "vllm")
    assert done.return_value == 0, done.output
    assert "(read and asked)" in done.output
    assert "finder of /opt/venv/lib/python3.11/site-packages/__editable__.vllm-0.33.0.pth" in done.output
