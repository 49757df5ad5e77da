"""``patchkit lint`` as a person calls it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from patchkit.cli import main

REPOSITORY = Path(__file__).parents[3]


def call(*arguments: str) -> int:
    with pytest.raises(SystemExit) as stop:
        main(["lint", *arguments])
    return int(stop.value.code or 0)


def test_the_ready_stacks_have_no_findings(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(*(str(file) for file in sorted((REPOSITORY / "compose").glob("*.yaml")))) == 0
    assert "3 starts looked at, nothing found" in capsys.readouterr().out


def test_fix_writes_the_file_and_what_is_left_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "start.sh"
    file.write_text("vllm serve other/m \\\n  # why\n  --a $B\n")
    assert call(str(file)) == 1
    assert "patchkit lint --fix" in capsys.readouterr().out
    assert call(str(file), "--fix") == 0
    assert file.read_text() == "# why\nvllm serve other/m \\\n  --a $B\n"
    assert "unquoted-variable" in capsys.readouterr().out


def test_an_argument_list_is_linted_and_told_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    status = call("--json", "--platform", "xpu", "--", "vllm", "serve", "RecursiveSI/flint", "--dtype", "half")
    answer = json.loads(capsys.readouterr().out)
    assert status == 1
    assert answer["schema"] == "patchkit.lint"
    assert {"dtype", "no-attention-backend"} <= {finding["id"] for finding in answer["findings"]}


def test_an_image_that_is_not_there_is_a_note(capsys: pytest.CaptureFixture[str]) -> None:
    status = call("--json", "--image", "oci:/nowhere/at/all", "--", "vllm", "serve", "m")
    assert status == 0
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert (finding["id"], finding["severity"]) == ("options-not-checked", "note")


@pytest.mark.parametrize("arguments", [[], ["--", "echo", "hello"], ["missing.yaml"]])
def test_nothing_to_lint_is_a_wrong_call(arguments: list[str]) -> None:
    assert call(*arguments) == 2
