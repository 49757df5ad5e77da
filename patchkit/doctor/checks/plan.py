"""One image, looked at as ``status`` does: only where the person names it, since that takes reading the image."""

from __future__ import annotations

from collections.abc import Iterator

from patchkit.doctor.access import first_closed
from patchkit.doctor.model import CHECKS, Report, check
from patchkit.doctor.world import World
from patchkit.errors import PatchkitError
from patchkit.findings import Finding
from patchkit.plan import Plan


@check(
    "patch-refused",
    "error",
    "a patch cannot be delivered to this image",
    "The image moved, or the patch is not for it. Nothing is applied until every patch of the series has its place.",
)
def refused(world: World) -> Iterator[Report]:
    plan = world.plan
    if isinstance(plan, PatchkitError):
        yield Report.of(plan)
    elif plan is not None:
        for row in plan.refused:
            yield Report(
                f"{row.told_state}: {row.detail}",
                where=f"{row.patch}: {row.path}",
                remedy=f"see each hunk: patchkit status --image {plan.reference}",
            )
        # What else stops a delivery, where no check of its own tells.
        for finding in plan.findings:
            if finding.severity == "error" and finding.id not in CHECKS:
                yield Report.of(finding)
        if not plan.rows:
            yield Report("the manifest has no patches", where=plan.match.manifest.name)


@check(
    "no-longer-needed",
    "note",
    "a patch's drop condition holds on this image",
    "Upstream has fixed what the patch was for. Retire it, so that the series stays small.",
)
@check(
    "other-copy",
    "note",
    "the image holds more than one copy of the package",
    """Which one is imported depends on how Python is started: a console script has its own folder first, -m and -c the
    working folder. A mount or an edit on the wrong copy loads, looks fine, and fails far away.""",
)
@check(
    "resolution-disagrees",
    "warning",
    "reading the image and asking its interpreter differ",
    "What the files say should be imported and what the interpreter says are not the same: neither is to be trusted.",
)
def told_by_plan(world: World) -> Iterator[Finding]:
    if isinstance(world.plan, Plan):
        yield from world.plan.findings


@check(
    "interpreter-closed",
    "error",
    "the image's user may not start its Python",
    """A virtual environment's python is often a link, and uv keeps the true one below /root, which no other user may
    enter (vllm#15359). The server does not start, or another Python is found on PATH, with other packages.""",
)
def interpreter_closed(world: World) -> Iterator[Report]:
    if world.asked is None or isinstance(world.asked, PatchkitError):  # patch-refused tells
        return
    _, view, launch = world.asked
    closed = first_closed(view, launch.interpreter, launch.user)
    if closed is not None:
        yield Report(
            f"user {launch.user} may not pass {closed.path} (mode {closed.mode:04o}, owner {closed.uid})",
            where=launch.interpreter,
            evidence=f"it leads to {view.real(launch.interpreter)}",
            remedy="start as root, or put the interpreter where everybody may read it",
        )


@check(
    "package-linked",
    "warning",
    "the package is a link that other environments may share",
    """uv with --link-mode symlink, and people by hand, link one folder into several environments: what is changed there
    changes for all of them. A container or image of its own keeps that apart; a shared host folder does not.""",
)
def package_linked(world: World) -> Iterator[Report]:
    plan = world.plan
    if world.asked is None or isinstance(world.asked, PatchkitError) or not isinstance(plan, Plan):
        return
    view = world.asked[1]
    for entry in plan.site.search_path:
        place = f"{view.real(entry)}/{plan.match.manifest.package}"
        link = view.lstat(place)
        if link is not None and link.kind == "symlink" and view.real(place) == plan.copy.root:
            yield Report(f"it leads to {plan.copy.root}", where=place, remedy="install a copy of its own there")
