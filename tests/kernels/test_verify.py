"""patchkit itself on a root in which vLLM's modules import: levels imports and asserts pass for all three modules."""

from __future__ import annotations

import pytest

from tests.kernels import root
from tests.kernels.command import MANIFEST, assert_shown, patchkit


@pytest.fixture(scope="module")
def unpacked():
    with root.built("root") as folder:
        yield f"rootfs:{folder}"


def test_all_three_modules_import_and_every_assert_without_a_gpu_passes(bubblewrap, unpacked, tmp_path):
    done = patchkit(
        *("apply", "--image", unpacked, "--manifest", MANIFEST, "--mode", "bind", "--require", "imports", "--json"),
        cwd=tmp_path,
    )
    assert_shown(done)
