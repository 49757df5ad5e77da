"""The output folder may be a person's own: nothing of theirs goes, and nothing stale of ours stays."""

from __future__ import annotations

import fcntl
import hashlib
import json
from pathlib import Path

import pytest

from patchkit import api
from patchkit.api import stacks
from patchkit.errors import Refused
from tests.e2e.conftest import TINY


def test_a_revert_takes_only_what_patchkit_wrote(patchkit, tiny, fixture_layout, tmp_path):
    (tmp_path / "files/mine").mkdir(parents=True)
    (tmp_path / "files/mine/letter").write_text("dear reader")
    image = f"oci:{fixture_layout('pure')}:latest"
    patchkit("apply", "--image", image, *tiny, "--no-run", "--mode", "bind", "--output", ".", status=0)
    (mount,) = json.loads((tmp_path / "receipt.json").read_text())["mounts"]
    patchkit("revert", "--compose", ".", status=0)
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.glob("files/*")] == ["files/mine"]
    assert (tmp_path / "files/mine/letter").read_text() == "dear reader"
    assert mount["source"].startswith(str(tmp_path / "files"))


def test_a_delivery_without_services_leaves_no_overlay_of_the_one_before(patchkit, tiny, fixture_layout, tmp_path):
    options = ["apply", "--image", f"oci:{fixture_layout('pure')}:latest", "--no-run", "--mode", "bind"]
    patchkit(*options, *tiny, status=0)
    assert (tmp_path / ".patchkit/compose.patchkit.yaml").exists()
    catalog = tmp_path / "catalog"
    (catalog / "manifests").mkdir(parents=True)
    (catalog / "patches").mkdir()
    source = tiny[tiny.index("--catalog") + 1]
    for name in ("manifests/tinyserve.yaml", "patches/scale-by-ten.patch"):
        text = Path(source, name).read_text()
        (catalog / name).write_text(text.replace("service: tiny\n", ""))
    patchkit(*options, "--catalog", str(catalog), "--manifest", "tinyserve", status=0)
    assert not (tmp_path / ".patchkit/compose.patchkit.yaml").exists()


def for_arm_too(layout):
    """Make the layout's image one of two platforms with the same files."""
    blobs = layout / "blobs/sha256"

    def put(value):
        data = json.dumps(value).encode()
        digest = hashlib.sha256(data).hexdigest()
        (blobs / digest).write_bytes(data)
        return {"digest": f"sha256:{digest}", "size": len(data)}

    def blob(descriptor):
        return json.loads((blobs / descriptor["digest"].partition(":")[2]).read_bytes())

    index = json.loads((layout / "index.json").read_text())
    (amd64,) = index["manifests"]
    manifest = blob(amd64)
    config = {**manifest["config"], **put({**blob(manifest["config"]), "architecture": "arm64"})}
    arm64 = {"mediaType": amd64["mediaType"], **put({**manifest, "config": config})}
    kind = "application/vnd.oci.image.index.v1+json"
    platforms = [
        {**each, "platform": {"os": "linux", "architecture": name}}
        for each, name in (({**amd64, "annotations": {}}, "amd64"), (arm64, "arm64"))
    ]
    both = put({"schemaVersion": 2, "mediaType": kind, "manifests": platforms})
    index["manifests"] = [{"mediaType": kind, **both, "annotations": amd64["annotations"]}]
    (layout / "index.json").write_text(json.dumps(index))


def test_a_delivery_leaves_no_receipt_of_a_platform_that_only_the_one_before_had(
    patchkit, tiny, fixture_layout, tmp_path
):
    both = fixture_layout("pure")
    for_arm_too(both)
    patchkit("apply", "--image", f"oci:{both}:latest", *tiny, "--no-run", status=0)
    arm64 = tmp_path / ".patchkit/receipt.linux-arm64.json"
    assert json.loads(arm64.read_text())["delivered_identity"]["platform"] == "linux/arm64"
    mine = arm64.with_name("receipt.of-mine.json")
    mine.write_text("{}")
    patchkit("apply", "--image", f"oci:{fixture_layout('pure')}:latest", *tiny, "--no-run", status=0)
    assert not arm64.exists()
    assert mine.read_text() == "{}"


def test_a_revert_removes_the_receipts_of_further_platforms_too(patchkit, tiny, fixture_layout, tmp_path):
    both = fixture_layout("pure")
    for_arm_too(both)
    patchkit("apply", "--image", f"oci:{both}:latest", *tiny, "--no-run", status=0)
    patchkit("revert", "--compose", ".patchkit", status=0)
    assert [path.name for path in (tmp_path / ".patchkit").iterdir()] == [".lock"]


def test_compose_writes_the_overlay_while_it_holds_the_folder(fixture_layout, tmp_path, monkeypatch):
    held = []
    replace = Path.replace

    def watched(self, target):
        if Path(target).name == "compose.patchkit.yaml":
            with (tmp_path / "out/.lock").open() as lock:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    held.append(False)
                except BlockingIOError:
                    held.append(True)
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", watched)
    options = api.Options(catalog=TINY, manifest="tinyserve", run=False)
    delivery = api.Delivery(output=tmp_path / "out", services=("mine",))
    composed = stacks.compose(f"oci:{fixture_layout('pure')}:latest", options, delivery)
    assert held == [True]
    assert (tmp_path / "out/compose.patchkit.yaml").read_text() == composed.overlay


def test_whoever_loses_the_name_to_a_run_from_another_folder_is_told(fixture_layout, tmp_path, monkeypatch):
    image = f"oci:{fixture_layout('pure')}:latest"
    options = api.Options(catalog=TINY, manifest="tinyserve", run=False)
    prove = api.deliver.prove

    def and_meanwhile(*args, **kwargs):
        monkeypatch.setattr(api.deliver, "prove", prove)
        api.apply(image, options, api.Delivery(output=tmp_path / "two", guard=True))
        return prove(*args, **kwargs)

    monkeypatch.setattr(api.deliver, "prove", and_meanwhile)
    with pytest.raises(Refused) as caught:
        api.apply(image, options, api.Delivery(output=tmp_path / "one"))
    assert caught.value.code == "tag-moved"
    assert caught.value.remedy
    assert not (tmp_path / "one/receipt.json").exists()
    assert (tmp_path / "two/receipt.json").exists()
