"""drop_when: in doubt it does not hold."""

import contextlib
import hashlib
import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchkit.catalog.condition import holds, mentions, paths
from patchkit.catalog.model import DropWhen, SyntaxCondition


def calls_no(function, *names, except_under=()):
    syntax = SyntaxCondition("p/a.py", function=function, calls_no=names, except_under=except_under)
    return DropWhen(syntax=syntax)


def calls_with(function, **names):
    return DropWhen(syntax=SyntaxCondition("p/a.py", function=function, calls_with=names))


def told(condition, source):
    return holds(condition, {"p/a.py": textwrap.dedent(source).encode()})


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


@pytest.mark.parametrize(
    "mention",
    [
        "from lib import asm",
        "from lib import asm as other",
        "from lib import other as asm",
        "from lib.asm import other",
        "import lib.asm as other",
        "getattr(lib, 'asm')(x)",
        "import_module('lib.asm')",
        "other(x)\n\nfrom lib import asm as other",
        "other(x)\n\nother = lib.asm",
        "helper(x)\n\ndef helper(x):\n    return lib.asm(x)",
        "Helper(x)\n\nclass Helper:\n    def __init__(self, x):\n        lib.asm(x)",
        "first(x)\n\ndef first(x):\n    second(x)\n\ndef second(x):\n    lib.asm(x)",
    ],
)
def test_a_name_that_comes_by_another_way_is_mentioned_too(mention):
    source = "def f(x):\n    " + mention + "\n"
    assert not told(calls_no("f", "tl.asm"), source)
    assert told(calls_no("f", "tl.asm"), source.replace("asm", "sqrt"))


def test_a_helper_that_the_function_does_not_name_does_not_matter():
    assert told(
        calls_no("A.__init__", "asm"),
        """
        class A:
            def __init__(self):
                super().__init__()
            def other(self):
                asm()
        class B:
            def __init__(self):
                asm()
        """,
    )


GUARDED = """
class A:
    def __init__(self, config, other):
        self.fast = {value}
        if {test}:
            from lib import asm
            asm(self)
        else:
            pass
"""


@pytest.mark.parametrize(
    ("value", "test", "expected"),
    [
        ("kernels(config)", "self.fast", True),
        ("kernels(config)", "self.fast and other", True),
        ("kernels(config)", "other and (self.fast and other)", True),
        ("lib.kernels(config)", "self.fast", True),
        ("kernels(config) and other", "self.fast", True),
        ("None", "kernels(config)", True),
        ("None", "lib.kernels(config)", True),
        ("kernels(config)", "not self.fast", False),
        ("kernels(config)", "self.fast or other", False),
        ("kernels(config)", "self.fast is not None", False),
        ("kernels(config)", "self.fast()", False),
        ("kernels(config)", "(self.fast if other else other)", False),
        ("kernels(config)", "self.fast and asm(self)", False),
        ("kernels(config)", "other", False),
        ("kernels(config)", "config.faster", False),
        ("kernels(config) or other", "self.fast", False),
        ("not kernels(config)", "self.fast", False),
        ("kernels", "self.fast", False),
        ("True", "self.fast", False),
        ("config.fast", "self.fast", False),
        ("None", "kernels", False),
        ("None", "(kernels := other)", False),
    ],
)
def test_only_what_stands_under_the_functions_own_word_is_spared(value, test, expected):
    source = GUARDED.format(value=value, test=test)
    assert told(calls_no("A.__init__", "asm", except_under=("kernels",)), source) is expected
    assert not told(calls_no("A.__init__", "asm"), source)


@pytest.mark.parametrize(
    "doubt",
    [
        "self.fast = other",
        "self.fast |= other",
        "self.fast, _ = kernels(other), other",
        "for self.fast in other: pass",
        "with other as self.fast: pass",
        "del self.fast",
        "lambda fast: fast",
        "kernels = other",
        "import other as kernels",
    ],
)
def test_a_name_that_the_file_gives_another_value_anywhere_spares_nothing(doubt):
    source = GUARDED.format(value="kernels(config)", test="self.fast") + f"\ndef g(self, other):\n    {doubt}\n"
    assert not told(calls_no("A.__init__", "asm", except_under=("kernels",)), source)


def test_a_declaration_of_a_names_type_is_no_other_value():
    source = "class A:\n    fast: bool\n" + GUARDED.format(value="kernels(config)", test="self.fast")
    assert told(calls_no("A.__init__", "asm", except_under=("kernels",)), source)


