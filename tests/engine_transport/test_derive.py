"""Derived images in every engine: one small layer, the same each time, checked, and never in somebody's way."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from patchkit.errors import BadInput, PatchkitError, Refused, Unreachable
from patchkit.images import daemon_write, edit
from patchkit.images.daemon import DaemonImage
from patchkit.images.engine import TEMPORARY_LABEL, Engine, EngineError, engine
from patchkit.images.layer import Layer, build_layer, sha256
from patchkit.images.model import Change, Derived, Reference, Run
from tests import images
from tests.engine_transport.conftest import PYTHON, SITE, Place, cache_of, derivation
from tests.engine_transport.users import as_user, docker_group

_FILE = f"{SITE}/tinyserve/patched.py"
_OLD = f"{SITE}/tinyserve/__init__.py"
_NEW = Change(_FILE, b"VALUE = 'patched'\n", 0o640, 1000, 1000)


def _change(image: DaemonImage, path: str = _OLD) -> Change:
    """An edit of a file that is there, with its own mode and owner."""
    entry = image.fs.lstat(path)
    assert entry is not None
    return Change(path, image.fs.read(path) + b"\nPATCHED = True\n", entry.mode, entry.uid, entry.gid)


def _target(place: Place, tag: str = "patched") -> Reference:
    return Reference("docker-daemon", place.name(tag))


def _derive(place: Place, image: DaemonImage, tag: str = "patched", **rules: bool) -> Derived:
    plan = derivation(place, _change(image), _NEW, origin=image.identity.config)
    return image.derive(plan, _target(place, tag), **rules)


def test_the_derived_image_has_one_layer_more_and_runs_the_patched_bytes(every_place: Place) -> None:
    with every_place.open(every_place.load("pure")) as image:
        derived = _derive(every_place, image)
        assert derived.identity.diff_ids[:-1] == image.identity.diff_ids
        assert derived.road.startswith(
            {"docker": "partial archive", "classic28": "partial archive"}.get(every_place.kind, "partial OCI layout")
        )
    with every_place.open(derived.reference.name) as result:
        program = "import tinyserve, tinyserve.patched as p; print(tinyserve.PATCHED, p.VALUE)"
        assert result.run(Run((PYTHON, "-c", program), read_all=True)).stdout == b"True patched\n"
    assert every_place.temporary() == []


def test_the_same_work_gives_the_same_layer_in_every_engine_and_the_same_image_each_time(every_place: Place) -> None:
    with every_place.open(every_place.load("pure")) as image:
        first = _derive(every_place, image)
        second = _derive(every_place, image)
        assert second.existed
        assert second.identity.config == first.identity.config
        every_place.engine.remove_image(first.reference.name)
        third = _derive(every_place, image)
        assert not third.existed
        assert third.identity.config == first.identity.config
        expected = build_layer(image.fs, [_change(image), _NEW])
        assert third.identity.diff_ids[-1] == expected.diff_id
    wanted = edit.derive_config(
        images.build("pure").config,
        derivation(every_place, origin=images.build("pure").image_id),
        expected.diff_id,
    )
    assert third.identity.config == sha256(wanted)


def test_the_config_keeps_everything_but_what_was_meant(every_place: Place) -> None:
    with every_place.open(every_place.load("richconfig")) as image:
        derived = _derive(every_place, image)
        with every_place.open(derived.reference.name) as result:
            assert edit.differences(image.config, result.config) == []
            old, new = json.loads(image.config), json.loads(result.config)
            changed = {key for key in {*old, *new} if old.get(key) != new.get(key)}
            assert changed == {"config", "history", "rootfs"}
            assert len(new["history"]) == len(old["history"]) + 1
            inner = {
                key for key in {*old["config"], *new["config"]} if old["config"].get(key) != new["config"].get(key)
            }
            assert inner == {"Labels"}


def test_files_and_their_folders_keep_mode_owner_and_time(place: Place) -> None:
    path = f"{SITE}/vllm/__init__.py"
    with place.open(place.load("nonroot")) as image:
        folders = {folder: image.fs.lstat(folder) for folder in ("/opt/venv", SITE, f"{SITE}/vllm")}
        original = image.fs.lstat(path)
        plan = derivation(place, _change(image, path), origin=image.identity.config)
        derived = image.derive(plan, _target(place))
    with place.open(derived.reference.name) as result:
        for folder, entry in folders.items():
            assert result.fs.lstat(folder) == entry
        assert original is not None
        assert result.fs.lstat(path) == dataclasses.replace(
            original, size=original.size + len(b"\nPATCHED = True\n"), mtime=original.mtime + 1
        )


def test_removed_files_are_gone(place: Place) -> None:
    with place.open(place.load("pure")) as image:
        derived = image.derive(derivation(place, Change(_OLD, None), _NEW), _target(place))
    with place.open(derived.reference.name) as result:
        assert result.fs.lstat(_OLD) is None
        assert "patched.py" in result.fs.listdir(f"{SITE}/tinyserve")


def test_an_entrypoint_is_replaced_only_where_asked_and_the_command_stays(place: Place) -> None:
    with place.open(place.load("richconfig")) as image:
        plan = derivation(place, _NEW, entrypoint=(PYTHON, "-c", "pass"), origin=image.identity.config)
        derived = image.derive(plan, _target(place))
        before = json.loads(image.config)["config"]
    with place.open(derived.reference.name) as result:
        after = json.loads(result.config)["config"]
        assert after["Entrypoint"] == [PYTHON, "-c", "pass"]
        assert after.get("Cmd") == before.get("Cmd")


def test_a_second_run_on_the_derived_image_starts_from_the_origin_and_stays_one_layer(every_place: Place) -> None:
    with every_place.open(every_place.load("pure")) as image:
        first = _derive(every_place, image)
        with every_place.open(first.reference.name) as patched:
            again = patched.derive(
                derivation(every_place, _NEW, origin=image.identity.config), _target(every_place, "again")
            )
        assert again.identity.diff_ids[:-1] == image.identity.diff_ids


def test_the_origin_is_the_very_image_while_it_is_there_and_restored_to_the_byte_when_it_is_gone(
    every_place: Place,
) -> None:
    name, config = every_place.load_own("richconfig")
    with every_place.open(name) as image:
        derived = _derive(every_place, image)
        gone, manifest = image.id, image.identity.manifest
        with every_place.open(derived.reference.name) as patched, patched.origin() as origin:
            assert isinstance(origin, DaemonImage)
            assert origin.id == gone
    every_place.engine.remove_image(name)  # its layers live on in the derived image
    assert every_place.engine.inspect_image(gone) is None
    with every_place.open(derived.reference.name) as patched:
        with patched.origin() as origin:
            assert isinstance(origin, DaemonImage)
            assert origin.config == config
            assert origin.id == gone
            assert origin.identity.manifest == manifest
            assert origin.fs.lstat(_FILE) is None
            assert origin.fs.lstat(_OLD) is not None
        assert every_place.engine.inspect_image(gone) is None, "restored for a moment only"
        again = patched.derive(derivation(every_place, _NEW, origin=gone), _target(every_place, "again"))
        assert again.identity.diff_ids[:-1] == derived.identity.diff_ids[:-1]
    assert every_place.engine.inspect_image(gone) is None


def test_work_that_somebody_put_on_a_derived_image_is_kept(every_place: Place) -> None:
    with every_place.open(every_place.load("pure")) as image:
        first = _derive(every_place, image)
    theirs = every_place.name("theirs")
    _build(every_place, f"FROM {first.reference.name}\nLABEL maintainer=them\nADD own.txt /own.txt\n", theirs)
    with every_place.open(theirs) as image:
        assert edit.LABEL + "fingerprint" in edit.labels(json.loads(image.config))  # inherited, and no proof
        assert image.origin() is image
        plan = derivation(every_place, _change(image, "/own.txt"), origin=image.identity.config)
        derived = image.derive(plan, _target(every_place, "on-top"))
    with every_place.open(derived.reference.name) as result:
        assert result.identity.diff_ids[:-1] == image.identity.diff_ids
        assert result.fs.read("/own.txt") == b"their work\nPATCHED = True\n"
        assert result.fs.read(_FILE) == b"VALUE = 'patched'\n"
        assert edit.labels(json.loads(result.config))["maintainer"] == "them"


def test_a_tag_that_holds_somebody_elses_image_is_refused_without_force(place: Place) -> None:
    taken = place.load("richconfig", "taken")
    holder = place.engine.inspect_image(taken)
    with place.open(place.load("pure")) as image:
        with pytest.raises(Refused) as caught:
            _derive(place, image, "taken")
        assert caught.value.code == "target-tag-taken"
        assert place.engine.inspect_image(taken) == holder
        derived = _derive(place, image, "taken", force=True)
        assert derived.reference.name == taken
        assert _derive(place, image, "taken").existed, "an own tag is taken again without force"


def test_a_tag_that_holds_what_somebody_built_on_our_image_is_somebody_elses(place: Place) -> None:
    with place.open(place.load("pure")) as image:
        first = _derive(place, image)
        theirs = place.name("theirs")
        _build(place, f"FROM {first.reference.name}\nADD own.txt /own.txt\n", theirs)
        with pytest.raises(Refused) as caught:
            _derive(place, image, "theirs")
        assert caught.value.code == "target-tag-taken"


def test_the_source_tag_is_overwritten_only_in_place(place: Place) -> None:
    name = place.load("pure")
    with place.open(name) as image:
        with pytest.raises(Refused) as caught:
            _derive(place, image, "nightly")
        assert caught.value.code == "target-is-source"
        with pytest.raises(Refused):
            _derive(place, image, "nightly", force=True)
        derived = _derive(place, image, "nightly", in_place=True)
    assert place.engine.inspect_image(name)["RootFS"]["Layers"] == list(derived.identity.diff_ids)  # type: ignore[index]


def test_a_target_in_another_transport_is_bad_input(docker_place: Place) -> None:
    with docker_place.open(docker_place.load("pure")) as image, pytest.raises(BadInput):
        image.derive(derivation(docker_place, _NEW), Reference("oci", "/tmp/layout:x"))


def test_a_tag_moved_between_read_and_write_is_noticed_and_nothing_is_written(place: Place) -> None:
    name = place.load("pure")
    place.load("richconfig", "other")
    with place.open(name) as image:
        wanted = _expected_id(place, image)
        place.engine.tag(place.name("other"), name)
        with pytest.raises(Refused) as caught:
            _derive(place, image)
    assert caught.value.code == "tag-moved"
    assert place.engine.inspect_image(wanted) is None


def test_a_tag_moved_during_the_write_is_noticed_and_the_new_image_removed(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = place.load("pure")
    place.load("richconfig", "other")
    real = daemon_write.read_back

    def and_meanwhile(*arguments: object) -> None:
        real(*arguments)  # type: ignore[arg-type]
        place.engine.tag(place.name("other"), name)

    monkeypatch.setattr(daemon_write, "read_back", and_meanwhile)
    with place.open(name) as image:
        wanted = _expected_id(place, image)
        with pytest.raises(Refused, match="another image now"):
            _derive(place, image)
    assert place.engine.inspect_image(wanted) is None
    assert place.engine.inspect_image(place.name("patched")) is None


def test_an_engine_that_took_something_else_is_noticed_and_the_new_image_removed(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("patchkit.images.readback.file_faults", lambda *_: ["/x: other bytes"])
    with place.open(place.load("pure")) as image:
        wanted = _expected_id(place, image)
        with pytest.raises(Refused) as caught:
            _derive(place, image)
    assert caught.value.code == "read-back"
    assert caught.value.details
    assert place.engine.inspect_image(wanted) is None
    assert place.engine.inspect_image(place.name("patched")) is None
    assert place.temporary() == []


def test_reading_back_asks_the_engine_whatever_the_cache_knows(
    place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cache_of(tmp_path, monkeypatch)
    with place.open(place.load("pure")) as image:
        derived = _derive(place, image)
        with place.open(derived.reference.name) as result:
            result.fs.lstat(_FILE)
        for kept in tmp_path.glob("files/*.json"):
            kept.write_text(kept.read_text().replace('"file"', '"dir"'))
        assert _derive(place, image).existed


@pytest.mark.parametrize("kind", ["docker", "containerd", "classic28"])
def test_a_layer_that_lies_about_its_diff_id_is_refused_and_nothing_is_left(
    kind: str, hosts: Callable[[str], str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(kind, engine(hosts(kind)), f"patchkit-test-lie-{kind}")

    def lie(*arguments: object) -> Layer:
        true = build_layer(*arguments)  # type: ignore[arg-type]
        return dataclasses.replace(true, diff_id="sha256:" + "1" * 64)

    monkeypatch.setattr(daemon_write, "build_layer", lie)
    monkeypatch.setattr(daemon_write, "_build", _no_build)
    try:
        with place.open(place.load("pure")) as image, pytest.raises(PatchkitError):
            _derive(place, image)
        assert place.engine.inspect_image(place.name("patched")) is None
    finally:
        place.clean()


def test_an_error_in_the_stream_of_a_load_is_raised(place: Place) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        data = json.dumps([{"Config": "no.json", "RepoTags": [], "Layers": []}]).encode()
        member = tarfile.TarInfo("manifest.json")
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))
    with pytest.raises(EngineError):
        list(place.engine.stream("POST", "/images/load", data=buffer.getvalue()))


def test_too_many_layers_are_refused_before_anything_is_written(
    docker_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edit, "MAX_LAYERS", 2)
    with docker_place.open(docker_place.load("pure")) as image, pytest.raises(Refused) as caught:
        _derive(docker_place, image)
    assert caught.value.code == "too-many-layers"


@pytest.mark.parametrize("kind", ["docker", "containerd", "classic28"])
def test_where_no_raw_config_is_to_be_had_a_build_makes_the_image(
    kind: str, hosts: Callable[[str], str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(kind, engine(hosts(kind)), f"patchkit-test-build-{kind}")
    monkeypatch.setattr("patchkit.images.daemon.documents", lambda *_: None)
    try:
        with place.open(place.load("richconfig")) as image:
            plan = derivation(place, _change(image), _NEW, entrypoint=("/bin/true",), origin=image.identity.config)
            first = image.derive(plan, _target(place))
            assert first.road.startswith("build, since")
            second = image.derive(plan, _target(place))
            assert second.existed
            assert second.identity == dataclasses.replace(first.identity, repo_digests=second.identity.repo_digests)
            command = image.inspected["Config"]["Cmd"]
        with place.open(first.reference.name) as result:
            assert result.fs.read(_FILE) == _NEW.data
            assert result.inspected["Config"]["Entrypoint"] == ["/bin/true"]
            assert result.inspected["Config"]["Cmd"] == command
            with result.origin() as origin:
                assert isinstance(origin, DaemonImage)
                assert origin.id == image.id
        tags = [tag for item in place.engine.images() for tag in item.get("RepoTags") or []]
        assert not [tag for tag in tags if tag.startswith("patchkit-temporary:")]
    finally:
        place.clean()


def _take_no_partial_images(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise EngineError(0, "no partial archives here", where="load")

    monkeypatch.setattr(daemon_write, "_load", refuse)


def test_an_engine_that_refuses_the_partial_image_gets_a_build_and_the_reason_is_told(
    docker_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    _take_no_partial_images(monkeypatch)
    with docker_place.open(docker_place.load("pure")) as image:
        derived = _derive(docker_place, image)
    assert (
        derived.road == "build, since the engine took no partial image: the engine answered: no partial archives here"
    )


def test_a_build_is_no_image_of_the_same_labels_whose_files_are_others(
    docker_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    _take_no_partial_images(monkeypatch)
    with docker_place.open(docker_place.load("pure")) as image:
        for receipt in (b"{}", b"[]"):
            changes = (_change(image), dataclasses.replace(_NEW, data=receipt))
            plan = derivation(docker_place, *changes, origin=image.identity.config)
            derived = image.derive(plan, _target(docker_place))
            with docker_place.open(derived.reference.name) as result:
                assert result.fs.read(_NEW.path) == receipt


def test_a_removal_that_no_road_can_do_is_refused_and_not_left_out(
    docker_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("patchkit.images.daemon.documents", lambda *_: None)
    with docker_place.open(docker_place.load("pure")) as image, pytest.raises(Unreachable) as caught:
        image.derive(derivation(docker_place, Change(_OLD, None)), _target(docker_place))
    assert caught.value.code == "no-road"


def test_where_owners_cannot_be_told_no_layer_is_written(
    hosts: Callable[[str], str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("patchkit.images.daemon.overlay_folders", lambda *_: None)
    place = Place("podman", engine(hosts("podman")), "patchkit-test-owners")
    try:
        with place.open(place.load("nonroot")) as image, pytest.raises(Unreachable) as caught:
            image.derive(derivation(place, _NEW), _target(place))
        assert caught.value.code == "owners-unknown"
        assert "podman unshare" in str(caught.value.remedy)
    finally:
        place.clean()


def test_two_derivations_at_once_make_the_same_image(every_place: Place) -> None:
    name = every_place.load("pure")
    results: list[Derived] = []
    faults: list[BaseException] = []

    def derive() -> None:
        try:
            mine = Place(every_place.kind, engine(every_place.engine.host), every_place.prefix)
            with mine.open(name) as image:
                results.append(_derive(mine, image))
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=derive) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults
    assert len({result.identity.config for result in results}) == 1


def test_an_engine_that_dies_in_the_middle_leaves_the_tag_as_it_was(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> None:
        raise Unreachable("engine-unreachable", "the engine cannot be reached")

    with place.open(place.load("pure")) as image:
        wanted = _expected_id(place, image)
        with monkeypatch.context() as patch:
            patch.setattr(Engine, "tag", die)
            with pytest.raises(Unreachable):
                _derive(place, image)
    assert place.engine.inspect_image(place.name("patched")) is None
    assert place.engine.inspect_image(wanted) is None


def test_a_run_that_is_killed_at_any_moment_leaves_the_old_tag_or_the_new_one(place: Place) -> None:
    name = place.load("pure")
    target = place.name("patched")
    program = f"""
