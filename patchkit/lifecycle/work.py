"""Work folders: pristine files to change, with what ``save`` must know beside them.

<folder>/vllm/...            the files, as a person changes them
<folder>/.patchkit/base/     the same files as they were: what save compares with
<folder>/.patchkit/work.json which manifest, which release
<folder>/.git                a baseline, so that ``git diff`` shows the work
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from patchkit import cache
from patchkit.errors import BadInput, Refused, Unreachable
from patchkit.plan import digest_of

_META = ".patchkit"
#: What editors and Python leave behind; never part of a patch.
_JUNK = ("*.pyc", "*.orig", "*.rej", "*~", ".*.swp", ".DS_Store")
_JUNK_FOLDERS = (_META, ".git", "__pycache__")
NEW = "new"


@dataclass(frozen=True, slots=True)
class Task:
    """What a work folder is for.

    ``patch`` is the id of the patch that is edited, empty for a new one; ``entry_file`` the diff of its variant;
    ``release`` how the files' origin is called, ``version`` and ``python`` the package's and Python's there; ``image``
    the image reference where it was one; ``catalog`` the catalog's folder.
    """

    manifest: str
    catalog: str
    package: str
    release: str
    version: str
    python: tuple[int, int]
    patch: str = ""
    entry_file: str = ""
    image: str = ""


@dataclass(frozen=True, slots=True)
class Work:
    """An open work folder. ``base`` maps each path to its bytes before the work, None where there was no file;
    ``saved`` the paths that differed when it was saved last to their hashes then."""

    folder: Path
    task: Task
    base: Mapping[str, bytes | None]
    saved: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_done(self) -> bool:
        """Whether nothing in it would be lost: nothing differs, or just what was saved."""
        return {path: digest_of(now) for path, (_, now) in changes(self).items()} in ({}, self.saved)


def home() -> Path:
    """Where work folders lie unless the person says where: below ``$XDG_STATE_HOME/patchkit``, else
    ``~/.local/state/patchkit``. It holds people's work, so that it is no cache."""
    base = os.environ.get("XDG_STATE_HOME", "")
    return (Path(base) if base.startswith("/") else cache.home() / ".local" / "state") / "patchkit" / "work"


def create(folder: Path, task: Task, base: Mapping[str, bytes | None], now: Mapping[str, bytes | None]) -> Work:
    """Make the work folder with ``base`` as its baseline and ``now`` as its files, or take up the one that is there.

    A folder with the same task and base keeps the person's changes; files that it lacks are added.

    Raises:
        patchkit.errors.Refused: ``work-in-folder``: it holds changes from another base; ``inside-repository``.
        patchkit.errors.BadInput: ``folder-taken``, it is no work folder.
        patchkit.errors.Unreachable: ``work-unwritable``.
    """
    try:
        return _created(folder, task, base, now)
    except OSError as error:
        raise Unreachable(
            "work-unwritable",
            f"the work folder cannot be made: {error.strerror}",
            where=str(error.filename or folder),
            remedy="name another one: --work FOLDER; or set XDG_STATE_HOME to a folder that you may write to",
        ) from error


def _created(folder: Path, task: Task, base: Mapping[str, bytes | None], now: Mapping[str, bytes | None]) -> Work:
    _refuse_repository(folder)
    if folder.exists() and any(folder.iterdir()):
        there = load(folder)
        shared = base.keys() & there.base.keys()
        if there.task == task and all(there.base[path] == base[path] for path in shared):
            return _extended(there, base, now)
        if not there.is_done:
            raise Refused(
                "work-in-folder",
                f"there are unsaved changes to {there.task.release}, for the catalog {there.task.catalog}",
                where=str(folder),
                remedy=f"patchkit save --name {there.task.patch or 'NAME'} --work {folder}; or work elsewhere: --work "
                f"FOLDER; or, to throw them away: rm -r {folder}",
            )
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _META).mkdir()
    work = Work(folder, task, dict(base))
    _write_task(work)
    _write_tree(folder, base)
    _baseline(folder)
    _write_tree(folder, now)
    return work


def _extended(work: Work, base: Mapping[str, bytes | None], now: Mapping[str, bytes | None]) -> Work:
    new = {path: data for path, data in base.items() if path not in work.base}
    extended = replace(work, base={**work.base, **new})
    _write_task(extended)
    _write_tree(work.folder, {path: now[path] for path in new})
    return extended


def load(folder: Path) -> Work:
    """The work folder at ``folder``.

    Raises:
        patchkit.errors.BadInput: ``folder-taken``, it is none.
    """
    try:
        document = json.loads((folder / _META / "work.json").read_text("utf-8"))
        task = Task(**{**document["task"], "python": tuple(document["task"]["python"])})
        base = {
            path: (folder / _META / "base" / path).read_bytes() if held else None
            for path, held in document["base"].items()
        }
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInput(
            "folder-taken",
            f"this is no work folder of patchkit: {error}",
            where=str(folder),
            remedy="name another --work",
        ) from error
    return Work(folder, task, base, document.get("saved", {}))


