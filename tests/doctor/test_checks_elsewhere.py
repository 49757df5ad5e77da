"""Checks of what this machine does not have (cards, SELinux, podman), on stand-ins; and of files, on real ones."""

from __future__ import annotations

import json
import shutil
from functools import partial
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from click.testing import CliRunner

from patchkit.catalog.load import load_catalog
from patchkit.catalog.model import Gpus
from patchkit.cli.doctor import command
from patchkit.deliver.image import LABEL_FINGERPRINT
from patchkit.doctor.checks import engine, host
from patchkit.doctor.model import Unseen
from patchkit.doctor.run import CHECKS
from patchkit.doctor.world import Container, Question
from patchkit.errors import BadInput
from patchkit.images.model import Mount
from patchkit.lifecycle import lock
from patchkit.lifecycle.lock import Locked, LockedPatch
from patchkit.plan import Plan
from patchkit.site.gpus import amd_gpus
from tests.e2e.conftest import TINY
from tests.site.kfd import machine


def found(check, **world):
    """What one check finds in a world of the given parts."""
    parts = {"containers": (), "proven": (), "engine": None, "catalog": None, "receipt_of": lambda container: None}
    return list(CHECKS[check].run(SimpleNamespace(**{**parts, **world})))


def container(**inspect):
    return Container("id", "vllm", "sha256:1", "vllm-xpu:1", True, "", "", inspect)


def mounted(folder, target="/models", **more):
    return {"Type": "bind", "Source": str(folder), "Destination": target, "RW": True, **more}


@pytest.fixture
def model(tmp_path):
    """A cache of the hub with one model in two shards, of which one is there."""
    folder = tmp_path / "hub/models--org--flint/snapshots/abc"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"architectures": ["FlintForCausalLM"]}')
    (folder / "one.safetensors").write_bytes(b"x" * 10)
    (folder / "model.safetensors.index.json").write_text(
        '{"metadata": {"total_size": 20}, "weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}'
    )
    return folder


def test_weights_that_are_not_all_there_are_found_in_a_mounted_cache(model, tmp_path):
    server = container(Mounts=[mounted(tmp_path)])
    (finding,) = found("weights-incomplete", containers=(server,))
    assert "two.safetensors" in finding.what
    (model / "two.safetensors").write_bytes(b"x" * 10)
    assert found("weights-incomplete", containers=(server,)) == []


def test_an_index_that_is_no_index_is_not_taken_for_whole(model, tmp_path):
    (model / "model.safetensors.index.json").write_text("[")
    assert found("weights-incomplete", containers=(container(Mounts=[mounted(tmp_path)]),)) != []


