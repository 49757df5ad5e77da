"""The whole life of a patch on real releases: imported, surveyed, rebased, applied, proven, locked, retired."""

import json
from pathlib import Path

import pytest

from patchkit import index
from patchkit.diff import write

LOGGER, RUNNER = "vllm/logger.py", "vllm/v1/worker/xpu_model_runner.py"
GONE = "vllm/entrypoints/cli/download_kernels.py"
TESTS = """\
diff --git a/tests/test_logger.py b/tests/test_logger.py
--- a/tests/test_logger.py
+++ b/tests/test_logger.py
@@ -1 +1 @@
-a
+b
"""


@pytest.fixture(scope="module")
def released():
    """One file of one vLLM release, as the index has it."""
    indexes = index.configured()
    return lambda path, version: indexes.wheel("vllm", version).read(path)


@pytest.fixture
def life(patchkit, tmp_path, monkeypatch):
    """The command line on a new catalog, with work folders of its own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    patchkit("init", "mine", "--package", "vllm", "--image", "*vllm-xpu:*", status=0)
    monkeypatch.setenv("PATCHKIT_CATALOG", str(tmp_path / "mine"))
    return patchkit


def states(answer):
    return {(cell["patch"], cell["version"]): cell["told"] for cell in answer.json["files"]}


def own_change(released, version):
    """A change of our own to the logger, as somebody's pull request against that release: with a test in it."""
    before = released(LOGGER, version)
    after = before.replace(b"    if envs.NO_COLOR or", b"    if not sys.stdout or envs.NO_COLOR or", 1)
    assert after != before
    return b"Never ask a closed stdout for its colours\n\n" + write({LOGGER: before}, {LOGGER: after}) + TESTS.encode()


def test_a_change_made_on_an_old_release_is_surveyed_and_carried_over_to_the_newest(life, released, tmp_path):
    (tmp_path / "colours.diff").write_bytes(own_change(released, "0.29.0"))
    refused = life("import", "colours.diff", "--version", "0.29.0", status=1)
    assert "tests/test_logger.py" in refused.err
    assert "--drop-missing" in refused.err
    life("import", "colours.diff", "--version", "0.29.0", "--drop-missing", status=0)
    found = states(life("survey", "vllm", "--versions", ">=0.29,<0.34", "--json", status=0))
    assert found["colours", "0.29.0"] == "applies"
    assert found["colours", "0.33.0"] == "fuzzy"
    told = life("rebase", "--onto", "0.33.0", "--json", status=0).json["files"]
    assert [(row["patch"], row["state"]) for row in told] == [("colours", "clean")]
    manifest = (tmp_path / "mine/manifests/vllm.yaml").read_text()
    assert '"<0.33.0"' in manifest
    assert '">=0.33.0"' in manifest
    found = states(life("survey", "vllm", "--versions", ">=0.29,<0.34", "--json", status=0))
    assert (found["colours", "0.29.0"], found["colours", "0.33.0"]) == ("applies", "applies")
    before = files(tmp_path / "mine")
    life("rebase", "--onto", "0.33.0", status=0)
    assert files(tmp_path / "mine") == before
    life("manifest", "check", status=0)


