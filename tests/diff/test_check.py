"""Whether a result compiles, under which Python."""

from __future__ import annotations

import sys

from patchkit.diff import check_python

RUNNING = sys.version_info[:2]


def test_good_python_has_no_problem() -> None:
    assert check_python(b"def f(x):\n    return x\n", "m.py", (3, 12)) is None


def test_other_files_are_not_looked_at() -> None:
    assert check_python(b"def (", "m.txt", (3, 12)) is None


def test_the_first_error_is_told_with_its_line() -> None:
    problem = check_python(b"a = 1\ndef f(:\n    pass\n", "m.py", RUNNING)
    assert problem is not None
    assert (problem.line, problem.text, problem.sure) == (2, "def f(:", True)


def test_a_keyword_given_twice_is_found_though_it_parses() -> None:
    problem = check_python(b"f(a=1,\n  b=2,\n  a=3)\n", "m.py", RUNNING)
    assert problem is not None
    assert "keyword argument repeated" in problem.what


def test_a_return_outside_of_a_function_is_found() -> None:
    assert check_python(b"return 1\n", "m.py", RUNNING) is not None


def test_syntax_that_an_older_python_lacks_is_a_problem_there() -> None:
    match = b"match x:\n    case 1:\n        pass\n"
    assert check_python(match, "m.py", (3, 11)) is None
    problem = check_python(match, "m.py", (3, 9))
    assert problem is not None
    assert problem.sure


def test_what_only_a_newer_python_could_judge_is_not_sure() -> None:
    problem = check_python(b"def f(:\n", "m.py", (3, 99))
    assert problem is not None
    assert not problem.sure


def test_hostile_files_are_problems_and_no_crashes() -> None:
    for data in (b"x = \0\n", b"(" * 50_000, b"-" * 50_000 + b"1\n", b"# coding: nonsense\n", b"\xff\n", b"1" * 10_000):
        assert check_python(data, "m.py", RUNNING) is not None, data[:20]


def test_nothing_is_run() -> None:
    assert check_python(b"raise SystemExit(3)\n", "m.py", RUNNING) is None
