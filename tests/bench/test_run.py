"""Measuring llama.cpp's real server: with our generator, and with vLLM's own client as its wheel ships it."""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from patchkit.bench import generate
from patchkit.bench.compare import compare
from patchkit.bench.model import SCENARIOS, Report, Scenario
from patchkit.bench.read import read_report
from patchkit.bench.run import Order, measure, order
from patchkit.bench.serve import InContainer, Local, command_of
from patchkit.cli import main
from patchkit.errors import BadInput, Refused, Unreachable
from patchkit.stack.openai import Server
from tests.bench import vllm_client
from tests.stack import servers

SHORT = Scenario("short", 100, 40, "for tests")


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with servers.llama(tmp_path_factory.mktemp("llama")) as url:
        yield url


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return vllm_client.install(tmp_path_factory.mktemp("vllm"))


def ours(name: str, url: str, *, users: tuple[int, ...] = (2,), repetitions: int = 3) -> Report:
    return measure(name, Server(url, 60), Order((SHORT,), users, repetitions, 8), generator="patchkit")


def test_every_request_of_a_real_server_is_timed(real: str) -> None:
    report = ours("a", real, users=(1, 2), repetitions=2)
    assert [(run.concurrency, run.repetition) for run in report.runs] == [(1, 0), (2, 0), (1, 1), (2, 1)]
    for run in report.runs:
        assert run.failed == 0
        assert len(run.samples["ttft_ms"]) == len(run.samples["decode_ms"]) == 8
        assert all(value > 0 for values in run.samples.values() for value in values)
    assert report.about["scenarios"] == {"short": {"input": 100, "output": 40}}
    assert report.about["model"] == "tiny"


def test_prompts_have_the_length_that_the_scenario_says(real: str) -> None:
    server = Server(real, 60)
    words = generate.words_for(server, "tiny", 600)
    counted = generate._prompt_tokens(server, "tiny", words)
    assert abs(counted - 600) < 40


def test_a_server_that_became_a_fifth_slower_is_found_and_one_that_did_not_is_not(real: str) -> None:
    # Both sides are held back, so that what the machine adds is small beside it. A busy machine can still blur one
    # measurement, and the verdict then rightly says UNCLEAR: it is measured again.
    wanted = Order((Scenario("slow", 100, 12, "for tests"),), (2,), 3, 6)

    def side(each: float) -> Report:
        with servers.slowed(real, first=5 * each, each=each) as url:
            return measure("side", Server(url, 60), wanted, generator="patchkit")

    def verdicts(before: Report, after: Report) -> dict[str, str]:
        return {row.metric.name: row.verdict for row in compare(before, after).rows}

    for _ in range(4):
        before, again, after = side(0.030), side(0.030), side(0.036)
        changed, unchanged = verdicts(before, after), verdicts(before, again)
        assert changed["Per-user decode"] in ("WORSE", "UNCLEAR")
        assert unchanged["Per-user decode"] in ("SAME", "UNCLEAR")
        if changed["Per-user decode"] == changed["Total output"] == "WORSE":
            break
    else:
        raise AssertionError(f"a fifth slower was never found: {changed}")
    change = next(row.change for row in compare(before, after).rows if row.metric.name == "Per-user decode")
    assert change is not None
    assert 0.1 < change < 0.3


