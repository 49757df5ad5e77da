"""flint-moe-annotations: the import that fails only after the XPU worker has replaced torch.cuda.Event."""

from __future__ import annotations

from tests.kernels import probe, trees

MODULE = "vllm.models.flint.ops.moe"


def test_the_shipped_module_imports_well_by_itself():
    assert probe.run("imports", trees.pristine(), MODULE, "plain").status == 0


def test_the_shipped_module_does_not_import_after_the_workers_wrapper():
    outcome = probe.run("imports", trees.pristine(), MODULE, "wrapper")
    assert outcome.status == 1
    assert "TypeError: unsupported operand type(s) for |: 'function' and 'NoneType'" in outcome.stderr
    assert "flint/ops/moe.py" in outcome.stderr


def test_the_patched_module_imports_after_the_workers_wrapper():
    assert probe.run("imports", trees.patched("vllm-xpu"), MODULE, "wrapper").status == 0


def test_triton_still_sees_every_compile_time_constant():
    before = probe.run("imports", trees.pristine(), MODULE, "plain").answer
    after = probe.run("imports", trees.patched("vllm-xpu"), MODULE, "wrapper").answer
    assert after == before
    assert sum(map(len, before.values())) > 20


def test_the_model_imports_after_the_workers_wrapper():
    assert probe.run("imports", trees.patched("vllm-xpu"), "vllm.models.flint.model", "wrapper").status == 0
