"""A delivery as an in-toto statement, in the form that signing tools and verifiers read."""

import json

import pytest

from patchkit.deliver.receipt import Receipt, ReceiptFile, ReceiptPatch
from patchkit.errors import Refused
from patchkit.images.model import Identity
from patchkit.lifecycle.attest import statement

ORIGIN = Identity("sha256:c0", (), "linux/amd64", manifest="sha256:m0")
DERIVED = Identity("sha256:c1", (), "linux/amd64", manifest="sha256:m1")


def receipt(kind="image", derived=DERIVED):
    return Receipt(
        kind=kind,
        origin="docker-daemon:vllm-xpu:nightly",
        origin_identity=ORIGIN,
        delivered="docker-daemon:vllm-xpu:nightly-patchkit",
        delivered_identity=derived,
        manifest="vllm-xpu",
        package="vllm",
        package_version="0.33.0",
        copy="/site/vllm",
        launch=None,
        launch_given="",
        patches=(ReceiptPatch("fix", "aa"),),
        files=(ReceiptFile("vllm/a.py", "/site/vllm/a.py", "sha256:1", "sha256:2"),),
        fingerprint="ff",
    )


def test_the_statement_names_the_derived_image_its_origin_and_every_patch():
    made = statement(receipt())
    assert made["_type"] == "https://in-toto.io/Statement/v1"
    assert made["predicateType"] == "https://slsa.dev/provenance/v1"
    assert made["subject"] == [{"name": "vllm-xpu:nightly-patchkit", "digest": {"sha256": "m1"}}]
    build = made["predicate"]["buildDefinition"]
    assert build["resolvedDependencies"] == [
        {"name": "origin", "uri": "docker-daemon:vllm-xpu:nightly", "digest": {"sha256": "m0"}},
        {"name": "patch:fix", "digest": {"sha256": "aa"}},
    ]
    assert build["internalParameters"]["files"] == {"vllm/a.py": {"pre": "sha256:1", "post": "sha256:2"}}
    assert json.dumps(made, sort_keys=True) == json.dumps(statement(receipt()), sort_keys=True)


def test_an_image_without_a_manifest_is_named_by_its_config():
    assert statement(receipt(derived=Identity("sha256:c1", (), "linux/amd64")))["subject"][0]["digest"] == {
        "sha256": "c1"
    }


def test_mounts_leave_nothing_to_sign():
    with pytest.raises(Refused, match="by bind has no derived image"):
        statement(receipt("bind"))
