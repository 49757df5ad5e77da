"""What a failure inside the image means: the patch's fault, or something that the place lacks."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from patchkit.proof.model import LevelState

_LIBRARY = re.compile(r"([\w.+-]+\.so[\w.]*): cannot open shared object file|version `(\w+_[\d.]+)' not found")
_NO_MODULE = re.compile(r"No module named '([\w.]+)'")
# What the stacks say where a driver or a device is missing.
_DEVICE = re.compile(
    r"""NVIDIA\ driver | CUDA\ driver | CUDA\ error | CUDA-capable\ device | No\ CUDA\ GPUs
    | CUDA\ (is\ not\ available|unknown\ error|initialization) | not\ compiled\ with\ CUDA
    | No\ HIP\ GPUs | HIP\ error | hipErrorNoDevice
    | XPU\ (driver|device|backend) | No\ XPU\ devices | not\ compiled\ with\ XPU
    | Level\ Zero | ze_result_t | No\ device\ of\ requested\ type
    | \d+\ active\ drivers | Failed\ to\ infer\ device\ type | /dev/(dri|kfd|nvidia)""",
    re.VERBOSE | re.IGNORECASE,
)
_ASSERT_FILE = "<assert>"


@dataclass(frozen=True, slots=True)
class Verdict:
    """``blocked`` with its cause in a word, or ``failed``; and a sentence."""

    state: LevelState
    cause: str
    detail: str


@dataclass(frozen=True, slots=True)
class Grounds:
    """What a failure is judged by: the package; whether reading finds a module of that name in the image; and whether
    a line of a file (as the interpreter names it) belongs to a statement that the patches changed."""

    package: str
    is_there: Callable[[str], bool]
    is_changed: Callable[[str, int], bool]


def judge(chain: object, grounds: Grounds) -> Verdict:
    """Judge an exception, and those behind it, as told by a process of the image.

    It is ``blocked`` where a module outside of the package, a shared library, a driver or a device is missing, and no
    line that the patches changed took part. Everything else is ``failed``.
    """
    errors = [error for error in chain if isinstance(error, Mapping)] if isinstance(chain, list) else []
    if not errors:
        return Verdict("failed", "unreadable", "it failed in a way that was not told")
    words = _sentence(errors[0])
    for error in errors:
        for file, line in _frames(error):
            if grounds.is_changed(file, line):
                return Verdict(
                    "failed", _type(error), f"{words}; {file}:{line}, which the patches changed, took part in it"
                )
    for error in _behind(errors):
        cause = _lacking(error, grounds)
        if cause is None:
            continue
        what, there = cause
        if there:
            return Verdict("failed", what, f"{words}; yet reading finds {what} in the image")
        return Verdict("blocked", what, words)
    return Verdict("failed", _type(errors[0]), words)


def _behind(errors: list[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The exception, and what it was raised from. One that merely happened while another was handled stands alone,
    unless it is an import error: ``raise ImportError("please install x")``."""
    for error in errors:
        yield error
        if error.get("link") != "cause" and "ImportError" not in _kinds(error):
            return


def _lacking(error: Mapping[str, Any], grounds: Grounds) -> tuple[str, bool] | None:
    """What the place lacks by this error, and whether reading finds it there all the same."""
    kinds, text = _kinds(error), str(error.get("text", ""))
    frames = _frames(error)
    if "AssertionError" in kinds and frames and frames[-1][0] == _ASSERT_FILE:
        return None
    if "ModuleNotFoundError" in kinds:
        named = _NO_MODULE.search(text)
        name = str(error.get("name") or (named[1] if named else ""))
        top = name.partition(".")[0]
        return (top, grounds.is_there(name)) if top and top != grounds.package else None
    if library := _LIBRARY.search(text):
        return library[1] or library[2], False
    if device := _DEVICE.search(text):
        return f"device ({device.group()})", False
    return None


def _sentence(error: Mapping[str, Any]) -> str:
    text = str(error.get("text", "")).strip().split("\n")[0][:300]
    frames = _frames(error)
    place = f" at {frames[-1][0]}:{frames[-1][1]}" if frames else ""
    return f"{_type(error)}: {text}{place}" if text else f"{_type(error)}{place}"


def _type(error: Mapping[str, Any]) -> str:
    return str(error.get("type", "error"))[:100]


def _kinds(error: Mapping[str, Any]) -> frozenset[str]:
    kinds = error.get("kinds")
    return frozenset(str(kind) for kind in kinds) if isinstance(kinds, list) else frozenset()


def _frames(error: Mapping[str, Any]) -> list[tuple[str, int]]:
    frames = error.get("frames")
    found = []
    for frame in frames if isinstance(frames, list) else []:
        if isinstance(frame, list) and len(frame) == 2 and isinstance(frame[1], int):
            found.append((str(frame[0]), frame[1]))
    return found


def touches(source: bytes, line: int, changed: frozenset[int]) -> bool:
    """Whether the statement that ``line`` belongs to holds a changed line. A traceback names one line of a statement
    of many; of a compound statement only its head counts."""
    if line in changed:
        return True
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    best: range | None = None
    for node in ast.walk(tree):
        if not isinstance(node, ast.stmt):
            continue
        first = min([node.lineno, *(item.lineno for item in getattr(node, "decorator_list", []))])
        body = getattr(node, "body", None)
        last = max(first, body[0].lineno - 1) if isinstance(body, list) and body else node.end_lineno or node.lineno
        span = range(first, last + 1)
        if line in span and (best is None or len(span) < len(best)):
            best = span
    return best is not None and not changed.isdisjoint(best)
