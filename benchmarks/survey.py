"""A survey of 40 vLLM releases against the floor: the same wheels' RECORDs, fetched by 40 bare ranged reads at once.

``cold`` starts from an empty cache, ``again`` from the one that the run before filled.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.harness import Aim, Case, measure, report
from patchkit import api
from patchkit.lifecycle import releases
from patchkit.lifecycle.survey import choose_versions

COUNT = 40
JOBS = 8


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="patchkit-bench-"))
    os.environ["PATCHKIT_CACHE"] = str(folder)

    def empty() -> None:
        shutil.rmtree(folder, ignore_errors=True)

    def floor() -> None:
        indexes = releases.indexes()
        versions = choose_versions(indexes.versions("vllm"), None)[:COUNT]
        with ThreadPoolExecutor(JOBS) as pool:
            list(pool.map(lambda version: indexes.wheel("vllm", version).record(), versions))

    def survey() -> None:
        assert api.survey("vllm", newest=COUNT) is not None

    try:
        cases = [Case("records", floor, empty), Case("cold", survey, empty), Case("again", survey)]
        result = measure("survey", cases, rounds=3, warm=0)
    finally:
        empty()
    report(result, [Aim("cold", "records", 2.0), Aim("again", "cold", 0.5)], {"releases": COUNT})


if __name__ == "__main__":
    main()
