"""Ask an image's own interpreter: one start in the sandbox gives all that is asked.

What comes back is a claim of a program that may be anything. An answer counts only when it carries a proof that the
question's nonce went through it, which a program that prints something prepared cannot make; and no verdict rests on a
claim where the image's files can be read instead.
"""

from __future__ import annotations

import functools
import hashlib
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from patchkit.images.model import Mount, Run, Runnable, RunResult
from patchkit.site.launch import require_known
from patchkit.site.model import Launch
from patchkit.site.program import program_text

_MARK = b"patchkit-answer "
_GRACE = 5.0  # seconds beyond the question's own limit, for start-up and for what needs no limit
_OUTPUT = 16 * 1024 * 1024  # bytes; a true answer to a long question is a few hundred thousand
_PIECE = 100_000  # bytes of one argument; Linux allows 128 KiB: execve(2), MAX_ARG_STRLEN


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked. ``modules`` are resolved without importing, ``files`` (absolute) are hashed, ``sources`` are
    compiled and their bytecode judged, ``imports`` are imported in a fresh process and in a spawned one, ``asserts``
    (module, before, code) run each in a process of its own. ``timeout`` in seconds is for imports and asserts
    together."""

    modules: Sequence[str] = ()
    files: Sequence[str] = ()
    sources: Sequence[str] = ()
    imports: Sequence[str] = ()
    asserts: Sequence[Mapping[str, str]] = ()
    timeout: float = 300.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: the parts that carry a proof, and how the run ended."""

    parts: Mapping[str, Any] = field(default_factory=dict)
    result: RunResult | None = None

    @property
    def spoke(self) -> bool:
        """Whether a Python answered at all."""
        return "search_path" in self.parts

    def table(self, name: str) -> dict[str, Any]:
        """A part that is a mapping; an empty one where it is missing or of another shape."""
        part = self.parts.get(name)
        return dict(part) if isinstance(part, Mapping) else {}

    @property
    def gpus(self) -> tuple[tuple[str, str], ...] | None:
        """What ``patchkit.site.gpus.amd_gpus`` gave inside, None where it was not told."""
        try:
            return tuple((str(device), str(name)) for device, name in self.parts.get("gpus"))  # type: ignore[union-attr]
        except (TypeError, ValueError):
            return None

    @property
    def how_it_ended(self) -> str:
        """A sentence about a run that did not answer (all) that was asked."""
        if self.result is None:
            return "nothing was run"
        if self.result.ended == "timeout":
            return "it did not end within its time and was stopped"
        if self.result.ended == "output-limit":
            return "its output ran over the limit and it was stopped"
        noise = self.result.stderr.decode("utf-8", "replace").strip().splitlines()
        last = f": {noise[-1][:200]}" if noise else ""
        return f"it ended with status {self.result.status}{last}"


def ask(
    target: Runnable,
    launch: Launch,
    question: Question,
    *,
    user: str | None = None,
    read_all: bool = False,
    mounts: Sequence[Mount] = (),
    devices: Sequence[str] = (),
    gpus: str | None = None,
) -> Answer:
    """Start the launch's interpreter once, with its environment, options and working folder, and ask.

    Raises:
        patchkit.errors.Refused: ``launch-unknown``.
        patchkit.errors.Unreachable: it cannot be started.
    """
    nonce = secrets.token_hex(16)
    run = Run(
        argv=argv_of(launch, question, nonce),
        env={**launch.env, "PYTHONDONTWRITEBYTECODE": "1"},
        cwd=launch.cwd,
        user=user,
        mounts=tuple(mounts),
        read_all=read_all,
        # The interpreter ends what it started; the sandbox ends the interpreter.
        timeout=question.timeout + _GRACE,
        output_limit=_OUTPUT,
        devices=tuple(devices),
        gpus=gpus,
    )
    result = target.run(run)
    return Answer(read_answers(result.stdout, nonce), result)


def argv_of(launch: Launch, question: Question, nonce: str) -> tuple[str, ...]:
    """The command line that asks."""
    require_known(launch)
    flags = (*launch.flags, "-B")  # a question leaves no bytecode behind; -E and -I ignore the environment's word
    asked = {
        "nonce": nonce,
        "form": launch.form,
        "argument": launch.argument,
        "interpreter": launch.interpreter,
        "flags": list(flags),
        "modules": list(question.modules),
        "files": list(question.files),
        "sources": list(question.sources),
        "imports": list(question.imports),
        "asserts": [dict(item) for item in question.asserts],
        "timeout": question.timeout,
        "child": _text("_probe_child") if question.imports or question.asserts else "",
    }
    text = json.dumps(asked, sort_keys=True)
    pieces = [text[at : at + _PIECE] for at in range(0, len(text), _PIECE)]
    return (launch.interpreter, *flags, "-c", _text("_probe_script"), *pieces)


def read_answers(stdout: bytes, nonce: str) -> dict[str, Any]:
    """The answers in what a run wrote, merged. Lines without the right proof are nobody's."""
    parts: dict[str, Any] = {}
    for line in stdout.split(b"\n"):
        if not line.startswith(_MARK):
            continue
        proof, _, text = line[len(_MARK) :].partition(b" ")
        if hashlib.sha256(nonce.encode() + text).hexdigest().encode() != proof:
            continue
        try:
            part = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if isinstance(part, dict):
            parts.update(part)
    return parts


@functools.cache
def _text(name: str) -> str:
    """The script without its comment lines, which need not travel."""
    text = program_text("patchkit.site", name)
    return "".join(line for line in text.splitlines(keepends=True) if not line.lstrip().startswith("#"))
