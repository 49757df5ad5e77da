"""Whether an image's name stands for something new, and what there is to do then."""

from __future__ import annotations

from patchkit.catalog.condition import mentions
from patchkit.errors import BadInput
from patchkit.findings import Finding
from patchkit.images import paths
from patchkit.images.model import Image, Reference
from patchkit.plan import DELIVERABLE, Plan


def in_registry(reference: Reference) -> Reference:
    """Where the registry keeps what an engine calls ``reference``.

    Raises:
        patchkit.errors.BadInput: ``no-registry``: an image in a folder or archive has no registry.
    """
    if reference.transport == "docker":
        return reference
    if reference.transport == "docker-daemon" and not reference.name.startswith("sha256:"):
        return Reference("docker", f"//{reference.name.partition('@')[0]}")
    raise BadInput(
        "no-registry",
        "this image has no name in a registry",
        where=str(reference),
        remedy="name it: --image docker://NAME:TAG",
    )


def to_do(plan: Plan, image: Image, name: str) -> list[Finding]:
    """What a person should do with the new image, the commands with it."""
    found = []
    for patch in dict.fromkeys(row.patch for row in plan.rows):
        rows = [row for row in plan.rows if row.patch == patch]
        bad = [row for row in rows if row.state not in DELIVERABLE]
        if bad:
            told = "; ".join(f"{row.path}: {row.told_state}: {row.detail}" for row in bad)
            found.append(
                Finding(
                    "patch-does-not-fit",
                    "error",
                    f"patch {patch} does not fit",
                    name,
                    told,
                    f"patchkit rebase --image {name}",
                )
            )
        elif all(row.state == "upstream" for row in rows):
            found.append(
                Finding(
                    "patch-upstream",
                    "warning",
                    f"patch {patch} is in the image as shipped",
                    name,
                    "",
                    f"patchkit retire {patch}",
                )
            )
    found += [each for each in plan.findings if each.id == "no-longer-needed"]
    found += _hints(plan, image, name)
    if not any(each.severity == "error" for each in found):
        found.append(
            Finding(
                "new-image",
                "warning",
                "the name stands for a new image",
                name,
                "",
                f"docker pull it, then: patchkit apply --image {name}",
            )
        )
    return found


def _hints(plan: Plan, image: Image, name: str) -> list[Finding]:
    found = []
    for hint in plan.match.manifest.hints:
        data = paths.read(image.fs, plan.copy.place_of(plan.match.manifest.package, hint.path))
        if data is not None and mentions(data, hint.mentions):
            found.append(Finding("hint", "warning", hint.say, name, f"{hint.path} has {hint.mentions!r}"))
    return found
