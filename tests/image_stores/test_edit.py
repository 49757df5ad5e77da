from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchkit.errors import Refused, Unreachable
from patchkit.images import edit
from patchkit.images.layer import build_layer, sha256
from patchkit.images.model import Change, Derivation
from patchkit.images.rawjson import dump, parse

from .trees import Tree, base_layers, config_for, folder

CONFIG = config_for(base_layers())
DIFF_ID = "sha256:" + "a" * 64
ONE = Derivation(
    (), {"dev.patchkit.fingerprint": "f", "org.opencontainers.image.base.name": "base"}, "patchkit apply x@1"
)


def derived(config=CONFIG, derivation=ONE):
    return parse(edit.derive_config(config, derivation, DIFF_ID), "test")


def test_one_layer_one_history_entry_and_the_labels_are_all_that_is_added():
    before, after = json.loads(CONFIG), derived()
    assert after["rootfs"]["diff_ids"] == [*before["rootfs"]["diff_ids"], DIFF_ID]
    assert after["history"][:-1] == before["history"]
    assert after["history"][-1]["created_by"] == "patchkit apply x@1"
    assert after["history"][-1]["created"] == before["created"]
    assert "empty_layer" not in after["history"][-1]
    labels = after["config"].pop("Labels")
    assert labels["dev.patchkit.fingerprint"] == "f"
    assert labels["org.opencontainers.image.base.name"] == "base"
    assert labels["maintainer"] == "somebody"
    before["config"].pop("Labels")
    for one in (before, after):
        del one["rootfs"], one["history"]
    assert before == after


def test_taking_the_edit_back_gives_the_bytes_of_the_origin():
    for derivation in (ONE, Derivation((), {}, "c", entrypoint=("guard", "serve"))):
        assert edit.origin_config(edit.derive_config(CONFIG, derivation, DIFF_ID)) == CONFIG


def test_an_image_without_our_layer_is_its_own_origin():
    assert edit.origin_config(CONFIG) == CONFIG
    assert not edit.is_derived(json.loads(CONFIG))


def test_an_image_built_on_a_patched_one_is_a_new_origin_and_loses_nothing():
    theirs = derived()
    theirs["rootfs"]["diff_ids"].append("sha256:" + "b" * 64)
    raw = dump(theirs)
    assert not edit.is_derived(theirs)
    assert edit.origin_config(raw) == raw
    again = edit.derive_config(raw, ONE, "sha256:" + "c" * 64)
    assert edit.is_derived(json.loads(again))
    assert edit.origin_config(again) == raw


def test_an_entrypoint_that_somebody_set_later_is_not_taken_back():
    theirs = derived(derivation=Derivation((), {}, "c", entrypoint=("guard", "serve")))
    theirs["config"]["Entrypoint"] = ["mine"]
    assert json.loads(edit.origin_config(dump(theirs)))["config"]["Entrypoint"] == ["mine"]


def test_base_labels_of_the_origin_are_left_alone():
    value = json.loads(CONFIG)
    value["config"]["Labels"]["org.opencontainers.image.base.digest"] = "theirs"
    labels = derived(dump(value))["config"]["Labels"]
    assert labels["org.opencontainers.image.base.digest"] == "theirs"
    assert "org.opencontainers.image.base.name" not in labels


@pytest.mark.parametrize("labels", ["absent", None, {}, {"z": "1", "a": "2"}, {"a": "1", "dev.patchkit.x": "old"}])
def test_labels_of_any_form_come_back(labels):
    value = json.loads(CONFIG)
    if labels == "absent":
        del value["config"]["Labels"]
    else:
        value["config"]["Labels"] = labels
    raw = dump(value)
    assert edit.origin_config(edit.derive_config(raw, ONE, DIFF_ID)) == raw


@pytest.mark.parametrize("inner", ["absent", None, {}])
def test_a_config_without_settings_comes_back(inner):
    value = json.loads(CONFIG)
    if inner == "absent":
        del value["config"]
    else:
        value["config"] = inner
    raw = dump(value)
    with_entry = Derivation((), {}, "c", entrypoint=("guard",))
    assert edit.origin_config(edit.derive_config(raw, with_entry, DIFF_ID)) == raw


def test_a_config_without_history_stays_without():
    value = json.loads(CONFIG)
    del value["history"]
    assert "history" not in derived(dump(value))


def test_more_layers_than_engines_take_are_refused():
    value = json.loads(CONFIG)
    value["rootfs"]["diff_ids"] = [DIFF_ID] * 120
    with pytest.raises(Refused) as refused:
        edit.derive_config(dump(value), ONE, DIFF_ID)
    assert refused.value.code == "too-many-layers"


