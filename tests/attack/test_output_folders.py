"""The output folder may be a person's own: nothing of theirs goes, and nothing stale of ours stays."""

from __future__ import annotations

import json
from pathlib import Path


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
