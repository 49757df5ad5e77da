# ruff: noqa: E402 - what is imported first changes what is imported after it
"""Triton's interpreter, made true where it is not: import before vLLM, in a process with TRITON_INTERPRET=1.

It cuts fp32 down to bf16 where every device rounds to nearest even, it widens denormal bf16 numbers wrongly, it
multiplies matrices of bf16 as if their bits were integers, and it does not know libdevice's functions.
"""

from __future__ import annotations

import os
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

assert os.environ["TRITON_INTERPRET"] == "1"

import triton.language as tl
from triton.runtime import interpreter

_convert_float = interpreter._convert_float


def _as_devices_do(data: np.ndarray, source: Any, target: Any, rounding: Any) -> np.ndarray:
    if source == tl.bfloat16 and target == tl.float32:
        return (data.astype(np.uint32) << 16).reshape(data.shape)
    if source != tl.float32 or target != tl.bfloat16:
        return _convert_float(data, source, target, rounding)
    bits = np.frombuffer(data.tobytes(), dtype=np.uint32)
    rounded = ((bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    nan = (bits & 0x7FFFFFFF) > 0x7F800000
    return np.where(nan, np.uint16(0x7FC0), rounded).reshape(data.shape)


_create_dot = interpreter.InterpreterBuilder.create_dot


def _dot(builder: Any, a: Any, b: Any, *rest: Any) -> Any:
    wide = [
        interpreter.TensorHandle(builder.cast_impl(x, tl.float32).data, tl.float32) if x.dtype == tl.bfloat16 else x
        for x in (a, b)
    ]
    return _create_dot(builder, *wide, *rest)


interpreter.InterpreterBuilder.create_dot = _dot
interpreter._convert_float = _as_devices_do


def give_exp(norm: ModuleType) -> None:
    """Put the interpreter's exp in the place of libdevice's, which it does not know."""
    norm.tldevice = SimpleNamespace(exp=lambda x: tl.exp(x))  # looked up late: tl is patched while a kernel runs
