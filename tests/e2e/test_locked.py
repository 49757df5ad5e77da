"""Only what was looked at before is delivered, where that was asked for and in CI."""

from __future__ import annotations

import shutil

import pytest

from tests.e2e.conftest import TINY


@pytest.fixture
def own(tmp_path_factory):
    """A copy of the small catalog that the test may write to."""
    root = tmp_path_factory.mktemp("catalog") / "tiny"
    shutil.copytree(TINY, root)
    return root, ["--catalog", str(root), "--manifest", "tinyserve"]


def test_an_image_that_the_lock_does_not_hold_is_refused_and_one_that_it_holds_is_not(fixture_layout, patchkit, own):
    image = f"oci:{fixture_layout('pure')}:latest"
    _, options = own
    assert "not-locked" in patchkit("apply", "--image", image, *options, "--locked", status=1).err
    patchkit("lock", "--image", image, *options, status=0)
    patchkit("apply", "--image", image, *options, "--locked", status=0)


def test_ci_holds_to_a_lock_that_lies_there(fixture_layout, patchkit, own):
    root, options = own
    image = f"oci:{fixture_layout('pure')}:latest"
    patchkit("apply", "--image", image, *options, env={"CI": "true"}, status=0)
    (root / "patchkit.lock").write_text('{"patchkit-lock": 1}\n')
    assert "not-locked" in patchkit("apply", "--image", image, *options, env={"CI": "true"}, status=1).err


def test_a_diff_that_changed_since_it_was_locked_is_refused(fixture_layout, patchkit, own):
    root, options = own
    image = f"oci:{fixture_layout('pure')}:latest"
    patchkit("lock", "--image", image, *options, status=0)
    patch = root / "patches/scale-by-ten.patch"
    patch.write_text(patch.read_text().replace("factor=10", "factor=11"))
    done = patchkit("apply", "--image", image, *options, "--locked", status=1)
    assert "lock-differs" in done.err
    assert "tinyserve/ops/scale.py" in done.err
