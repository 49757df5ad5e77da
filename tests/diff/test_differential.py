"""A bounded share of the differential tests; ``python -m tests.fuzz`` runs as many as one likes."""

from __future__ import annotations

from tests.fuzz import differential


def test_random_patches_end_as_gnu_patch_and_git_apply_end_them() -> None:
    failures, tally = differential.run(seed=20240101, runs=200)
    assert [(number, one.how, found) for number, one, found in failures] == []
    assert all(
        tally[state] > 3 for state in ("applies", "offset", "applied", "partial", "fuzzy", "conflict", "ambiguous")
    )
