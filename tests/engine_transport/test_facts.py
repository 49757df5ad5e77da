"""Identity, raw config and files of an image in an engine: the same truth by every road."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from patchkit.errors import Refused
from patchkit.images import daemon_files, edit
from patchkit.images.daemon_files import ArchiveFilesystem, OverlayFilesystem
from patchkit.images.daemon_store import _Reader
from patchkit.images.engine import Engine, engine
from patchkit.images.layer import sha256
from tests import images
from tests.engine_transport.conftest import SITE, Place, cache_of
from tests.engine_transport.users import as_user, docker_group


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    cache_of(tmp_path_factory.mktemp("cache"), monkeypatch)


def _no_local_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for a user who may not read the engine's data folder."""
    monkeypatch.setattr(_Reader, "_local", lambda *_: None)
    monkeypatch.setattr("patchkit.images.daemon.overlay_folders", lambda *_: None)


def test_the_identity_is_the_same_in_every_store(every_place: Place) -> None:
    fixture = images.build("pure")
    with every_place.open(every_place.load("pure")) as image:
        assert image.identity.config == fixture.image_id
        assert list(image.identity.diff_ids) == json.loads(fixture.config)["rootfs"]["diff_ids"]
        assert image.identity.platform == "linux/amd64"
        assert (image.identity.manifest is not None) == (every_place.kind == "containerd")
        assert every_place.engine.store == {"docker": "classic", "classic28": "classic"}.get(
            every_place.kind, every_place.kind
        )


def test_the_raw_config_is_had_byte_for_byte_with_keys_nobody_knows(every_place: Place) -> None:
    with every_place.open(every_place.load("richconfig")) as image:
        assert image.config == images.build("richconfig").config
        assert image.documents is not None
        assert image.documents.road == "image store"


