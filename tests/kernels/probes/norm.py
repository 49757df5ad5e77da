"""Runs the norm and SiLU kernels in Triton's interpreter and tells how far they lie from plain torch.

Argument: ``numbers`` for the whole table, or ``attempts`` for one call at each size and what it raised.
"""

from __future__ import annotations

import sys

from tests.kernels.probes import interpreter  # isort: skip - before vLLM

import torch
from vllm.models.flint.ops import norm

from tests.kernels import numbers
from tests.kernels.probes import answer


def table() -> list[dict[str, object]]:
    found: list[dict[str, object]] = []

    def add(kernel: str, width: int, kind: str, got: torch.Tensor, wanted: torch.Tensor) -> None:
        found.append({"kernel": kernel, "width": width, "kind": kind, **numbers.distance(got, wanted)})

    for width in numbers.NORM_SIZES:
        weight = torch.randn(width, generator=torch.Generator().manual_seed(7)).to(torch.bfloat16)
        for kind in numbers.KINDS:
            x = numbers.rows(kind, 7, width)
            add("rms_norm", width, kind, norm.rms_norm(x, weight, 1e-6), numbers.rms_norm(x, weight, 1e-6)[0])
            residual = numbers.rows(kind, 7, width, seed=1)
            wanted, wanted_residual = numbers.rms_norm(x, weight, 1e-6, residual)
            got, got_residual = norm.fused_add_rms_norm(x.clone(), residual.clone(), weight, 1e-6)
            add("fused_add_rms_norm", width, kind, got, wanted)
            add("residual", width, kind, got_residual, wanted_residual)
        wide = numbers.rows("random", 5, 3 * width)
        part = wide[:, width : 2 * width]
        add("rms_norm", width, "strided", norm.rms_norm(part, weight, 1e-6), numbers.rms_norm(part, weight, 1e-6)[0])
        many = numbers.rows("random", 64, width, seed=3)
        add("rms_norm", width, "many", norm.rms_norm(many, weight, 1e-6), numbers.rms_norm(many, weight, 1e-6)[0])
        assert norm.rms_norm(many[:0], weight, 1e-6).shape == (0, width)
    for width in numbers.SILU_SIZES:
        for kind in numbers.KINDS:
            x = numbers.rows(kind, 3, 2 * width)
            add("silu_and_mul", width, kind, norm.silu_and_mul(x), numbers.silu_and_mul(x))
        part = numbers.rows("random", 3, 3 * width)[:, width:]
        add("silu_and_mul", width, "strided", norm.silu_and_mul(part), numbers.silu_and_mul(part))
    return found


def attempt(what: str, width: int) -> str:
    try:
        if what == "rms_norm":
            norm.rms_norm(numbers.rows("random", 1, width), torch.ones(width, dtype=torch.bfloat16), 1e-6)
        else:
            norm.silu_and_mul(numbers.rows("random", 1, 2 * width))
    except Exception as error:
        cause = error.__cause__ or error
        return f"{type(cause).__name__}: {cause}"
    return "ok"


interpreter.give_exp(norm)
calls = [("rms_norm", 2048), *(("silu", width) for width in numbers.SILU_SIZES)]
answer(table() if sys.argv[1] == "numbers" else {f"{what} {width}": attempt(what, width) for what, width in calls})
