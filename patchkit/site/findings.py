"""What the facts about a package say that a person should know. One fact has one id, whoever tells it."""

from __future__ import annotations

from patchkit.findings import Finding
from patchkit.site.model import Copy, Site


def site_findings(site: Site) -> list[Finding]:
    """Disagreements, copies beside the one that the launch imports, and as notes what reading cannot decide."""
    hooks = [Finding("import-hook", "note", note) for note in site.notes]
    return [*disagreements(site), *other_copies(site, site.winner), *hooks]


def disagreements(site: Site) -> list[Finding]:
    """Where reading and asking differ: an error where an import, the interpreter itself or a file's bytes are at stake,
    else a warning."""
    return [
        Finding(
            "resolution-disagrees",
            "error" if item.about.startswith(("import ", "the interpreter", "the bytes of ")) else "warning",
            f"reading the image and asking its interpreter differ about {item.about}",
            where=site.launch.interpreter,
            evidence=f"read: {item.static}; asked: {item.dynamic}",
            remedy="trust neither: name the serving command with --launch; import hooks are noted by patchkit resolve",
        )
        for item in site.disagreements
    ]


def other_copies(site: Site, chosen: Copy | None) -> list[Finding]:
    """The copies beside ``chosen``, as notes, with the launches that would import them instead."""
    found = []
    for copy in site.copies:
        if chosen is None or copy.root != chosen.root:
            launches = [launch for launch in copy.wins_for if launch != "serving"]
            wins = f"; it would win for: {', '.join(launches)}" if launches else ""
            kind = "known decoy" if copy.decoy else "other copy"
            found.append(Finding("other-copy", "note", f"{kind} ({copy.kind}), left alone{wins}", where=copy.root))
    return found
