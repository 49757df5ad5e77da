"""What the command line costs before it does anything: `patchkit --version` against `import click`."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.harness import Aim, Case, measure, report, run

PYTHON = Path(sys.executable)
PATCHKIT = PYTHON.with_name("patchkit")


def main() -> None:
    cases = [
        Case("python -c pass", lambda: run(PYTHON, "-c", "pass")),
        Case("import click", lambda: run(PYTHON, "-c", "import click")),
        Case("patchkit --version", lambda: run(PATCHKIT, "--version")),
        Case("patchkit --help", lambda: run(PATCHKIT, "--help")),
    ]
    report(measure("startup", cases, rounds=15), [Aim("patchkit --version", "import click", 1.5)])


if __name__ == "__main__":
    main()