def test_where_the_store_cannot_be_read_here_it_is_shown_to_a_container_that_never_starts(
    place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _no_local_reading(monkeypatch)
    cache_of(tmp_path, monkeypatch)
    before = place.temporary()
    name = place.load("richconfig")
    with place.open(name) as image:
        assert image.config == images.build("richconfig").config
        assert image.documents is not None
        assert image.documents.road == "image store, mounted"
    assert place.temporary() == before
    with place.open(name) as again:
        assert again.config == image.config
        assert again.documents is not None
        assert again.documents.road == "cache"


def test_a_cached_config_that_was_tampered_with_is_not_believed(
    docker_place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cache_of(tmp_path, monkeypatch)
    fixture = images.build("pure")
    cached = tmp_path / "documents" / fixture.image_id.removeprefix("sha256:")
    cached.parent.mkdir()
    cached.write_bytes(fixture.config.replace(b"ENTRYPOINT", b"entrypoint") + b" ")
    with docker_place.open(docker_place.load("pure")) as image:
        assert image.config == fixture.config


def test_without_any_road_the_config_is_the_nearest_that_the_api_tells(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("patchkit.images.daemon.documents", lambda *_: None)
    with place.open(place.load("richconfig")) as image:
        told = json.loads(image.config)
        real = json.loads(images.build("richconfig").config)
        assert told["rootfs"] == real["rootfs"]
        for key in ("Env", "Entrypoint", "Cmd", "WorkingDir", "User", "Labels"):
            assert (told["config"].get(key) or None) == (real["config"].get(key) or None), key


def test_a_fact_that_needs_no_container_makes_none(docker_place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> str:
        raise AssertionError("a container was made")

    name = docker_place.load("pure")
    monkeypatch.setattr(Engine, "create", refuse)
    with docker_place.open(name) as image:
        assert image.identity.config == sha256(image.config)
        assert image.fs.lstat(SITE) is not None
        assert "tinyserve" in image.fs.listdir(SITE)
        assert image.default_target().name == docker_place.name("nightly-patchkit")


_PATHS = (
    "/",
    "/opt",
    "/opt/venv",
    "/opt/venv/lib64",
    "/opt/venv/bin/python3",
    f"{SITE}/tinyserve",
    f"{SITE}/tinyserve/__init__.py",
    f"{SITE}/tinyserve/__init__.py/below",
    f"{SITE}/nothing",
    "/etc/passwd",
    "/usr/bin/python3.11",
    "/tmp",
)


@pytest.mark.parametrize("variant", ["pure", "nonroot"])
def test_the_archive_road_and_the_layer_folders_tell_the_same(variant: str, docker_place: Place) -> None:
    with docker_place.open(docker_place.load(variant)) as image:
        fast = image.fs
        assert isinstance(fast, OverlayFilesystem)
        slow = ArchiveFilesystem(docker_place.engine, image.id)
        site = f"{SITE}/vllm/__init__.py" if variant == "nonroot" else f"{SITE}/tinyserve/__init__.py"
        try:
            for path in (*_PATHS[1:], site):
                assert fast.lstat(path) == slow.lstat(path), path
            assert fast.read(site) == slow.read(site)
            assert fast.listdir("/opt/venv/bin") == slow.listdir("/opt/venv/bin")
            assert not fast.listdir("/opt/venv/nothing")
            assert not slow.listdir("/opt/venv/nothing")
        finally:
            slow.close()


def test_every_engine_tells_the_files_that_the_fixture_holds(place: Place) -> None:
    root = images.rootfs("pure")
    with place.open(place.load("pure")) as image:
        for path in _PATHS[1:]:
            here = root / path.lstrip("/")
            entry = image.fs.lstat(path)
            try:
                status = os.lstat(here)
            except (FileNotFoundError, NotADirectoryError):
                assert entry is None, path
                continue
            assert entry is not None, path
            assert (entry.mode, entry.uid, entry.gid) == (status.st_mode & 0o7777, status.st_uid, status.st_gid), path
            assert entry.mtime == int(status.st_mtime), path
            assert entry.target == (str(here.readlink()) if here.is_symlink() else "")


def test_the_archive_api_follows_no_link_and_reads_no_more_than_was_asked(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    _no_local_reading(monkeypatch)
    with place.open(place.load("pure")) as image:
        link = image.fs.lstat("/opt/venv/lib64")
        assert link is not None
        assert link.kind == "symlink"
        assert os.path.join("/opt/venv", link.target) == "/opt/venv/lib"  # noqa: PTH118 - a path in the image
        assert (
            image.fs.read(f"{SITE}/tinyserve/__init__.py")
            == (images.rootfs("pure") / SITE.lstrip("/") / "tinyserve/__init__.py").read_bytes()
        )
        with pytest.raises(FileNotFoundError):
            image.fs.read("/opt/venv/lib64")
        with pytest.raises(FileNotFoundError):
            image.fs.read("/opt/venv/nothing")
        with pytest.raises(Refused) as caught:
            image.fs.read("/etc/passwd", limit=3)
        assert caught.value.code == "file-too-large"


def test_facts_of_an_image_are_kept_and_the_next_run_makes_no_container(
    place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _no_local_reading(monkeypatch)
    cache_of(tmp_path, monkeypatch)
    name = place.load("pure")
    module = f"{SITE}/tinyserve/__init__.py"

    def facts() -> object:
        with place.open(name) as image:
            files = image.fs
            return [files.lstat(path) for path in _PATHS[1:]], files.read(module), files.listdir(f"{SITE}/tinyserve")

    first = facts()
    made: list[object] = []
    real = Engine.create
    with monkeypatch.context() as patch:
        patch.setattr(Engine, "create", lambda self, spec: made.append(spec) or real(self, spec))
        assert facts() == first
        assert made == []
        for kept in (tmp_path / "files").iterdir():
            kept.write_text('{"form": 1, "entries": {"/etc/passwd": ["file"]}, "names": {}, "contents": {}}')
        assert facts() == first
        assert len(made) >= 1, "what the cache holds makes no sense: everything was asked again"


def test_the_names_in_a_huge_folder_are_asked_of_the_images_python_and_must_fit_what_was_seen(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    _no_local_reading(monkeypatch)
    monkeypatch.setattr(daemon_files, "LIST_BUDGET", 600)
    truth = sorted(path.name for path in (images.rootfs("pure") / SITE.lstrip("/")).iterdir())
    with place.open(place.load("pure")) as image:
        asked: list[str] = []
        real = image._list
        monkeypatch.setattr(image, "_list", lambda path: asked.append(path) or real(path))
        assert list(image.fs.listdir(SITE)) == truth
        assert asked == [SITE]
        lying = ArchiveFilesystem(place.engine, image.id, lambda path: {path: ["only-this"]})
        try:
            assert list(lying.listdir(SITE)) == truth
        finally:
            lying.close()


def test_leaving_the_image_removes_its_container_also_after_an_error(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    _no_local_reading(monkeypatch)
    before = place.temporary()
    name = place.load("pure")

    def fail() -> None:
        with place.open(name) as image:
            image.fs.lstat("/etc/passwd")
            assert len(place.temporary()) == len(before) + 1
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert place.temporary() == before


def test_what_a_killed_run_left_is_found_and_swept_and_a_living_runs_is_not(docker_place: Place) -> None:
    name = docker_place.load("pure")
    program = f"""
import time
from patchkit.images.engine import engine
from patchkit.images.daemon_files import never_started
print(engine().create(never_started({name!r})), flush=True)
time.sleep(600)
"""
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    container = process.stdout.readline().strip()
    try:
        assert container not in [item["Id"] for item in docker_place.engine.leftovers()]
        process.kill()
        process.wait()
        assert container in [item["Id"] for item in docker_place.engine.leftovers()]
        docker_place.engine.sweep()
        assert docker_place.engine.inspect_container(container) is None
    finally:
        process.kill()
        docker_place.engine.remove(container)


def test_only_a_process_that_has_surely_ended_counts_as_dead() -> None:
    from patchkit.images.engine import _is_dead, owner

    mine = owner()
    here, pid, started = mine.rsplit(".", 2)
    assert not _is_dead(mine)
    assert _is_dead(f"{here}.{pid}.{int(started) + 1}"), "the number was given to another process"
    assert not _is_dead(f"another-boot.4026531836.{pid}.1")
    assert not _is_dead("nonsense")
    assert not _is_dead(f"{here}.{pid}.")
    child = subprocess.Popen(["true"])
    child.wait()
    assert _is_dead(f"{here}.{child.pid}.{started}")


@pytest.fixture
def layers(tmp_path: Path) -> Iterator[tuple[list[Path], Path]]:
    """Layer folders with every kind of whiteout, top first, and where the kernel itself shows them merged."""
    if os.geteuid() != 0:
        from tests.conftest import leave_out

        leave_out("mounting an overlay needs root", "run the tests as root")
    folders = [tmp_path / name for name in ("top", "middle", "bottom")]
    top, middle, bottom = folders
    for path, text in {
        bottom / "a/kept": "kept",
        bottom / "a/replaced": "old",
        bottom / "a/removed": "gone",
        bottom / "opaque/old": "hidden",
        bottom / "folder-then-file/x": "x",
        bottom / "file-then-folder": "file",
        bottom / "gone/deep/x": "x",
        bottom / "again/x": "first",
        middle / "a/replaced": "new",
        middle / "opaque/new": "shown",
        middle / "folder-then-file": "file",
        middle / "file-then-folder/x": "x",
        top / "again/y": "second",
    }.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    whiteout = 0o020000
    os.mknod(middle / "a/removed", whiteout, 0)
    os.mknod(middle / "gone", whiteout, 0)
    os.mknod(middle / "again", whiteout, 0)
    os.setxattr(middle / "opaque", "trusted.overlay.opaque", b"y")
    (top / "a").mkdir()
    (top / "a/link").symlink_to("../opaque")
    (top / "a").chmod(0o750)
    os.chown(top / "a", 1000, 1001)
    merged = tmp_path / "merged"
    merged.mkdir()
    lower = ":".join(str(folder) for folder in folders)
    subprocess.run(["mount", "-t", "overlay", "overlay", "-o", f"lowerdir={lower}", merged], check=True)
    try:
        yield folders, merged
    finally:
        subprocess.run(["umount", merged], check=True)


def test_layer_folders_are_merged_as_the_kernel_merges_them(layers: tuple[list[Path], Path]) -> None:
    folders, merged = layers
    files = OverlayFilesystem(folders)
    seen = 0
    names = {path.relative_to(folder) for folder in folders for path in folder.rglob("*")}
    for name in sorted(names):
        real = merged / name
        path = f"/{name}"
        entry = files.lstat(path)
        if not os.path.lexists(real):
            assert entry is None, path
            continue
        seen += 1
        status = real.lstat()
        assert entry is not None, path
        assert (entry.mode, entry.uid, entry.gid, entry.mtime) == (
            status.st_mode & 0o7777,
            status.st_uid,
            status.st_gid,
            int(status.st_mtime),
        )
        if entry.kind == "file":
            assert files.read(path) == real.read_bytes()
        if entry.kind == "dir":
            assert files.listdir(path) == sorted(below.name for below in real.iterdir()), path
    assert seen > 10
    assert files.listdir("/") == sorted(below.name for below in merged.iterdir())


def test_an_overlay_with_features_beyond_whiteouts_is_not_read_by_its_folders(
    docker_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    with docker_place.open(docker_place.load("pure")) as image:
        told = {**docker_place.engine.info, "DriverStatus": [["Native Overlay Diff", "false"]]}
        monkeypatch.setitem(docker_place.engine.__dict__, "info", told)
        assert daemon_files.overlay_folders(docker_place.engine, image.inspected) is None


def test_a_member_of_the_docker_group_who_is_not_root_gets_the_same_facts(
    docker_place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tmp_path.chmod(0o777)
    for folder in tmp_path.parents:
        if folder.is_relative_to("/tmp") and folder != Path("/tmp"):
            folder.chmod(0o755)
    cache_of(tmp_path / "cache", monkeypatch)
    name = docker_place.load("nonroot")
    path = f"{SITE}/vllm/__init__.py"
    with docker_place.open(name) as image:
        wanted = (image.identity, image.config, image.fs.lstat(path), image.fs.read(path), image.fs.lstat(SITE))

    def facts() -> object:
        from tests.engine_transport.conftest import Place as Anywhere

        mine = Anywhere("docker", engine(), docker_place.prefix)
        with mine.open(name) as image:
            assert isinstance(image.fs, ArchiveFilesystem)
            return image.identity, image.config, image.fs.lstat(path), image.fs.read(path), image.fs.lstat(SITE)

    assert as_user(facts, groups=(docker_group(),)) == wanted
    assert edit.is_digest(wanted[0].config)
