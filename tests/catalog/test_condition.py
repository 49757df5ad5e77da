"""drop_when: in doubt it does not hold."""

import hashlib

import pytest

from patchkit.catalog.condition import holds, mentions, paths
from patchkit.catalog.model import DropWhen, SyntaxCondition


def calls_no(function, *names):
    return DropWhen(syntax=SyntaxCondition("p/a.py", function=function, calls_no=names))


FUTURE = DropWhen(syntax=SyntaxCondition("p/a.py", future="annotations"))


def test_a_hash_condition_holds_only_when_every_file_has_its_hash():
    condition = DropWhen(post={"a": "sha256:" + hashlib.sha256(b"1").hexdigest(), "b": "absent"})
    assert holds(condition, {"a": b"1", "b": None})
    assert holds(condition, {"a": b"1"})
    assert not holds(condition, {"a": b"2"})
    assert not holds(condition, {"a": b"1", "b": b""})
    assert paths(condition) == ("a", "b")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (b"def f():\n    return 1 / tl.sqrt(x)\n", True),
        (b"def f():\n    return tl.asm(x)\n", False),
        (b"def f():\n    return lib.other.asm(x)\n", False),
        (b"def f():\n    call = tl.asm\n    return call(x)\n", False),
        (b"def g():\n    return 1\n", False),
        (b"def f(:\n", False),
        (b"class f:\n    pass\n", False),
        (b"if x:\n    def f():\n        asm()\nelse:\n    def f():\n        pass\n", False),
        (b"if x:\n    def f():\n        pass\n", True),
        (b"def g():\n    def f():\n        pass\n", False),
    ],
)
def test_a_call_condition_needs_the_function_and_no_mention_of_the_name(source, expected):
    assert holds(calls_no("f", "tl.asm"), {"p/a.py": source}) is expected


def test_a_dotted_function_is_a_method_of_its_class():
    source = b"class A:\n    def m(self):\n        asm()\nclass B:\n    async def m(self):\n        pass\n"
    assert not holds(calls_no("A.m", "asm"), {"p/a.py": source})
    assert holds(calls_no("B.m", "asm"), {"p/a.py": source})
    assert not holds(calls_no("m", "asm"), {"p/a.py": source})


def test_a_future_condition_holds_when_the_module_imports_that_name():
    assert holds(FUTURE, {"p/a.py": b'"""doc"""\nfrom __future__ import annotations, division\n'})
    assert not holds(FUTURE, {"p/a.py": b"from __future__ import division\n"})
    assert not holds(FUTURE, {"p/a.py": b"# from __future__ import annotations\n"})


def test_a_missing_file_fulfils_no_condition():
    assert not holds(FUTURE, {"p/a.py": None})
    assert not holds(calls_no("f", "asm"), {})


def test_hostile_source_fulfils_no_condition():
    assert not holds(FUTURE, {"p/a.py": b"(" * 100_000})
    assert not holds(FUTURE, {"p/a.py": b"\x00from __future__ import annotations\n"})


def test_a_mention_is_a_whole_string_constant():
    assert mentions(b'X = {"flint": 1}\n', "flint")
    assert not mentions(b'X = {"flint47": 1}\n', "flint")
    assert not mentions(b"# 'flint'\nflint = 1\n", "flint")
    assert not mentions(b"'flint' (\n", "flint")
