"""Smoke against a real llama.cpp server, and, fault by fault, against a double."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from patchkit.cli import main
from patchkit.stack.openai import Server
from patchkit.stack.smoke import BASIC, TOOLS, Check, Settings, smoke
from tests.stack import servers


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with servers.llama(tmp_path_factory.mktemp("llama")) as url:
        yield url


def checks(url: str, *, tools: bool = True, **settings: object) -> dict[str, Check]:
    found = smoke(Server(url, 60), Settings(**settings), tools=tools)  # type: ignore[arg-type]
    return {check.id: check for check in found}


def test_a_real_server_passes_what_a_random_model_can_and_fails_what_it_cannot(real: str) -> None:
    found = checks(real, tools=False, max_tokens=40)
    assert {name: check.outcome for name, check in found.items()} == {
        "health": "passed",
        "models": "passed",
        "chat": "passed",
        "tool": "failed",
        "streaming": "passed",
    }
    assert found["models"].what == "tiny"
    assert found["tool"].what == "no tool was called"


def test_a_real_server_that_serves_another_name_is_told(real: str) -> None:
    found = checks(real, model="flint")
    assert list(found) == ["health", "models"]
    assert found["models"].what == "flint is not served; listed are tiny"


def test_a_real_server_without_reasoning_fails_where_reasoning_was_asked_for(real: str) -> None:
    assert checks(real, tools=False, max_tokens=20, reasoning=True)["chat"].what == "no reasoning came separately"


def test_a_faultless_model_passes_every_check() -> None:
    with servers.double() as url:
        found = checks(url, reasoning=True)
    assert list(found) == ["health", "models", *BASIC, *TOOLS]
    assert {check.outcome for check in found.values()} == {"passed"}
    assert found["repeated-calls"].what == "3 calls, none repeated"


@pytest.mark.parametrize(
    ("fault", "failed", "told"),
    [
        ("sick", {"health"}, "/health answers 503"),
        ("no-models", {"models"}, "the model list is empty"),
        ("tags", {"chat", "streaming", "multi-turn", "tool-choice-none"}, "<think> and </think> stand in the content"),
        ("no-reasoning", {"chat"}, "no reasoning came separately"),
        ("all-reasoning", {"chat", "streaming", "multi-turn", "tool-choice-none"}, "the answer has no content"),
        ("never-calls", {"tool", *TOOLS} - {"tool-choice-none"}, "no tool was called"),
        ("no-parser", {"tool", *TOOLS} - {"tool-choice-none"}, "<tool_call> and </tool_call> and <arg_key> stand"),
        ("broken-arguments", {"tool", *TOOLS} - {"tool-choice-none"}, "arguments that are no JSON"),
        ("text-numbers", {"typed-arguments"}, '"people": "4"'),
        ("wrong-tool", {"selection"}, "get_weather("),
        ("one-at-a-time", {"parallel-calls", "repeated-calls"}, 'get_weather({"city": "Paris"}) instead of'),
        ("calls-again", {"multi-turn", "repeated-calls"}, "it calls again after the result"),
        ("deaf", {"multi-turn"}, "the answer does not use the tool's result"),
        ("calls-under-none", {"tool-choice-none"}, "it calls a tool under tool_choice none"),
        ("loses-backslash", {"escaping"}, "save_text("),
        ("no-finish", {"streaming"}, "ends without a finish_reason"),
        ("breaks-off", {"streaming", "streamed-call"}, "the stream broke off before its end"),
        ("refuses", {*BASIC, *TOOLS}, "the server answered 500"),
        ("no-json", {*BASIC, *TOOLS}, "the answer is no JSON"),
    ],
)
def test_each_fault_fails_its_checks_and_no_other_and_says_what_it_means(
    fault: str, failed: set[str], told: str
) -> None:
    with servers.double(fault) as url:
        found = checks(url, reasoning=True)
    wrong = {name: check for name, check in found.items() if check.outcome == "failed"}
    assert set(wrong) == failed
    assert any(told in check.what for check in wrong.values())
    assert all(check.means for check in wrong.values())


def test_calls_that_repeat_themselves_are_counted() -> None:
    with servers.double("calls-again") as url:
        check = checks(url)["repeated-calls"]
    assert check.what == "36 calls and no end, 33 of them repeated"


def call(*arguments: str) -> int:
    with pytest.raises(SystemExit) as stop:
        main(["smoke", *arguments])
    return int(stop.value.code or 0)


def test_the_command_tells_each_check_and_its_count(capsys: pytest.CaptureFixture[str]) -> None:
    with servers.double("wrong-tool") as url:
        assert call("--url", url, "--tools", "--repeat", "2", "--model", "flint") == 1
    text = capsys.readouterr().out
    assert "failed 0/2  selection" in text
    assert "passed 2/2  escaping" in text
    assert text.count("means:") == 1


def test_the_json_holds_every_check_with_its_time(capsys: pytest.CaptureFixture[str]) -> None:
    with servers.double() as url:
        assert call("--url", url + "/v1/", "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert [check["id"] for check in answer["checks"]] == ["health", "models", "chat", "tool", "streaming"]
    assert all(check["seconds"] >= 0 for check in answer["checks"])
    assert answer["findings"] == []


def test_a_server_that_is_not_there_fails_the_first_check(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("--url", f"http://127.0.0.1:{servers.free_port()}") == 1
    assert "the server gives no answer" in capsys.readouterr().out


def test_a_url_that_is_none_is_a_wrong_call(tmp_path: Path) -> None:
    assert call("--url", "box:8000") == 2
