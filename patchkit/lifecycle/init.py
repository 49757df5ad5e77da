"""A new catalog: what a folder needs so that the next command is ``patchkit edit``."""

from __future__ import annotations

from pathlib import Path

from patchkit.catalog.load import load_text
from patchkit.catalog.schema import schema_text
from patchkit.errors import Refused
from patchkit.lifecycle.files import write_all

_MANIFEST = """\
# yaml-language-server: $schema=../manifest.schema.json
# What to patch, and why. Every key is told in the schema; `patchkit manifest check` names every fault.
name: {name}
package: {package}
# The releases that the series is made for (PEP 440). It advises; the bytes of the files decide.
versions: ""
images:
  # Shell patterns over name:tag; * crosses slashes.
  - match: "{image}"
# `patchkit save` and `patchkit import` add patches here, in the order in which they apply.
patches: []
"""

_README = """\
# Patches for {package}

A [patchkit](https://pypi.org/project/patchkit/) catalog: source patches for the Python package `{package}` inside
container images, with the hashes of every file before and after.

| what | where |
|---|---|
| what is patched, in which images, in which order | `manifests/{name}.yaml` |
| the diffs, each with its reason in front | `patches/` |
| the images that were looked at, what each patch did there | `patchkit.lock` (written by patchkit) |

## Every day

    export PATCHKIT_CATALOG=$PWD
    patchkit edit --image IMAGE {package}/some/file.py   # pristine files into a work folder: change them there
    patchkit save --name my-fix                          # the diff, its hashes and its place in the series
    patchkit apply --image IMAGE                         # a patched image, proven, and a compose overlay

## When the image moves

    patchkit status --image NEW      # what each patch would do there
    patchkit rebase --image NEW      # carries the patches over; conflicts go to a work folder
    patchkit retire                  # drops what upstream has
"""

_WORKFLOW = """\
# Fails when a manifest has a fault or when a patch no longer fits the newest release.
name: patches
on:
  push:
  schedule:
    - cron: "0 6 * * *"
permissions:
  contents: read
jobs:
  check:
    runs-on: ubuntu-latest
    env:
      PATCHKIT_CATALOG: ${{{{ github.workspace }}}}
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with:
          python-version: "3.12"
      - run: pip install patchkit
      - run: patchkit manifest check
      - run: patchkit lock --check
      - run: patchkit survey {package} --latest --strict --format markdown >> "$GITHUB_STEP_SUMMARY"
"""

# Two branches that each add a line to the lock are no conflict, and hash-pinned diffs must not change their line ends:
# https://git-scm.com/docs/gitattributes
_ATTRIBUTES = """\
*.patch -text
patchkit.lock merge=union
"""


def skeleton(name: str, package: str, image: str) -> dict[str, str]:
    """The files of a new catalog: path below its folder -> text."""
    words = {"name": name, "package": package, "image": image}
    return {
        ".gitattributes": _ATTRIBUTES,
        ".github/workflows/patches.yml": _WORKFLOW.format(**words),
        "README.md": _README.format(**words),
        "manifest.schema.json": schema_text(),
        f"manifests/{name}.yaml": _MANIFEST.format(**words),
        "patches/.gitkeep": "",
    }


def create(folder: Path, name: str, package: str, image: str) -> list[Path]:
    """Write a new catalog into ``folder`` and return its files; a second time it changes nothing.

    Raises:
        patchkit.errors.BadInput: ``bad-manifest``, a name or pattern that no manifest can have; nothing was written.
        patchkit.errors.Refused: ``file-exists``: one of the files is there and is another one; nothing was written.
    """
    files = {folder / path: text.encode() for path, text in skeleton(name, package, image).items()}
    manifest = folder / "manifests" / f"{name}.yaml"
    load_text(manifest, files[manifest], folder)
    taken = [path for path, data in files.items() if path.exists() and path.read_bytes() != data]
    if taken:
        raise Refused(
            "file-exists",
            f"{len(taken)} of the new catalog's files are there already, with other content",
            where=str(folder),
            remedy="choose an empty folder",
            details=[str(path) for path in taken],
        )
    write_all({path: data for path, data in files.items() if not path.exists()})
    return list(files)