def test_an_undo_record_that_makes_no_sense_counts_as_none():
    value = derived()
    for text in ("", "[]", '{"labels":7}', '{"labels":{"had":[1],"added":{},"order":4,"empty":0}}', "[" * 100_000):
        value["config"]["Labels"]["dev.patchkit.undo"] = text
        stripped = json.loads(edit.origin_config(dump(value)))
        assert stripped["rootfs"]["diff_ids"] == json.loads(CONFIG)["rootfs"]["diff_ids"]
        assert "dev.patchkit.fingerprint" not in stripped["config"]["Labels"]


def test_a_change_that_nobody_meant_is_named():
    value = derived()
    assert list(edit.differences(CONFIG, dump(value))) == []
    value["config"]["User"] = "root"
    value["os"] = "plan9"
    assert list(edit.differences(CONFIG, dump(value))) == ["config", "os"]


def layer():
    return build_layer(Tree(folder("/")), [Change("/x", b"1")])


def manifest(family, **more):
    head = "application/vnd.oci.image." if family == "oci" else "application/vnd.docker."
    config = "config.v1+json" if family == "oci" else "container.image.v1+json"
    value = {
        "schemaVersion": 2,
        "config": {"mediaType": head + config, "digest": sha256(CONFIG), "size": len(CONFIG), "x": 1},
        "layers": [{"mediaType": "application/weird", "digest": DIFF_ID, "size": 3, "annotations": {"toc": "t"}}],
        "unknown": [1],
        **more,
    }
    return json.dumps(value, indent=2).encode()


@pytest.mark.parametrize("family", ["oci", "docker"])
def test_media_types_stay_in_the_manifests_family(family):
    raw = manifest(family)
    config = edit.derive_config(CONFIG, ONE, layer().diff_id)
    value = json.loads(edit.derive_manifest(raw, config, layer(), ONE))
    assert value["layers"][-1]["mediaType"] == (edit.OCI_LAYER if family == "oci" else edit.DOCKER_LAYER)
    assert value["layers"][:-1] == json.loads(raw)["layers"]
    assert ("annotations" in value) == (family == "oci")
    assert (value["config"]["digest"], value["config"]["size"]) == (sha256(config), len(config))
    assert (value["unknown"], value["config"]["x"]) == ([1], 1)


@pytest.mark.parametrize("family", ["oci", "docker"])
@pytest.mark.parametrize("annotations", [None, {"k": "v"}, {"b": "1", "a": "2"}])
def test_taking_a_manifest_edit_back_gives_the_bytes_of_the_origin(family, annotations):
    raw = manifest(family, **({"annotations": annotations} if annotations else {}))
    config = edit.derive_config(CONFIG, ONE, layer().diff_id)
    new = edit.derive_manifest(raw, config, layer(), ONE)
    assert edit.origin_manifest(new, edit.origin_config(config)) == raw


def test_an_index_keeps_order_platforms_and_the_others_and_drops_false_attestations():
    old, other = "sha256:" + "1" * 64, "sha256:" + "2" * 64

    def attested(digest, of):
        kind = {"vnd.docker.reference.type": "attestation-manifest", "vnd.docker.reference.digest": of}
        return {"mediaType": edit.OCI_MANIFEST, "digest": digest, "size": 1, "annotations": kind}

    entry = {"mediaType": edit.OCI_MANIFEST, "digest": old, "size": 1, "platform": {"architecture": "arm64"}, "x": 1}
    entries = [
        entry,
        {**entry, "digest": other},
        attested("sha256:" + "3" * 64, old),
        attested("sha256:" + "4" * 64, other),
    ]
    raw = dump({"mediaType": edit.OCI_INDEX, "manifests": entries, "annotations": {"k": "v"}})
    new, dropped = edit.derive_index(raw, {old: b"{}"})
    value = json.loads(new)
    assert value["manifests"] == [{**entry, "digest": sha256(b"{}"), "size": 2}, *(entries[n] for n in (1, 3))]
    assert value["annotations"] == {"k": "v"}
    assert dropped == ("sha256:" + "3" * 64,)


@pytest.mark.parametrize(
    "raw", [b"", b"[]", b"\xff", b'{"a":1,"a":2}', b"[" * 100_000, b'{"rootfs":{"diff_ids":["md5:1"]}}', b"{}"]
)
def test_a_config_that_is_none_is_told(raw):
    with pytest.raises(Unreachable):
        edit.derive_config(raw, ONE, DIFF_ID)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=15,
)


@given(
    st.dictionaries(st.text(max_size=5), json_values, max_size=4),
    st.sampled_from([None, 2, 3, "\t"]),
    st.booleans(),
    st.sampled_from([(",", ":"), (", ", ": "), (",", ": ")]),
)
def test_a_document_in_a_usual_style_keeps_its_bytes(value, indent, ascii_only, separators):
    raw = json.dumps(value, indent=indent, ensure_ascii=ascii_only, separators=separators).encode()
    assert json.loads(dump(parse(raw, "x"), like=raw)) == value
    if separators in ([(",", ":"), (", ", ": ")] if indent is None else [(",", ":"), (",", ": ")]):
        assert dump(parse(raw, "x"), like=raw) == raw
