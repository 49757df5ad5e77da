"""What a server's log says: known lines with their remedy, and the KV cache beside the recipe's plan."""

from __future__ import annotations

import pytest

from patchkit.stack import log
from patchkit.stack.recipes.load import general_rules, load_recipe

FLINT = load_recipe("flint")
LINES = general_rules().log
CAPACITY = (
    "INFO [gpu_worker.py:773] Available KV cache memory: 7.0 GiB\n"
    "INFO [kv_cache_utils.py:1148] XPU KV cache size: {tokens} tokens, Maximum concurrency for 262,144 tokens per "
    "request: 3.45x\n"
)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("ModuleNotFoundError: No module named 'flashinfer'", "log-flashinfer-missing"),
        ("error: cannot select inline_asm", "log-inline-asm"),
        ("TypeError: unsupported operand type(s) for |: 'function' and 'NoneType'", "log-event-annotation"),
        ('    assert self.attn.kv_cache_dtype in ("auto", "bfloat16")', "log-kv-dtype"),
        ("ValueError: No available memory for the cache blocks. Try", "log-no-kv-memory"),
        ("vllm: error: unrecognized arguments: --kv-dtype", "log-unknown-option"),
        ("torch.OutOfMemoryError: XPU out of memory", "log-out-of-memory"),
        ("RuntimeError: Failed to infer device type", "log-no-device"),
        ("INFO: Application startup complete.", None),
        ("INFO: 127.0.0.1 - GET /health 200", None),
    ],
)
def test_a_known_line_is_told_with_itself_and_its_remedy(line: str, expected: str | None) -> None:
    found = log.known_lines(f"starting\n{line}\n{line}\n", LINES, "service flint")
    assert [finding.id for finding in found] == ([expected] if expected else [])
    assert all(finding.remedy and line.strip() in finding.evidence for finding in found)


def test_the_server_s_kv_cache_is_compared_with_the_plan() -> None:
    seen = log.capacity(CAPACITY.format(tokens="904,123"))
    assert seen == log.Capacity(904_123, 262_144, 3.45, 7.0)
    finding = log.against_plan(seen, FLINT.model, FLINT.hardware["b70x4"], "service flint")
    assert finding.severity == "note"
    assert "the recipe plans 953430 tokens for 7 GiB" in finding.what


def test_a_kv_cache_far_from_the_plan_is_a_warning() -> None:
    seen = log.capacity(CAPACITY.format(tokens="299,000"))
    assert seen is not None
    assert log.against_plan(seen, FLINT.model, FLINT.hardware["b70x4"], "x").severity == "warning"


def test_without_the_memory_the_plan_s_bracket_is_used_and_without_a_plan_it_is_said() -> None:
    seen = log.Capacity(904_000, 262_144, 3.45)
    finding = log.against_plan(seen, FLINT.model, FLINT.hardware["b70x4"], "x")
    assert "885316 to 953430 tokens for 6.5 to 7 GiB" in finding.what
    assert "plans none" in log.against_plan(seen, FLINT.model, FLINT.hardware["gb200"], "x").what


def test_a_log_that_does_not_tell_is_no_capacity() -> None:
    assert log.capacity("INFO: loading") is None
