"""What counts as the place's lack and what as the patch's fault, on tracebacks of real processes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from patchkit.proof.judge import Grounds, Verdict, judge, touches
from patchkit.site.model import Launch
from patchkit.site.probe import Question, ask
from tests.site.host import HostImage

Judge = Callable[..., Verdict]


@pytest.fixture
def judged(tmp_path: Path) -> Judge:
    def run(code: str, changed: tuple[int, ...] = (), there: tuple[str, ...] = (), **others: str) -> Verdict:
        """Import ``pkg.mod`` with this code, ``changed`` being the lines of the patch."""
        for name, text in {"__init__": "", "mod": code, **others}.items():
            place = tmp_path / "pkg" / f"{name}.py"
            place.parent.mkdir(exist_ok=True)
            place.write_text(text)
        module = str(tmp_path / "pkg/mod.py")
        launch = Launch("module", sys.executable, "pkg", str(tmp_path), {"PATH": "/usr/bin"})
        told = ask(HostImage(), launch, Question(imports=["pkg.mod"], timeout=60)).table("imports")["pkg.mod"]
        lines = frozenset(changed)

        def is_changed(file: str, line: int) -> bool:
            return file == module and bool(lines) and touches(code.encode(), line, lines)

        return judge(told["error"], Grounds("pkg", lambda name: name in there, is_changed))

    return run


def test_a_missing_module_of_another_package_blocks(judged: Judge) -> None:
    verdict = judged("import os\nimport torch_absent.nn\n", changed=(1,))
    assert (verdict.state, verdict.cause) == ("blocked", "torch_absent")
    assert "No module named 'torch_absent'" in verdict.detail


def test_a_missing_module_that_the_patch_imports_fails(judged: Judge) -> None:
    verdict = judged("import os\nimport torch_absent\n", changed=(2,))
    assert verdict.state == "failed"
    assert "mod.py:2, which the patches changed" in verdict.detail


def test_a_missing_module_of_the_package_itself_fails(judged: Judge) -> None:
    assert judged("import pkg.absent\n").state == "failed"
    assert judged("from pkg import absent\n").state == "failed"


def test_a_missing_module_that_reading_finds_fails(judged: Judge) -> None:
    verdict = judged("import torch_absent\n", there=("torch_absent",))
    assert verdict.state == "failed"
    assert "reading finds torch_absent" in verdict.detail


def test_a_name_that_moved_fails(judged: Judge) -> None:
    assert judged("from os import nothing_of_that_name\n").state == "failed"


@pytest.mark.parametrize(
    ("raised", "cause"),
    [
        ("ImportError('libze_loader.so.1: cannot open shared object file: No such file')", "libze_loader.so.1"),
        ("OSError('/x/libcuda.so.1: cannot open shared object file')", "libcuda.so.1"),
        ('ImportError("/lib/libc.so.6: version `GLIBC_2.38\' not found")', "GLIBC_2.38"),
        ("RuntimeError('Found no NVIDIA driver on your system.')", "device (NVIDIA driver)"),
        ("RuntimeError('No CUDA GPUs are available')", "device (No CUDA GPUs)"),
        ("AssertionError('Torch not compiled with CUDA enabled')", "device (not compiled with CUDA)"),
        ("RuntimeError('No HIP GPUs are available')", "device (No HIP GPUs)"),
        ("RuntimeError('0 active drivers ([]). There should only be one.')", "device (0 active drivers)"),
        ("RuntimeError('Failed to infer device type')", "device (Failed to infer device type)"),
    ],
)
def test_a_library_or_a_device_that_is_missing_blocks(judged: Judge, raised: str, cause: str) -> None:
    code = f"x = 1\nraise {raised}\n"
    assert judged(code, changed=(1,)) == Verdict("blocked", cause, judged(code).detail)
    assert judged(code, changed=(2,)).state == "failed"


@pytest.mark.parametrize("raised", ["TypeError('unsupported operand')", "AttributeError('x')", "SystemExit(1)"])
def test_other_errors_fail_wherever_they_come_from(judged: Judge, raised: str) -> None:
    verdict = judged("from pkg import other\n", other=f"raise {raised}\n")
    assert (verdict.state, verdict.cause) == ("failed", raised.partition("(")[0])


def test_a_syntax_error_fails_with_its_line(judged: Judge) -> None:
    verdict = judged("from pkg import other\n", other="x = 1\ndef f(:\n")
    assert verdict.state == "failed"
    assert "other.py:2" in verdict.detail


def test_an_error_in_another_file_whose_import_the_patch_changed_fails(judged: Judge) -> None:
    assert judged("import os\nfrom pkg import other\n", changed=(2,), other="import torch_absent\n").state == "failed"
    assert judged("import os\nfrom pkg import other\n", changed=(1,), other="import torch_absent\n").state == "blocked"


def test_an_error_raised_from_a_missing_module_blocks(judged: Judge) -> None:
    code = "try:\n    import torch_absent\nexcept ImportError as e:\n    raise RuntimeError('install torch') from e\n"
    assert judged(code).cause == "torch_absent"


def test_an_import_error_raised_while_a_missing_module_is_handled_blocks(judged: Judge) -> None:
    code = "try:\n    import torch_absent\nexcept ImportError:\n    raise ImportError('please install torch')\n"
    assert judged(code).cause == "torch_absent"


def test_an_error_in_the_fallback_for_a_missing_module_fails(judged: Judge) -> None:
    code = "try:\n    import torch_absent\nexcept ImportError:\n    undefined_name\n"
    assert (judged(code).state, judged(code).cause) == ("failed", "NameError")


@pytest.mark.parametrize(
    "told", [None, [], {}, "x", [1], [{"type": 1, "frames": "x", "kinds": 5}], [{"frames": [[1], ["a", "b"], None]}]]
)
def test_nonsense_is_failed(told: object) -> None:
    assert judge(told, Grounds("pkg", lambda name: False, lambda file, line: False)).state == "failed"


def test_a_statement_of_many_lines_is_one_place() -> None:
    source = b"x = call(\n    1,\n    2,\n)\ny = 3\n"
    assert touches(source, 1, frozenset({3}))
    assert not touches(source, 5, frozenset({3}))


def test_of_a_function_only_the_head_belongs_to_its_definition() -> None:
    source = b"@deco\ndef f(\n    a=1,\n):\n    one()\n    two()\n"
    assert touches(source, 2, frozenset({3}))
    assert touches(source, 1, frozenset({2}))
    assert not touches(source, 2, frozenset({6}))
    assert not touches(source, 5, frozenset({6}))


def test_lines_of_a_file_that_cannot_be_parsed_count_alone() -> None:
    assert touches(b"def f(:\n", 1, frozenset({1}))
    assert not touches(b"def f(:\n", 1, frozenset({2}))
