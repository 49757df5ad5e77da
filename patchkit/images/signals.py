"""Steps that a signal may not divide: what was made for a moment is known to whoever takes it away, or was not made."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

#: What a person or a supervisor ends a run with. SIGKILL cannot wait; what it leaves is found by its label.
_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Signals that end a run wait until the block is over. A second one of the same kind is not kept waiting: whoever
    repeats it means it. Python runs signal handlers in the main thread only; elsewhere nothing needs to be held."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    # None is a handler of somebody else's, not set from Python: it could not be put back.
    ours: dict[int, Any] = {number: signal.getsignal(number) for number in _ENDS}
    ours = {number: handler for number, handler in ours.items() if handler not in (None, signal.SIG_IGN)}
    waiting: list[int] = []

    def wait(number: int, _: FrameType | None) -> None:
        if number in waiting:
            signal.signal(number, ours[number])
            signal.raise_signal(number)
        waiting.append(number)

    try:
        for number in ours:
            signal.signal(number, wait)
        yield
    finally:
        for number, handler in ours.items():
            signal.signal(number, handler)
        if waiting:
            signal.raise_signal(waiting[0])
