"""flint-moe-annotations: the import that fails only after the XPU worker has replaced torch.cuda.Event."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kernels import probe, trees

MODULE = "vllm.models.flint.ops.moe"
OTHERS = ["vllm.models.deepseek_v41.common.engram", "vllm.distributed.kv_transfer.kv_connector.v1.mooncake.store.data"]


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


@pytest.mark.parametrize("module", OTHERS)
def test_two_other_modules_fail_in_the_same_way_and_import_when_patched(module):
    assert "unsupported operand type(s) for |" in probe.run("imports", trees.pristine(), module, "wrapper").stderr
    assert probe.run("imports", trees.patched("vllm-xpu-full"), module, "wrapper").status == 0


def test_lora_context_needs_no_patch():
    module = "vllm.model_executor.layers.fused_moe.experts.lora_context"
    assert probe.run("imports", trees.pristine(), module, "wrapper").status == 0


def test_no_further_module_of_vllm_evaluates_such_an_annotation_while_it_is_imported():
    root = trees.pristine()
    found = {path.relative_to(root).as_posix() for path in root.rglob("*.py") if any(_evaluated(path))}
    assert found == {f"{module.replace('.', '/')}.py" for module in (MODULE, *OTHERS)}


def _evaluated(path: Path) -> Iterator[ast.BinOp]:
    """Unions with torch.cuda.Event in annotations that Python evaluates when it runs the module."""
    text = path.read_text()
    if "cuda.Event" not in text:
        return
    tree = ast.parse(text)
    if any(isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in tree.body):
        return
    for annotation in _annotations(tree.body):
        for node in ast.walk(annotation):
            if isinstance(node, ast.BinOp) and "cuda.Event" in map(_tail, (node.left, node.right)):
                yield node


def _tail(node: ast.AST) -> str:
    return ".".join(ast.unparse(node).split(".")[-2:]) if isinstance(node, ast.Attribute) else ""


def _annotations(body: list[ast.stmt]) -> Iterator[ast.AST]:
    for node in body:
        if isinstance(node, ast.AnnAssign):
            yield node.annotation
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            given = node.args
            for argument in (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg):
                if argument is not None and argument.annotation is not None:
                    yield argument.annotation
            if node.returns is not None:
                yield node.returns
        else:
            for inner in ("body", "orelse", "finalbody"):
                yield from _annotations(getattr(node, inner, []))
