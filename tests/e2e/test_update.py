"""Is there a new image under the name? Asked of a real registry, with nothing pulled."""

import pytest

from tests.image_stores.servers import push, registry

FLINT = ["flint-norm-portable", "flint-moe-annotations", "flint-model-attention"]


@pytest.fixture
def nightly(tmp_path, fixture_layout, monkeypatch):
    """A name in a registry, and the call that lets it stand for another fixture image."""
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    with registry(tmp_path / "registry") as host:
        name = f"{host}/vllm-xpu:nightly"

        def becomes(variant):
            push(fixture_layout(variant), "latest", name, "--dest-tls-verify=false")
            return f"docker://{name}"

        yield becomes


def test_the_image_that_was_delivered_is_nothing_new_and_a_moved_name_is(patchkit, nightly):
    image = nightly("xpu")
    patchkit("apply", "--image", image, status=0)
    assert "nothing new" in patchkit("check-update", status=0).out
    nightly("fixed")
    told = patchkit("check-update", "--json", status=1).json
    assert told["new"]
    assert {file["state"] for file in told["files"]} == {"upstream"}
    assert sorted(each["remedy"] for each in told["findings"] if each["id"] == "patch-upstream") == sorted(
        f"patchkit retire {patch}" for patch in FLINT
    )


def test_a_locked_image_counts_as_seen(patchkit, nightly, tmp_path, monkeypatch):
    image = nightly("xpu")
    patchkit("init", "mine", "--package", "vllm", "--image", "*vllm-xpu:*", status=0)
    monkeypatch.setenv("PATCHKIT_CATALOG", str(tmp_path / "mine"))
    (tmp_path / "fix.diff").write_text(
        "--- a/vllm/own.py\n+++ b/vllm/own.py\n@@ -0,0 +1 @@\n+x = 1\n".replace("a/vllm/own.py", "/dev/null")
    )
    patchkit("import", "fix.diff", "--version", "0.33.0", "-m", "Why", status=0)
    assert "new-image" in patchkit("check-update", "--image", image, status=1).out
    patchkit("lock", "--image", image, status=0)
    patchkit("check-update", "--image", image, status=0)


def test_a_hint_is_told_once_the_image_has_what_it_waits_for(patchkit, nightly, tmp_path, monkeypatch):
    image = nightly("xpu")
    patchkit("init", "mine", "--package", "vllm", "--image", "*vllm-xpu:*", status=0)
    monkeypatch.setenv("PATCHKIT_CATALOG", str(tmp_path / "mine"))
    manifest = tmp_path / "mine/manifests/vllm.yaml"
    hint = "hints:\n  - {path: vllm/logger.py, mentions: %s, say: Swap the flag}\n"
    manifest.write_text(manifest.read_text() + hint % "no such text")
    assert "Swap the flag" not in patchkit("check-update", "--image", image, status=1).out
    manifest.write_text(manifest.read_text().replace("no such text", "vllm_process_name"))
    assert "Swap the flag" not in patchkit("check-update", "--image", image, status=1).out
    manifest.write_text(manifest.read_text().replace("vllm_process_name", "ext://sys.stdout"))
    assert "Swap the flag" in patchkit("check-update", "--image", image, status=1).out


def test_a_registry_that_does_not_answer_is_exit_status_3(patchkit):
    assert "next:" in patchkit("check-update", "--image", "docker://127.0.0.1:9/vllm-xpu:nightly", status=3).err


def test_an_image_in_a_folder_has_no_registry(patchkit, fixture_layout):
    layout = fixture_layout("xpu")
    assert "no-registry" in patchkit("check-update", "--image", f"oci:{layout}:latest", status=2).err
    assert "patchkit check-update --image REF" in patchkit("check-update", status=1).err
