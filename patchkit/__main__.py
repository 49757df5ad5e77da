"""``python -m patchkit``."""

from patchkit.cli import main

main()
