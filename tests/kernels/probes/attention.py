"""One FlintAttention layer: on the platform that stubs stand for, its tensors on the CPU, or on a CUDA GPU.

Arguments: ``xpu``, ``rocm`` or ``cuda``, then ``construct BACKEND TP CACHE_DTYPE``, or ``forward SCENARIOS`` as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any

if os.environ.get("TRITON_INTERPRET") == "1":
    from tests.kernels.probes import interpreter  # noqa: F401

if sys.argv[1] == "xpu":
    from tests.kernels.probes import xpu  # noqa: F401

if sys.argv[1] == "cuda" and os.environ.get("VLLM_TRITON_USE_TD") == "1":
    from tests.kernels.probes import unpipelined  # noqa: F401

import torch
from vllm.platforms import current_platform
from vllm.v1.kv_cache_layout import KVCacheLayout

from tests.kernels import layer
from tests.kernels.probes import answer

DEVICE = "cuda" if sys.argv[1] == "cuda" else "cpu"
#: Three requests: a prefill of all, a decode step, one that prefills on while another decodes, one that waits.
SHORT = ((20, 7, 33), (1, 1, 1), (5, 1, 0), (1, 0, 1))


def construct(backend: str | None, tp: int, cache_dtype: str = "auto") -> dict[str, Any]:
    config = layer.vllm_config(layer.flint_config(513), backend, cache_dtype)
    layer.start(config)
    layer.as_rank(0, tp)
    try:
        made = layer.construct(config, layer.SLIDING, torch.device(DEVICE))
    except Exception as error:
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {error}"}
    return {"error": "", "impl": type(made.impl).__name__, "fused": made.flint_decode, "heads": made.num_kv_heads}


def forward(
    kind: int, tp: int, layout: str, window: int = 17, schedule: Sequence[Sequence[int]] = SHORT
) -> dict[str, Any]:
    longest = max(map(sum, zip(*schedule, strict=True)))
    rig = layer.rig(
        kind, tp=tp, window=window, requests=3, longest=longest, layout=KVCacheLayout[layout], device=DEVICE
    )
    found = layer.play(rig, schedule)
    return {**found, "use_td": rig.ranks[0].layer.impl.use_td}


platform = type(current_platform).__name__
if sys.argv[2] == "construct":
    backend, tp, dtype = sys.argv[3:]
    answer({"platform": platform, **construct(None if backend == "default" else backend, int(tp), dtype)})
else:
    answer({"platform": platform, "runs": [forward(**scenario) for scenario in json.loads(sys.argv[3])]})
