"""Verdicts follow from the data: real changes are found, noise is not, and what cannot be known is said."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from patchkit.bench import stats
from patchkit.bench.compare import SESSION_DRIFT, compare, judge
from patchkit.bench.model import Report, Run
from patchkit.errors import BadInput


def made(
    name: str,
    chance: random.Random,
    *,
    slower: float = 0.0,
    runs: int = 3,
    between: float = 0.01,
    users: int = 8,
    requests: int = 32,
) -> Report:
    """A report whose runs differ by ``between`` (a share, one deviation), requests inside a run by a tenth."""
    found = []
    for repetition in range(runs):
        middle = 100 * (1 + slower) * (1 + chance.gauss(0, between))
        samples = {
            "output_tok_s": (1e5 / middle,),
            "ttft_ms": tuple(middle * (1 + abs(chance.gauss(0, 0.1))) for _ in range(requests)),
            "decode_ms": tuple(middle / 10 * (1 + chance.gauss(0, 0.1)) for _ in range(requests)),
        }
        found.append(Run("chat", users, repetition, samples))
    return Report(name, tuple(found), {"generator": "test"})


def verdicts(before: Report, after: Report) -> dict[str, str]:
    return {row.metric.name: row.verdict for row in compare(before, after).rows}


@pytest.mark.parametrize("runs", [3, 4])
def test_a_change_of_a_fifth_is_found_and_noise_is_not(runs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stats, "RESAMPLES", 200)
    chance = random.Random(5)
    changed: Counter[str] = Counter()
    unchanged: Counter[str] = Counter()
    for _ in range(15):
        changed.update(verdicts(made("a", chance, runs=runs), made("b", chance, slower=0.2, runs=runs)).values())
        unchanged.update(verdicts(made("a", chance, runs=runs), made("b", chance, runs=runs)).values())
    assert changed["WORSE"] >= 57
    assert changed["BETTER"] == 0
    assert unchanged["WORSE"] + unchanged["BETTER"] <= 3


def test_better_and_worse_follow_the_direction_that_is_good_for_each_figure() -> None:
    chance = random.Random(1)
    faster = verdicts(made("a", chance, slower=0.5), made("b", chance))
    assert set(faster.values()) == {"BETTER"}
    assert set(verdicts(made("a", chance), made("b", chance, slower=0.5)).values()) == {"WORSE"}


def test_equal_data_twice_is_the_same_and_gives_the_same_bytes() -> None:
    report = made("a", random.Random(2), between=0.001, requests=40)
    first, second = compare(report, report), compare(report, report)
    assert first.as_json() == second.as_json()
    assert {row.metric.name: row.verdict for row in first.rows}["Total output"] == "SAME"


def test_a_single_user_s_small_change_is_session_drift_not_a_verdict() -> None:
    assert judge(0.035, (0.03, 0.04), 0.001, higher_is_better=True, apart=True, drifts=True)[0] == "UNCLEAR"
    assert judge(0.035, (0.03, 0.04), 0.001, higher_is_better=True, apart=True, drifts=False)[0] == "BETTER"
    assert judge(0.06, (0.05, 0.07), 0.001, higher_is_better=True, apart=True, drifts=True)[0] == "BETTER"
    assert 0.03 <= SESSION_DRIFT <= 0.04


@pytest.mark.parametrize(
    ("interval", "spread", "apart", "verdict", "why"),
    [
        (None, 0.0, True, "UNCLEAR", "one run a side"),
        ((-0.1, 0.4), 0.01, True, "UNCLEAR", "holds no change"),
        ((0.1, 0.4), 0.01, False, "UNCLEAR", "overlap"),
        ((0.1, 0.4), 0.30, True, "UNCLEAR", "no larger than the spread"),
        ((-0.02, 0.02), 0.01, False, "SAME", "within 3%"),
        ((0.1, 0.4), 0.05, True, "WORSE", "runs lie apart"),
    ],
)
def test_each_rule_of_the_verdict_can_be_the_one_that_decides(
    interval: tuple[float, float] | None, spread: float, apart: bool, verdict: str, why: str
) -> None:
    found = judge(0.2, interval, spread, higher_is_better=False, apart=apart, drifts=False)
    assert found[0] == verdict
    assert why in found[1]


def test_what_three_runs_cannot_show_is_said_and_four_can() -> None:
    chance = random.Random(3)
    three = " ".join(compare(made("a", chance), made("b", chance)).notes)
    assert "by luck in 10% of cases" in three
    four = " ".join(compare(made("a", chance, runs=4), made("b", chance, runs=4)).notes)
    assert "by luck" not in four


def test_one_run_a_side_gives_no_verdict_at_all() -> None:
    chance = random.Random(4)
    comparison = compare(made("a", chance, runs=1), made("b", chance, slower=2.0, runs=1))
    assert {row.verdict for row in comparison.rows} == {"UNCLEAR"}
    assert "no verdict is possible" in comparison.notes[0]


def test_the_chance_that_runs_lie_apart_by_luck_is_that_of_the_orderings() -> None:
    assert stats.chance_of_separation(3, 3) == pytest.approx(2 / 20)
    assert stats.chance_of_separation(4, 4) == pytest.approx(2 / 70)
    assert stats.chance_of_separation(1, 1) == 1


def test_a_p99_of_few_requests_is_told_for_what_it_is() -> None:
    chance = random.Random(6)
    notes = compare(made("a", chance, requests=16), made("b", chance, requests=16)).notes
    assert any("p99 of as few as 48 requests" in note for note in notes)


def test_failed_requests_and_other_lengths_are_told() -> None:
    chance = random.Random(7)
    before, after = made("a", chance), made("b", chance)
    broken = Report("c", tuple(Run(r.scenario, r.concurrency, r.repetition, r.samples, 2) for r in after.runs), {})
    notes = " ".join(compare(before, broken).notes)
    assert "c: 6 requests failed" in notes
    assert "differ in generator" in notes


def test_reports_without_a_common_figure_cannot_be_compared() -> None:
    chance = random.Random(8)
    with pytest.raises(BadInput) as caught:
        compare(made("a", chance, users=1), made("b", chance, users=4))
    assert caught.value.code == "nothing-in-common"


def test_percentiles_are_numpy_s() -> None:
    import numpy

    chance = random.Random(9)
    for count in (1, 2, 3, 17, 100):
        values = [chance.random() for _ in range(count)]
        for share in (0.0, 0.025, 0.5, 0.99, 1.0):
            assert stats.percentile(values, share) == pytest.approx(float(numpy.percentile(values, share * 100)))
