"""What a patch, or a series of patches, would do to a tree: classified and applied in memory, all or nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from patchkit.diff.filepatch import Pins, created, deleted, modified
from patchkit.diff.locate import Rules
from patchkit.diff.model import FilePatch, FileResult, Patch, PatchResult, SeriesResult, State
from patchkit.diff.names import choose_target
from patchkit.diff.reverse import is_reversible, reverse

Reader = Callable[[str], bytes | None]
ModeReader = Callable[[str], int | None]

#: The state of a whole is the first of these that one of its parts has.
_WORST_FIRST: tuple[State, ...] = ("conflict", "target-missing", "ambiguous", "fuzzy", "partial")


def evaluate(
    patch: Patch,
    read: Reader,
    *,
    strip: int = 1,
    pre: Mapping[str, str] | None = None,
    post: Mapping[str, str] | None = None,
    fuzz: int = 0,
    complete: bool = False,
    context_free: bool = False,
    mode: ModeReader | None = None,
) -> PatchResult:
    """What ``patch`` would do to the files that ``read`` gives.

    Args:
        patch: from ``parse``.
        read: path inside the tree -> its bytes, None where no regular file is there.
        strip: leading components to remove from the patch's names, as ``patch -p``.
        pre: pinned pre-images, path -> ``sha256:<hex>`` (the form of manifests; bare hex is taken too).
        post: pinned post-images, the same. A file that equals its post-image is ``applied``; one that equals its
            pre-image must come out as its post-image, and so must every result of fuzz.
        fuzz: how many context lines may be dropped at each end (GNU patch's levels). 0 drops none.
        complete: take ``partial`` files and patches: what is missing is added.
        context_free: take insertions without any context into files that nothing vouches for, at their stated line.
        mode: path -> permission bits, for telling whether a mode change is already made. Without it every mode change
            counts as still to be made.

    Raises:
        patchkit.errors.BadInput: ``unsafe-path``, ``strip-too-deep``, or ``patch-too-costly`` for input that is made
            to keep the search busy.
    """
    return evaluate_series(
        [patch], read, strip=strip, pre=[pre or {}], post=[post or {}], fuzz=fuzz, complete=complete,
        context_free=context_free, mode=mode,
    ).patches[0]  # fmt: skip


def evaluate_series(
    patches: Sequence[Patch],
    read: Reader,
    *,
    strip: int = 1,
    pre: Sequence[Mapping[str, str]] | None = None,
    post: Sequence[Mapping[str, str]] | None = None,
    fuzz: Sequence[int] | int = 0,
    complete: bool = False,
    context_free: bool = False,
    mode: ModeReader | None = None,
) -> SeriesResult:
    """What the patches would do one after the other, later ones on top of earlier ones' results, in memory.

    ``pre``, ``post`` and ``fuzz`` hold one item a patch (``fuzz`` may be one number for all); all else as for
    ``evaluate``, which is the series of one. A patch that is not ``ok`` leaves its files alone, and the patches after
    it are still classified, each on what it finds.
    """
    count = len(patches)
    jobs = [
        _Job(
            patch, strip, (pre or [{}] * count)[i], (post or [{}] * count)[i],
            Rules(fuzz if isinstance(fuzz, int) else fuzz[i], context_free), complete,
        )
        for i, patch in enumerate(patches)
    ]  # fmt: skip
    tree = _Tree(read, mode)
    results = tuple(job.on(tree) for job in jobs)
    if not all(result.ok for result in results) and _build_on_one_another(results):
        unwound = _take_back(jobs, read, mode)
        if unwound is not None:
            results, tree = unwound
    if not all(result.ok for result in results):
        return SeriesResult(results, False)
    return SeriesResult(results, True, tree.changes(), tree.modes)


@dataclass(slots=True)
class _Tree:
    """The files as read, with what was changed since kept beside them."""

    base: Reader
    base_mode: ModeReader | None
    changed: dict[str, bytes | None] = field(default_factory=dict)
    modes: dict[str, str] = field(default_factory=dict)
    seen: dict[str, bytes | None] = field(default_factory=dict)

    def read(self, path: str) -> bytes | None:
        if path in self.changed:
            return self.changed[path]
        if path not in self.seen:
            self.seen[path] = self.base(path)
        return self.seen[path]

    def mode_of(self, path: str) -> str | None:
        """The git mode of a regular file; None where nobody can tell."""
        if path in self.modes:
            return self.modes[path]
        bits = self.base_mode(path) if self.base_mode is not None else None
        return None if bits is None else "100755" if bits & 0o100 else "100644"

    def put(self, result: FileResult) -> None:
        if result.source is not None and result.kind == "rename" and result.state != "applied":
            self.changed[result.source] = None
        if result.after != result.before or result.path in self.changed:
            self.changed[result.path] = result.after
        if result.mode is not None and result.after is not None and result.state != "applied":
            self.modes[result.path] = result.mode
        if result.after is None:
            self.modes.pop(result.path, None)

    def changes(self) -> dict[str, bytes | None]:
        """What differs from the files as read."""
        return {
            path: data
            for path, data in sorted(self.changed.items())
            if path not in self.seen or self.seen[path] != data
        }

    def copy(self) -> _Tree:
        return _Tree(self.base, self.base_mode, dict(self.changed), dict(self.modes), self.seen)


@dataclass(frozen=True, slots=True)
class _Job:
    """One patch of the series with all that is allowed and known about it."""

    patch: Patch
    strip: int
    pre: Mapping[str, str]
    post: Mapping[str, str]
    rules: Rules
    complete: bool

    def on(self, tree: _Tree) -> PatchResult:
        """The patch's result, put into ``tree`` when it is ok."""
        trial = tree.copy()
        files = []
        for section in self.patch.files:
            result = self.section(section, trial)
            files.append(result)
            if result.ok:
                trial.put(result)
        done, total = sum(file.done for file in files), sum(file.total for file in files)
        state = _patch_state(files, done, total)
        ok = all(file.ok for file in files) and (state != "partial" or self.complete)
        if not ok:
            return PatchResult(self.patch, state, tuple(files), False, done=done, total=total)
        changes = {path: data for path, data in sorted(trial.changed.items()) if _old(tree, path) != data}
        modes = {path: mode for path, mode in sorted(trial.modes.items()) if tree.modes.get(path) != mode}
        tree.changed, tree.modes = trial.changed, trial.modes
        return PatchResult(self.patch, state, tuple(files), True, changes, modes, done, total)

    def section(self, section: FilePatch, tree: _Tree) -> FileResult:
        old, new = section.names(self.strip)
        path = choose_target(old, new)
        pins = Pins(self.pre.get(path, ""), self.post.get(path, ""))
        if section.kind == "create":
            return self.create(section, path, tree, pins)
        if section.kind == "delete":
            return deleted(section, path, tree.read(path), pins)
        assert old is not None
        assert new is not None
        if section.kind in ("rename", "copy"):
            return self.move(section, old, new, tree, pins)
        if old != new and section.kind == "modify":
            there = [name for name in (old, new) if tree.read(name) is not None]
            if len(there) > 1 and path == new:
                return _nothing(
                    section, path, "ambiguous", f"the patch names {old} and {new}, and both files are there"
                )
            path = there[0] if len(there) == 1 else path
            pins = Pins(self.pre.get(path, ""), self.post.get(path, ""))
        before = tree.read(path)
        if before is None:
            if not section.git and len(section.hunks) == 1 and not section.hunks[0].old:
                return self.create(replace(section, kind="create"), path, tree, pins)
            return _nothing(section, path, "target-missing", "there is no such file")
        return self.change(section, path, before, tree, pins)

    def create(self, section: FilePatch, path: str, tree: _Tree, pins: Pins) -> FileResult:
        folder = path
        while "/" in folder:
            folder = folder.rpartition("/")[0]
            if tree.read(folder) is not None:
                return _nothing(section, path, "conflict", f"{folder} is a file, and the patch needs a folder there")
        result = created(section, path, tree.read(path), pins)
        mode = tree.mode_of(path)
        if result.state == "applied" and section.new_mode is not None and mode not in (None, section.new_mode):
            why = f"the file is there already, and its mode is not {section.new_mode}"
            return replace(result, state="partial", ok=self.complete, why=why, total=result.total + 1)
        return result

    def change(self, section: FilePatch, path: str, before: bytes, tree: _Tree, pins: Pins) -> FileResult:
        """Hunks and mode of a file that is there."""
        if section.hunks:
            result = modified(section, path, before, pins, self.rules, complete=self.complete)
        else:
            result = FileResult(path, "applied", (), before, before, True, section.kind)
        if section.new_mode is None or not result.ok:
            return result
        result = replace(result, mode=section.new_mode)
        mode = tree.mode_of(path)
        if mode is None and section.hunks:
            return result
        set_already = mode == section.new_mode
        result = replace(result, done=result.done + set_already, total=result.total + 1)
        if set_already:
            return result if result.why else replace(result, why=f"the mode is {section.new_mode} already")
        if result.state != "applied":
            return result
        if not section.hunks:
            return replace(result, state="applies", why=f"the mode becomes {section.new_mode}")
        return replace(result, state="partial", ok=self.complete, why="the text is there already, the mode is not")

    def move(self, section: FilePatch, old: str, new: str, tree: _Tree, pins: Pins) -> FileResult:
        """A rename or a copy, with or without hunks."""
        source, target = tree.read(old), tree.read(new)
        if source is None and (target is None or section.kind == "copy"):
            return _nothing(section, new, "target-missing", f"there is no {old}", old)
        if source is None:
            assert target is not None
            if not section.hunks:
                why = f"{old} is gone and {new} is there: renamed already"
                return FileResult(
                    new, "applied", (), target, target, True, section.kind, why, source=old, done=1, total=1
                )
            result = self.change(section, new, target, tree, pins)
            result = replace(result, source=old, done=result.done + 1, total=result.total + 1)
            if result.state in ("applies", "offset"):
                why = f"{old} is {new} already, and the text is still the old one"
                return replace(result, state="partial", ok=self.complete, why=why)
            return result
        result = self.change(section, new, source, tree, pins)
        result = replace(result, source=old, total=max(1, result.total))
        if not section.hunks and result.ok:
            why = "renamed" if section.kind == "rename" else "copied"
            result = replace(result, state="applies", why=f"{why} from {old}", done=0)
        if target is not None:
            if section.kind == "copy" and result.ok and target == result.after:
                return replace(result, state="applied", before=target, why="copied already", done=result.total)
            why = f"the patch would {section.kind} {old} to {new}, and that is there already"
            return replace(result, state="conflict", ok=False, before=target, after=target, why=why)
        if result.state == "applied" and section.hunks:
            why = f"the text is there already, but still under its old name {old}"
            return replace(result, state="partial", ok=self.complete, before=None, after=source, why=why)
        return replace(result, before=None, after=result.after if result.ok else None)


def _old(tree: _Tree, path: str) -> bytes | None:
    return tree.changed[path] if path in tree.changed else tree.seen.get(path)


def _nothing(section: FilePatch, path: str, state: State, why: str, source: str | None = None) -> FileResult:
    """The result of a section that never got as far as its hunks."""
    return FileResult(
        path, state, (), None, None, False, section.kind, why, source=source, total=max(1, len(section.hunks))
    )


def _patch_state(files: Sequence[FileResult], done: int, total: int) -> State:
    states = {file.state for file in files}
    for state in _WORST_FIRST:
        if state in states:
            return state
    if "applied" in states:
        return "applied" if states == {"applied"} and done == total else "partial"
    return "offset" if "offset" in states else "applies"


# A series that is there already, in whole or in part


def _build_on_one_another(results: Sequence[PatchResult]) -> bool:
    """Whether any file is touched by two sections."""
    paths = [path for result in results for file in result.files for path in (file.path, file.source) if path]
    return len(paths) > len(set(paths))


def _take_back(
    jobs: Sequence[_Job], read: Reader, mode: ModeReader | None
) -> tuple[tuple[PatchResult, ...], _Tree] | None:
    """Where patches build on one another, an earlier one's own text is gone once a later one is in. So take back,
    last first, every patch that comes out exactly, and go forward again from there: if then all is well, those that
    came out were there. None where that does not explain the tree."""
    tree = _Tree(read, mode)
    there = set()
    for number in reversed(range(len(jobs))):
        job = jobs[number]
        if not is_reversible(job.patch):
            continue
        back = replace(job, patch=reverse(job.patch), pre={}, post={}, rules=Rules(), complete=False)
        trial = tree.copy()
        result = back.on(trial)
        if result.ok and result.state in ("applies", "offset") and result.done == 0:
            tree = trial
            there.add(number)
    if not there:
        return None
    results = []
    for number, job in enumerate(jobs):
        result = job.on(tree)
        if not result.ok:
            return None
        results.append(_as_applied(result) if number in there else result)
    return tuple(results), tree


def _as_applied(result: PatchResult) -> PatchResult:
    why = "there already: taking it back and putting it in again gives the same files"
    files = tuple(
        replace(
            file, state="applied", before=file.after, done=file.total, why=why,
            hunks=tuple(hunk._replace(state="applied", why=why) for hunk in file.hunks),
        )
        for file in result.files
    )  # fmt: skip
    return replace(result, state="applied", files=files, changes={}, modes={}, done=result.total)
