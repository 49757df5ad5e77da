"""What the facts about a package say that a person should know."""

from __future__ import annotations

from patchkit.findings import Finding
from patchkit.site.model import Site


def site_findings(site: Site) -> list[Finding]:
    """Disagreements as errors where an import or the interpreter itself is at stake, else as warnings; copies that
    another launch would import, and what reading cannot decide, as notes."""
    found = [
        Finding(
            "two-answers",
            "error" if item.about.startswith(("import ", "the interpreter", "the bytes of ")) else "warning",
            f"reading the image and asking its interpreter differ about {item.about}",
            where=site.launch.interpreter,
            evidence=f"read: {item.static}; asked: {item.dynamic}",
            remedy="name the serving command with --launch, or look at the notes about import hooks",
        )
        for item in site.disagreements
    ]
    for copy in site.copies:
        if not copy.serves and copy.wins_for:
            found.append(
                Finding(
                    "other-copy-wins-elsewhere",
                    "note",
                    f"started as {', '.join(copy.wins_for)}, Python would import another copy",
                    where=copy.root,
                )
            )
    found += [Finding("import-hook", "note", note) for note in site.notes]
    return found
