"""What is sound in a catalog and has no effect is told."""

import pytest

from patchkit.catalog.check import findings
from patchkit.catalog.load import load_catalog

DIFF = "--- a/p/a.py\n+++ b/p/a.py\n@@ -1 +1 @@\n-a\n+b\n"
MANIFEST = """\
name: {name}
package: p
versions: ""
images: [{{match: "p:*"}}]
patches: [{{id: fix, file: patches/fix.patch}}]
"""


@pytest.fixture
def root(tmp_path):
    (tmp_path / "manifests").mkdir()
    (tmp_path / "patches/retired").mkdir(parents=True)
    (tmp_path / "manifests/one.yaml").write_text(MANIFEST.format(name="one"))
    (tmp_path / "patches/fix.patch").write_text(f"Description: D\nOrigin: vendor\n\n{DIFF}")
    return tmp_path


def told(root):
    return [(each.id, each.severity) for each in findings(load_catalog(root))]


def test_a_patch_without_hashes_is_a_note(root):
    assert told(root) == [("patch-not-pinned", "note")]


def test_a_patch_that_no_manifest_lists_is_a_warning_and_a_retired_one_is_not(root):
    (root / "patches/forgotten.patch").write_text(DIFF)
    (root / "patches/retired/old.patch").write_text(DIFF)
    assert told(root) == [("patch-not-listed", "warning"), ("patch-not-pinned", "note")]
    assert findings(load_catalog(root))[0].where.endswith("patches/forgotten.patch")


def test_a_patch_that_does_not_say_why_is_a_note(root):
    (root / "patches/fix.patch").write_text(DIFF)
    (found, _) = findings(load_catalog(root))
    assert found.what == "the patch's header has no Description and no Origin"


def test_two_manifests_that_claim_one_pattern_are_a_warning(root):
    (root / "manifests/two.yaml").write_text(MANIFEST.format(name="two"))
    assert ("claimed-twice", "warning") in told(root)
