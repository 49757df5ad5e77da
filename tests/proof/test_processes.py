"""Which processes of a container are judged: those that run Python, whatever became of the interpreter's file."""

from __future__ import annotations

import pytest

from patchkit.proof.processes import Inside, Process, judge
from patchkit.site.model import Launch

LAUNCH = Launch("module", "/bin/python3", "p", "/", {})


@pytest.mark.parametrize(
    ("exe", "older"),
    [
        ("/usr/bin/python3.12", True),
        ("/usr/bin/python3.13t", True),  # free-threaded
        ("/usr/bin/python3.12 (deleted)", True),  # the package was upgraded below it
        ("/usr/bin/bash", False),
        ("/usr/bin/python3-config", False),
    ],
)
def test_an_older_python_is_found_and_other_programs_are_not(exe: str, older: bool) -> None:
    process = Process(7, exe, (exe, "-m", "p"), "/", 0.0, {})
    found = judge(Inside((process,), changed={"/p/a.py": 100.0}), LAUNCH, "c")
    assert [finding.id for finding in found] == ["process-older"] * older
