# ruff: noqa: E402, I001 - what is imported first changes what is imported after it
"""The whole Flint model on the platform that stubs stand for, its tensors on the CPU, or on a CUDA GPU.

Arguments: ``xpu``, ``rocm`` or ``cuda``; ``small``, or how many of the full model's layers; the schedule as JSON; how
many processes (CPU alone).
"""

from __future__ import annotations

import copy
import dataclasses
import json
import multiprocessing
import os
import sys
from collections.abc import Iterator
from typing import Any

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
if INTERPRETED:
    from tests.kernels.probes import interpreter

if sys.argv[1] == "xpu":
    from tests.kernels.probes import xpu  # noqa: F401
    from vllm.v1.worker.xpu_model_runner import _torch_cuda_wrapper

    # As the worker does before it makes the model: the annotations in moe.py are evaluated after it.
    with _torch_cuda_wrapper():
        pass

if sys.argv[1] != "cuda":
    from tests.kernels.probes import standins  # noqa: F401

import torch
from vllm.models.flint.ops import norm
from vllm.platforms import current_platform
from vllm.utils.network_utils import get_open_port

from tests.kernels import whole
from tests.kernels.probes import answer

if INTERPRETED:
    interpreter.give_exp(norm)

device = "cuda" if sys.argv[1] == "cuda" else "cpu"
config = whole.small() if sys.argv[2] == "small" else whole.full(int(sys.argv[2]))
schedule, size = json.loads(sys.argv[3]), int(sys.argv[4])


def wrong(served: whole.Served) -> Iterator[tuple[str, whole.Served]]:
    """The run beside references that are wrong, each in one thing that the MoE block must do."""
    right = served.checkpoint
    for name, changes in (
        ("no renormalisation", {"norm_topk_prob": False}),
        ("an expert too few", {"num_experts_per_tok": right.model.num_experts_per_tok - 1}),
    ):
        model = copy.deepcopy(right.model)
        model.update(changes)
        yield name, dataclasses.replace(served, checkpoint=dataclasses.replace(right, model=model))

    class NextExpert(whole.Checkpoint):
        def expert(self, at: str, number: int) -> tuple[torch.Tensor, ...]:
            return super().expert(at, (number + 1) % self.model.num_experts)

    class TurnedGate(whole.Checkpoint):
        def mlp(self, at: str, width: int) -> tuple[torch.Tensor, ...]:
            gate, up, down = super().mlp(at, width)
            return (up, gate, down) if at.endswith("shared_expert") else (gate, up, down)

    yield "the next expert's weights", dataclasses.replace(served, checkpoint=NextExpert(right.model, right.device))
    yield (
        "the shared expert's gate for its other half",
        dataclasses.replace(served, checkpoint=TurnedGate(right.model, right.device)),
    )


def run(rank: int, port: int, answers: Any) -> None:
    longest = max(map(sum, zip(*schedule, strict=True)))
    served = whole.serve(config, device, len(schedule[0]), longest, rank, size, port)
    for number, new in enumerate(schedule):
        whole.step(served, new, number)
    made = served.model.model
    experts = [each.mlp.experts.routed_experts for each in made.layers if hasattr(each.mlp, "experts")]
    answers.put(
        {
            **whole.compare(served),
            "wrong on purpose": {name: whole.compare_layer(changed, -1)["output"] for name, changed in wrong(served)},
            "fused": served.model.flint_dense or any(each.self_attn.flint_decode for each in made.layers),
            "attention": sorted({type(each.self_attn.impl).__name__ for each in made.layers}),
            "experts": sorted({type(each.quant_method.moe_kernel.fused_experts).__name__ for each in experts}),
            "parameters": sum(each.numel() for each in served.model.parameters()),
        }
    )


if __name__ == "__main__":
    forked = multiprocessing.get_context("fork")
    answers = forked.SimpleQueue()
    port = get_open_port()
    others = [forked.Process(target=run, args=(rank, port, answers)) for rank in range(1, size)]
    for process in others:
        process.start()
    run(0, port, answers)
    for process in others:
        process.join()
    ranks = [answers.get() for _ in range(size)]
    answer({"platform": type(current_platform).__name__, "ranks": ranks})