def test_a_conflict_goes_to_a_work_folder_and_comes_back_as_the_new_variant(life, released, tmp_path):
    before = released(LOGGER, "0.30.0")
    line = b'if envs.VLLM_LOGGING_COLOR == "1":'
    after = before.replace(line, b'if envs.VLLM_LOGGING_COLOR in ("1", "always"):', 1)
    (tmp_path / "always.diff").write_bytes(b"Colours always\n\n" + write({LOGGER: before}, {LOGGER: after}))
    life("import", "always.diff", "--version", "0.30.0", status=0)
    told = life("rebase", "--onto", "0.33.0", "--json", status=1).json["files"]
    assert [row["state"] for row in told] == ["conflict"]
    work = Path(told[0]["work"])
    text = (work / LOGGER).read_bytes()
    assert b"<<<<<<< vllm 0.33.0\n" in text
    assert b">>>>>>> patch always\n" in text
    refused = life("save", "--name", "always", status=1)
    assert "conflict-markers" in refused.err
    assert f"{LOGGER}:" in refused.err
    start, rest = text.split(b"<<<<<<< vllm 0.33.0\n")
    _, end = rest.split(b">>>>>>> patch always\n")
    settled = b'    if envs.VLLM_LOGGING_COLOR in ("1", "always") or envs.FORCE_COLOR:\n'
    (work / LOGGER).write_bytes(start + settled + end)
    saved = life("save", "--name", "always", "--json", status=0).json
    assert [row["state"] for row in saved["files"]] == ["applies"]
    found = states(life("survey", "vllm", "--versions", ">=0.30,<0.34", "--json", status=0))
    assert (found["always", "0.30.0"], found["always", "0.33.0"]) == ("applies", "applies")


@pytest.mark.engine
def test_from_the_first_import_to_the_last_rest(life, engine, fixture_image, scratch, released, tmp_path):
    image = scratch.tagged(fixture_image("xpu"), "vllm-xpu:nightly")
    (tmp_path / "colours.diff").write_bytes(own_change(released, "0.29.0"))
    upstream = write({RUNNER: released(RUNNER, "0.32.0")}, {RUNNER: released(RUNNER, "0.33.0")})
    (tmp_path / "event.diff").write_bytes(b"torch.xpu.Event takes no external\n\n" + upstream)
    life("import", "colours.diff", "--version", "0.29.0", "--drop-missing", status=0)
    life("import", "event.diff", "--version", "0.32.0", status=0)
    found = states(life("survey", "vllm", "--versions", ">=0.31,<0.34", "--json", status=0))
    assert [found["event", version] for version in ("0.31.0", "0.32.0", "0.33.0")] == ["offset", "applies", "upstream"]
    told = life("rebase", "--image", image, "--json", status=0).json
    assert {row["patch"]: row["state"] for row in told["files"]} == {"colours": "clean", "event": "upstream"}
    assert {level["name"]: level["state"] for level in told["levels"]}["compiles"] == "passed"
    assert {row["patch"]: row["state"] for row in life("status", "--image", image, "--json").json["files"]} == {
        "colours": "applies",
        "event": "upstream",
    }
    life("lock", "--image", image, status=0)
    life("lock", "--image", image, "--check", status=0)
    applied = life("apply", "--image", image, "--json", status=0)
    assert applied.levels["bytes"] == applied.levels["resolves"] == applied.levels["compiles"] == "passed"
    shown = life("show", "colours", "--json", status=0).json
    assert f"{image}-patchkit" in shown["images"]
    assert shown["variants"][1]["versions"] == ">=0.33.0"
    statement = json.loads(life("receipt", "--image", f"{image}-patchkit", "--format", "in-toto", status=0).out)
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    names = [each["name"] for each in statement["predicate"]["buildDefinition"]["resolvedDependencies"]]
    assert names == ["origin", "patch:colours", "patch:event"]
    retired = life("retire", "--json", status=0).json["files"]
    assert [row["patch"] for row in retired] == ["event"]
    assert [row["patch"] for row in life("list", "--json").json["files"]] == ["colours"]
    assert "0.33.0" in (tmp_path / "mine/patches/retired/event.patch").read_text()
    life("lock", "--check", status=1)
    life("lock", "--image", image, status=0)
    life("lock", "--check", status=0)
    life("manifest", "learn", "--image", image, "--seen", "2026-11-30", status=0)
    before = files(tmp_path / "mine")
    life("manifest", "learn", "--image", image, "--seen", "2026-12-24", status=0)
    life("lock", "--image", image, status=0)
    assert files(tmp_path / "mine") == before
    assert life("status", "--image", image, "--json").json["image"]["matched_by"] == "digest"


