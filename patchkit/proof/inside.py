"""The levels that only the image's own interpreter decides: compiles, bytecode, imports, asserts."""

from __future__ import annotations

import importlib.util
import marshal
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from patchkit.catalog.model import Assert
from patchkit.diff import check_python
from patchkit.plan import ABSENT
from patchkit.proof.evidence import Evidence
from patchkit.proof.judge import Grounds, judge, touches
from patchkit.proof.model import Expectation, FileProof
from patchkit.site.model import Launch
from patchkit.site.pycache import stems_of
from patchkit.site.static import find_module


def compiles_level(evidence: Evidence) -> list[FileProof]:
    """Each file compiles under the image's own Python; where that cannot be asked, under its version's grammar."""
    return [_compiles(evidence, item) for item in evidence.sources]


def _compiles(evidence: Evidence, item: Expectation) -> FileProof:
    if evidence.answer is not None:
        word = evidence.answer.table("compiles").get(item.path)
        if not isinstance(word, str):
            return evidence.untold(item.relative)
        if word:
            return FileProof(item.relative, "failed", "syntax", word)
    elif evidence.refused:
        return evidence.untold(item.relative)
    data = evidence.view.read(item.path)
    if evidence.search is None or data is None:
        return FileProof(item.relative, "not run", evidence.cause_not, evidence.why_not)
    major, minor, _ = evidence.search.python.version
    problem = check_python(data, item.relative, (major, minor))
    if evidence.answer is not None:
        # A program that claims to be Python may claim anything; what no Python compiles it cannot talk away.
        if problem is not None and problem.sure:
            detail = f"line {problem.line}: {problem.what}; yet the interpreter says that it compiles"
            return FileProof(item.relative, "failed", "two answers", detail)
        return FileProof(item.relative, "passed")
    if problem is not None and problem.sure:
        return FileProof(item.relative, "failed", "syntax", f"line {problem.line}: {problem.what}")
    if problem is not None:
        return FileProof(item.relative, "not run", "newer Python", f"{problem.what}; {evidence.why_not}")
    return FileProof(item.relative, "passed", detail=f"by the grammar of Python {major}.{minor}, not by running it")


def bytecode_level(evidence: Evidence) -> list[FileProof]:
    """No compiled file would run instead of the source, unless it is that of this very source."""
    return [_bytecode(evidence, item) for item in evidence.sources]


def _bytecode(evidence: Evidence, item: Expectation) -> FileProof:
    if evidence.search is None:
        return FileProof(item.relative, "not run", "launch unknown", evidence.why_not)
    suspects = _would_run(evidence, item)
    if evidence.answer is None:
        return _bytecode_by_reading(evidence, item, suspects)
    told = evidence.told("bytecode", item.path)
    if told is None:
        return evidence.untold(item.relative)
    pyc = str(told.get("pyc"))
    if told.get("runs"):
        if told.get("same") is True:
            return FileProof(item.relative, "passed", detail="a compiled file runs, and it is that of this source")
        why = "it is never checked against its source" if told.get("unchecked") else "its stated source looks the same"
        return FileProof(item.relative, "failed", "stale bytecode", f"{pyc} would run instead: {why}")
    for path, why in suspects.items():
        detail = f"{path} would run by its header ({why}), and the interpreter says that it would not"
        return FileProof(item.relative, "failed", "two answers", detail)
    return FileProof(item.relative, "passed")


def _optimization(launch: Launch) -> str:
    """The part of a compiled file's name that tells the launch's optimization. Source: PEP 488."""
    setting = launch.heeded.get("PYTHONOPTIMIZE", "")
    stated = int(setting) if setting.isdigit() else int(bool(setting))
    level = min(max(launch.flags.count("-O"), stated), 2)
    return f".opt-{level}" if level else ""


