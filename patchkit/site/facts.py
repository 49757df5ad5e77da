"""The facts about one package in one image under one launch: read, asked of the interpreter, and compared."""

from __future__ import annotations

import base64
import hashlib
import json
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from patchkit import __version__, cache
from patchkit.errors import Refused, Unreachable
from patchkit.images.model import Entry, Subject
from patchkit.site.copies import find_copies
from patchkit.site.entry import doubts
from patchkit.site.model import Compiled, Copy, Disagreement, FileFact, Launch, Site, module_of
from patchkit.site.probe import Answer, Question, ask
from patchkit.site.pycache import stems_of
from patchkit.site.record import Dist, dists_in, find_dist
from patchkit.site.shipped import parse_record
from patchkit.site.static import Module, Search, find_module, search_of
from patchkit.site.view import View

_TIMEOUT = 30.0  # seconds for finding and hashing, which take well under one
_PYC_HEAD = 16  # magic, flags, and mtime with size or the source's hash: PEP 552


def site_facts(
    image: Subject,
    launch: Launch,
    package: str,
    files: Sequence[str],
    *,
    decoys: Sequence[str] = (),
    everything: bool = False,
    run: bool = True,
    copy: str = "",
) -> Site:
    """The facts about ``package`` and about ``files`` (paths relative to the copy's base, ``vllm/models/x.py``).

    Read from the files always; asked of the interpreter too where the image can run here and ``run`` allows it. Where
    the two differ both answers are kept in ``disagreements``. ``copy`` names another copy than the winner (its root or
    its base) for ``files`` and the version. Facts are kept in the cache by image ID, launch and question.

    Raises:
        patchkit.errors.Refused: ``launch-unknown``, ``interpreter-unknown``, ``copy-unknown``.
        patchkit.errors.Unreachable: the image cannot be read.
    """
    asks = run and image.can_run
    question = [__version__, asdict(launch), package, list(files), list(decoys), everything, asks, copy]
    names = json.dumps([image.identity.config, image.identity.diff_ids, question], sort_keys=True)
    place = cache.folder("facts") / f"{hashlib.sha256(names.encode()).hexdigest()}.json"
    # An unpacked root or a running container has no name for what it holds: it may change under the same identity.
    kept = image.reference.transport not in ("rootfs", "container")
    if kept and (known := _cached(cache.read(place))) is not None:
        return replace(known, launch=launch)
    site = _read(image, launch, package, files, decoys, everything, copy)
    answered = True
    if asks:
        site, answered = _compare(image, site, package, files)
    # An answer that did not come may come the next time: it is no fact about the image.
    if kept and answered:
        # The environment may hold secrets, and is known where the facts are asked for.
        without = replace(site, launch=replace(site.launch, env={}))
        cache.write(place, json.dumps(to_json(without), sort_keys=True).encode())
    return site


def _cached(data: bytes | None) -> Site | None:
    try:
        return None if data is None else from_json(json.loads(data))
    except (ValueError, KeyError, TypeError):
        return None


def _read(
    image: Subject,
    launch: Launch,
    package: str,
    files: Sequence[str],
    decoys: Sequence[str],
    everything: bool,
    wanted: str,
) -> Site:
    """The facts by reading alone."""
    view = View(image.fs)
    search = search_of(view, launch)
    copies = find_copies(view, launch, package, decoys=decoys, everything=everything)
    winner = next((copy for copy in copies if copy.serves), None)
    chosen = _choose(view, copies, wanted) if wanted else winner
    dist = None if chosen is None else _dist_of(view, search, chosen, package)
    shipped = parse_record(view.read(dist.record) or b"") if dist is not None and dist.record else {}
    facts: dict[str, FileFact | None] = {}
    pycs: dict[str, Compiled] = {}
    # A namespace package lies in several places at once: the first of them that holds a file is where it is taken from.
    places = [chosen] if wanted else [copy for copy in copies if copy.serves]
    for file in files:
        found = (
            _fact(view, copy.place_of(package, file), shipped.get(file, "")) for copy in places if copy is not None
        )
        fact = next((one for one in found if one is not None), None)
        facts[file] = fact
        if fact is not None:
            pycs.update(_pycs(view, launch, search, file, fact.path))
    return Site(
        launch=launch,
        python=search.python.version,
        search_path=search.path,
        copies=copies,
        winner=winner,
        dist_info=dist.path if dist is not None else "",
        version=(dist.version if dist is not None else "") or (chosen.version if chosen is not None else ""),
        files=facts,
        pycs=pycs,
        notes=(*search.notes, *_path_changes(view, search, files), *doubts(view, search, launch, package)),
        chosen=chosen,
    )


