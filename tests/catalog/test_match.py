"""Which manifest an image belongs to."""

from dataclasses import replace
from pathlib import Path

import pytest

from patchkit.catalog.match import NOT_LISTED, image_names, match
from patchkit.catalog.model import Catalog, ImagePattern, KnownDigest, Manifest
from patchkit.errors import BadInput, Refused
from patchkit.images.model import Reference

ONE = "sha256:" + "1" * 64
TWO = "sha256:" + "2" * 64


def manifest(name, *patterns, digests=()):
    return Manifest(
        Path(f"{name}.yaml"),
        name,
        "vllm",
        "",
        tuple(map(ImagePattern, patterns)),
        (),
        digests={digest: KnownDigest("0.33.0") for digest in digests},
    )


XPU = manifest("vllm-xpu", "vllm-xpu:*", "*/intel/vllm:*", digests=[ONE])
ROCM = manifest("vllm-rocm", "rocm/vllm:*")
CATALOG = Catalog(Path("here"), (XPU, ROCM))


def daemon(name):
    return Reference("docker-daemon", name)


def test_a_listed_digest_matches_whatever_the_image_is_called():
    found = match(CATALOG, [TWO, ONE], daemon("rocm/vllm:latest"))
    assert (found.manifest.name, found.by, found.detail, found.notes) == ("vllm-xpu", "digest", ONE, ())


def test_a_pattern_matches_and_tells_that_the_digest_is_not_listed():
    found = match(CATALOG, [TWO], daemon("vllm-xpu:nightly"))
    assert (found.manifest.name, found.by, found.detail) == ("vllm-xpu", "pattern", "vllm-xpu:*")
    assert found.notes == (NOT_LISTED,)


def test_no_match_names_the_nearest_manifest_first_and_why_not():
    with pytest.raises(Refused) as caught:
        match(CATALOG, [TWO], daemon("vllm-xpu-own:nightly"))
    assert caught.value.code == "no-manifest"
    assert caught.value.details[0].startswith("vllm-xpu: vllm-xpu-own:nightly does not fit vllm-xpu:*")
    assert "1 digest listed, none of them" in caught.value.details[0]
    assert "--manifest" in caught.value.remedy


def test_each_manifest_of_a_small_catalog_says_why_it_does_not_match():
    bare = [replace(manifest(f"other-{number}", "x:*"), images=()) for number in range(4)]
    with pytest.raises(Refused) as caught:
        match(Catalog(Path("here"), (XPU, *bare)), [], daemon("debian:12"))
    assert len(caught.value.details) == 5
    assert "other-0: it lists no image pattern; no digest listed" in caught.value.details


def test_two_manifests_with_fitting_patterns_are_refused_naming_both():
    catalog = Catalog(Path("here"), (XPU, manifest("other", "vllm-*:*")))
    with pytest.raises(BadInput) as caught:
        match(catalog, [], daemon("vllm-xpu:nightly"))
    assert caught.value.code == "several-manifests"
    assert "vllm-xpu and other" in caught.value.what


def test_two_manifests_that_list_one_digest_are_refused_naming_both():
    catalog = Catalog(Path("here"), (XPU, manifest("other", digests=[ONE])))
    with pytest.raises(BadInput, match="other and vllm-xpu"):
        match(catalog, [ONE], daemon("vllm-xpu:nightly"))


def test_a_manifest_by_name_decides_and_tells_what_does_not_fit():
    found = match(CATALOG, [TWO], daemon("mine:1"), "vllm-xpu")
    assert (found.manifest.name, found.by) == ("vllm-xpu", "name")
    assert found.notes == (NOT_LISTED, "no image pattern of vllm-xpu fits docker-daemon:mine:1")


def test_an_unknown_manifest_name_suggests_the_near_one():
    with pytest.raises(BadInput, match="did you mean vllm-xpu"):
        match(CATALOG, [], daemon("mine:1"), "vllm-xpo")


@pytest.mark.parametrize(
    ("transport", "name", "names"),
    [
        ("docker-daemon", "vllm-xpu", ("docker.io/library/vllm-xpu:latest", "vllm-xpu:latest")),
        ("docker-daemon", "docker.io/library/vllm-xpu:1", ("docker.io/library/vllm-xpu:1", "vllm-xpu:1")),
        ("docker-daemon", "intel/vllm:1", ("docker.io/intel/vllm:1", "intel/vllm:1")),
        ("docker-daemon", "localhost:5000/vllm", ("localhost:5000/vllm:latest",)),
        ("docker", "//ghcr.io/intel/vllm:1", ("ghcr.io/intel/vllm:1",)),
        ("docker-daemon", f"intel/vllm@{ONE}", ("docker.io/intel/vllm:", "intel/vllm:")),
        ("docker-daemon", f"intel/vllm:1@{ONE}", ("docker.io/intel/vllm:1", "intel/vllm:1")),
        ("oci", "/tmp/vllm-xpu:nightly", ("vllm-xpu:nightly",)),
        ("oci", "/tmp/layout", ("layout:latest",)),
        ("oci", "d:intel/vllm:1", ("docker.io/intel/vllm:1", "intel/vllm:1", "d:intel/vllm:1")),
        ("docker-archive", "/x/vllm-xpu.tar:vllm-xpu:1", ("docker.io/library/vllm-xpu:1", "vllm-xpu:1")),
        ("rootfs", "/srv/vllm-xpu", ("vllm-xpu:latest",)),
    ],
)
def test_an_image_is_compared_under_its_full_and_its_familiar_name(transport, name, names):
    assert image_names(Reference(transport, name))[: len(names)] == names


def test_a_pattern_with_any_registry_fits_the_familiar_name_too():
    assert match(CATALOG, [], daemon("intel/vllm:2026.1")).detail == "*/intel/vllm:*"
    assert match(CATALOG, [], daemon("ghcr.io/intel/vllm")).detail == "*/intel/vllm:*"


def test_a_reference_by_digest_alone_fits_only_patterns_for_any_tag():
    catalog = Catalog(Path("here"), (manifest("one", "a/b:nightly"), manifest("any", "a/b:*")))
    assert match(catalog, [], daemon(f"a/b@{TWO}")).manifest.name == "any"
