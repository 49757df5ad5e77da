"""The GPUs that vllm-rocm is for, and what vLLM itself reads out of their names."""

from __future__ import annotations

import ast
import re

import pytest

from patchkit.catalog.load import load_catalog
from patchkit.proof.gpus import gpu_findings
from tests.kernels import trees

WANTED = next(each.gpus for each in load_catalog(trees.REPOSITORY).manifests if each.name == "vllm-rocm")


def capability(name):
    """vLLM's own function, taken out of its module, which asks for a GPU when it is imported."""
    tree = ast.parse((trees.pristine() / "vllm/platforms/rocm.py").read_text())
    (function,) = (each for each in tree.body if getattr(each, "name", "") == "_capability_from_gcn_arch")
    names = {"re": re}
    exec(compile(ast.Module([function], []), "rocm.py", "exec"), names)
    return names["_capability_from_gcn_arch"](name)


@pytest.mark.parametrize("gpu", WANTED.only)
def test_no_gpu_of_the_list_passes_for_an_sm100(gpu):
    major, _ = capability(gpu)
    assert major in (9, 11, 12)
    assert gpu_findings(WANTED, [("/dev/dri/renderD128", gpu)], "") == []


@pytest.mark.parametrize("gpu", ["gfx1010", "gfx1030", "gfx1036"])
def test_what_does_is_refused(gpu):
    assert capability(gpu)[0] == 10
    assert gpu_findings(WANTED, [("/dev/dri/renderD128", gpu)], "") != []


@pytest.mark.parametrize("gpu", ["gfx803", "gfx1310", "gfx12500", "gfx9"])
def test_a_name_that_vllm_cannot_read_is_refused(gpu):
    with pytest.raises(ValueError, match="GCN arch"):
        capability(gpu)
    assert gpu_findings(WANTED, [("/dev/dri/renderD128", gpu)], "") != []