def copy_of(site: Site, package: str) -> Copy:
    """The copy that the facts are about.

    Raises:
        patchkit.errors.Refused: ``package-absent``, the launch imports none and no other was named.
    """
    if site.chosen is None:
        raise Refused(
            "package-absent",
            f"{site.launch.source or 'the launch'} imports no copy of {package}",
            where=site.launch.interpreter,
            remedy="name another start with --launch, or a copy with --copy PATH",
            details=[f"there is one at {copy.root}, which it does not import" for copy in site.copies],
        )
    return site.chosen


def _path_changes(view: View, search: Search, files: Sequence[str]) -> list[str]:
    """Packages on the way to the files that change, when they are imported, where their submodules are looked for."""
    names = [module_of(file).split(".") for file in files]
    packages = dict.fromkeys(".".join(name[:end]) for name in names for end in range(1, len(name)))
    found = []
    for package in packages:
        module = find_module(view, search, package)
        if module is not None and module.kind == "source" and b"__path__" in (view.read(module.origin) or b""):
            found.append(f"{module.origin} names __path__: at import it may look for its modules elsewhere")
    return found


def _choose(view: View, copies: Sequence[Copy], wanted: str) -> Copy:
    real = view.real(wanted)
    for copy in copies:
        if real in (copy.root, copy.base):
            return copy
    raise Refused(
        "copy-unknown",
        "no copy of the package lies there",
        where=wanted,
        remedy="give --copy one of the places listed",
        details=[copy.root for copy in copies],
    )


def _dist_of(view: View, search: Search, copy: Copy, package: str) -> Dist | None:
    found = find_dist(view, copy.base, package)
    if found is not None:
        return found
    for entry in search.path:
        for dist in dists_in(view, entry):
            if dist.editable and f"{copy.root}/".startswith(f"{dist.editable.rstrip('/')}/"):
                return dist
    return None


def _fact(view: View, path: str, shipped: str) -> FileFact | None:
    entry = view.stat(path)
    if entry is None or entry.kind != "file":
        return None
    return FileFact(entry.path, entry, view.fs.read(entry.path), shipped)


def _pycs(view: View, launch: Launch, search: Search, file: str, path: str) -> dict[str, Compiled]:
    if not file.endswith(".py"):
        return {}
    module = find_module(view, search, module_of(file))
    names = [path, *([module.origin] if module is not None and view.real(module.origin) == path else [])]
    places = []
    for folder, stem in map(posixpath.split, stems_of(launch, names)):
        found = (name for name in view.names(folder) if name.startswith(f"{stem}.") and name.endswith(".pyc"))
        places += [posixpath.join(folder, name) for name in found]
    places += [f"{name}c" for name in names]
    heads = {view.real(place): view.read(place) for place in sorted(places)}
    return {place: Compiled(path, data[:_PYC_HEAD]) for place, data in heads.items() if data is not None}


def _compare(image: Subject, site: Site, package: str, files: Sequence[str]) -> tuple[Site, bool]:
    """Ask the interpreter the same, and keep both answers where they differ. Also gives whether it answered."""
    view = View(image.fs)
    search = search_of(view, site.launch)
    modules = [package, *(name for file in files if (name := module_of(file)) and name != package)]
    paths = [fact.path for fact in site.files.values() if fact is not None]
    try:
        question = Question(modules=modules, files=paths, timeout=_TIMEOUT)
        answer = ask(image, site.launch, question, read_all=True)
    except Unreachable as error:
        if error.code != "cannot-run":
            raise
        return replace(site, notes=(*site.notes, f"the interpreter could not be asked: {error.what}")), False
    differs = compare(view, search, answer, modules)
    for path, told in answer.table("files").items():
        fact = next((fact for fact in site.files.values() if fact is not None and fact.path == path), None)
        here = hashlib.sha256(fact.data).hexdigest() if fact is not None else "missing"
        there = told.get("sha256", told.get("kind")) if isinstance(told, Mapping) else "missing"
        if here != there:
            differs.append(Disagreement(f"the bytes of {path}", here, str(there)))
    told_version = answer.parts.get("version")
    python = site.python
    if isinstance(told_version, list) and told_version[:2] == list(python[:2]) and len(told_version) == 3:
        micro = told_version[2]
        python = (*python[:2], micro) if isinstance(micro, int) else python
    return replace(site, python=python, how="both", disagreements=tuple(differs)), answer.spoke


