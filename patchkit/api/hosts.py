"""Many engines at once: the same proof on each, and whether they all run the same patched code."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from patchkit.api.containers import connect, verify_container
from patchkit.api.look import Options
from patchkit.api.prove import Verified, verify_image
from patchkit.errors import BadInput, PatchkitError
from patchkit.findings import Finding
from patchkit.images import parse_reference
from patchkit.images.daemon import DaemonImage


@dataclass(frozen=True, slots=True)
class HostAnswer:
    """What one engine answered: a proof, or why there is none."""

    host: str
    done: Verified | None
    error: PatchkitError | None = None


def verify_hosts(
    hosts: Sequence[str], *, image: str | None = None, container: str | None = None, options: Options = Options()
) -> tuple[HostAnswer, ...]:
    """The same proof on many engines at once, in the order of ``hosts``: of a container, or of an image's own receipt.
    A host is an address as ``DOCKER_HOST`` spells it, or the name of a docker context."""

    def one(host: str) -> HostAnswer:
        try:
            if container is not None:
                return HostAnswer(host, verify_container(container, options, host=host))
            if image is None:
                raise BadInput("no-image", "verify needs an image or a container", remedy="give --image or --container")
            with DaemonImage(connect(host), parse_reference(image), no_run=not options.run) as found:
                return HostAnswer(host, verify_image(found, options))
        except PatchkitError as error:
            return HostAnswer(host, None, error)

    with ThreadPoolExecutor(max(1, min(len(hosts), 16))) as pool:
        return tuple(pool.map(one, hosts))


def differences(answers: Sequence[HostAnswer]) -> list[Finding]:
    """An error where the engines do not all run the same patched code."""
    prints = {answer.host: answer.done.receipt.fingerprint for answer in answers if answer.done}
    if len(set(prints.values())) < 2:
        return []
    evidence = ", ".join(f"{host}: {fingerprint[:16]}" for host, fingerprint in prints.items())
    remedy = "patch them from one catalog: patchkit apply on each"
    return [Finding("nodes-differ", "error", "not all hosts run the same patched code", "", evidence, remedy)]
