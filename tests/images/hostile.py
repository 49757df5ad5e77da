"""Images whose interpreter attacks whoever asks it. What a command says about them must be true and come in time."""

from __future__ import annotations

from tests.images import packages
from tests.images.variants import VENV, Variant, serving, variant


def _interpreter(script: str) -> Variant:
    image = serving(packages.tinyserve())
    image.layers[0].file(f"{VENV}/bin/python3.11", f"#!/bin/sh\n{script}", 0o755)
    return image


@variant("hostile")
def hostile_lies() -> Variant:
    """Prints well-formed JSON that claims anything."""
    return _interpreter(
        """echo '{"ok": true, "files": {}, "copies": [], "levels": [{"level": "imports", "state": "passed"}]}'\n"""
    )


@variant("hostile")
def hostile_hangs() -> Variant:
    """Never ends, and does not listen to SIGTERM."""
    return _interpreter("trap '' TERM INT\nwhile true; do sleep 1; done\n")


@variant("hostile")
def hostile_floods() -> Variant:
    """Prints without end."""
    return _interpreter(
        "while true; do echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done\n"
    )


@variant("hostile")
def hostile_forks() -> Variant:
    """Starts processes without end."""
    return _interpreter('"$0" & "$0" & wait\n')


@variant("hostile")
def hostile_deletes() -> Variant:
    """Removes the package, then what it can reach, and says that all is well."""
    return _interpreter(f"rm -rf {VENV}/lib/python3.11/site-packages/tinyserve /workspace /tmp/*\necho '{{}}'\n")