@pytest.mark.parametrize(
    "body",
    [
        "if fast:\n    pass\nelse:\n    asm()",
        "if not fast:\n    pass\nelif other:\n    asm()",
        "while fast:\n    asm()",
        "asm() if fast else None",
        "fast and asm()",
        "assert not fast or asm()",
        "[asm() for _ in x if fast]",
        "if not fast:\n    return\nasm()",
        "if other:\n    if fast:\n        pass\n    asm()",
    ],
)
def test_only_the_body_of_an_if_is_spared(body):
    source = "def f(x, other):\n    fast = kernels()\n" + textwrap.indent(body, "    ")
    assert not told(calls_no("f", "asm", except_under=("kernels",)), source)
    assert told(calls_no("f", "asm", except_under=("kernels",)), source.replace("asm()", "None"))


def test_an_elif_is_spared_as_an_if_is():
    source = "def f(x):\n    if x:\n        pass\n    elif kernels():\n        asm()\n    else:\n        pass\n"
    assert told(calls_no("f", "asm", except_under=("kernels",)), source)


OP = calls_with("C.f", **{"ops.op": ("renormalize",)})


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("ops.op(x, renormalize)", True),
        ("torch.ops.vllm.op(x, need_renorm=renormalize)", True),
        ("return op(x, renormalize)", True),
        ("from aiter import op\nop(x, renormalize)", True),
        ("if renormalize:\n    op(x, renormalize)\nelse:\n    op(x, 1, renormalize)", True),
        ("op(x)", False),
        ("op(x)  # renormalize", False),
        ("op(x, 'renormalize')", False),
        ("op(x, renormalize=True)", False),
        ("op(x, not renormalize)", False),
        ("op(x, bool(renormalize))", False),
        ("op(x, self.renormalize)", False),
        ("op(x, *renormalize)", False),
        ("op(x, **renormalize)", False),
        ("op(x, lambda: renormalize)", False),
        ("logger.info('%s', renormalize)\nop(x)", False),
        ("assert renormalize\nop(x)", False),
        ("assert op(x, renormalize)", False),
        ("other(renormalize)", False),
        ("other(renormalize)\nop(x)", False),
        ("other(op, renormalize)", False),
        ("op(x, renormalize)\nop(x)", False),
        ("try:\n    op(x, renormalize)\nexcept TypeError:\n    op(x)", False),
        ("def g():\n    op(x, renormalize)", False),
        ("g = lambda: op(x, renormalize)", False),
        ("(op(x, renormalize) for _ in x)", False),
        ("call = ops.op\ncall(x, renormalize)", False),
        ("call = ops.op\ncall(x)\nop(x, renormalize)", False),
        ("getattr(ops, 'op')(x)\nop(x, renormalize)", False),
        ("from aiter import op as call\ncall(x)\nop(x, renormalize)", False),
        ("from aiter import other as op\nop(x, renormalize)", False),
        ("functools.partial(op, x)()\nop(x, renormalize)", False),
        ("op.default(x, renormalize)", False),
        ("renormalize = False\nop(x, renormalize)", False),
        ("[op(x, renormalize) for renormalize in x]", False),
        ("if renormalize:\n    op(x)\n    x /= x.sum()", False),
    ],
)
def test_an_argument_is_passed_on_only_where_nothing_is_in_doubt(body, expected):
    source = "class C:\n    @staticmethod\n    def f(x, renormalize):\n" + textwrap.indent(body, " " * 8)
    assert told(OP, source) is expected
    assert not told(OP, source.replace("def f", "def g"))


def test_what_is_no_parameter_of_the_function_is_not_passed_on():
    assert not told(OP, "class C:\n    def f(x):\n        op(x, renormalize)\n")
    assert told(OP, "class C:\n    def f(x, *, renormalize=True):\n        op(x, renormalize)\n")


def test_every_callee_and_every_definition_must_have_its_arguments():
    both = calls_with("f", op=("a",), **{"lib.op": ("b",)})
    assert told(both, "def f(a, b):\n    op(a, b)\n")
    assert not told(both, "def f(a, b):\n    op(a)\n")
    assert not told(calls_with("f", op=("a",), other=("a",)), "def f(a):\n    op(a)\n")
    assert not told(calls_with("f", op=("a",)), "if x:\n    def f(a):\n        op(a)\nelse:\n    def f(a): ...\n")


