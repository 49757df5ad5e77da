"""Where the compiled file of a source lies, which may be in several places."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable

from patchkit.site.model import Launch


def stems_of(launch: Launch, names: Iterable[str]) -> list[str]:
    """How the paths of a source's compiled files begin under this launch: ``/site/pkg/__pycache__/module``.

    Args:
        launch: its options and environment may move them all into a tree of their own (``pycache_prefix``).
        names: the absolute paths under which the source is found: its real one and those that lead there through
            links. Python goes by the name that it imported. Source: PEP 3147; ``sys.pycache_prefix``.
    """
    prefix = _prefix(launch)
    stems = []
    for name in dict.fromkeys(names):
        folder, base = posixpath.split(name)
        place = posixpath.join(prefix, folder.lstrip("/")) if prefix else posixpath.join(folder, "__pycache__")
        stems.append(posixpath.join(place, base.removesuffix(".py")))
    return stems


def _prefix(launch: Launch) -> str:
    """The folder of the tree that the launch keeps compiled files in, empty where they lie in ``__pycache__``. The
    first ``-X pycache_prefix`` decides, also an empty one. Source: docs.python.org, using/cmdline."""
    stated = launch.heeded.get("PYTHONPYCACHEPREFIX", "")
    for flag in launch.flags:
        option, _, value = flag.partition("=")
        if option == "-Xpycache_prefix":
            stated = value
            break
    return posixpath.join(launch.cwd, stated) if stated else ""
