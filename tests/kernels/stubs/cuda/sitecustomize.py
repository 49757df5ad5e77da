"""Empty modules in the place of those of vLLM's compiled ones that are not there, in this process and every one that it
starts. Whoever calls an operation that is not there still fails."""

import importlib.abc
import importlib.machinery
import re
import sys

#: What vLLM asks its compiled part for while it is imported.
_ASKED = (
    "cutlass_group_gemm_supported",
    "cutlass_scaled_mm_supports_block_fp8",
    "cutlass_scaled_mm_supports_fp4",
    "cutlass_scaled_mm_supports_fp8",
)


class _Compiled(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        return importlib.machinery.ModuleSpec(name, self) if re.fullmatch(r"vllm(\.\w+)*\._\w*C(_\w+)?", name) else None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        import torch

        for name in _ASKED:
            if not hasattr(torch.ops._C, name):
                setattr(torch.ops._C, name, lambda capability: False)


sys.meta_path.append(_Compiled())