def _stems(evidence: Evidence, item: Expectation) -> list[str]:
    names = [item.path]
    if evidence.search is not None and item.module:
        module = find_module(evidence.view, evidence.search, item.module)
        if module is not None and evidence.view.real(module.origin) == item.path:
            names.append(module.origin)
    return stems_of(evidence.launch, names)


def _checked(launch: Launch, flags: int) -> bool:
    """Whether a hash-based compiled file is compared with its source. Source: PEP 552; the last option decides."""
    words = [after for word, after in pairwise(launch.flags) if word == "--check-hash-based-pycs"]
    checks = words[-1] if words else "default"
    return checks == "always" or (checks != "never" and bool(flags & 2))


def _would_run(evidence: Evidence, item: Expectation) -> dict[str, str]:
    """The compiled files that Python would take without looking at the source's text: path -> why. Source: PEP 552."""
    assert evidence.search is not None
    major, minor, _ = evidence.search.python.version
    end = f"{_optimization(evidence.launch)}.pyc"
    entry = evidence.view.lstat(item.path)
    found: dict[str, str] = {}
    for place in (f"{stem}.cpython-{major}{minor}{t}{end}" for stem in _stems(evidence, item) for t in ("", "t")):
        path = evidence.view.real(place)
        head = (evidence.view.read(path) or b"")[:16]
        if len(head) < 16 or entry is None:
            continue
        flags = int.from_bytes(head[4:8], "little")
        stamp = (entry.mtime & 0xFFFFFFFF).to_bytes(4, "little") + (entry.size & 0xFFFFFFFF).to_bytes(4, "little")
        if flags & 1 and not _checked(evidence.launch, flags):
            found[path] = "it is never checked against its source"
        elif not flags & 1 and head[8:16] == stamp:
            found[path] = "time and size of the source fit"
    return found


def _bytecode_by_reading(evidence: Evidence, item: Expectation, suspects: Mapping[str, str]) -> FileProof:
    """Without the image's interpreter: this one's compiler decides where it speaks the same bytecode."""
    source = evidence.view.read(item.path) or b""
    for path, why in suspects.items():
        data = evidence.view.read(path) or b""
        same = _same_code(data, source, item.path) if data[:4] == importlib.util.MAGIC_NUMBER else None
        if same is None:
            detail = f"{path} would run instead ({why}); only the image's Python can tell whether it is of this source"
            return FileProof(item.relative, "not run", evidence.cause_not, f"{detail}; {evidence.why_not}")
        if not same:
            return FileProof(item.relative, "failed", "stale bytecode", f"{path} would run instead: {why}")
    return FileProof(item.relative, "passed")


def _same_code(data: bytes, source: bytes, path: str) -> bool | None:
    """Whether the bytecode is that of the source; None where its optimization is not this process's."""
    if ".opt-" in path:
        return None
    try:
        code = compile(source, path, "exec", dont_inherit=True, optimize=0)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    # The bytes of our own compiler's output are compared; what the image holds is not loaded into this process.
    return marshal.dumps(code)[1:] == data[17:] or None


def imports_level(evidence: Evidence) -> list[FileProof]:
    """Each module is imported in a fresh process under the launch, and in a spawned child, and is this very file."""
    proofs: list[FileProof] = []
    for item in evidence.sources:
        if item.module and item not in evidence.importable:
            proofs.append(FileProof(item.module, "passed", detail=f"{item.module} is a program: not imported"))
    for item in evidence.importable:
        proofs.append(_imported(evidence, item, "imports", item.module))
        proofs.append(_imported(evidence, item, "spawned", f"{item.module} (spawned child)"))
    return proofs


