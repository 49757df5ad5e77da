"""Runs one assert of a manifest as its proof does: BEFORE, then import MODULE, then CODE. Arguments: these three.

With STAND_IN=cpu an assert for a GPU runs in Triton's interpreter: what it sends to the GPU stays on the CPU.
"""

from __future__ import annotations

import importlib
import os
import sys

if os.environ.get("TRITON_INTERPRET") == "1":
    from tests.kernels.probes import interpreter

from tests.kernels.probes import answer

before, module, code = sys.argv[1:]
names: dict[str, object] = {"__name__": "patchkit_assert"}
exec(compile(before, "<before>", "exec"), names)
names["module"] = loaded = importlib.import_module(module)
if os.environ.get("STAND_IN") == "cpu":
    code = code.replace(
        'device = "xpu" if hasattr(torch, "xpu") and torch.xpu.is_available() else "cuda"', 'device = "cpu"'
    )
    assert 'device = "cpu"' in code
    if hasattr(loaded, "tldevice"):
        interpreter.give_exp(loaded)
exec(compile(code, "<assert>", "exec"), names)
answer("passed")
