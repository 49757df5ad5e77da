"""Programs that travel into containers, where patchkit is not."""

from __future__ import annotations

import re
from importlib import resources

_OURS = re.compile(r"^from (patchkit(?:\.\w+)*)\.(\w+) import .*\n", re.MULTILINE)


def program_text(package: str, name: str) -> str:
    """A program's source with the text of each module of ours that it imports in the import's place.

    Args:
        package: the package that it lies in, ``patchkit.site``.
        name: its module's name; it and what it imports hold no import of ours beyond one level.
    """
    text = _source(package, name)
    return _OURS.sub(lambda found: _source(found[1], found[2]), text)


def _source(package: str, name: str) -> str:
    return resources.files(package).joinpath(f"{name}.py").read_text("utf-8")
