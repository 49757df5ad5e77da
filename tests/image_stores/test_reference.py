from __future__ import annotations

import pytest

from patchkit.errors import BadInput
from patchkit.images import parse_reference, split_path
from patchkit.images.model import Reference


@pytest.mark.parametrize(
    ("text", "transport", "name"),
    [
        ("vllm-xpu:nightly", "docker-daemon", "vllm-xpu:nightly"),
        ("vllm", "docker-daemon", "vllm"),
        ("docker:24", "docker-daemon", "docker:24"),
        ("localhost:5000/a/b_c:t", "docker-daemon", "localhost:5000/a/b_c:t"),
        ("sha256:" + "a" * 64, "docker-daemon", "sha256:" + "a" * 64),
        ("x@sha256:" + "a" * 64, "docker-daemon", "x@sha256:" + "a" * 64),
        ("docker-daemon:x:y", "docker-daemon", "x:y"),
        ("docker://ghcr.io/a/b:c", "docker", "//ghcr.io/a/b:c"),
        ("oci:/a/b:v1", "oci", "/a/b:v1"),
        ("oci:dir", "oci", "dir"),
        ("oci-archive:/a.tar", "oci-archive", "/a.tar"),
        ("docker-archive:a.tar:x:y", "docker-archive", "a.tar:x:y"),
        ("rootfs:/srv/root", "rootfs", "/srv/root"),
    ],
)
def test_references_are_spelled_as_skopeo_spells_them(text, transport, name):
    reference = parse_reference(text)
    assert reference == Reference(transport, name)
    assert parse_reference(str(reference)) == reference


def test_a_path_ends_at_the_first_colon_and_the_rest_is_the_tag_verbatim():
    assert split_path(parse_reference("oci:/a/b:v1:x/y")) == ("/a/b", "v1:x/y")
    assert split_path(parse_reference("oci:/a/b")) == ("/a/b", "")


@pytest.mark.parametrize("text", ["ocii:/path", "dir:/x", "https://x/y", "containers-storage:/x:y"])
def test_an_unknown_transport_names_the_valid_ones(text):
    with pytest.raises(BadInput) as refused:
        parse_reference(text)
    assert refused.value.code == "unknown-transport"
    assert "oci:PATH[:REF]" in str(refused.value.remedy)


@pytest.mark.parametrize(
    "text", ["", "oci:", "rootfs:", "docker://", "docker-daemon:", "a b", "/abs", "x:", "-x", "oci::v"]
)
def test_what_is_no_reference_is_refused(text):
    with pytest.raises(BadInput):
        parse_reference(text)
