"""The differential tests, as long as one likes: ``python -m tests.fuzz --seed 1 --runs 20000 --debian --releases``.

Ends with status 1 when anything is wrong. A failing trial is told with its number: the same seed makes it again.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.fuzz import debian, differential, releases


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", type=int, default=20_000, help="random trials (default 20000)")
    parser.add_argument("--debian", action="store_true", help="the quilt patches of Debian's Python sources too")
    parser.add_argument("--releases", action="store_true", help="changes between releases of packages from PyPI too")
    parser.add_argument("--work", type=Path, help="where what is fetched is kept between runs")
    options = parser.parse_args()
    failures, tally = differential.run(options.seed, options.runs)
    for number, one, found in failures:
        print(f"\nseed {options.seed}, trial {number}: {one.how}\n  " + "\n  ".join(found))
        print(one.patch.decode("utf-8", "replace"))
    print(f"seed {options.seed}: {options.runs} trials, {len(failures)} wrong; by state: {dict(sorted(tally.items()))}")
    wrong = len(failures)
    with tempfile.TemporaryDirectory(prefix="patchkit-fuzz-") as folder:
        work = (options.work or Path(folder)).resolve()
        if options.debian:
            wrong += debian.run(work)
        if options.releases:
            wrong += releases.run(work)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
