"""How the doctor asks: one time, however many checks want to know; and no answer is an answer too."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from threading import RLock
from typing import Any, TypeVar

from patchkit.errors import PatchkitError, Unreachable

T = TypeVar("T")


class once(cached_property[T]):  # noqa: N801 - used like its parent
    """A cached property that is computed one time however many threads ask: functools has no lock from 3.12 on. What
    could not be computed is not tried again: whoever asks next is told the same."""

    def __init__(self, compute: Callable[[Any], T]) -> None:
        super().__init__(compute)
        self._one_at_a_time = RLock()

    def __get__(self, instance: object, owner: type[Any] | None = None) -> T:  # type: ignore[override]
        with self._one_at_a_time:
            failed: dict[str | None, Exception] = instance.__dict__.setdefault("_failed", {})
            if self.attrname in failed:
                raise failed[self.attrname]
            try:
                return super().__get__(instance, owner)
            except (PatchkitError, OSError) as error:
                failed[self.attrname] = error
                raise


def or_why(ask: Callable[[], T]) -> T | PatchkitError:
    """What ``ask`` gives, or why it gives nothing: a fault of one thing must not hide what the others tell."""
    try:
        return ask()
    except PatchkitError as error:
        return error
    except OSError as error:  # a folder of another user, a disk that fails
        return Unreachable("cannot-read", error.strerror or str(error), where=str(error.filename or ""))
