"""--copy: another copy than the one that serves is looked at, wherever its name leads to."""

from __future__ import annotations

import pytest

WINNER = "/opt/venv/lib/python3.11/site-packages/tinyserve"
OTHER = "/workspace/tinyserve/tinyserve"


@pytest.mark.parametrize(
    "name", [WINNER, WINNER.replace("/lib/", "/lib64/"), f"{WINNER}/", "/opt/venv/lib64/python3.11/site-packages"]
)
def test_a_copy_may_be_named_through_a_link(patchkit, tiny, fixture_layout, name):
    image = f"oci:{fixture_layout('pure')}:latest"
    told = patchkit("status", "--image", image, *tiny, "--no-run", "--copy", name, "--json", status=0).json
    assert {file["image_path"].rpartition("/tinyserve/")[0] for file in told["files"]} == {WINNER.rpartition("/")[0]}


def test_a_copy_that_serves_nothing_is_edited_where_it_is_named(patchkit, tiny, fixture_layout, tmp_path):
    image = f"oci:{fixture_layout('pure')}:latest"
    nothing = ["--launch", "/opt/venv/bin/python3 -I -S -c pass"]
    refused = patchkit("edit", "--image", image, *tiny, "--no-run", *nothing, "tinyserve/ops/scale.py", status=1)
    assert "package-absent" in refused.err
    patchkit("edit", "--image", image, *tiny, "--no-run", *nothing, "--copy", OTHER, "tinyserve/ops/scale.py", status=0)
