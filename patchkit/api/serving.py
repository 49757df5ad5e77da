"""From a recipe to a served, proven model, step by step; each step is one that a person could have typed."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from patchkit.api.containers import connect, verify_container
from patchkit.api.deliver import Delivery, Step, silent
from patchkit.api.look import Options
from patchkit.api.stacks import compose
from patchkit.catalog.load import load_catalog
from patchkit.deliver.output import OVERLAY_NAME, write_file
from patchkit.errors import Refused, Unreachable
from patchkit.findings import Finding, counted
from patchkit.proof.gpus import gpu_findings
from patchkit.proof.verdict import refuse_errors, verdict
from patchkit.site.gpus import amd_gpus
from patchkit.stack import compose_model, log
from patchkit.stack.compose_model import Service, compose_command
from patchkit.stack.lint import run as linting
from patchkit.stack.lint.composefile import starts_in_files
from patchkit.stack.lint.image import options_of
from patchkit.stack.openai import Server
from patchkit.stack.recipes.load import general_rules
from patchkit.stack.recipes.render import Choice, arguments_of, compose_text
from patchkit.stack.smoke import Check, Settings, smoke

_POLL = 1.0  # seconds between two looks at a starting server
_RENDER_NODE = Path("/dev/dri/renderD128")


@dataclass(slots=True)
class Serving:
    """What was brought up so far."""

    files: tuple[Path, ...]
    url: str = ""
    container: str = ""
    checks: list[Check] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Going:
    """How to bring up.

    ``file`` is the compose file to write, or to use where it is there; ``timeout`` is how many seconds the server may
    take to be healthy; ``tools`` looks at every kind of tool calling. ``said`` is told each step's command before it
    is done, ``step`` what happens inside one, ``found`` each finding.
    """

    file: Path
    timeout: float = 3600.0
    tools: bool = False
    said: Callable[[str], None] = lambda command: None
    step: Step = silent
    found: Callable[[Finding], None] = lambda finding: None
    checked: Callable[[Check], None] = lambda check: None


def up(choice: Choice, options: Options, delivery: Delivery, going: Going) -> Serving:
    """Recipe, patches, lint, compose up, health, proof, smoke; it stops at the first that fails.

    Raises:
        patchkit.errors.Refused: ``gpu-refused``, ``environment-refused``, ``lint-found``, ``not-proven``,
            ``compose-failed``, ``server-ended``, ``server-silent``, ``smoke-failed``, and what the steps themselves
            refuse.
        patchkit.errors.Unreachable: ``no-compose``, or the engine is out of reach.
    """
    overlay = delivery.output.absolute() / OVERLAY_NAME
    serving = Serving((going.file,))
    _write_stack(choice, going, serving)
    if choice.hardware.patches:
        _refuse_gpus(choice, options, serving)
        _patch(choice, options, delivery, going)
        serving.files = (going.file, overlay)
    _lint(choice, options, going, serving)
    service = _start(serving, going)
    serving.url = url_of(service)
    _wait(choice, options, serving, service, going)
    if choice.hardware.patches:
        _verify(serving, options, delivery, going)
    _smoke(choice, serving, going)
    return serving


def down(files: Sequence[Path]) -> str:
    """Stop and remove what was brought up; volumes stay. Returns Compose's words.

    Raises:
        patchkit.errors.Refused: ``compose-failed``.
    """
    return _compose(files, "down")


def url_of(service: Service) -> str:
    """Where the service's first port is published on this machine."""
    for port in service.raw.get("ports") or ():
        if port.get("published"):
            host = str(port.get("host_ip") or "127.0.0.1")
            return f"http://{'127.0.0.1' if host in ('0.0.0.0', '::') else host}:{port['published']}"  # noqa: S104
    raise Refused("no-port", f"service {service.name} publishes no port", remedy='ports: ["127.0.0.1:8000:8000"]')


def _write_stack(choice: Choice, going: Going, serving: Serving) -> None:
    text = compose_text(choice)
    command = f"patchkit recipe {choice.recipe.name} {arguments_of(choice)} --format compose > {going.file}"
    if going.file.exists():
        if going.file.read_text("utf-8") != text:
            said = "it is not what the recipe writes, and is used as it is"
            _tell(serving, going, Finding("own-stack", "note", said, str(going.file), remedy=command))
        return
    going.said(command)
    write_file(going.file, text.encode())


