from __future__ import annotations

from typing import cast

import pytest

from patchkit.proof.model import LEVELS, Level, LevelName, LevelState
from patchkit.proof.verdict import verdict


def levels(**states: str) -> list[Level]:
    return [Level(name, cast(LevelState, states.get(name, "passed").replace("_", " "))) for name in LEVELS]


def test_all_passed_is_zero() -> None:
    assert verdict(levels(), require=LEVELS) == 0


@pytest.mark.parametrize("name", LEVELS)
def test_one_failed_level_is_one(name: LevelName) -> None:
    assert verdict(levels(**{name: "failed"})) == 1


@pytest.mark.parametrize("name", ["bytes", "resolves", "compiles", "bytecode"])
@pytest.mark.parametrize("state", ["not run", "blocked"])
def test_the_first_four_must_pass(name: LevelName, state: str) -> None:
    assert verdict(levels(**{name: state})) == 1


@pytest.mark.parametrize("name", ["imports", "asserts"])
@pytest.mark.parametrize("state", ["not run", "blocked"])
def test_the_last_two_need_not_pass_unless_required(name: LevelName, state: str) -> None:
    assert verdict(levels(**{name: state})) == 0
    assert verdict(levels(**{name: state}), require=[name]) == 1


def test_a_level_that_is_not_told_has_not_passed() -> None:
    assert verdict(levels()[:3]) == 1
    assert verdict(levels()[:4]) == 0
    assert verdict(levels()[:4], require=["imports"]) == 1
    assert verdict([]) == 1
