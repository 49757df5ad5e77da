"""``patchkit lint`` as a person calls it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from patchkit import index
from patchkit.cli import main
from patchkit.stack.lint.known import SOURCES

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
    assert f"patchkit lint --fix {file}" in capsys.readouterr().out
    assert call(str(file), "--fix") == 0
    assert file.read_text() == "# why\nvllm serve other/m \\\n  --a $B\n"
    out = capsys.readouterr().out
    assert "unquoted-variable" in out
    assert f"{file}:2:3: mended in the file" in out
    assert call(str(file), "--fix") == 0
    assert "nothing was changed" in capsys.readouterr().out


def test_an_argument_list_is_linted_and_told_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    status = call("--json", "--accelerator", "xpu", "--", "vllm", "serve", "RecursiveSI/flint", "--dtype", "half")
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


LINE = ["vllm", "serve", "m", "--tensor-paralel-size", "2", "--kv-cache-dtype", "auto", "--api-key", "k", "-tp", "2"]


def told(root: Path, capsys: pytest.CaptureFixture[str], *options: str) -> list[tuple[str, str]]:
    launch = "/opt/venv/bin/vllm serve"
    call("--json", "--image", f"rootfs:{root}", "--launch", launch, *options, "--", *LINE)
    return [(each["id"], each["remedy"]) for each in json.loads(capsys.readouterr().out)["findings"]]


def test_the_options_are_read_in_the_source_of_the_real_vllm_where_its_parser_cannot_be_imported(
    fixture_rootfs_copy: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    root = fixture_rootfs_copy("xpu")
    site = root / "opt/venv/lib/python3.11/site-packages"
    with index.configured().wheel("vllm", "0.33.0") as wheel:
        for path in SOURCES[:2]:
            (site / path).parent.mkdir(parents=True, exist_ok=True)
            (site / path).write_bytes(wheel.read(path))
    expected = [("unknown-flag", "did you mean --tensor-parallel-size?")]
    assert told(root, capsys, "--no-run") == expected
    assert told(root, capsys) == expected


def test_the_parser_itself_is_asked_where_it_can_be_imported(
    fixture_rootfs_copy: Callable[[str], Path], capsys: pytest.CaptureFixture[str], bubblewrap: None
) -> None:
    root = fixture_rootfs_copy("xpu")
    package = root / "opt/venv/lib/python3.11/site-packages/vllm"
    for folder in ("utils", "entrypoints", "entrypoints/common"):
        (package / folder).mkdir(exist_ok=True)
        (package / folder / "__init__.py").write_text("")
    (package / "__init__.py").write_text("")
    (package / "utils" / "argparse_utils.py").write_text(
        "from argparse import ArgumentParser as FlexibleArgumentParser\n"
    )
    (package / "entrypoints" / "common" / "cli_args.py").write_text(
        "def make_arg_parser(parser):\n"
        "    for name in ('--tensor-paralel-size', '--kv-cache-dtype'):\n"
        "        parser.add_argument(name)\n"
        "    return parser\n"
    )
    # Its source tells no option: the names come out of a loop that only running it goes through.
    assert [name for name, _ in told(root, capsys)] == ["unknown-flag", "unknown-flag"]
    assert told(root, capsys, "--no-run")[0][0] == "options-not-checked"


def test_vllm_without_the_source_of_its_parser_is_told_as_such(
    fixture_rootfs_copy: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    root = fixture_rootfs_copy("xpu")
    call("--image", f"rootfs:{root}", "--launch", "/opt/venv/bin/vllm serve", "--no-run", "--", *LINE)
    out = capsys.readouterr().out
    assert "is there without the source of its argument parser" in out
    assert "no vLLM" not in out


def test_without_an_image_it_is_told_that_options_were_not_checked(capsys: pytest.CaptureFixture[str]) -> None:
    call("--json", str(REPOSITORY / "compose/flint-xpu.yaml"))
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert (finding["id"], finding["severity"], finding["remedy"]) == (
        "options-not-checked",
        "note",
        "--image vllm-xpu:nightly",
    )


@pytest.mark.parametrize("option", ["--reasoning-parser", "--tool-call-parser"])
def test_a_parser_of_another_runtime_is_told(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("--", "vllm", "serve", "m", "--enable-auto-tool-choice", option, "deepseek-v3") == 1
    assert "unknown-parser" in capsys.readouterr().out