def _refuse_gpus(choice: Choice, options: Options, serving: Serving) -> None:
    """Raise ``gpu-refused`` where the stack passes a GPU of this machine through that the series is not for."""
    name = options.manifest or choice.hardware.patches
    wanted = next((each.gpus for each in load_catalog(options.catalog).manifests if each.name == name), None)
    if wanted is None or connect(None).is_remote:
        return
    service = compose_model.read(serving.files).services[0]
    devices = (
        ["/"]
        if service.raw.get("privileged")
        else [str(each.get("source")) for each in service.raw.get("devices") or ()]
    )
    passed = [gpu for gpu in amd_gpus() if any(compose_model.covers(device, gpu[0]) for device in devices)]
    refuse_errors(gpu_findings(wanted, passed, f"service {service.name}"))


def _patch(choice: Choice, options: Options, delivery: Delivery, going: Going) -> None:
    words = ["patchkit", "compose", "--image", choice.image_name, "--manifest", choice.hardware.patches]
    words += ["--mode", delivery.mode, "-f", str(going.file), *(["--tag", delivery.tag] if delivery.tag else [])]
    going.said(shlex.join(words))
    chosen = replace(options, manifest=options.manifest or choice.hardware.patches)
    try:
        done = compose(choice.image_name, chosen, delivery, files=[going.file], step=going.step)
    except Unreachable as error:
        if error.code == "no-such-image":
            error.remedy = f"{error.remedy}; or serve from another image: --image REF"
        raise
    for finding in done.findings:
        going.found(finding)
    if any(verdict(one.proof.levels) for one in done.applied.platforms):
        raise Refused(
            "not-proven",
            "the delivery was not proven",
            where=str(done.applied.delivered),
            remedy=f"patchkit verify --receipt {done.applied.receipt_path}",
        )


def _lint(choice: Choice, options: Options, going: Going, serving: Serving) -> None:
    words = ["patchkit", "lint", str(going.file), "--accelerator", choice.hardware.platform]
    command = shlex.join([*words, "--image", choice.image_name])
    going.said(command)
    known, notes = options_of(choice.image_name, launch=options.launch, run=options.run)
    decoys = tuple(decoy for each in load_catalog(options.catalog).manifests for decoy in each.decoys)
    knowledge = linting.Knowledge(
        (choice.recipe,), general_rules(options.catalog), choice.hardware.platform, known, decoys
    )
    issues = [issue for start in starts_in_files([going.file]) for issue in linting.issues_of(start, knowledge)]
    found = [*notes, *linting.findings(issues)]
    for finding in found:
        _tell(serving, going, finding)
    errors = [finding for finding in found if finding.severity == "error"]
    if errors:
        raise Refused(
            "lint-found",
            f"{counted(len(errors), 'error')} in the way the server is started",
            where=str(going.file),
            remedy=command,
            details=[f"{finding.where}: {finding.what}" for finding in errors],
        )


def _start(serving: Serving, going: Going) -> Service:
    if "RENDER_GID" not in os.environ and _RENDER_NODE.exists():
        os.environ["RENDER_GID"] = str(_RENDER_NODE.stat().st_gid)
    going.said(shlex.join(["docker", "compose", *_files(serving.files), "up", "-d"]))
    _compose(serving.files, "up", "-d")
    service = compose_model.read(serving.files).services[0]
    serving.container = _compose(serving.files, "ps", "-aq", service.name).split()[0]
    return service


def _wait(choice: Choice, options: Options, serving: Serving, service: Service, going: Going) -> None:
    """Wait until ``/health`` answers 200, reading the log meanwhile; a server that ends is not waited for."""
    going.said(f"curl {serving.url}/health  # until it answers 200, at most {going.timeout:.0f} s")
    known = general_rules(options.catalog).log
    server = Server(serving.url, timeout=5)
    where = f"service {service.name}"
    told: set[str] = set()
    end = time.monotonic() + going.timeout
    while True:
        text = _compose(serving.files, "logs", "--no-log-prefix", "--no-color", service.name)
        for finding in log.known_lines(text, known, where):
            if finding.id not in told:
                told.add(finding.id)
                _tell(serving, going, finding)
        if _healthy(server):
            break
        state = _compose(serving.files, "ps", "-a", "--format", "{{.State}}", service.name).strip()
        if state not in ("running", "created"):
            raise _gone("server-ended", f"the server ended while it started ({state})", where, serving, text)
        if time.monotonic() > end:
            raise _gone("server-silent", f"not healthy after {going.timeout:.0f} s", where, serving, text)
        time.sleep(_POLL)
    seen = log.capacity(text)
    if seen is not None:
        _tell(serving, going, log.against_plan(seen, choice.recipe.model, choice.hardware, where))


