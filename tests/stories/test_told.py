"""Every story has tests that are there, and every test here tells a story."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from patchkit.doctor.run import CHECKS
from tests.stories.told import STORIES

TESTS = Path(__file__).parents[1]


def names_in(file):
    return {
        each.name for each in ast.parse((TESTS / file).read_text("utf-8")).body if isinstance(each, ast.FunctionDef)
    }


@pytest.mark.parametrize("story", STORIES, ids=lambda story: str(story.number))
def test_the_tests_that_show_a_story_exist(story):
    for test in story.tests:
        file, _, name = test.partition("::")
        assert name in names_in(file), f"story {story.number}: no {test}"


def test_the_stories_are_counted_through():
    assert [story.number for story in STORIES] == list(range(1, 38))


def test_every_test_here_tells_a_story():
    told = {test.partition("::")[2] for story in STORIES for test in story.tests}
    assert {name for name in names_in("stories/test_on_real_containers.py") if name.startswith("test_")} <= told


def test_every_check_that_a_story_names_exists():
    named = {name for story in STORIES for name in re.findall("`([a-z]+(?:-[a-z]+)+)`", story.how)}
    assert named - CHECKS.keys() == {"target-missing"}, "the only such word that is a state and no check"
