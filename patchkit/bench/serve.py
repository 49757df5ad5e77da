"""The load generator that comes with the server: ``vllm bench serve``, on this machine or in the server's container."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from patchkit.bench import model
from patchkit.bench.model import Scenario
from patchkit.bench.read import serve_run
from patchkit.errors import Refused, Unreachable
from patchkit.images.engine import engine
from patchkit.images.model import Run
from patchkit.images.sandbox import converse

NAME = "vllm bench serve"
_LONGEST = 3 * 3600.0  # seconds for one repetition


class Place(Protocol):
    """Where vLLM's command runs."""

    def result_of(self, command: list[str]) -> Any:
        """Run the command and return the JSON that it saved.

        Raises:
            patchkit.errors.Refused: ``bench-failed`` with the end of its output.
        """


@dataclass(frozen=True, slots=True)
class Local:
    """The ``vllm`` on this machine's PATH."""

    @staticmethod
    def is_there() -> bool:
        """Whether there is one."""
        return shutil.which("vllm") is not None

    def result_of(self, command: list[str]) -> Any:
        with tempfile.TemporaryDirectory(prefix="patchkit-bench-") as folder:
            done = subprocess.run(
                [*command, "--result-dir", folder], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
            )
            saved = Path(folder) / "result.json"
            if done.returncode != 0 or not saved.is_file():
                raise _failed(done.stdout, "this machine")
            return json.loads(saved.read_text("utf-8"))


@dataclass(frozen=True, slots=True)
class InContainer:
    """The ``vllm`` in the serving container itself: nothing new needs to be installed beside the server."""

    name: str

    def result_of(self, command: list[str]) -> Any:
        folder = "/tmp/patchkit-bench"  # noqa: S108 - inside the container
        output = self.output_of([*command, "--result-dir", folder])
        saved = self.output_of(["cat", f"{folder}/result.json"], before=output)
        self.output_of(["rm", "-rf", folder])
        return json.loads(saved)

    def output_of(self, command: list[str], *, before: bytes = b"") -> bytes:
        """What a command in the container writes. ``before`` is told too where it fails.

        Raises:
            patchkit.errors.Refused: ``bench-failed``, its exit status is not 0.
            patchkit.errors.Unreachable: ``bench-timeout``, or the engine is out of reach.
        """
        api = engine()
        started, streams = api.exec(
            self.name, {"AttachStdin": False, "AttachStdout": True, "AttachStderr": True, "Cmd": command}
        )
        output, said, ended = converse(streams, Run(tuple(command), timeout=_LONGEST), streams.close)
        if ended == "timeout":
            raise Unreachable(
                "bench-timeout",
                f"it did not end within {_LONGEST:.0f} s",
                where=self.name,
                remedy="fewer --requests, or a smaller --scenario",
            )
        if api.get(f"/exec/{started}/json").get("ExitCode") != 0:
            raise _failed(before + output + said, self.name)
        return output


def command_of(
    url: str, model: str, tokenizer: str, scenario: Scenario, *, concurrency: int, requests: int, repetition: int
) -> list[str]:
    """The command line (options as in vLLM 0.33.0), all but where it saves."""
    options = {
        "--backend": "openai-chat",
        "--endpoint": "/v1/chat/completions",
        "--base-url": url.rstrip("/").removesuffix("/v1"),
        "--model": tokenizer,
        "--served-model-name": model,
        "--dataset-name": "random",
        "--random-input-len": str(scenario.input_tokens),
        "--random-output-len": str(scenario.output_tokens),
        "--num-prompts": str(requests),
        "--max-concurrency": str(concurrency),
        "--num-warmups": str(concurrency if repetition == 0 else 0),
        "--seed": str(repetition),
        "--percentile-metrics": "ttft,tpot,itl,e2el",
        "--metric-percentiles": "50,99",
        "--result-filename": "result.json",
    }
    words = ["vllm", "bench", "serve", "--save-result", "--save-detailed", "--ignore-eos", "--disable-tqdm"]
    for name, value in options.items():
        words += [name, value]
    return words


def run(
    place: Place,
    url: str,
    served: str,
    tokenizer: str,
    scenario: Scenario,
    *,
    concurrency: int,
    requests: int,
    repetition: int,
) -> model.Run:
    """One repetition.

    Raises:
        patchkit.errors.Refused: ``bench-failed``.
    """
    command = command_of(
        url, served, tokenizer, scenario, concurrency=concurrency, requests=requests, repetition=repetition
    )
    return serve_run(place.result_of(command), scenario.name, repetition)


def _failed(output: bytes, where: str) -> Refused:
    lines = output.decode("utf-8", "replace").strip().splitlines()
    return Refused(
        "bench-failed",
        "vllm bench serve did not come to its end",
        where=where,
        remedy="--generator patchkit measures without vLLM",
        details=lines[-8:],
    )