def _healthy(server: Server) -> bool:
    try:
        return server.get("/health")[0] == 200
    except Unreachable:
        return False


def _gone(code: str, what: str, where: str, serving: Serving, text: str) -> Refused:
    causes = [finding for finding in serving.findings if finding.id.startswith("log-")]
    logs = shlex.join(["docker", "compose", *_files(serving.files), "logs"])
    return Refused(
        code,
        f"{what}: {causes[-1].what}" if causes else what,
        where=where,
        remedy=causes[-1].remedy if causes else logs,
        details=[line for line in text.splitlines() if line.strip()][-8:],
    )


def _verify(serving: Serving, options: Options, delivery: Delivery, going: Going) -> None:
    command = f"patchkit verify --container {serving.container[:12]}"
    going.said(command)
    done = verify_container(serving.container, options, output_folder=delivery.output)
    for finding in done.findings:
        _tell(serving, going, finding)
    errors = [finding.what for finding in done.findings if finding.severity == "error"]
    if verdict(done.proof.levels) or errors:
        failed = [f"{level.name}: {level.state}" for level in done.proof.levels if level.state != "passed"]
        raise Refused(
            "not-proven",
            "what runs in the container is not proven to be the patched code",
            where=serving.container[:12],
            remedy=command,
            details=[*failed, *errors],
        )


def _smoke(choice: Choice, serving: Serving, going: Going) -> None:
    served = next((each.split()[1] for each in choice.recipe.server if each.startswith("--served-model-name ")), "")
    settings = Settings(served, reasoning="reasoning" in choice.features)
    words = ["patchkit", "smoke", "--url", serving.url, *(["--model", served] if served else [])]
    words += ["--reasoning"] * settings.reasoning + ["--tools"] * going.tools
    going.said(shlex.join(words))
    for check in smoke(Server(serving.url), settings, tools=going.tools):
        serving.checks.append(check)
        going.checked(check)
    failed = [check for check in serving.checks if check.outcome == "failed"]
    if failed:
        raise Refused(
            "smoke-failed",
            f"{len(failed)} of {len(serving.checks)} checks failed; the server is up",
            where=serving.url,
            remedy=failed[0].means or shlex.join(words),
            details=[f"{check.id}: {check.what}" for check in failed],
        )


def _tell(serving: Serving, going: Going, finding: Finding) -> None:
    serving.findings.append(finding)
    going.found(finding)


def _files(files: Sequence[Path]) -> Iterator[str]:
    for file in files:
        yield from ("-f", str(file))


def _device_remedy(said: str) -> str:
    """What helps where the engine lacks the accelerator that the stack asks for; empty where that is not it."""
    other = "or serve on other hardware: --hardware NAME (patchkit recipe --list)"
    missing = re.search(r'device information while adding custom device "([^"]+)"', said)
    if missing:
        return f"this machine has no {missing[1]}: install the accelerator's driver until ls shows it, {other}"
    if "could not select device driver" in said:
        return f"the engine passes no GPU through: install nvidia-container-toolkit and restart the engine, {other}"
    return ""


def _compose(files: Sequence[Path], *words: str) -> str:
    command: list[Any] = [*compose_command(), *_files(files), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = [line for line in done.stderr.strip().splitlines() if line.strip()] or ["no message"]
        raise Refused(
            "compose-failed",
            f"docker compose {words[0]}: {lines[-1].strip()}",
            where=", ".join(map(str, files)),
            remedy=_device_remedy(done.stderr) or shlex.join(["docker", "compose", *_files(files), *words]),
            details=lines[-6:-1],
        )
    return done.stdout + (done.stderr if words[0] == "down" else "")
