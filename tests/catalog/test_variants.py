"""The right variant of a patch: pre-image, then post-image, then version; two that fit are an error."""

from pathlib import Path

import pytest

from patchkit.catalog.model import Manifest, PatchEntry
from patchkit.catalog.variants import choose, groups, in_range
from patchkit.errors import BadInput

OLD = PatchEntry("fix", "old.patch", pre={"p/a.py": "sha256:o"}, post={"p/a.py": "sha256:O"}, versions="<2")
NEW = PatchEntry("fix", "new.patch", pre={"p/a.py": "sha256:n"}, post={"p/a.py": "sha256:N"}, versions=">=2")


def chosen(variants, digest, version="9", platform="linux/amd64"):
    found = choose(variants, lambda path: digest, version, platform)
    return (found.entry.file if found.entry else None, found.by)


def test_the_pre_image_decides_against_the_version():
    assert chosen([OLD, NEW], "sha256:o", "2.1") == ("old.patch", "pre-image")


def test_an_image_that_holds_a_variant_already_gets_that_variant():
    assert chosen([OLD, NEW], "sha256:O", "2.1") == ("old.patch", "post-image")


def test_an_unlisted_pre_image_is_decided_by_version():
    assert chosen([OLD, NEW], "sha256:?", "1.9") == ("old.patch", "version")


def test_no_variant_in_range_is_none():
    assert chosen([OLD, NEW], "sha256:?", "unknown") == (None, "none")


def test_two_variants_in_range_are_an_error_naming_both():
    with pytest.raises(BadInput, match=r"old\.patch, wide\.patch") as caught:
        chosen([OLD, PatchEntry("fix", "wide.patch")], "sha256:?", "1")
    assert caught.value.code == "several-variants"


def test_two_variants_with_the_same_pre_image_are_an_error():
    with pytest.raises(BadInput, match="pre-image"):
        chosen([OLD, PatchEntry("fix", "b.patch", pre=OLD.pre, versions=">=2")], "sha256:o")


def test_variants_of_other_platforms_are_left_out():
    arm = PatchEntry("fix", "arm.patch", platforms=("linux/arm64",))
    assert chosen([arm, NEW], "sha256:?", "2", "linux/arm64/v8") == ("new.patch", "version")
    assert chosen([arm], "sha256:?") == (None, "platform")


def test_a_patch_with_one_entry_is_chosen_whatever_its_range_says():
    assert chosen([OLD], "sha256:?", "7") == ("old.patch", "only")


def test_groups_keep_the_order_of_the_first_appearance():
    other = PatchEntry("other", "o.patch")
    manifest = Manifest(Path("m.yaml"), "m", "p", "", (), (OLD, other, NEW))
    assert groups(manifest) == ((OLD, NEW), (other,))


@pytest.mark.parametrize(
    ("versions", "version", "inside"),
    [
        (">=0.33,<0.34", "0.33.0rc1.dev812+gabc.xpu", True),
        (">=0.33,<0.34", "0.1.dev1+gabc", False),
        (">=0.33,<0.34", "0.34.0rc1", False),
        (">=0.33,<0.34", "0.34.0", False),
        ("", "no version", True),
    ],
)
def test_a_nightly_counts_where_its_final_release_does(versions, version, inside):
    assert in_range(versions, version) is inside