def test_weights_that_do_not_fit_on_the_disk_are_found(model, tmp_path):
    server = container(Mounts=[mounted(tmp_path)])
    assert found("weights-no-room", containers=(server,)) == []
    (model / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": 2**60}}))
    (finding,) = found("weights-no-room", containers=(server,))
    assert "GiB are free" in finding.what


def test_a_model_that_the_image_does_not_know_is_found_for_the_server_that_serves_it(model, tmp_path):
    def files(register):
        return lambda container, path: register

    def finds(register, *arguments):
        server = container(Mounts=[mounted(tmp_path)], Args=["serve", *arguments])
        return [each.what for each in found("model-unknown", containers=(server,), package_file=files(register))]

    assert finds(b'{"LlamaForCausalLM": ("llama", "x")}', "org/flint") == ["it knows no FlintForCausalLM"]
    assert finds(b'{"FlintForCausalLM": ("flint", "x")}', "org/flint") == []
    assert finds(b'{"LlamaForCausalLM": ("llama", "x")}', "org/another") == []
    assert finds(None, "org/flint") == []


def test_cards_are_told_with_the_memory_that_the_kernel_tells(tmp_path, monkeypatch):
    amd, intel = tmp_path / "card0/device", tmp_path / "card1/device"
    for folder, vendor in ((amd, "0x1002"), (intel, "0x8086")):
        folder.mkdir(parents=True)
        (folder / "vendor").write_text(f"{vendor}\n")
        (folder / "device").write_text("0x1234\n")
    (amd / "mem_info_vram_total").write_text(f"{192 * 2**30}\n")
    (intel / "resource").write_text("0x0000004000000000 0x00000047ffffffff 0x000000000014220c\n0x0 0x0 0x0\n")
    (tmp_path / "card0-DP-1/device").mkdir(parents=True)
    monkeypatch.setattr(host, "_DRM", tmp_path)
    monkeypatch.setattr(host, "_NVIDIA", tmp_path / "none")
    (finding,) = found("cards")
    assert finding.what == "2 cards: 0x1002:0x1234 with 192.0 GiB; 0x8086:0x1234 with a window of 32.0 GiB"


def test_a_machine_without_cards_has_nothing_to_tell(tmp_path, monkeypatch):
    monkeypatch.setattr(host, "_DRM", tmp_path)
    monkeypatch.setattr(host, "_NVIDIA", tmp_path)
    assert found("cards") == []


@pytest.mark.parametrize(("given", "ids"), [({}, 1), ({"Devices": [{"PathOnHost": "/dev/dri"}]}, 0)])
def test_a_server_for_cards_without_their_device_is_found(tmp_path, monkeypatch, given, ids):
    (tmp_path / "renderD128").touch()
    monkeypatch.setattr(host, "_DRI", tmp_path)
    server = container(Config={"Env": ["VLLM_TARGET_DEVICE=xpu"]}, HostConfig=given)
    assert len(found("render-device", containers=(server,))) == ids


def test_a_user_outside_of_the_render_group_is_found(tmp_path, monkeypatch):
    (tmp_path / "renderD128").touch()
    monkeypatch.setattr(host, "_DRI", tmp_path)
    group = str((tmp_path / "renderD128").stat().st_gid)
    config = {"Env": ["VLLM_TARGET_DEVICE=xpu"], "User": "1000"}
    assert len(found("render-group", containers=(container(Config=config),))) == 1
    assert found("render-group", containers=(container(Config=config, HostConfig={"GroupAdd": [group]}),)) == []


@pytest.mark.parametrize(
    ("gpus", "remote", "count"),
    [
        ({128: "100300"}, False, 1),
        ({128: "100306", 129: "12"}, False, 2),
        ({128: "100306", 129: "90402"}, False, 0),
        ({128: "90402"}, False, 0),
        ({}, False, 0),
        ({128: "100300"}, True, 0),
    ],
)
def test_a_machine_none_of_whose_gpus_the_patches_of_an_image_are_for_is_told(
    tmp_path, monkeypatch, gpus, remote, count
):
    monkeypatch.setattr(host, "amd_gpus", partial(amd_gpus, machine(tmp_path, gpus)))

    def told(wanted):
        manifest = SimpleNamespace(gpus=wanted)
        plan = Mock(spec=Plan, match=SimpleNamespace(manifest=manifest))
        engine = SimpleNamespace(is_remote=remote, host="ssh://there")
        return found("gpu-refused", plan=plan, engine=engine)

    findings = told(Gpus(("gfx942", "gfx12*"), "another passes for an SM100."))
    if remote:
        (unseen,) = findings
        assert (type(unseen), unseen.severity, unseen.where) == (Unseen, "note", "ssh://there")
        return
    assert [each.where for each in findings] == ["this machine"] * count
    assert all("the patches are for gfx942, gfx12*: another passes for an SM100." in each.what for each in findings)
    assert told(None) == []


def test_a_mount_without_its_label_is_found_where_selinux_is_on():
    target = "/x/scale.py"
    receipt = SimpleNamespace(mounts=(Mount("/files/scale.py", target),))
    enforcing = SimpleNamespace(info={"SecurityOptions": ["name=seccomp,profile=default", "name=selinux"]})

    def finds(mode, engine=enforcing):
        server = container(Mounts=[mounted("/files/scale.py", target, Mode=mode)])
        return found("selinux-label", engine=engine, containers=(server,), receipt_of=lambda container: receipt)

    assert [finding.remedy for finding in finds("ro")] == ["mount it with :z"]
    assert finds("ro,z") == []
    assert finds("ro", SimpleNamespace(info={"SecurityOptions": ["name=seccomp"]})) == []


def test_what_an_engine_cannot_do_is_told():
    podman = SimpleNamespace(host="unix:///run/podman/podman.sock", shortcomings=("it does not tell owners",))
    assert [finding.what for finding in found("engine-gap", engine=podman)] == ["it does not tell owners"]


@pytest.mark.parametrize(("image", "ids"), [(None, ["vllm:a"]), ("vllm:a", ["vllm:a"]), ("vllm:b", [])])
def test_engines_that_differ_are_found(monkeypatch, image, ids):
    def listed(**tags):
        return [{"RepoTags": [f"vllm:{tag}"], "Labels": {LABEL_FINGERPRINT: label}} for tag, label in tags.items()]

    hosts = {"ssh://one": listed(a="1" * 64, b="2" * 64), "ssh://two": listed(a="3" * 64, b="2" * 64)}
    monkeypatch.setattr(engine, "connect", lambda host: SimpleNamespace(images=lambda label: hosts[host]))
    differ = found("nodes-differ", question=Question(hosts=tuple(hosts), image=image))
    assert [finding.where for finding in differ] == ids
    assert all("ssh://one: 1111" in finding.evidence and "ssh://two: 3333" in finding.evidence for finding in differ)


@pytest.mark.parametrize(("states", "count"), [(("upstream", "upstream"), 1), (("upstream", "applies"), 0), ((), 0)])
def test_a_patch_that_no_known_image_needs_is_proposed_for_retirement(tmp_path, states, count):
    shutil.copytree(TINY, tmp_path / "catalog")
    patch = "patches/scale-by-ten.patch"
    lines = [
        Locked(
            f"sha256:{n}",
            "tinyserve",
            "linux/amd64",
            "tinyserve",
            "1.2",
            (),
            (LockedPatch("scale-by-ten", patch, "0", state),),
        )
        for n, state in enumerate(states)
    ]
    (tmp_path / "catalog/patchkit.lock").write_text(lock.dumps(lines))
    findings = found("retirable", catalog=load_catalog(tmp_path / "catalog"))
    assert [finding.remedy for finding in findings] == ["patchkit retire scale-by-ten --manifest tinyserve"] * count


@pytest.mark.parametrize(
    ("asked", "near"), [("tag-move", "tag-moved"), ("tagmoved", "tag-moved"), ("stale", "bytecode-stale")]
)
def test_a_check_is_found_by_a_near_name_or_a_word_of_its_text(asked, near):
    with pytest.raises(BadInput, match=f"did you mean .*{near}"):
        CliRunner().invoke(command, ["--explain", asked], catch_exceptions=False, standalone_mode=False)


def test_a_person_is_told_what_was_looked_at_and_what_was_not(tmp_path, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    said = CliRunner().invoke(command, ["--catalog", str(TINY), "--output", str(tmp_path)], standalone_mode=False)
    assert said.return_value == 1
    assert said.output.splitlines()[1].startswith("error: "), "the worst comes first"
    assert "looked at 0 running containers, 0 patched images" in said.output
    assert "not looked at; give --image NAME" in said.output
    assert said.output.splitlines()[-1].startswith("1 error, 0 warnings")


def test_every_check_says_why_it_matters():
    assert [check.id for check in CHECKS.values() if len(check.why) < 40 or not check.why.endswith(".")] == []
