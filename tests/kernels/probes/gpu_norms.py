"""The norm and SiLU kernels on a CUDA GPU: the patched module against the shipped one, and both against fp64.

Argument: the shipped norm.py. The patched one comes from the tree on the search path.
"""

from __future__ import annotations

import importlib.util
import statistics
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
import triton
from vllm.models.flint.ops import norm as patched

from tests.kernels import numbers
from tests.kernels.probes import answer

EPS = 1e-6


def _load(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location("shipped_norm", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["shipped_norm"] = module
    spec.loader.exec_module(module)
    return module


shipped = _load(sys.argv[1])


def calls(kind: str, rows: int) -> list[tuple[str, Callable[[ModuleType], torch.Tensor], torch.Tensor]]:
    """Name, the call on either module, and the fp64 answer."""
    made = []
    for width in numbers.NORM_SIZES:
        weight = torch.randn(width, generator=torch.Generator().manual_seed(7)).to("cuda", torch.bfloat16)
        x, residual = (numbers.rows(kind, rows, width, "cuda", seed) for seed in (1, 2))
        made.append(
            (
                f"rms_norm {width}",
                lambda m, x=x, weight=weight: m.rms_norm(x, weight, EPS),
                numbers.rms_norm(x, weight, EPS, dtype=torch.float64)[0],
            )
        )
        made.append(
            (
                f"fused_add_rms_norm {width}",
                lambda m, x=x, r=residual, weight=weight: m.fused_add_rms_norm(x.clone(), r.clone(), weight, EPS)[0],
                numbers.rms_norm(x, weight, EPS, residual, dtype=torch.float64)[0],
            )
        )
    for width in numbers.SILU_SIZES:
        x = numbers.rows(kind, rows, 2 * width, "cuda", 3)
        made.append(
            (
                f"silu_and_mul {width}",
                lambda m, x=x: m.silu_and_mul(x),
                numbers.silu_and_mul(x, dtype=torch.float64),
            )
        )
    return made


def attempt(call: Callable[[ModuleType], torch.Tensor], module: ModuleType) -> torch.Tensor | str:
    try:
        return call(module)
    except Exception as error:
        return f"{type(error).__name__}: {str(error).strip().splitlines()[-1] if str(error).strip() else ''}"


def compare() -> list[dict[str, Any]]:
    table = []
    for kind in numbers.KINDS:
        for name, call, exact in calls(kind, 4096 if kind == "random" else 257):
            old, new = attempt(call, shipped), attempt(call, patched)
            assert isinstance(new, torch.Tensor), (name, new)
            row: dict[str, Any] = {"kind": kind, "call": name, "patched against fp64": numbers.distance(new, exact)}
            if isinstance(old, torch.Tensor):
                row["shipped against fp64"] = numbers.distance(old, exact)
                row["patched against shipped"] = numbers.distance(new, old)
            else:
                row["shipped"] = old
            table.append(row)
    return table


def speed() -> list[dict[str, Any]]:
    """Microseconds a call, shipped and patched in turns, in a CUDA graph; the median of five turns each."""
    table = []
    for rows in (1, 64, 8192, 65536):
        x = numbers.rows("random", rows, 2048, "cuda")
        wide = numbers.rows("random", min(rows, 16384), 2 * 6144, "cuda")
        weight = torch.ones(2048, device="cuda", dtype=torch.bfloat16)
        for name, call in (
            ("rms_norm 2048", lambda m, x=x, weight=weight: m.rms_norm(x, weight, EPS)),
            ("silu_and_mul 6144", lambda m, wide=wide: m.silu_and_mul(wide)),
        ):
            turns: dict[str, list[float]] = {"shipped": [], "patched": []}
            for _ in range(5):
                for which, module in (("shipped", shipped), ("patched", patched)):
                    took = triton.testing.do_bench_cudagraph(
                        lambda m=module, call=call: call(m), rep=20, return_mode="median"
                    )
                    turns[which].append(took * 1000)
            row = {which: round(statistics.median(values), 3) for which, values in turns.items()}
            spread = max((max(v) - min(v)) / statistics.median(v) for v in turns.values())
            count = len(wide) if name.startswith("silu") else rows
            table.append(
                {
                    "call": name,
                    "rows": count,
                    **row,
                    "ratio": round(row["patched"] / row["shipped"], 4),
                    "spread": round(spread, 4),
                }
            )
    return table


answer(
    {
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "numbers": compare(),
        "speed": speed(),
    }
)
