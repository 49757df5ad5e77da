"""Which settings a manifest's ``refused_env`` is about."""

from __future__ import annotations

import pytest

from patchkit.catalog.load import load_catalog
from patchkit.catalog.model import RefusedEnv
from patchkit.catalog.refused import setting_findings

SWITCH = RefusedEnv("TINY_LAYOUT", ("1", "true"), "K and V lie apart.")
ANY = RefusedEnv("TINY_GPU", (), "It passes for another.")


def whats(env):
    return [finding.what for finding in setting_findings([SWITCH, ANY], env, "here")]


@pytest.mark.parametrize("value", ["1", "true", "True", "TRUE", "tRuE"])
def test_a_listed_value_is_refused_in_upper_and_lower_case(value):
    assert whats({"TINY_LAYOUT": value}) == [f"TINY_LAYOUT={value}: K and V lie apart."]


@pytest.mark.parametrize("value", ["", "0", "false", " 1", "11", "on"])
def test_no_other_value_is(value):
    assert whats({"TINY_LAYOUT": value}) == []


@pytest.mark.parametrize("value", ["10.3.0", "0", ""])
def test_without_a_list_every_value_is_refused_and_an_empty_one_too(value):
    assert whats({"TINY_GPU": value}) == [f"TINY_GPU={value}: It passes for another."]


def test_names_are_told_apart_by_case_as_linux_does_and_what_is_not_set_is_no_matter():
    assert whats({"tiny_layout": "1", "TINY_GPUS": "1"}) == []


def test_each_is_told_with_its_place_and_what_to_do_and_no_other_variable_is():
    found = setting_findings([SWITCH, ANY], {"TINY_LAYOUT": "1", "TINY_GPU": "x", "HF_TOKEN": "SECRET"}, "service a")
    assert [(each.id, each.severity, each.where) for each in found] == [
        ("environment-refused", "error", "service a")
    ] * 2
    assert [each.remedy.split()[1] for each in found] == ["TINY_LAYOUT", "TINY_GPU"]
    assert "env_file" in found[0].remedy
    assert "SECRET" not in str(found)


@pytest.mark.parametrize(
    ("name", "value", "count"),
    [
        # What vLLM takes for true: envs.py lowers the text and compares it with `true` and `1`.
        *[("VLLM_ROCM_SHUFFLE_KV_CACHE_LAYOUT", value, 1) for value in ("1", "true", "True", "TrUe")],
        *[("VLLM_ROCM_SHUFFLE_KV_CACHE_LAYOUT", value, 0) for value in ("0", "false", "", "yes", "2")],
        ("HSA_OVERRIDE_GFX_VERSION", "11.0.0", 1),
    ],
)
def test_the_amd_series_refuses_what_vllm_takes_for_true(name, value, count):
    (manifest,) = (each for each in load_catalog().manifests if each.name == "vllm-rocm")
    assert len(setting_findings(manifest.refused_env, {name: value}, "")) == count
