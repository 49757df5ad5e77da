"""Prove a delivery: one look at the files from outside, one run inside.

What can be read from outside is read there, because a program of the image may say anything. What only the image's own
interpreter can tell is asked of it in one start; where both ways tell of the same thing they must agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from patchkit.catalog.model import Assert
from patchkit.errors import Refused, Unreachable
from patchkit.images.model import Mount, Runnable
from patchkit.proof import inside, outside
from patchkit.proof.evidence import Evidence
from patchkit.proof.model import Expectation, FileProof, Level, LevelName, LevelState, Proof
from patchkit.proof.mounted import MountedFiles
from patchkit.site.entry import doubts
from patchkit.site.facts import compare
from patchkit.site.launch import require_known
from patchkit.site.model import Disagreement, Launch
from patchkit.site.probe import Question, ask
from patchkit.site.static import Search, search_of
from patchkit.site.view import View

_NOT_STARTED = ("permission denied", "no such file", "not found", "not a directory")
_WORST: tuple[LevelState, ...] = ("failed", "blocked", "not run", "passed")


def prove(
    target: Runnable,
    launch: Launch,
    package: str,
    expectations: Sequence[Expectation],
    asserts: Sequence[Assert] = (),
    *,
    mounts: Sequence[Mount] = (),
    run: bool = True,
    devices: Sequence[str] = (),
    gpus: str | None = None,
    timeout: float = 300.0,
) -> Proof:
    """All six levels for files that were delivered.

    Args:
        target: the derived image, or the base image with ``mounts``, or a running container.
        mounts: what the bind delivery shows at which path; used for reading and for the run alike.
        run: False executes nothing: the levels that need it are ``not run``.
        devices, gpus: hardware passed through, as docker's ``--device`` and ``--gpus`` spell it.
        timeout: seconds after which the run inside is stopped.

    A level that cannot be shown is never left out: it says why. Nothing an image does makes this raise.

    Raises:
        patchkit.errors.Unreachable: the target itself cannot be read or run any more.
    """
    view = View(MountedFiles(target.fs, mounts))
    search, why = _search(view, launch)
    evidence = Evidence(view, launch, package, tuple(expectations), tuple(asserts), search, None, why)
    if search is not None:
        evidence = replace(evidence, doubts=tuple(doubts(view, search, launch, package)))
        runnable = [check for check in asserts if not inside.held_back(check, evidence, bool(devices or gpus))]
        evidence = _asked(target, launch, evidence, runnable, mounts, run, devices, gpus, timeout)
    checks: tuple[tuple[LevelName, list[FileProof]], ...] = (
        ("bytes", outside.bytes_level(evidence)),
        ("resolves", outside.resolves_level(evidence)),
        ("compiles", inside.compiles_level(evidence)),
        ("bytecode", inside.bytecode_level(evidence)),
        ("imports", inside.imports_level(evidence)),
        ("asserts", inside.asserts_level(evidence, bool(devices or gpus))),
    )
    levels = tuple(_level(name, proofs, evidence) for name, proofs in checks)
    return Proof(levels, _differences(evidence), evidence.answer.gpus if evidence.answer else None)


def _search(view: View, launch: Launch) -> tuple[Search | None, str]:
    try:
        return search_of(view, require_known(launch)), ""
    except Refused as error:
        return None, f"{error.what} ({error.where})"


def _asked(
    target: Runnable,
    launch: Launch,
    evidence: Evidence,
    asserts: Sequence[Assert],
    mounts: Sequence[Mount],
    run: bool,
    devices: Sequence[str],
    gpus: str | None,
    timeout: float,
) -> Evidence:
    """The evidence with what the interpreter answers; or why it was not asked."""
    if not run:
        return evidence.without("not allowed", "running programs of the image was not allowed")
    if not target.can_run:
        return evidence.without("no engine", "nothing here can run this image")
    question = Question(
        modules=list(dict.fromkeys([evidence.package, *(item.module for item in evidence.modules)])),
        files=[item.path for item in evidence.expectations],
        sources=[item.path for item in evidence.sources],
        imports=[item.module for item in evidence.importable],
        asserts=[{"module": check.module, "before": check.before, "code": check.code} for check in asserts],
        timeout=timeout,
    )
    try:
        answer = ask(target, launch, question, user=launch.user or None, mounts=mounts, devices=devices, gpus=gpus)
    except Unreachable as error:
        if error.code != "cannot-run":
            raise
        # Another architecture's program says nothing about the delivery; one that the user may not start does.
        text = error.what.lower()
        foreign = "exec format error" in text
        if not foreign and not any(words in text for words in _NOT_STARTED):
            raise
        why = f"{launch.interpreter} cannot be started as {_who(launch)}: {error.what}"
        return evidence.without("cannot start", why, refused=not foreign)
    return evidence.answered(answer)


def _who(launch: Launch) -> str:
    return f"user {launch.user}" if launch.user else "the image's user"


def _level(name: LevelName, proofs: list[FileProof], evidence: Evidence) -> Level:
    """One level over its files: as bad as the worst of them."""
    if not evidence.expectations:
        return Level(name, "not run", "nothing expected", "there is no file to prove anything about")
    if not proofs:
        return Level(name, "passed", detail=_EMPTY[name])
    # Whoever passes no card through asks for what can be shown without one; the rest is told, not held against it.
    apart = [proof for proof in proofs if (proof.state, proof.cause) == ("not run", "gpu")]
    counted = [proof for proof in proofs if proof not in apart] or proofs
    state = min((proof.state for proof in counted), key=_WORST.index)
    worst = [proof for proof in counted if proof.state == state]
    if state == "passed":
        details = dict.fromkeys(proof.detail for proof in counted if proof.detail)
        if apart:
            details[f"{len(apart)} more need a GPU: --gpus or --device"] = None
        return Level(name, state, detail="; ".join([_counted(len(counted)), *details]), files=tuple(proofs))
    causes = dict.fromkeys(proof.cause for proof in worst if proof.cause)
    first = f"{worst[0].name}: {worst[0].detail}" if worst[0].detail else worst[0].name
    more = f" (and {len(worst) - 1} more)" if len(worst) > 1 else ""
    return Level(name, state, ", ".join(causes), first + more, tuple(proofs))


_EMPTY: dict[LevelName, str] = {
    "bytes": "",
    "resolves": "",
    "compiles": "no Python file is patched",
    "bytecode": "no Python file is patched",
    "imports": "no module is patched",
    "asserts": "the patches carry none",
}


def _counted(count: int) -> str:
    return f"{count} checked"


def _differences(evidence: Evidence) -> tuple[Disagreement, ...]:
    answer = evidence.answer
    if answer is None or evidence.search is None:
        return ()
    names = list(dict.fromkeys([evidence.package, *(item.module for item in evidence.modules)]))
    return tuple(compare(evidence.view, evidence.search, answer, names))