def test_vllm_s_own_client_measures_a_real_server(
    real: str, client: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", f"{client}:/usr/bin:/bin")
    report = measure("a", Server(real, 60), Order((SHORT,), (2,), 2, 6))
    assert [run.repetition for run in report.runs] == [0, 1]
    for run in report.runs:
        # A model of random weights may answer without a word; that is not timed, and told.
        assert len(run.samples["ttft_ms"]) + run.failed == 6
        assert run.samples["output_tok_s"][0] > 0
    assert report.about["generator"] == "vllm bench serve"
    assert report.about["tokenizer"] == "tiny"

    file = tmp_path / "a.json"
    file.write_text(json.dumps(report.as_json()))
    assert read_report(file) == report


def test_what_vllm_s_client_saved_itself_can_be_read(real: str, client: Path, tmp_path: Path) -> None:
    for seed in ("0", "1"):
        command = command_of(real, "tiny", "tiny", SHORT, concurrency=2, requests=4, repetition=int(seed))
        command += ["--result-dir", str(tmp_path), "--append-result", "--metadata", "scenario=short"]
        command[0] = str(client / "vllm")
        subprocess.run(command, check=True, capture_output=True)
    report = read_report(tmp_path / "result.json")
    assert [(run.scenario, run.concurrency, run.repetition) for run in report.runs] == [
        ("short", 2, 0),
        ("short", 2, 1),
    ]


def test_a_client_that_fails_is_told_with_the_end_of_its_output(client: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{client}:/usr/bin:/bin")
    with pytest.raises(Refused) as caught:
        Local().result_of(["vllm", "bench", "serve", "--no-such-option"])
    assert caught.value.code == "bench-failed"
    assert any("--no-such-option" in line for line in caught.value.details)


def test_without_vllm_the_error_names_both_ways_out(real: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    with pytest.raises(Unreachable) as caught:
        measure("a", Server(real, 60), Order((SHORT,), (1,), 1))
    assert "--container" in str(caught.value.remedy)
    assert "--generator patchkit" in str(caught.value.remedy)


def test_requests_that_fail_are_counted_and_all_of_them_are_refused() -> None:
    with servers.double("breaks-off") as url, pytest.raises(Refused) as caught:
        generate.run(Server(url, 5), "flint", SHORT, 5, concurrency=2, requests=4, repetition=0)
    assert caught.value.code == "all-failed"
    assert "broke off" in caught.value.what


def test_a_server_that_does_not_count_tokens_is_refused() -> None:
    with servers.double() as url, pytest.raises(Refused) as caught:
        generate.words_for(Server(url, 5), "flint", 100)
    assert caught.value.code == "no-usage"


def test_the_scenarios_lengths_are_fixed_and_an_unknown_one_is_refused() -> None:
    assert {name: (each.input_tokens, each.output_tokens) for name, each in SCENARIOS.items()} == {
        "chat": (512, 256),
        "prefill": (4096, 128),
        "page": (1000, 1000),
    }
    with pytest.raises(BadInput):
        order(["talk"], [1], 1)
    assert Order((SHORT,), (1, 16), 1).requests_at(1) == 16
    assert Order((SHORT,), (1, 16), 1).requests_at(16) == 64


RESULT = {
    "max_concurrency": 2,
    "output_throughput": 50.0,
    "failed": 1,
    "ttfts": [0.1, 0.2, 0.0],
    "itls": [[0.01, 0.03], [], []],
    "output_lens": [3, 1, 0],
    "errors": ["", "", "timed out"],
}


def test_a_saved_result_is_read_in_milliseconds_without_its_failures(tmp_path: Path) -> None:
    file = tmp_path / "night.json"
    file.write_text(json.dumps(RESULT))
    (run,) = read_report(file).runs
    assert run.scenario == "requests"
    assert run.samples == {"output_tok_s": (50.0,), "ttft_ms": (100.0, 200.0), "decode_ms": (20.0,)}
    assert run.failed == 1


def test_a_forward_result_is_read_with_every_replay(tmp_path: Path) -> None:
    file = tmp_path / "forward.json"
    latency = {"median": 2.0, "samples_us": [1.0, 2.0, 3.0]}
    file.write_text(json.dumps([{"case": "decode", "requests": [{}] * 8, "ranks": [{"latency_us": latency}]}]))
    (run,) = read_report(file).runs
    assert (run.scenario, run.concurrency, run.samples) == ("decode", 8, {"forward_us": (1.0, 2.0, 3.0)})


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("{", "not-json"),
        ("{}", "not-a-report"),
        ("[]", "not-a-report"),
        ("[1]", "not-a-report"),
        ('{"schema": "patchkit.bench-run"}', "not-a-report"),
        (json.dumps({**RESULT, "ttfts": None}), "not-a-report"),
        ("", "not-json"),
    ],
)
def test_a_file_that_is_no_report_is_refused(tmp_path: Path, text: str, code: str) -> None:
    file = tmp_path / "x.json"
    file.write_text(text)
    with pytest.raises(BadInput) as caught:
        read_report(file)
    assert caught.value.code == code


@pytest.fixture
def container() -> Iterator[str]:
    """A running container whose ``vllm`` writes a result and whose ``python3`` tells a model list."""
    scripts = {
        "bin/vllm": f'#!/bin/sh\nwhile [ "$1" != --result-dir ]; do shift; done\nmkdir -p $2\n'
        f"echo measuring\necho '{json.dumps(RESULT)}' > $2/result.json\n",
        "bin/python3": '#!/bin/sh\necho \'{"data": [{"id": "flint", "root": "RecursiveSI/flint"}]}\'\n',
    }
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.add("/bin/busybox", "bin/busybox")
        for name in ("sh", "cat", "rm", "mkdir", "sleep", "echo"):
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            archive.addfile(link)
        for name, text in scripts.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(text), 0o755
            archive.addfile(entry, io.BytesIO(text.encode()))
    tag = "patchkit-bench-test:1"
    label = "dev.patchkit.fingerprint=abc"
    subprocess.run(["docker", "import", "-c", f"LABEL {label}", "-", tag], input=buffer.getvalue(), check=True)
    made = subprocess.run(
        ["docker", "run", "-d", "--rm", "--network", "none", tag, "sleep", "600"], capture_output=True, check=True
    )
    name = made.stdout.decode().strip()
    yield name
    subprocess.run(["docker", "rm", "-f", name], capture_output=True, check=False)
    subprocess.run(["docker", "rmi", tag], capture_output=True, check=False)


@pytest.mark.engine
def test_the_serving_container_s_own_vllm_measures_and_its_patches_are_recorded(container: str) -> None:
    report = measure("a", Server("http://127.0.0.1:8000"), Order((SHORT,), (2,), 1, 4), container=container)
    assert report.runs[0].samples["ttft_ms"] == (100.0, 200.0)
    assert report.about["model"] == "flint"
    assert report.about["tokenizer"] == "RecursiveSI/flint"
    assert report.about["patches"] == {"fingerprint": "abc"}
    assert str(report.about["image"]).startswith("sha256:")


@pytest.mark.engine
def test_a_command_that_fails_in_the_container_is_told_with_its_output(container: str) -> None:
    with pytest.raises(Refused) as caught:
        InContainer(container).output_of(["cat", "/no/such/file"])
    assert any("/no/such/file" in line for line in caught.value.details)


def test_the_command_measures_and_writes_the_report(
    real: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "a.json"
    arguments = ["--url", real, "--generator", "patchkit", "--scenario", "chat", "--concurrency", "1", "--reps", "1"]
    with pytest.raises(SystemExit) as stop:
        main(["bench", "run", *arguments, "--requests", "2", "-o", str(output)])
    assert stop.value.code == 0
    told = capsys.readouterr()
    assert "1/1 chat, 1 user, repetition 1" in told.err
    assert "1 run, 0 failed requests" in told.out
    assert read_report(output).about["scenarios"]["chat"] == {"input": 512, "output": 256}


@pytest.mark.parametrize("text", ["", "a", "0", "1,-2"])
def test_a_concurrency_that_is_none_is_a_wrong_call(text: str, tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["bench", "run", "--concurrency", text, "-o", str(tmp_path / "a.json")])
    assert stop.value.code == 2


def test_a_report_that_could_not_be_written_is_told_before_anything_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for place in (tmp_path / "none/a.json", tmp_path):
        with pytest.raises(SystemExit) as stop:
            main(["bench", "run", "--url", "http://127.0.0.1:9", "--generator", "patchkit", "-o", str(place)])
        assert stop.value.code == 3
        assert f"{place}: cannot write" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
