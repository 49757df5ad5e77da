"""YAML text holds the name of the very file, or none at all."""

from __future__ import annotations

import os

import pytest

from patchkit.errors import BadInput
from patchkit.stack import yamltext


def test_a_good_name_read_under_a_locale_without_utf_8_is_written_as_itself() -> None:
    held_by_python = "/o\udcc3\udcbct"  # os.fsdecode of these bytes where the locale is C
    assert os.fsencode(held_by_python) == "/oüt".encode()
    assert yamltext.quoted(held_by_python) == '"/oüt"'


def test_a_name_that_is_no_utf_8_is_refused_and_not_written_as_another() -> None:
    with pytest.raises(BadInput, match="no UTF-8"):
        yamltext.quoted("/o\udcffut")
