"""Do something as an ordinary user, in a process of its own."""

from __future__ import annotations

import os
import pickle
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

NOBODY = 65534


def docker_group() -> int:
    """The group that may talk to the default engine."""
    return Path("/var/run/docker.sock").stat().st_gid


def as_user(function: Callable[[], Any], groups: Sequence[int]) -> Any:
    """What ``function`` returns (a plain value) when called by user 65534 with these groups.

    A fork and no new program: this user need not be able to read the test's own files. What the function imports
    should be imported before.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups(list(groups))
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            answer = (True, function())
        except BaseException:
            answer = (False, traceback.format_exc())
        with os.fdopen(writing, "wb") as pipe:
            pickle.dump(answer, pipe)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        good, value = pickle.load(pipe)
    os.waitpid(child, 0)
    if not good:
        raise AssertionError(value)
    return value
