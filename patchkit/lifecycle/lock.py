"""``patchkit.lock``: every image that was looked at, and exactly what was chosen and made there.

A line an image, JSON with sorted keys, the lines sorted. Two branches that add images merge line by line; with git's
``merge=union`` they do so by themselves, and what that leaves (lines twice or out of order) is read as it is meant.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from patchkit.catalog.model import Catalog
from patchkit.errors import BadInput, Refused
from patchkit.findings import Finding
from patchkit.plan import Plan

NAME = "patchkit.lock"
_FIRST = '{"patchkit-lock": 1}'
_MARKER = re.compile(r"(<{7}|\|{7}|={7}|>{7})( |$)")


@dataclass(frozen=True, slots=True)
class LockedPatch:
    """A patch's chosen variant on one image: its diff's hash (hex), and its state there, the worst of its files'. One
    that is not for the image has no file."""

    id: str
    file: str
    sha256: str
    state: str
    droppable: bool = False


@dataclass(frozen=True, slots=True)
class LockedFile:
    """A file before and after the series, as ``sha256:<hex>`` or ``absent``."""

    pre: str
    post: str


@dataclass(frozen=True, slots=True)
class Locked:
    """One image. ``image`` is its config digest, ``digests`` its other names; no tag, since tags move."""

    image: str
    manifest: str
    platform: str
    package: str
    version: str
    digests: tuple[str, ...]
    patches: tuple[LockedPatch, ...]
    files: Mapping[str, LockedFile] = field(default_factory=dict)
    fingerprint: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """What there is one line of."""
        return (self.image, self.manifest)


def locked(plan: Plan) -> Locked:
    """What a plan says of its image, as the lock keeps it."""
    rank = ("applies", "offset", "applied", "upstream")
    droppable = {finding.where for finding in plan.findings if finding.id == "no-longer-needed"}
    patches = []
    for patch in plan.patches:
        states = [row.state for row in plan.rows if row.patch == patch.entry.id]
        # One file that still needs its change makes the patch needed.
        worst = min(states, key=lambda state: rank.index(state) if state in rank else -1)
        patches.append(LockedPatch(patch.entry.id, patch.entry.file, patch.sha256, worst, patch.entry.id in droppable))
    chosen = {patch.id for patch in patches}
    others = dict.fromkeys(row.patch for row in plan.rows if row.patch not in chosen)
    patches += [LockedPatch(name, "", "", "not-applicable") for name in others]
    return Locked(
        image=plan.identity.config,
        manifest=plan.match.manifest.name,
        platform=plan.identity.platform,
        package=plan.match.manifest.package,
        version=plan.site.version,
        digests=tuple(digest for digest in plan.identity.digests if digest != plan.identity.config),
        patches=tuple(patches),
        files={file.path: LockedFile(file.pre, file.post) for file in plan.files},
        fingerprint=plan.fingerprint,
    )


def dumps(lines: Iterable[Locked]) -> str:
    """The lock's text: the same images give the same bytes."""
    each = sorted(json.dumps(asdict(line), sort_keys=True, ensure_ascii=False) for line in lines)
    return "\n".join([_FIRST, *each]) + "\n"


