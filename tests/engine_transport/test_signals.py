"""What a signal may not divide is whole, and the signal is not lost."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from patchkit.images.signals import held


class Ended(Exception):
    """What the handler of the run raises."""


@pytest.fixture(params=[signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def number(request: pytest.FixtureRequest) -> Iterator[int]:
    """A signal with a handler that raises."""

    def end(*_: object) -> None:
        raise Ended

    before = signal.signal(request.param, end)
    yield request.param
    signal.signal(request.param, before)


def _step(done: list[str], *signals: int, fault: str = "") -> None:
    with held():
        for number in signals:
            os.kill(os.getpid(), number)
        if fault:
            raise OSError(fault)
        done.append("step")


def test_a_signal_waits_until_the_step_is_done_and_then_ends_the_run(number: int) -> None:
    done: list[str] = []
    with pytest.raises(Ended):
        _step(done, number)
    assert done == ["step"]


def test_a_signal_is_not_lost_where_the_step_fails(number: int) -> None:
    with pytest.raises(Ended) as told:
        _step([], number, fault="no engine")
    assert isinstance(told.value.__context__, OSError)


def test_whoever_repeats_a_signal_does_not_wait(number: int) -> None:
    done: list[str] = []
    with pytest.raises(Ended):
        _step(done, number, number)
    assert done == []


def test_a_signal_that_is_ignored_stays_so(number: int) -> None:
    signal.signal(number, signal.SIG_IGN)
    with held():
        os.kill(os.getpid(), number)
    assert signal.getsignal(number) is signal.SIG_IGN


def test_handlers_are_as_before_afterwards_and_untouched_in_other_threads(number: int) -> None:
    before = signal.getsignal(number)
    with held():
        assert signal.getsignal(number) is not before
    assert signal.getsignal(number) is before
    seen = []

    def elsewhere() -> None:
        with held():
            seen.append(signal.getsignal(number))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert seen == [before]