@pytest.mark.engine
def test_a_container_that_somebody_edited_by_hand_becomes_a_patch(life, engine, fixture_image, scratch, tmp_path):
    image = scratch.tagged(fixture_image("xpu"), "vllm-xpu:nightly")
    site = "/opt/venv/lib/python3.11/site-packages"
    container = engine.containers.run(
        image, ["-c", f"echo 'x = 1' >> {site}/{LOGGER}; echo 'y = 2' > {site}/vllm/own.py; rm {site}/{GONE}"],
        entrypoint=["/bin/busybox", "sh"], name=scratch.name("edited"), detach=True, user="0",
    )  # fmt: skip
    assert container.wait()["StatusCode"] == 0
    answer = life("import", "--container", container.name, "--name", "by-hand", "-m", "Tried out", "--json", status=0)
    assert sorted(answer.json["files"][0]["pre"]) == [GONE, LOGGER, "vllm/own.py"]
    assert [row["state"] for row in life("status", "--image", image, "--json").json["files"]] == ["applies"] * 3
    assert not any(row["notes"] for row in life("status", "--image", image, "--json").json["files"])
    life("manifest", "learn", "--image", image, status=0)
    assert life("apply", "--image", image, "--json", status=0).levels["bytes"] == "passed"
    assert "Origin: vendor, changed by hand" in (tmp_path / "mine/patches/by-hand.patch").read_text()


@pytest.mark.engine
def test_a_change_that_the_server_does_not_import_or_a_patch_already_makes_is_told(
    life, engine, fixture_image, scratch
):
    image = scratch.tagged(fixture_image("xpu"), "vllm-xpu:nightly")
    site = "/opt/venv/lib/python3.11/site-packages"

    def edited(name, path):
        container = engine.containers.run(
            image, ["-c", f"echo 'x = 1' >> {path}"],
            entrypoint=["/bin/busybox", "sh"], name=scratch.name(name), detach=True, user="0",
        )  # fmt: skip
        assert container.wait()["StatusCode"] == 0
        return container.name

    decoy = life("import", "--container", edited("decoy", f"/workspace/vllm/{LOGGER}"), "-m", "Tried out", status=1).err
    assert "other-copy-changed" in decoy
    assert f"/workspace/vllm/{LOGGER}" in decoy
    assert f"it imports {site}/vllm" in decoy
    served = edited("served", f"{site}/{LOGGER}")
    life("import", "--container", served, "--name", "by-hand", "-m", "Tried out", status=0)
    again = life("import", "--container", served, "--name", "other", "-m", "Tried out", status=1).err
    assert "already-a-patch" in again
    assert f"edit --patch by-hand --image {image}" in again
    diff = life("import", "mine/patches/by-hand.patch", "--image", image, "--name", "other", status=1).err
    assert "patch by-hand of the series does this already" in diff


def test_a_full_file_overlay_made_from_an_old_release_is_found_out(life, released, tmp_path):
    (tmp_path / "overlays").mkdir()
    (tmp_path / "overlays/logger.py").write_bytes(released(LOGGER, "0.29.0") + b"\nOURS = True\n")
    overlay = ("import", "overlays", "--name", "overlay", "-m", "Ours")
    refused = life(*overlay, "--version", "0.33.0", status=1)
    assert "overlay-of-another-release" in refused.err
    assert "--version 0.29.0" in refused.err
    life(*overlay, "--version", "0.29.0", status=0)
    patch = (tmp_path / "mine/patches/overlay.patch").read_text()
    assert patch.count("\n+") == 3  # the file's own header line, a blank line and ours
    life("rebase", "--onto", "0.33.0", status=0)
    assert states(life("survey", "vllm", "--versions", "==0.33.0", "--json"))["overlay", "0.33.0"] == "applies"


def files(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }
