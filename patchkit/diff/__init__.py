"""The patch engine: says truly what a unified diff would do to a file, and does exactly that.

Everything here is pure: bytes in, values out, no file is opened and nothing is written.

    patch = parse(data, "fix.patch")
    result = evaluate(patch, read)            # read: path -> bytes, None where there is no such file
    if result.ok:
        ...                                   # result.changes: path -> new bytes, None for removal
"""

from patchkit.diff.check import check_python
from patchkit.diff.evaluate import evaluate, evaluate_series
from patchkit.diff.merge import merge3
from patchkit.diff.model import (
    FilePatch,
    FileResult,
    Hunk,
    HunkResult,
    Merge,
    Nearest,
    Patch,
    PatchResult,
    Problem,
    SeriesResult,
    State,
)
from patchkit.diff.parse import parse
from patchkit.diff.reverse import reverse
from patchkit.diff.write import write

__all__ = [
    "FilePatch",
    "FileResult",
    "Hunk",
    "HunkResult",
    "Merge",
    "Nearest",
    "Patch",
    "PatchResult",
    "Problem",
    "SeriesResult",
    "State",
    "check_python",
    "evaluate",
    "evaluate_series",
    "merge3",
    "parse",
    "reverse",
    "write",
]