def compare(view: View, search: Search, answer: Answer, modules: Sequence[str]) -> list[Disagreement]:
    """Where the interpreter's own search differs from the one read from the files."""
    version = ".".join(str(number) for number in search.python.version[:2])
    if not answer.spoke:
        said = f"no answer as a Python gives it: {answer.how_it_ended}"
        return [Disagreement("the interpreter", f"CPython {version} at {search.python.real}", said)]
    differs: list[Disagreement] = []
    told_version = answer.parts.get("version")
    told = ".".join(str(number) for number in told_version[:2]) if isinstance(told_version, list) else "none"
    if told != version:
        differs.append(Disagreement("Python's version", version, told))
    told_path = answer.parts.get("search_path")
    if told_path != list(search.path):
        words = ":".join(str(entry) for entry in told_path) if isinstance(told_path, list) else "none"
        differs.append(Disagreement("the search path", ":".join(search.path), words))
    answers = answer.table("modules")
    for name in modules:
        here = place(view, find_module(view, search, name))
        there = told_place(view, answers.get(name))
        if here != there:
            differs.append(Disagreement(f"import {name}", here, there))
    return differs


def place(view: View, module: Module | None) -> str:
    """Where a module was found, in words that both ways share: its file's real path, or its folders'."""
    if module is None:
        return "not found"
    if module.kind == "namespace":
        return "namespace over " + ", ".join(view.real(folder) for folder in module.locations)
    return module.origin if module.kind == "zip" else view.real(module.origin)


def told_place(view: View, told: object) -> str:
    """The same words for what the interpreter told."""
    if not isinstance(told, Mapping):
        return "not found"
    if "error" in told:
        return f"error: {told['error']}"
    locations = told.get("locations")
    if told.get("kind") == "namespace" and isinstance(locations, list):
        return "namespace over " + ", ".join(view.real(str(folder)) for folder in locations)
    origin = str(told.get("origin"))
    return origin if told.get("kind") == "zip" else view.real(origin)


def to_json(site: Site) -> dict[str, Any]:
    """The facts as plain JSON values."""
    data = asdict(replace(site, files={}, pycs={}))
    data["files"] = {name: None if fact is None else _fact_json(fact) for name, fact in site.files.items()}
    data["pycs"] = {path: [pyc.source, pyc.head.hex()] for path, pyc in site.pycs.items()}
    return data


def _fact_json(fact: FileFact) -> dict[str, Any]:
    entry = asdict(replace(fact.entry, xattrs={}))
    entry["xattrs"] = {name: value.hex() for name, value in fact.entry.xattrs.items()}
    return {
        "path": fact.path,
        "entry": entry,
        "data": base64.b64encode(fact.data).decode(),
        "shipped": fact.shipped,
    }


def from_json(data: Mapping[str, Any]) -> Site:
    """The facts that ``to_json`` wrote. Raises ValueError (or KeyError, TypeError) on anything else."""
    copies = tuple(_copy_from(item) for item in data["copies"])
    launch = data["launch"]
    first, second, third = data["python"]
    return Site(
        launch=Launch(**{**launch, "flags": tuple(launch["flags"])}),
        python=(first, second, third),
        search_path=tuple(data["search_path"]),
        copies=copies,
        winner=None if data["winner"] is None else _copy_from(data["winner"]),
        dist_info=data["dist_info"],
        version=data["version"],
        files={name: None if fact is None else _fact_from(fact) for name, fact in data["files"].items()},
        pycs={path: Compiled(source, bytes.fromhex(head)) for path, (source, head) in data["pycs"].items()},
        how=data["how"],
        disagreements=tuple(Disagreement(**item) for item in data["disagreements"]),
        notes=tuple(data["notes"]),
        chosen=None if data["chosen"] is None else _copy_from(data["chosen"]),
    )


def _copy_from(data: Mapping[str, Any]) -> Copy:
    return Copy(**{**data, "wins_for": tuple(data["wins_for"])})


def _fact_from(data: Mapping[str, Any]) -> FileFact:
    entry = dict(data["entry"])
    entry["xattrs"] = {name: bytes.fromhex(value) for name, value in entry["xattrs"].items()}
    return FileFact(data["path"], Entry(**entry), base64.b64decode(data["data"]), data["shipped"])
