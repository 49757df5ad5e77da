"""``patchkit patch``: the patch engine on a plain folder."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from patchkit.cli.render import Document, clean, document, print_json, table
from patchkit.deliver.tree import Tree
from patchkit.diff import (
    FileResult,
    Patch,
    PatchResult,
    SeriesResult,
    check_python,
    evaluate_series,
    merge3,
    parse,
    reverse,
)
from patchkit.errors import BadInput

_DEEPEST = 16

_patch_argument = click.argument("patches", nargs=-1, required=True, metavar="PATCH...")
_strip_option = click.option(
    "-p", "--strip", default="1", metavar="N|auto", show_default=True,
    help="Leading folders to remove from names in the patch; auto takes the first of 1, 0, 2, 3... that finds files.",
)  # fmt: skip
_reverse_option = click.option("-R", "--reverse", "backwards", is_flag=True, help="Undo the patches, last first.")
_fuzz_option = click.option(
    "--fuzz", type=click.IntRange(0, 2), default=0, show_default=True,
    help="Context lines that may be dropped at each end of a hunk.",
)  # fmt: skip
_complete_option = click.option("--complete", is_flag=True, help="Finish patches that are there in part.")
_python_option = click.option(
    "--python", "python", metavar="X.Y", help="Refuse results that do not compile as this Python version."
)
_json_option = click.option("--json", "as_json", is_flag=True, help="Answer in JSON.")


@click.group()
def command() -> None:
    """Apply, check and merge unified diffs on a plain folder."""


@command.command()
@_patch_argument
@click.argument("folder", type=click.Path(path_type=Path))
@_strip_option
@_reverse_option
@_fuzz_option
@_complete_option
@click.option("--dry-run", is_flag=True, help="Tell what would be done, and write nothing.")
@_python_option
@_json_option
def apply(
    patches: tuple[str, ...],
    folder: Path,
    strip: str,
    backwards: bool,
    fuzz: int,
    complete: bool,
    dry_run: bool,
    python: str | None,
    as_json: bool,
) -> int:
    """Apply patches to a folder, in order: all of them, or nothing.

    A hunk goes to its stated place, or to the one place elsewhere where all its lines stand. What is there already is
    left alone.

    \b
    patchkit patch apply fix.patch ./vllm-src --dry-run
    """
    tree = Tree(folder)
    result = _classify(patches, tree, strip, backwards, fuzz, complete)
    answer = _document("patch.apply", result, python)
    done = result.ok and not answer["findings"]
    if done:
        like = {file.path: file.source for patch in result.patches for file in patch.files if file.source is not None}
        tree.write(result.changes, result.modes, like, dry_run=dry_run)
    _show(answer, as_json)
    if not as_json:
        if not done:
            click.echo("error: nothing was written: the patch does not apply as it is", err=True)
        elif not result.changes and not result.modes:
            click.echo("nothing to do")
        elif dry_run:
            click.echo("dry run: nothing was written")
    return 0 if done else 1


@command.command()
@click.argument("patches", nargs=-1, required=True, metavar="PATCH... [DIR]")
@_strip_option
@_reverse_option
@_fuzz_option
@_complete_option
@_python_option
@_json_option
def check(
    patches: tuple[str, ...],
    strip: str,
    backwards: bool,
    fuzz: int,
    complete: bool,
    python: str | None,
    as_json: bool,
) -> int:
    """Read patches strictly; with a folder, tell what they would do to it. Writes nothing.

    The last argument is the folder when it is one.

    \b
    patchkit patch check fix.patch
    patchkit patch check one.patch two.patch ./vllm-src
    """
    folder = Path(patches[-1])
    if len(patches) > 1 and folder.is_dir():
        tree = Tree(folder)
        result = _classify(patches[:-1], tree, strip, backwards, fuzz, complete)
        answer = _document("patch.check", result, python)
        _show(answer, as_json)
        return 0 if result.ok and not answer["findings"] else 1
    files = [
        {
            "patch": patch.name,
            "path": section.target(int(strip) if strip.isdigit() else 1),
            "kind": section.kind,
            "hunks": len(section.hunks),
        }
        for patch in map(_load, patches)
        for section in patch.files
    ]
    if as_json:
        print_json(document("patch.check", files=files))
    else:
        click.echo(table([[str(file["kind"]), str(file["path"]), f"{file['hunks']} hunks"] for file in files]))
    return 0


@command.command()
@click.argument("ours", type=click.Path(path_type=Path))
@click.argument("base", type=click.Path(path_type=Path))
@click.argument("theirs", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write here instead of to standard output.")
def merge(ours: Path, base: Path, theirs: Path, output: Path | None) -> int:
    """Bring the changes from BASE to THEIRS into OURS. Exit status 1 when conflicts are left, marked in the output."""
    merged = merge3(_read(base), _read(theirs), _read(ours), (f"ours: {ours.name}", f"theirs: {theirs.name}"))
    if output is None:
        sys.stdout.buffer.write(merged.data)
        sys.stdout.buffer.flush()
    else:
        Tree(output.parent).write({output.name: merged.data}, {}, {}, dry_run=False)
    if merged.conflicts:
        click.echo(
            f"{merged.conflicts} conflict{'s' if merged.conflicts > 1 else ''} left, marked in the text", err=True
        )
    return 1 if merged.conflicts else 0


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadInput("unreadable", f"cannot be read: {error.strerror}", where=str(path)) from error


def _load(name: str) -> Patch:
    return parse(sys.stdin.buffer.read() if name == "-" else _read(Path(name)), name)


def _classify(names: Sequence[str], tree: Tree, strip: str, backwards: bool, fuzz: int, complete: bool) -> SeriesResult:
    patches = [_load(name) for name in names]
    if backwards:
        patches = [reverse(patch) for patch in reversed(patches)]

    def at(level: int) -> SeriesResult:
        return evaluate_series(
            patches, tree.read, strip=level, fuzz=fuzz, complete=complete, context_free=True, mode=tree.mode
        )

    if strip.isdigit():
        return at(int(strip))
    if strip != "auto":
        raise BadInput("bad-strip-level", f"-p takes a number or auto, not {strip!r}")
    for level in (1, 0, *range(2, _DEEPEST)):
        try:
            result = at(level)
        except BadInput as error:
            if error.code != "strip-too-deep":
                raise
            continue
        if not any(file.state == "target-missing" for patch in result.patches for file in patch.files):
            return result
    return at(1)


# The answer


def _document(name: str, result: SeriesResult, python: str | None) -> Document:
    files = [_file(patch, file) for patch in result.patches for file in patch.files]
    findings = []
    if python is not None:
        for path, problem in _problems(result, python):
            findings.append(
                {"id": "does-not-compile", "severity": "error", "what": problem, "where": path, "details": []}
            )
    patches = [
        {"name": patch.patch.name, "state": _state(patch.state, patch.done, patch.total), "ok": patch.ok}
        for patch in result.patches
    ]
    return document(name, files=files, findings=findings, patches=patches, ok=result.ok)


def _problems(result: SeriesResult, python: str) -> list[tuple[str, str]]:
    major, _, minor = python.partition(".")
    if not (major.isdigit() and minor.isdigit()):
        raise BadInput("bad-python-version", f"--python takes a version such as 3.12, not {python!r}")
    found = []
    for path, data in result.changes.items():
        problem = check_python(data, path, (int(major), int(minor))) if data is not None else None
        if problem is not None:
            found.append((f"{path}:{problem.line}", f"the result is no Python {python}: {problem.what}"))
    return found


def _file(patch: PatchResult, file: FileResult) -> Document:
    return {
        "patch": patch.patch.name,
        "path": file.path,
        "source": file.source,
        "kind": file.kind,
        "state": _state(file.state, file.done, file.total),
        "ok": file.ok,
        "why": file.why,
        "known": file.known,
        "mode": file.mode,
        "notes": list(file.notes),
        "hunks": [
            {
                "number": hunk.number,
                "state": hunk.state,
                "stated": hunk.stated,
                "found": hunk.found,
                "offset": hunk.offset,
                "fuzz": hunk.fuzz,
                "candidates": list(hunk.candidates),
                "why": hunk.why,
                "nearest": None
                if hunk.nearest is None
                else {
                    "line": hunk.nearest.line,
                    "matched": hunk.nearest.matched,
                    "total": hunk.nearest.total,
                    "differs_at": hunk.nearest.differs_at,
                    "expected": hunk.nearest.expected.decode("utf-8", "replace"),
                    "found": None if hunk.nearest.found is None else hunk.nearest.found.decode("utf-8", "replace"),
                },
            }
            for hunk in file.hunks
        ],
    }


def _state(state: str, done: int, total: int) -> str:
    return f"partial {done}/{total}" if state == "partial" else state


#: The next thing to do about a file that cannot be patched, by its state.
_NEXT = {
    "conflict": "mend the patch, or merge: patchkit patch merge OURS BASE THEIRS",
    "ambiguous": "make the patch anew by git diff (its blob ids decide), or with more context (diff -U10)",
    "fuzzy": "look at the place, then --fuzz 1 (or 2), or make the patch anew",
    "partial": "--complete adds what is missing",
    "target-missing": "-p auto looks for another strip level; else this is not the tree that the patch is for",
}


def _show(answer: Document, as_json: bool) -> None:
    if as_json:
        print_json(answer)
        return
    for file in answer["files"]:
        click.echo(clean(f"{file['state']:<15} {file['path']}  {file['why']}"))
        telling = [hunk for hunk in file["hunks"] if hunk["state"] != "applies" or hunk["candidates"]]
        for hunk in telling if len(telling) > 1 else []:
            click.echo(clean(f"  hunk {hunk['number']}: {hunk['state']}: {hunk['why']}"))
        for note in file["notes"]:
            click.echo(clean(f"  note: {note}"))
    for finding in answer["findings"]:
        click.echo(clean(f"error: {finding['where']}: {finding['what']} [{finding['id']}]"), err=True)
    refused = [patch["state"].partition(" ")[0] for patch in answer["patches"] if not patch["ok"]]
    for state in dict.fromkeys(refused):
        click.echo(f"next: {_NEXT[state]}", err=True)
