"""``python -m tests.kernels.gpu --shipped DIR --patched DIR [--out FILE]``: run the evidence, check it, tell it.

Exit status 0 also where there is no CUDA GPU: then it says loudly what it left out.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

LEFT_OUT = """
************************************************************************
LEFT OUT: there is no CUDA GPU here (or no CUDA build of torch), so not run:
  - patched against shipped norm kernels on a GPU: equality and speed
  - one attention layer on a GPU with the Triton backend, with and without
    tensor descriptors, against dense attention
  - the whole model with vLLM's compiled operations, and served by vLLM's
    engine
The CPU evidence (make test-kernels) covers the same code in Triton's
interpreter; figures from an H200 are in docs/patches.md.
************************************************************************
"""
#: A prefill beyond the window of all, decode steps, a request that prefills on while another decodes, one that waits.
SCHEDULE = [[1200, 700, 33], [1, 1, 1], [40, 1, 1], [1, 0, 1], [1, 1, 1]]


#: Bytes of a GPU's memory: of one MoE layer's weights, and of all that is not a layer while the model runs.
LAYER, REST = 1.65e9, 12e9
LAYERS = 49


def gpu() -> int:
    """How many bytes of memory the GPU has free, 0 where there is none."""
    code = "import torch; print(torch.cuda.mem_get_info()[0] if torch.cuda.is_available() else 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return int(done.stdout) if done.returncode == 0 else 0


def probe(name: str, tree: Path, *arguments: str, **env: str) -> Any:
    root = Path(__file__).parents[3]
    # What the environment has on its search path stays there, behind the tree.
    stubs = str(root / "tests/kernels/stubs/cuda")
    path = os.pathsep.join(filter(None, [str(tree), str(root), stubs, os.environ.get("PYTHONPATH", "")]))
    settings = {**os.environ, "PYTHONPATH": path, "HF_HUB_OFFLINE": "1", "VLLM_LOGGING_LEVEL": "ERROR", **env}
    command = [sys.executable, "-m", f"tests.kernels.probes.{name}", *arguments]
    done = subprocess.run(command, cwd="/", env=settings, stdout=subprocess.PIPE, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"answer"')]
    if done.returncode or not lines:
        raise SystemExit(f"{name} ended with status {done.returncode} and no answer:\n{done.stdout[-2000:]}")
    return json.loads(lines[-1])["answer"]


def attention(tree: Path, descriptors: str) -> list[dict[str, Any]]:
    scenarios = [
        {"kind": kind, "tp": tp, "layout": layout, "window": 513, "schedule": SCHEDULE}
        for kind in (0, 1)
        for tp, layout in [(1, "LBHNC"), (1, "LBNHC"), (2, "LBHNC"), (4, "LBHNC"), (8, "LBHNC")]
    ]
    found = probe("attention", tree, "cuda", "forward", json.dumps(scenarios), VLLM_TRITON_USE_TD=descriptors)
    return [{**scenario, **run} for scenario, run in zip(scenarios, found["runs"], strict=True)]


def whole(tree: Path, memory: int) -> list[dict[str, Any]]:
    """Three small layers, then as much of the model as fits. With pointers: on NVIDIA vLLM's experts need an SM100 for
    tensor descriptors."""
    layers = min(LAYERS, int((memory - REST) // LAYER))
    runs = []
    for size in ("small", str(layers)):
        (rank,) = probe("whole", tree, "cuda", size, json.dumps(SCHEDULE), "1", VLLM_TRITON_USE_TD="0")["ranks"]
        runs.append({"size": size, **rank})
    return runs


def faults(evidence: dict[str, Any]) -> list[str]:
    """What is not as it should be."""
    found = []
    for row in evidence["norms"]["numbers"]:
        if row["kind"] == "random" and row["patched against fp64"]["max"] > 1:
            found.append(f"{row['call']}: {row['patched against fp64']['max']} steps from fp64")
    for run in evidence["attention"]:
        label = f"kind {run['kind']} tp {run['tp']} {run['layout']} td {run['use_td']}"
        if not run["error"] < 0.01:
            found.append(f"{label}: relative error {run['error']}")
        for rank in run["ranks"]:
            # A rounding of k before it is rotated is worth a few steps where a rotation's difference nearly vanishes.
            k_wrong = rank["k_steps"] > (1 if run["kind"] else 8) or rank["k_share"] > 1e-3
            if rank["v_differs"] or rank["written_elsewhere"] or rank["backend_writes"] or k_wrong:
                found.append(f"{label}: cache {rank}")
    for run in evidence["whole model"]:
        worst = max(max(each["attention"], each["output"]) for each in run["layers"])
        if not (worst < 0.02 and run["logits"] < 0.01 and run["embedding exact"]):
            found.append(f"whole model {run['size']}: a layer's error {worst}, the logits' {run['logits']}")
    for run in evidence["engine"]:
        # Another word than the reference's first is one that it held for nearly as likely.
        if not (run["same word"] > 0.9 * run["words"] and run["behind"] < 0.5):
            found.append(f"engine: {run}")
    return found


def tell(evidence: dict[str, Any]) -> None:
    norms = evidence["norms"]
    print(f"{norms['gpu']}, torch {norms['torch']}, triton {norms['triton']}")
    for row in norms["numbers"]:
        print(json.dumps(row))
    for row in norms["speed"]:
        print(json.dumps(row))
    for run in evidence["attention"]:
        worst, share = (max(rank[name] for rank in run["ranks"]) for name in ("k_steps", "k_share"))
        print(
            f"layer kind {run['kind']} tp {run['tp']} {run['layout']} descriptors {run['use_td']}: "
            f"relative error {run['error']:.5f}, k {worst} step(s) in {share:.1e} of its numbers"
        )
    for run in evidence["whole model"]:
        errors = [each["output"] for each in run["layers"]]
        print(
            f"whole model of {len(errors)} layers, {run['parameters'] / 1e9:.1f} billion parameters, "
            f"{run['experts']}: relative errors of layers {min(errors):.4f} to "
            f"{max(errors):.4f}, of logits {run['logits']:.4f}, from the tokens alone {run['logits from tokens']:.3f}"
        )
    for run in evidence["engine"]:
        print(json.dumps(run))
    print(f"shipped layer: {evidence['shipped layer']['error']}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.kernels.gpu")
    parser.add_argument("--shipped", type=Path, required=True)
    parser.add_argument("--patched", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    memory = gpu()
    if not memory:
        print(LEFT_OUT)
        return 0
    evidence: dict[str, Any] = {
        "norms": probe("gpu_norms", given.patched, str(given.shipped / "vllm/models/flint/ops/norm.py")),
        "shipped layer": probe("attention", given.shipped, "cuda", "construct", "TRITON_ATTN", "1", "auto"),
        "whole model": whole(given.patched, memory),
        "engine": [probe("engine", given.patched, "4", mode) for mode in ("eager", "graphs")],
        "attention": [run for descriptors in "01" for run in attention(given.patched, descriptors)],
    }
    if given.out:
        given.out.write_text(json.dumps(evidence, indent=1) + "\n")
    tell(evidence)
    found = faults(evidence)
    print("\n".join(found) if found else "all as it should be")
    return 1 if found else 0


sys.exit(main())