def find(name: str, catalog: str = "") -> Path:
    """The work folder that ``save --name NAME`` means: that of the patch, else the one of a new patch. Where several
    fit, those for ``catalog``, the folder of the one in use, go before others.

    Raises:
        patchkit.errors.BadInput: ``no-work``, or ``several-works`` fit.
    """
    for wanted in (name, NEW):
        found = sorted(path for path in home().glob(f"*/{wanted}") if (path / _META).is_dir())
        if len(found) > 1 and catalog:
            root = Path(catalog).resolve()
            found = [path for path in found if Path(load(path).task.catalog).resolve() == root] or found
        if len(found) > 1:
            raise BadInput(
                "several-works",
                f"{len(found)} work folders fit",
                where=str(home()),
                remedy=f"name one: patchkit save --name {name} --work FOLDER",
                details=[str(path) for path in found],
            )
        if found:
            return found[0]
    raise BadInput(
        "no-work", f"there is no work folder for {name}", where=str(home()), remedy="patchkit edit --image X FILE"
    )


def settle(work: Work, patch: str, entry_file: str) -> Path:
    """Note that the work is saved as that patch: editing the patch again takes up the same folder, which is called by
    the patch's name where it lies in ``home``. Returns where it lies."""
    saved = {path: digest_of(now) for path, (_, now) in changes(work).items()}
    settled = replace(work, task=replace(work.task, patch=patch, entry_file=entry_file), saved=saved)
    _write_task(settled)
    place = work.folder.parent / patch
    if work.folder.name == NEW and work.folder.parent.parent == home() and not place.exists():
        work.folder.rename(place)
        return place
    return work.folder


def changes(work: Work) -> dict[str, tuple[bytes | None, bytes | None]]:
    """Every file that differs from the baseline: path -> (before, now); None where there is no file."""
    now = tree(work)
    return {
        path: (work.base.get(path), now.get(path))
        for path in sorted(work.base.keys() | now.keys())
        if work.base.get(path) != now.get(path)
    }


def tree(work: Work) -> dict[str, bytes]:
    """The files of the work folder, less what editors and Python leave behind.

    Raises:
        patchkit.errors.Refused: ``no-regular-file``: a symlink or device lies there, which no patch can carry.
    """
    found = {}
    for file in sorted(work.folder.rglob("*")):
        inside = file.relative_to(work.folder)
        if any(part in _JUNK_FOLDERS for part in inside.parts) or any(inside.match(pattern) for pattern in _JUNK):
            continue
        if file.is_symlink() or not (file.is_file() or file.is_dir()):
            raise Refused("no-regular-file", "a patch carries regular files only", where=str(file), remedy="remove it")
        if file.is_file():
            found[inside.as_posix()] = file.read_bytes()
    return found


def _write_task(work: Work) -> None:
    meta = work.folder / _META
    for path, data in work.base.items():
        if data is not None:
            _write(meta / "base" / path, data)
    document = {
        "task": asdict(work.task),
        "base": {path: data is not None for path, data in work.base.items()},
        "saved": work.saved,
    }
    _write(meta / "work.json", (json.dumps(document, indent=2, sort_keys=True) + "\n").encode())


def _write_tree(folder: Path, files: Mapping[str, bytes | None]) -> None:
    for path, data in files.items():
        if data is None:
            (folder / path).unlink(missing_ok=True)
        else:
            _write(folder / path, data)


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def _refuse_repository(folder: Path) -> None:
    inside = next((each for each in folder.absolute().parents if (each / ".git").exists()), None)
    if inside is not None:
        raise Refused(
            "inside-repository",
            f"the work folder would lie in the repository {inside}, whose ignore rules and hooks would meddle",
            where=str(folder),
            remedy="name another --work",
        )


def _baseline(folder: Path) -> None:
    """Commit the files as they are. Without git there is none: save compares with its own copies."""
    if shutil.which("git") is None:
        return
    # Nothing of the person's own configuration may touch the files or ask for a passphrase.
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    env |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "GIT_TEMPLATE_DIR": ""}
    for who in ("AUTHOR", "COMMITTER"):
        env |= {f"GIT_{who}_NAME": "patchkit", f"GIT_{who}_EMAIL": "patchkit@localhost"}
        env[f"GIT_{who}_DATE"] = "1980-01-01T00:00:00Z"

    def git(*arguments: str) -> None:
        subprocess.run(["git", *arguments], cwd=folder, env=env, check=True, capture_output=True)

    git("init", "--quiet", "--initial-branch=work")
    (folder / ".git" / "info").mkdir(exist_ok=True)
    (folder / ".git" / "info" / "exclude").write_text(f"/{_META}/\n")
    (folder / ".git" / "info" / "attributes").write_text("* -text\n")
    git("add", "--all", "--force", "--", ".", f":!{_META}")
    git("commit", "--quiet", "--allow-empty", "--no-verify", "--message", "Pristine files")