def _imported(evidence: Evidence, item: Expectation, part: str, name: str) -> FileProof:
    if evidence.answer is None:
        return evidence.untold(name)
    table = evidence.answer.table(part)
    if "not_started" in table:
        return FileProof(name, "not run", "not started", f"the process could not be started: {table['not_started']}")
    if "ended" in table:
        return _ended(name, table["ended"])
    told = evidence.told(part, item.module)
    if told is None:
        return evidence.untold(name)
    if "error" in told:
        verdict = judge(told["error"], grounds_of(evidence))
        return FileProof(name, verdict.state, verdict.cause, verdict.detail)
    if told.get("real") != item.path:
        detail = f"import {item.module} gave {told.get('file')}, not {item.path}"
        return FileProof(name, "failed", "another file", detail)
    if told.get("sha256") != item.sha256:
        return FileProof(name, "failed", "other bytes", f"{item.path} held other bytes when it was imported")
    return FileProof(name, "passed")


def _ended(name: str, how: object) -> FileProof:
    if how == "timeout":
        return FileProof(name, "failed", "timeout", "it did not end within its time")
    if isinstance(how, int) and how < 0:
        return FileProof(name, "failed", f"signal {-how}", f"the process was killed by signal {-how}")
    return FileProof(name, "failed", "no answer", f"the process ended without an answer, with status {how}")


def held_back(check: Assert, evidence: Evidence, hardware: bool) -> FileProof | None:
    """The state of an assert that is not run at all because what it needs is not there; None where it is run."""
    name = f"{check.module}: {_first_line(check.code)}"
    if "gpu" in check.needs and not hardware:
        return FileProof(name, "not run", "gpu", "it needs a GPU: pass one through with --gpus or --device")
    lacks_torch = evidence.search is not None and find_module(evidence.view, evidence.search, "torch") is None
    if "torch" in check.needs and lacks_torch:
        return FileProof(name, "blocked", "torch", "it needs torch, which the image does not hold")
    return None


def asserts_level(evidence: Evidence, hardware: bool) -> list[FileProof]:
    """What the patches carry to show at run time, each in a process of its own after the module's import."""
    proofs: list[FileProof] = []
    index = 0
    for check in evidence.asserts:
        held = held_back(check, evidence, hardware)
        if held is not None:
            proofs.append(held)
            continue
        name = f"{check.module}: {_first_line(check.code)}"
        proofs.append(_asserted(evidence, name, index))
        index += 1
    return proofs


def _asserted(evidence: Evidence, name: str, index: int) -> FileProof:
    if evidence.answer is None or f"assert {index}" not in evidence.answer.parts:
        return evidence.untold(name)
    told: dict[str, Any] = evidence.answer.table(f"assert {index}")
    if "not_started" in told:
        return FileProof(name, "not run", "not started", f"the process could not be started: {told['not_started']}")
    if "ended" in told:
        return _ended(name, told["ended"])
    if "error" in told:
        verdict = judge(told["error"], grounds_of(evidence))
        return FileProof(name, verdict.state, verdict.cause, verdict.detail, *_said(told))
    if set(told) != {"output", "versions"}:
        return FileProof(name, "failed", "no answer", "the assert's process said something else than it should")
    return FileProof(name, "passed", "", "", *_said(told))


def _said(told: Mapping[str, Any]) -> tuple[str, tuple[tuple[str, str], ...]]:
    """What an assert printed, and what it ran on."""
    on = told.get("versions")
    pairs = on.items() if isinstance(on, Mapping) else ()
    return str(told.get("output", "")), tuple(sorted((str(name), str(value)) for name, value in pairs))


def _first_line(code: str) -> str:
    lines = [line.strip() for line in code.splitlines() if line.strip()]
    return lines[-1][:80] if lines else ""


def grounds_of(evidence: Evidence) -> Grounds:
    """What failures inside are judged by."""
    changed = {item.path: item.changed for item in evidence.expectations if item.sha256 != ABSENT}

    def is_there(name: str) -> bool:
        return evidence.search is not None and find_module(evidence.view, evidence.search, name) is not None

    def is_changed(file: str, line: int) -> bool:
        real = evidence.view.real(file) if file.startswith("/") else file
        lines = changed.get(real)
        return bool(lines) and touches(evidence.view.read(real) or b"", line, lines or frozenset())

    return Grounds(evidence.package, is_there, is_changed)
