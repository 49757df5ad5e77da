# ruff: noqa: I001 - what is imported first changes what is imported after it
"""How far the layer's output lies from references that are wrong on purpose."""

from __future__ import annotations

import dataclasses

from tests.kernels.probes import interpreter  # noqa: F401
from tests.kernels.probes import xpu  # noqa: F401

import torch

from tests.kernels import layer
from tests.kernels.probes import answer

rig = layer.rig(layer.SLIDING, window=9, requests=1, longest=48)
got = torch.cat([*layer.step(rig, [30], 1), *layer.step(rig, [1], 2)]).double()


def error(changed: layer.Rig) -> float:
    wanted = layer.reference(changed, 0)
    return ((got - wanted).norm() / wanted.norm()).item()


no_sinks = dataclasses.replace(rig.weights, sinks=torch.full_like(rig.weights.sinks, float("-inf")))
answer(
    {
        "as it is": error(rig),
        "window off by one": error(dataclasses.replace(rig, model=layer.flint_config(10))),
        "no sinks": error(dataclasses.replace(rig, weights=no_sinks)),
        "no rotation": error(dataclasses.replace(rig, kind=layer.FULL)),
        "no norm of k": error(
            dataclasses.replace(
                rig, weights=dataclasses.replace(rig.weights, k_norm=torch.ones_like(rig.weights.k_norm))
            )
        ),
    }
)
