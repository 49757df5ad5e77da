"""Does a patched Python file still compile?"""

from __future__ import annotations

import ast
import sys
import warnings

from patchkit.diff.model import Problem

#: The first Python whose grammar ``feature_version`` of ast.parse knows apart.
_OLDEST = (3, 7)


def check_python(data: bytes, path: str, version: tuple[int, int]) -> Problem | None:
    """The first reason why the file does not compile as Python ``version`` (major, minor), or None.

    Files that are not named ``.py`` or ``.pyi`` are not looked at. The running Python judges: of an older ``version``
    it knows the syntax that came later (``match``, ``except*``; not every detail of f-strings), of a newer one it
    does not know what came after itself, and says so with ``sure=False``. Nothing of the file is run.

    Source: the ``feature_version`` argument of ast.parse, "best effort" in its documentation.
    """
    if not path.endswith((".py", ".pyi")):
        return None
    running = sys.version_info[:2]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # By an older grammar Python only makes a tree; the way over it costs as much as all the rest.
            older = version < running
            source = ast.parse(data, path, feature_version=max(version, _OLDEST)) if older else data
            # Some errors are only found by the compiler: a keyword given twice, return outside of a function.
            compile(source, path, "exec", dont_inherit=True)
    except SyntaxError as error:
        newer = (
            "" if version <= running else f" (told by Python {running[0]}.{running[1]}, older than the one asked for)"
        )
        return _problem(data, path, error.lineno or 0, (error.msg or "it is no Python") + newer, version <= running)
    except (ValueError, OverflowError) as error:  # NUL bytes, numbers of absurd length
        return _problem(data, path, 0, str(error), True)
    except (RecursionError, MemoryError):
        return _problem(data, path, 0, "it is nested too deeply to be judged here", False)
    return None


def _problem(data: bytes, path: str, line: int, what: str, sure: bool) -> Problem:
    lines = data.split(b"\n")
    text = lines[line - 1].decode("utf-8", "replace").strip() if 0 < line <= len(lines) else ""
    return Problem(path, line, what, text, sure)
