"""A published table of medians, recomputed: 24 rows of one owner's report on four Arc cards."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from patchkit.bench.medians import read_table
from patchkit.errors import BadInput

CASE = Path(__file__).parents[1] / "cases" / "bench" / "arc-b70.md"
HEAD = "| Scenario | Concurrency | Metric | A | B | Change | Noise | Verdict |\n|---|---|---|---|---|---|---|---|\n"


def test_eighteen_changes_come_out_to_the_digit_and_six_inside_their_rounding() -> None:
    rows = read_table(CASE).rows
    assert len(rows) == 24
    assert Counter(row.agrees for row in rows) == {"to the digit": 18, "within rounding": 6}
    assert {(row.scenario, row.concurrency, row.metric) for row in rows if row.agrees == "within rounding"} == {
        ("Chat", 1, "Total output tok/s"),
        ("Chat", 1, "Per-user decode ms/token"),
        ("Chat", 4, "Per-user decode ms/token"),
        ("Chat", 8, "Per-user decode ms/token"),
        ("Chat", 16, "Per-user decode ms/token"),
        ("Prefill", 1, "Per-user decode ms/token"),
    }


def test_the_two_rows_whose_noise_exceeds_their_change_are_unclear_and_the_others_stand() -> None:
    rows = read_table(CASE).rows
    assert {(row.scenario, row.concurrency, row.metric) for row in rows if row.verdict != row.said} == {
        ("Chat", 16, "Median time to first token ms"),
        ("Chat", 16, "p99 time to first token ms"),
    }
    assert all(row.verdict == "UNCLEAR" for row in rows if row.verdict != row.said)


@pytest.mark.parametrize(
    ("row", "verdict"),
    [
        ("| C | 4 | x tok/s | 100 | 120 | +20.0% | 1.0% | BETTER |", "BETTER"),
        ("| C | 4 | x ms | 100 | 120 | +20.0% | 1.0% | BETTER |", "WORSE"),
        ("| C | 1 | x ms | 100.0 | 103.5 | +3.5% | 1.0% | WORSE |", "UNCLEAR"),
        ("| C | 4 | x ms | 100.0 | 103.5 | +3.5% | 1.0% | WORSE |", "WORSE"),
        ("| C | 4 | x ms | 100 | 120 | +20.0% | | WORSE |", "UNCLEAR"),
    ],
)
def test_the_verdict_follows_from_the_row_s_own_columns(tmp_path: Path, row: str, verdict: str) -> None:
    file = tmp_path / "table.md"
    file.write_text(HEAD + row + "\n")
    assert read_table(file).rows[0].verdict == verdict


def test_a_printed_change_that_its_medians_do_not_give_is_told(tmp_path: Path) -> None:
    file = tmp_path / "table.md"
    file.write_text(HEAD + "| C | 4 | x ms | 100.0 | 120.0 | +30.0% | 1.0% | WORSE |\n")
    assert read_table(file).rows[0].agrees == "differs"


@pytest.mark.parametrize(
    "text",
    [
        "no table at all\n",
        "| a | b |\n|---|---|\n| 1 | 2 |\n",
        HEAD + "| C | 4 | x ms | 100 |\n",
        HEAD + "| C | 4 | x ms | fast | 120 | +20% | 1% | WORSE |\n",
        HEAD + "| C | many | x ms | 100 | 120 | +20% | 1% | WORSE |\n",
        HEAD + "| C | 4 | x ms | 0 | 120 | +20% | 1% | WORSE |\n",
    ],
)
def test_a_table_that_cannot_be_judged_is_refused_with_its_line(tmp_path: Path, text: str) -> None:
    file = tmp_path / "table.md"
    file.write_text(text)
    with pytest.raises(BadInput) as caught:
        read_table(file)
    assert f"{file}:" in str(caught.value.where)
