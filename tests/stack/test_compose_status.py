"""What ``patchkit compose`` says of a delivery that is not proven, or that left something behind."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from patchkit.cli import compose
from patchkit.findings import Finding
from patchkit.proof.model import LEVELS, Level


@pytest.mark.parametrize(("state", "status"), [("failed", 1), ("passed", 0)])
def test_a_proof_that_failed_and_what_the_delivery_left_are_told(
    monkeypatch: pytest.MonkeyPatch, state: Any, status: int
) -> None:
    levels = [Level(name, state if name == "bytes" else "passed") for name in LEVELS]
    left = Finding("platform-left", "warning", "linux/arm64 was left out", where="x:1")
    applied = SimpleNamespace(
        platforms=[SimpleNamespace(proof=SimpleNamespace(levels=levels))], findings=(left,), overlay_path=None
    )
    composed = SimpleNamespace(applied=applied, findings=(), overlay="services: {}\n", services=())
    monkeypatch.setattr(compose, "compose_delivery", lambda *args, **named: composed)
    done = CliRunner().invoke(compose.command, ["--image", "x:1"], standalone_mode=False)
    assert done.return_value == status
    assert "linux/arm64 was left out" in done.stderr
    assert ("not proven: bytes failed" in done.stderr) == bool(status)
