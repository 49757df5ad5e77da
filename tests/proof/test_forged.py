"""Answers with the right proof and any content: a program that knows how to forge still cannot break the command."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from patchkit.catalog.model import Assert
from patchkit.images.model import Run, RunResult
from patchkit.proof.model import LEVELS, Expectation
from patchkit.proof.prove import prove
from patchkit.proof.verdict import verdict
from patchkit.site.facts import site_facts
from tests.proof.test_prove import MOD, Tree, expect, site_of, tree
from tests.site.host import HostImage

__all__ = ["tree"]


class Forger(HostImage):
    """Answers every question with the same parts, each with the right proof."""

    def __init__(self, parts: Mapping[str, Any]) -> None:
        super().__init__()
        self.parts = parts

    def run(self, run: Run) -> RunResult:
        start = next(index for index, word in enumerate(run.argv) if word == "-c") + 2
        nonce = json.loads("".join(run.argv[start:]))["nonce"]
        text = json.dumps(self.parts)
        proof = hashlib.sha256((nonce + text).encode()).hexdigest()
        return RunResult(0, f"patchkit-answer {proof} {text}\n".encode("utf-8", "surrogatepass"), b"")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
NAMES = ("version", "search_path", "modules", "files", "compiles", "bytecode", "imports", "spawned", "assert 0")


@pytest.mark.parametrize("keyed", [True, False])
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_answer_breaks_the_proof_or_makes_wrong_bytes_right(tree: Tree, keyed: bool, data: st.DataObject) -> None:
    layout, launch = tree
    wanted = expect(site_of(layout), MOD)
    wrong = Expectation(wanted.path, MOD, "0" * 64, module=wanted.module)
    keys = [
        wanted.path,
        wanted.module,
        "pkg",
        "error",
        "kind",
        "origin",
        "locations",
        "runs",
        "real",
        "ended",
        "sha256",
    ]
    inner = st.dictionaries(st.sampled_from(keys), json_values | st.dictionaries(st.sampled_from(keys), json_values))
    parts = data.draw(st.fixed_dictionaries({}, optional=dict.fromkeys(NAMES, inner if keyed else json_values)))
    image = Forger(parts)
    proof = prove(image, launch, "pkg", [wrong], [Assert("pkg", "pass")])
    assert [level.name for level in proof.levels] == list(LEVELS)
    assert proof.levels[0].state == "failed"
    assert verdict(proof.levels) == 1
    site = site_facts(image, launch, "pkg", [MOD])
    assert site.winner is not None
    assert site.winner.root == str(site_of(layout) / "pkg")


def test_a_forged_success_of_another_files_import_is_not_taken(tree: Tree) -> None:
    layout, launch = tree
    wanted = expect(site_of(layout), MOD)
    told = {"real": str(layout.root / "work" / MOD), "file": "x", "sha256": wanted.sha256}
    parts = {"search_path": [], "imports": {wanted.module: told}, "spawned": {wanted.module: told}}
    proof = prove(Forger(parts), launch, "pkg", [wanted])
    assert (proof.levels[4].state, proof.levels[4].cause) == ("failed", "another file")


def test_a_forged_lack_of_what_is_there_is_not_taken(tree: Tree) -> None:
    layout, launch = tree
    wanted = expect(site_of(layout), MOD)
    (site_of(layout) / "torch").mkdir()
    (site_of(layout) / "torch/__init__.py").write_text("")
    error = {
        "type": "ModuleNotFoundError",
        "kinds": ["ModuleNotFoundError", "ImportError"],
        "name": "torch",
        "text": "",
    }
    parts = {"search_path": [], "imports": {wanted.module: {"error": [error]}}}
    proof = prove(Forger(parts), launch, "pkg", [wanted])
    assert proof.levels[4].state == "failed"
    assert "reading finds torch" in proof.levels[4].detail


@pytest.mark.parametrize("named", [True, False])
def test_bytecode_that_runs_by_its_header_is_not_talked_away(tree: Tree, named: bool) -> None:
    import py_compile

    layout, launch = tree
    wanted = expect(site_of(layout), MOD)
    pyc = py_compile.compile(wanted.path, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    parts = {"search_path": [], "bytecode": {wanted.path: {"pyc": pyc if named else "/other", "runs": False}}}
    proof = prove(Forger(parts), launch, "pkg", [wanted])
    assert (proof.levels[3].state, proof.levels[3].cause) == ("failed", "two answers")


def test_what_no_python_compiles_is_not_talked_away(tree: Tree) -> None:
    layout, launch = tree
    (site_of(layout) / MOD).write_text("def f(:\n")
    wanted = expect(site_of(layout), MOD)
    proof = prove(Forger({"search_path": [], "compiles": {wanted.path: ""}}), launch, "pkg", [wanted])
    assert (proof.levels[2].state, proof.levels[2].cause) == ("failed", "two answers")
