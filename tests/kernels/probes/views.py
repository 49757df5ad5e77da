# ruff: noqa: I001 - what is imported first changes what is imported after it
"""Hands the layer cache views of other shapes and tells what it says, and whether it wrote into any of them."""

from __future__ import annotations

from tests.kernels.probes import interpreter  # noqa: F401
from tests.kernels.probes import xpu  # noqa: F401

import torch

from tests.kernels import layer
from tests.kernels.probes import answer

rig = layer.rig(layer.SLIDING, tp=2, window=17, requests=1, longest=16)
shapes = {
    "planes in front": (2, 8, layer.BLOCK, 256),
    "heads folded": (8, 2, layer.BLOCK, 512),
    "five axes": (8, 2, layer.BLOCK, 2, 128),
}
refused, views = {}, []
for name, shape in shapes.items():
    views.append(torch.full(shape, 7.0, dtype=torch.bfloat16))
    rig.ranks[0].layer.attn.kv_cache = views[-1]
    try:
        layer.step(rig, [3], 1)
        refused[name] = ""
    except RuntimeError as error:
        refused[name] = str(error)
answer({"refused": refused, "written": sum(int((view != 7.0).sum()) for view in views)})
