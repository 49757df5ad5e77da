"""The quilt patches of Debian's Python sources on their own trees, beside GNU patch and git apply.

The sources come through ``apt-get source`` with a package state of its own. They are unpacked without patches; the
series is then applied patch by patch, each by all three tools on the same tree.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from patchkit.deliver.tree import Tree
from patchkit.diff import PatchResult, evaluate, parse, reverse
from patchkit.errors import PatchkitError

SOURCES = (
    "jinja2",
    "lxml",
    "pillow",
    "python-cryptography",
    "python-django",
    "python-pip",
    "python3.11",
    "mercurial",
    "sympy",
)
_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "HOME": "/"}


def run(work: Path) -> int:
    """Fetch, try every patch of every source, print a line for each source, and give the number of wrong ones."""
    wrong = 0
    for name in SOURCES:
        folder = fetch(name, work)
        if folder is None:
            print(f"{name}: its source cannot be fetched here")
            continue
        tried = 0
        for patch, complaint in compare(folder):
            tried += 1
            if complaint:
                wrong += 1
                print(f"{name}: {patch.name}: {complaint}")
        print(f"{name}: {tried} patches")
    return wrong


def fetch(name: str, work: Path) -> Path | None:
    """The folder with the unpacked source and its ``debian`` folder, not patched; None where it cannot be had."""
    state = work / "apt"
    for part in ("lists/partial", "archives/partial"):
        (state / part).mkdir(parents=True, exist_ok=True)
    sources = state / "sources.list"
    if not sources.exists():
        (state / "status").touch()
        sources.write_text("deb-src http://deb.debian.org/debian bookworm main\n")
        subprocess.run(["apt-get", *_options(state), "-qq", "update"], check=True)
    target = work / "sources" / name
    if not target.exists():
        target.mkdir(parents=True)
        done = subprocess.run(
            ["apt-get", *_options(state), "-qq", "source", "--download-only", name], cwd=target, capture_output=True
        )
        unpacked = done.returncode == 0 and subprocess.run(
            ["dpkg-source", "--skip-patches", "--no-check", "-x", next(target.glob("*.dsc")).name, "tree"],
            cwd=target, capture_output=True,
        ).returncode == 0  # fmt: skip
        if not unpacked:
            shutil.rmtree(target)
            return None
    return target / "tree"


def _options(state: Path) -> list[str]:
    settings = {
        "Dir::State": state, "Dir::State::lists": state / "lists", "Dir::State::status": state / "status",
        "Dir::Cache": state, "Dir::Cache::archives": state / "archives", "Dir::Etc::sourcelist": state / "sources.list",
        "Dir::Etc::sourceparts": "/dev/null", "APT::Sandbox::User": "root",
    }  # fmt: skip
    return [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]


def compare(tree: Path) -> Iterator[tuple[Path, str]]:
    """Each patch of the tree's series, and what is wrong with what we did with it (empty where nothing is).

    Only the files that a patch names are laid out for the tools. The tree goes on with GNU patch's result.
    """
    series = tree / "debian/patches/series"
    if not series.exists():
        return
    for line in series.read_text().splitlines():
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        strip = int(next((word[2:] for word in words[1:] if word.startswith("-p") and word[2:].isdigit()), "1"))
        patch = series.parent / words[0]
        yield patch, _one(tree, patch, strip)
        subprocess.run(["patch", f"-p{strip}", "-s", "-f", "-i", patch], cwd=tree, capture_output=True)


def _one(tree: Path, patch: Path, strip: int) -> str:
    files = Tree(tree)
    we: PatchResult | None = None
    said = ""
    try:
        read = parse(patch.read_bytes(), patch.name)
        we = evaluate(read, files.read, strip=strip, context_free=True)
        said = f"{we.state}: {'; '.join(file.why for file in we.files if not file.ok)}"
        names = sorted({name for section in read.files for name in section.names(strip) if name})
    except PatchkitError as error:
        said = str(error)
        names = []
    strict = _tool(tree, names, ["patch", f"-p{strip}", "-s", "-f", "-F0", "-i", patch]) if names else None
    if strict is None:
        dry = subprocess.run(
            ["patch", f"-p{strip}", "-s", "-f", "-F0", "--dry-run", "-i", patch], cwd=tree, capture_output=True
        )
        return f"GNU patch applies it, we refuse to read it: {said}" if dry.returncode == 0 else ""
    assert we is not None
    if strict is not False and not we.ok:
        return f"GNU patch applies it without fuzz, we do not: {said}"
    by_git = _tool(tree, names, ["git", "apply", f"-p{strip}", patch])
    if by_git is not False and not we.ok:
        return f"git apply applies it, we do not: {said}"
    if not we.ok:
        return ""
    mine = {name: we.changes.get(name, files.read(name)) for name in names}
    blanks = any(" " in name for name in names)  # GNU patch ends such a name at the blank unless a TAB follows it
    if strict is not False and mine != strict and not blanks:
        return "GNU patch and we make different files"
    if by_git is not False and mine != by_git:
        return "git apply and we make different files"
    if strict is False and by_git is False:
        return "we write what both refuse"
    back = evaluate(reverse(read), mine.get, strip=strip, context_free=True)
    before = {name: files.read(name) for name in names}
    if back.ok and mine | dict(back.changes) != before:
        return "taking it back gives other files"
    return "" if back.ok else f"it cannot be taken back: {back.state}"


def _tool(tree: Path, names: list[str], command: list[str | Path]) -> dict[str, bytes | None] | bool:
    """The named files after a tool's work on a copy of them, or False where it refused."""
    copy = tree.parent / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir()
    for name in names:
        if (tree / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(tree / name, copy / name)
    environment = _ENVIRONMENT | {"GIT_CEILING_DIRECTORIES": str(tree.parent)}
    if subprocess.run(command, cwd=copy, env=environment, capture_output=True).returncode:
        return False
    return {name: (copy / name).read_bytes() if (copy / name).is_file() else None for name in names}
