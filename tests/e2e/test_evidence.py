"""Asserts that need hardware: told where there is none passed through, run and written down where there is."""

from __future__ import annotations

import json
import shutil

import pytest

from tests.e2e.conftest import TINY

pytestmark = pytest.mark.engine

MORE = """
      - module: tinyserve.models.one
        needs: [gpu]
        code: |
          print("measured", one.answer(0) if (one := module) else None)
          assert module.answer(0) == 1
"""


@pytest.fixture
def numeric(tmp_path_factory):
    """The small catalog with an assert that needs a GPU."""
    root = tmp_path_factory.mktemp("catalog") / "tiny"
    shutil.copytree(TINY, root)
    manifest = root / "manifests/tinyserve.yaml"
    manifest.write_text(manifest.read_text().rstrip() + MORE)
    return ["--catalog", str(root), "--manifest", "tinyserve"]


def test_an_assert_that_needs_a_gpu_is_told_and_not_held_against_a_machine_without(
    fixture_image, scratch, patchkit, numeric, tmp_path
):
    image = scratch.tagged(fixture_image("pure"), "tinyserve:1")
    done = patchkit("apply", "--image", image, *numeric, "--require", "asserts", "--json", status=0)
    level = done.json["levels"][-1]
    assert (level["name"], level["state"]) == ("asserts", "passed")
    assert "1 more need a GPU" in level["detail"]
    assert [file["state"] for file in level["files"]] == ["passed", "not run"]
    assert not (tmp_path / ".patchkit/evidence.json").exists()


def test_with_a_device_the_assert_runs_and_what_it_measured_is_written_down(
    fixture_image, scratch, patchkit, numeric, tmp_path
):
    image = scratch.tagged(fixture_image("pure"), "tinyserve:1")
    patchkit("apply", "--image", image, *numeric, status=0)
    patchkit("verify", "--image", f"{image}-patchkit", *numeric, "--device", "/dev/null", status=0)
    evidence = json.loads((tmp_path / ".patchkit/evidence.json").read_text())
    assert evidence["state"] == "passed"
    assert [each["state"] for each in evidence["asserts"]] == ["passed", "passed"]
    assert evidence["asserts"][1]["output"] == "measured 1\n"
    assert evidence["fingerprint"] == json.loads((tmp_path / ".patchkit/receipt.json").read_text())["fingerprint"]
    assert str(tmp_path) not in json.dumps(evidence)
