"""What a command tells to do next is right: typed as it stands, it helps."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.engine


def test_apply_names_the_service_of_its_overlay_and_the_command_that_fits_it_to_others(
    fixture_image, scratch, patchkit, tiny
):
    image = scratch.tagged(fixture_image("pure"), "tinyserve:1")
    out = patchkit("apply", "--image", image, *tiny, status=0).out
    assert "(service tiny)" in out
    assert f"patchkit compose --image {image} -f compose.yaml" in out
    assert f"patchkit compose --image {image} -f compose.yaml {' '.join(tiny)}" in out
    named = patchkit("apply", "--image", image, *tiny, "--service", "mine", status=0).out
    assert "(service mine)" in named
    assert "next: docker compose -f compose.yaml -f " in named


def test_what_apply_proposes_delivers_the_same_way_and_compose_names_the_command_that_starts_it(
    fixture_image, scratch, patchkit, tiny, tmp_path
):
    image = scratch.tagged(fixture_image("pure"), "tinyserve:1")
    (tmp_path / "compose.yaml").write_text(f"services:\n  mine:\n    image: {image}\n")
    out = patchkit("apply", "--image", image, *tiny, "--mode", "bind", "--output", "a b", status=0).out
    (command,) = re.findall(r"patchkit (compose .*?)(?:;|$)", out, re.MULTILINE)
    done = patchkit(*shlex.split(command), status=0)
    assert yaml.safe_load(done.out)["services"]["mine"]["volumes"], "by mounts, as apply did"
    overlay = tmp_path / "a b/compose.patchkit.yaml"
    assert f"next: docker compose -f compose.yaml -f '{overlay}' up -d" in done.err
    assert yaml.safe_load(overlay.read_text()) == yaml.safe_load(done.out)


def test_a_guard_over_mounts_leaves_the_services_own_command_behind_it(
    fixture_image, scratch, patchkit, tiny, compose, tmp_path
):
    image = scratch.tagged(fixture_image("pure"), "tinyserve:1")
    base = tmp_path / "compose.yaml"
    base.write_text(f"services:\n  mine:\n    image: {image}\n    command: ['a b', c]\n")
    overlay = tmp_path / "o.yaml"
    done = patchkit("compose", "--image", image, *tiny, "--mode", "bind", "--guard", "-f", base, "-o", overlay)
    assert done.status == 0, done.err
    assert "command" not in yaml.safe_load(overlay.read_text())["services"]["mine"]
    lines = compose(tmp_path, "-f", base, "-f", overlay, "up", "--no-log-prefix").splitlines()
    compose(tmp_path, "-f", base, "-f", overlay, "down")
    said = [json.loads(line) for line in lines if line.startswith("{")]
    assert said[0] == {"arguments": ["a b", "c"]}
    assert said[1]["answer"] == 31


def test_a_container_is_matched_by_its_images_name(fixture_image, scratch, patchkit, tiny, running):
    image = scratch.tagged(fixture_image("pure"), "tinyserve:1")
    container = running(image)
    done = patchkit("status", "--container", container.name, *tiny[:2], "--json", status=0)
    assert done.json["image"]["manifest_name"] == "tinyserve"


@pytest.mark.parametrize("mode", ["image", "bind"])
def test_a_container_that_an_overlay_started_by_an_id_is_matched_by_the_name_behind_it(
    fixture_image, scratch, patchkit, tiny, running, mode
):
    image = scratch.tagged(fixture_image("pure"), "tinyserve:1")
    parts = patchkit("apply", "--image", image, *tiny, "--mode", mode, "--json", status=0).json["delivery"]
    pinned = yaml.safe_load(Path(parts["overlay"]).read_text())["services"]["tiny"]["image"]
    assert pinned.startswith("sha256:")
    container = running(pinned)
    looked = patchkit("status", "--container", container.name, *tiny[:2], "--json", status=0).json
    assert looked["image"]["manifest_name"] == "tinyserve"
    if mode == "bind":
        patchkit("apply", "--container", container.name, *tiny[:2], "--restart", status=0)
        patchkit("revert", "--container", container.name, *tiny[:2], "--restart", status=0)


def test_a_proof_that_falls_short_says_so_at_the_end(fixture_image, scratch, patchkit):
    image = scratch.tagged(fixture_image("xpu"), "vllm-xpu:nightly")
    done = patchkit("apply", "--image", image, "--require", "imports", status=1)
    assert "error: not proven: imports blocked (torch) [not-proven]\nnext: take away what stands in its way" in done.err
    assert "not proven" not in patchkit("apply", "--image", image, status=0).err


def test_whoever_verifies_the_origin_is_led_to_the_image_that_was_made_from_it(fixture_image, scratch, patchkit, tiny):
    image = scratch.tagged(fixture_image("pure"), "tinyserve:1")
    patchkit("apply", "--image", image, *tiny, status=0)
    told = patchkit("verify", "--image", image, *tiny, status=1).err
    command = f"patchkit verify --image docker-daemon:{image}-patchkit"
    assert command in told
    patchkit(*command.split()[1:], status=0)


def test_a_remedy_repeats_the_options_that_it_takes_to_see_the_same(fixture_image, scratch, patchkit, tiny):
    image = scratch.tagged(fixture_image("absent"), "tinyserve:1")
    image = scratch.tagged(fixture_image("oldvllm"), "other:1")
    done = patchkit("apply", "--image", image, "--manifest", "vllm-xpu", status=1)
    assert f"patchkit status --image docker-daemon:{image} --manifest vllm-xpu" in done.err