def loads(text: str, where: str = NAME) -> dict[tuple[str, str], Locked]:
    """The lock's lines. The markers of a git conflict are passed over: both sides count.

    Raises:
        patchkit.errors.BadInput: ``bad-lock``, or ``lock-contradicts`` itself: two lines say different things of one
            image.
    """
    found: dict[tuple[str, str], tuple[int, Locked]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line == _FIRST or _MARKER.match(line):
            continue
        one = _parsed(line, f"{where}:{number}:1")
        if one.key in found and found[one.key][1] != one:
            raise BadInput(
                "lock-contradicts",
                f"it says something else of the same image than line {found[one.key][0]}",
                where=f"{where}:{number}:1",
                remedy="remove both lines, then look again: patchkit lock --image X",
            )
        found[one.key] = (number, one)
    return {key: one for key, (_, one) in found.items()}


def _parsed(line: str, where: str) -> Locked:
    try:
        raw: dict[str, Any] = json.loads(line)
        return Locked(
            **{
                **raw,
                "digests": tuple(raw["digests"]),
                "patches": tuple(LockedPatch(**each) for each in raw["patches"]),
                "files": {path: LockedFile(**each) for path, each in raw["files"].items()},
            }
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadInput(
            "bad-lock",
            f"this is no line of a lock: {error}",
            where=where,
            remedy="take the line out; images are looked at again with: patchkit lock --image X",
        ) from error


def load(root: Path) -> dict[tuple[str, str], Locked]:
    """The lock beside a catalog's manifests; empty where there is none. Raises as ``loads``."""
    path = root / NAME
    return loads(path.read_text("utf-8"), str(path)) if path.is_file() else {}


def wanted(root: Path, asked: bool, environment: Mapping[str, str]) -> bool:
    """Whether a delivery must be one that the lock holds: where the person asked, and in CI where a lock lies beside
    the catalog."""
    return asked or (environment.get("CI") == "true" and (root / NAME).is_file())


def require(lines: Mapping[tuple[str, str], Locked], plan: Plan) -> None:
    """Raise unless the lock holds exactly this plan.

    Raises:
        patchkit.errors.Refused: ``not-locked``, the image is not in it; ``lock-differs``, with every difference.
    """
    now = locked(plan)
    known = lines.get(now.key)
    if known is None:
        raise Refused(
            "not-locked",
            f"the lock does not know this image under manifest {now.manifest}",
            where=str(plan.reference),
            remedy=f"look at it, then: patchkit lock --image {plan.reference}",
        )
    found = differences(known, now)
    if found:
        raise Refused(
            "lock-differs",
            "the lock holds other patches or results for this image",
            where=str(plan.reference),
            remedy=f"look at what changed, then: patchkit lock --image {plan.reference}",
            details=found,
        )


def differences(old: Locked, new: Locked) -> list[str]:
    """What is not the same, a line each. States and other names of the image are no difference: bytes are."""
    found = []
    before, after = {each.id: each for each in old.patches}, {each.id: each for each in new.patches}
    for name in dict.fromkeys([*before, *after]):
        one, other = before.get(name), after.get(name)
        if one is None or other is None:
            found.append(f"patch {name}: {'not in the lock' if one is None else 'only in the lock'}")
        elif (one.file, one.sha256) != (other.file, other.sha256):
            found.append(
                f"patch {name}: {one.file} {one.sha256[:12]} in the lock, {other.file} {other.sha256[:12]} now"
            )
    for path in sorted(old.files.keys() | new.files.keys()):
        locked_file, file = old.files.get(path), new.files.get(path)
        if locked_file != file:
            told = [f"{each.pre[:19]} -> {each.post[:19]}" if each else "nothing" for each in (locked_file, file)]
            found.append(f"{path}: {told[0]} in the lock, {told[1]} now")
    if old.version != new.version:
        found.append(f"{new.package}: {old.version} in the lock, {new.version} now")
    return found


def check(lines: Mapping[tuple[str, str], Locked], catalog: Catalog) -> list[Finding]:
    """What the lock holds that the catalog does not stand for any more, told without any image."""

    found = []
    manifests = {each.name: each for each in catalog.manifests}
    for line in sorted(lines.values(), key=lambda each: each.key):
        manifest = manifests.get(line.manifest)
        where = f"{line.image[:19]} ({line.package} {line.version})"
        if manifest is None:
            found.append(_stale(where, f"manifest {line.manifest} is not in the catalog"))
            continue
        entries = {(entry.id, entry.file): entry for entry in manifest.patches}
        for patch in [each for each in line.patches if each.file]:
            entry = entries.get((patch.id, patch.file))
            if entry is None:
                found.append(_stale(where, f"patch {patch.id} ({patch.file}) is not in the series any more"))
            elif hashlib.sha256(catalog.patch_bytes(entry)).hexdigest() != patch.sha256:
                found.append(_stale(where, f"{patch.file} is not the diff that was locked"))
        known = {patch.id for patch in line.patches}
        for name in dict.fromkeys(entry.id for entry in manifest.patches):
            fits = [entry for entry in manifest.patches if entry.id == name and _is_for(entry.platforms, line)]
            if name not in known and fits and _is_for(manifest.platforms, line):
                found.append(_stale(where, f"patch {name} came into the series since"))
    return found


def _is_for(platforms: tuple[str, ...], line: Locked) -> bool:
    return not platforms or line.platform in platforms


def _stale(where: str, what: str) -> Finding:
    return Finding("lock-stale", "error", what, where=where, remedy="look again: patchkit lock --image X")