import os, sys
from patchkit.images.daemon import DaemonImage
from patchkit.images.engine import engine
from patchkit.images.model import Change, Derivation, Reference
print("started", flush=True)
with DaemonImage(engine({place.engine.host!r}), Reference("docker-daemon", {name!r})) as image:
    labels = {{"dev.patchkit.fingerprint": sys.argv[1]}}
    plan = Derivation((Change({_FILE!r}, sys.argv[1].encode()),), labels, "patchkit apply test@1")
    image.derive(plan, Reference("docker-daemon", {target!r}))
"""
    old = b""
    pids = []
    for number in range(8):
        new = f"value {place.prefix} {number}".encode()
        command = [sys.executable, "-c", program, new.decode()]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        pids.append(process.pid)
        assert process.stdout is not None
        process.stdout.readline()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.06 * number)
        process.kill()
        process.wait()
        if place.engine.inspect_image(target) is not None:
            with place.open(target) as image:
                found = image.fs.read(_FILE)
                assert found in (old, new)
                assert image.identity.diff_ids[:-1] == tuple(
                    json.loads(images.build("pure").config)["rootfs"]["diff_ids"]
                )
                old = found
        else:
            assert old == b"", "a tag that was there is gone"
    assert subprocess.run([sys.executable, "-c", program, "at last"]).returncode == 0
    with place.open(target) as image:
        assert image.fs.read(_FILE) == b"at last"
    # An engine may finish making a container after whoever asked for it was killed; the next sweep takes it.
    place.engine.sweep()
    left = [item["Labels"][TEMPORARY_LABEL] for item in place.engine.leftovers()]
    assert not [label for label in left if any(f".{pid}." in label for pid in pids)]


def test_a_member_of_the_docker_group_derives_the_same_image_as_root(
    docker_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache_of(Path("/nowhere"), monkeypatch)  # whoever may not write a cache goes without
    name = docker_place.load("pure")
    with docker_place.open(name) as image:
        by_root = _derive(docker_place, image, "by-root")
    docker_place.engine.remove_image(by_root.reference.name)

    def derive() -> object:
        mine = Place("docker", engine(), docker_place.prefix)
        with mine.open(name) as image:
            derived = _derive(mine, image, "by-group")
            return derived.identity.config, derived.existed, derived.road

    config, existed, road = as_user(derive, groups=(docker_group(),))
    assert (config, existed) == (by_root.identity.config, False)
    assert road == "partial archive, config from the image store, mounted"


def test_a_derivation_sends_the_patch_and_not_the_image_in_a_dozen_calls(
    docker_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []
    real = Engine.call

    def count(self: Engine, method: str, path: str, **rest: Any) -> Any:
        sent.append(len(rest.get("data") or b""))
        return real(self, method, path, **rest)

    name = docker_place.load("xpu")
    docker_place.engine.info  # noqa: B018 - asked once a process, whatever is done then
    monkeypatch.setattr(Engine, "call", count)
    with docker_place.open(name) as image:
        image.derive(derivation(docker_place, _NEW), _target(docker_place))
    assert sum(sent) <= 32 * 1024
    assert len(sent) <= 12


def test_the_default_name_is_the_sources_with_a_suffix_or_the_id(docker_place: Place) -> None:
    name = docker_place.load("pure")
    with docker_place.open(name) as image:
        assert image.default_target().name == f"{name}-patchkit"
        digits = image.id.removeprefix("sha256:")
    with docker_place.open(image.id) as by_id:
        assert by_id.default_target().name == f"patchkit-{digits[:12]}"
    with docker_place.open(digits[:16]) as by_short_id:
        assert by_short_id.default_target().name == f"patchkit-{digits[:12]}"


def _expected_id(place: Place, image: DaemonImage) -> str:
    """The ID that the derived image of ``_derive`` will have."""
    plan = derivation(place, _change(image), _NEW, origin=image.identity.config)
    layer = build_layer(image.fs, plan.changes)
    config = edit.derive_config(image.config, plan, layer.diff_id)
    manifest = image.documents.manifest if image.documents is not None else None
    if manifest is not None and image.engine.store == "containerd":
        return sha256(edit.derive_manifest(manifest, config, layer, plan))
    return sha256(config)


def _no_build(*_: object) -> str:
    raise EngineError(0, "no builds in this test", where="build")


def _build(place: Place, dockerfile: str, tag: str) -> None:
    """Build an image as somebody else would."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, data in (("Dockerfile", dockerfile.encode()), ("own.txt", b"their work")):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    params = {"t": tag, "version": "1" if place.kind == "podman" else "2"}
    headers = {"Content-Type": "application/x-tar"}
    for _ in place.engine.stream("POST", "/build", params=params, data=buffer.getvalue(), headers=headers):
        pass