def _inside(head, body, *more):
    return "\n".join([head, textwrap.indent(body, "    "), *more])


def _programs(lines, tests):
    """Bodies of functions, as nested as one likes."""
    conditions = st.recursive(
        st.sampled_from(tests),
        lambda inner: (
            st.builds("not {}".format, inner)
            | st.builds("({} {} {})".format, inner, st.sampled_from(["and", "or"]), inner)
        ),
        max_leaves=3,
    )
    return st.recursive(
        st.sampled_from(lines),
        lambda inner: (
            st.builds("{}\n{}".format, inner, inner)
            | st.builds(lambda test, body: _inside(f"if {test}:", body), conditions, inner)
            | st.builds(
                lambda test, *two: _inside(f"if {test}:", two[0], _inside("else:", two[1])), conditions, inner, inner
            )
            | st.builds(lambda test, body: _inside(f"while {test}:", body, "    break"), conditions, inner)
            | st.builds(lambda body: _inside("def nested():", body), inner)
        ),
        max_leaves=8,
    )


def _run(source, **names):
    with contextlib.suppress(NameError, TypeError, AssertionError, AttributeError, RecursionError):
        exec(compile(source, "a.py", "exec"), names)
        names["f"](names["self"], True)


GUARDS = ["kernels()", "fast", "self.fast", "other", "self.other"]
CALLS = ["asm()", "helper()", "pass", "return", "call = asm", "call()", "nested()"]
VALUES = ["kernels()", "kernels() and other", "other", "fast"]
SPARED = _programs([*CALLS, *(f"{name}fast = {value}" for name in ("", "self.") for value in VALUES)], GUARDS)


@given(SPARED, st.sampled_from(["asm()", "pass", "if kernels():\n    asm()", "if other:\n    asm()"]))
def test_where_the_condition_holds_a_function_that_says_no_keeps_every_call_away(body, helper):
    source = _inside("def helper(other=True):", helper, _inside("def f(self, other):", body))
    if not told(calls_no("f", "asm", except_under=("kernels",)), source):
        return
    called = []

    class Self:
        other = True

    _run(source, asm=lambda: called.append(1), kernels=lambda: False, self=Self())
    assert not called


PASSED = _programs(
    [
        "op(1)",
        "op(1, x)",
        "op(k=x)",
        "op(*[x])",
        "other(x)",
        "assert op(x)",
        "x = 1",
        "call = op",
        "call()",
        "nested()",
    ],
    ["x", "op(x)", "op(1)"],
)


@given(PASSED)
def test_where_the_condition_holds_no_call_goes_without_the_argument(body):
    source = _inside("def f(self, x):", body)
    if told(calls_with("f", op=("x",)), source):
        calls = []
        _run(source, op=lambda *args, **named: calls.append([*args, *named.values()]), self=None, other=lambda x: None)
        assert all(any(value is True for value in values) for values in calls)


@given(SPARED | PASSED | st.text(), st.booleans())
def test_a_file_without_the_function_fulfils_no_condition(source, inside):
    if inside:
        source = _inside("def g(self, other, x):", source)
    for condition in (
        calls_no("f", "nothing"),
        calls_no("f", "asm", except_under=("kernels",)),
        calls_with("f", op=("x",)),
    ):
        assert not told(condition, source)


@given(SPARED)
def test_sparing_more_never_makes_a_condition_fail(body):
    source = _inside("def f(self, other):", body)
    if told(calls_no("f", "asm"), source):
        assert told(calls_no("f", "asm", except_under=("kernels",)), source)


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


@pytest.mark.parametrize("deep", ["if a:\n  pass\n" + "elif a:\n  pass\n" * 1500, "x = " + "a+" * 1500 + "1\n"])
def test_a_file_nested_deeper_than_the_stack_is_looked_through(deep):
    assert told(calls_no("f", "asm", except_under=("k",)), deep + "def f(): pass\n")
    assert not told(calls_no("f", "asm", except_under=("k",)), deep + "def f(): asm()\n")
    assert told(calls_with("f", op=("x",)), deep + "def f(x): op(x)\n")


def test_a_mention_is_a_whole_string_constant():
    assert mentions(b'X = {"flint": 1}\n', "flint")
    assert not mentions(b'X = {"flint47": 1}\n', "flint")
    assert not mentions(b"# 'flint'\nflint = 1\n", "flint")
    assert not mentions(b"'flint' (\n", "flint")
