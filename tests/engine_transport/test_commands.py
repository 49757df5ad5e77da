"""The same commands on every engine: patch, prove, and find nothing more to do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.engine_transport.conftest import Place

_PATCHKIT = Path(sys.executable).with_name("patchkit")


def _patchkit(place: Place, work: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    env = os.environ | {"DOCKER_HOST": place.engine.host, "PATCHKIT_CACHE": str(work / "cache")}
    command = [str(_PATCHKIT), *arguments, "--json"]
    done = subprocess.run(command, cwd=work, env=env, capture_output=True, text=True)
    assert done.stdout, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, answer


def test_apply_and_verify_work_alike_and_a_second_apply_changes_nothing(place: Place, tmp_path: Path) -> None:
    name = place.load("xpu")
    status, first = _patchkit(place, tmp_path, "apply", "--image", name, "--manifest", "vllm-xpu")
    assert status == 0, first["findings"]
    assert {level["name"]: level["state"] for level in first["levels"]}["bytes"] == "passed"
    made = place.engine.inspect_image(f"{name}-patchkit")
    assert made is not None
    status, second = _patchkit(place, tmp_path, "apply", "--image", name, "--manifest", "vllm-xpu")
    assert status == 0, second["findings"]
    again = place.engine.inspect_image(f"{name}-patchkit")
    assert again is not None
    assert again["Id"] == made["Id"]
    status, verified = _patchkit(place, tmp_path, "verify", "--image", f"{name}-patchkit")
    assert status == 0, verified["findings"]
    assert place.temporary() == []
