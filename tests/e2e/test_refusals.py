"""What cannot be done is refused with the place and the next command, and nothing is left behind."""

from __future__ import annotations

import io
import json
import tarfile

import pytest

SITE = "/opt/venv/lib/python3.11/site-packages"
NORM = "vllm/models/flint/ops/norm.py"


@pytest.fixture
def changed(engine, fixture_image, scratch, tmp_path_factory):
    """Build an image in which one file of the package is another: what a moved nightly is."""

    def build(edit, path=NORM, variant="xpu"):
        image = scratch.tagged(fixture_image(variant), "base:1")
        folder = tmp_path_factory.mktemp("context")
        container = engine.containers.create(image, entrypoint=["/none"])
        try:
            stream, _ = container.get_archive(f"{SITE}/{path}")
            with tarfile.open(fileobj=io.BytesIO(b"".join(stream))) as archive:
                old = archive.extractfile(archive.next()).read()
        finally:
            container.remove()
        new = edit(old)
        lines = [f"FROM {image}"]
        if new is None:
            lines.append(f'RUN ["/bin/busybox", "rm", "{SITE}/{path}"]')
        else:
            (folder / "new").write_bytes(new)
            lines.append(f"COPY new {SITE}/{path}")
        (folder / "Dockerfile").write_text("\n".join(lines))
        name = scratch.name("vllm-xpu:nightly")
        engine.images.build(path=str(folder), tag=name, rm=True)
        return name

    return build


def nothing_written(engine, image, tmp_path):
    names = {tag for each in engine.api.images() for tag in each.get("RepoTags") or ()}
    return not (tmp_path / ".patchkit").exists() and f"{image}-patchkit" not in names


@pytest.mark.engine
def test_a_file_that_moved_by_some_lines_is_patched_at_its_offset_and_told_as_not_listed(changed, patchkit):
    image = changed(lambda old: b"# one\n# two\n# three\n" + old)
    done = patchkit("apply", "--image", image, "--json", status=0)
    row = next(file for file in done.json["files"] if file["path"] == NORM)
    assert row["state"] == "offset"
    assert {hunk["offset"] for hunk in row["hunks"]} == {3}
    assert "pre-image not listed" in row["notes"]


@pytest.mark.engine
def test_a_conflict_names_the_hunk_the_line_and_the_next_command(engine, changed, patchkit, tmp_path):
    image = changed(lambda old: old.replace(b"bd = min(d, 1024)", b"bd = min(d, 2048)"))
    done = patchkit("apply", "--image", image, status=1)
    assert nothing_written(engine, image, tmp_path)
    assert f"{NORM}: conflict" in done.err
    assert "2048" in done.err
    assert "patchkit status --image" in done.err
    row = next(
        file for file in patchkit("status", "--image", image, "--json", status=1).json["files"] if file["path"] == NORM
    )
    assert [hunk["state"] for hunk in row["hunks"]] == ["applies", "applies", "conflict"]


@pytest.mark.engine
def test_the_other_patches_can_be_applied_alone(changed, patchkit):
    image = changed(lambda old: old.replace(b"bd = min(d, 1024)", b"bd = min(d, 2048)"))
    done = patchkit(
        "apply",
        "--image",
        image,
        "--only",
        "flint-moe-annotations",
        "--only",
        "flint-model-attention",
        "--json",
        status=0,
    )
    assert {file["state"] for file in done.json["files"]} == {"applies"}


@pytest.mark.engine
def test_a_half_taken_patch_is_partial_and_refused(engine, changed, patchkit, tmp_path):
    image = changed(lambda old: old.replace(b"bd = min(d, 1024)", b"bd = min(d & -d, 1024)"))
    row = next(
        file for file in patchkit("status", "--image", image, "--json", status=1).json["files"] if file["path"] == NORM
    )
    assert (row["state"], row["done"], row["total"]) == ("partial", 1, 3)
    assert "partial 1/3" in patchkit("apply", "--image", image, status=1).err
    assert nothing_written(engine, image, tmp_path)


@pytest.mark.engine
def test_a_file_that_is_gone_is_told_as_missing(engine, changed, patchkit, tmp_path):
    image = changed(lambda old: None)
    done = patchkit("apply", "--image", image, status=1)
    assert f"{NORM}: target-missing" in done.err
    assert nothing_written(engine, image, tmp_path)


@pytest.mark.engine
def test_a_result_that_is_no_python_is_refused_with_its_line(engine, changed, patchkit, tmp_path):
    image = changed(lambda old: old + b"\ndef broken(:\n")
    done = patchkit("apply", "--image", image, status=1)
    assert "does not compile" in done.err
    assert nothing_written(engine, image, tmp_path)


def test_a_layout_whose_blob_does_not_match_its_digest_is_refused_and_left_alone(
    fixture_layout, patchkit, tree_of, tmp_path
):
    layout = fixture_layout("xpu")
    index = json.loads((layout / "index.json").read_text())
    manifest = json.loads(blob(layout, index["manifests"][0]["digest"]).read_text())
    config = blob(layout, manifest["config"]["digest"])
    config.write_bytes(config.read_bytes().replace(b'"linux"', b'"hurd!"'))
    before = tree_of(layout)
    done = patchkit("apply", "--image", f"oci:{layout}", "--manifest", "vllm-xpu")
    assert done.status in (1, 3)
    assert manifest["config"]["digest"][7:19] in done.err
    assert tree_of(layout) == before
    assert not (tmp_path / ".patchkit").exists()


def blob(layout, digest):
    return layout / "blobs" / digest.replace(":", "/")


TYPO = """\
name: demo
package: demo
versions: ">=1"
images:
  - match: "demo:*"
patchs:
  - id: one
    file: patches/one.patch
"""
BOMB = "a: &a [x, x]\n" + "".join(
    f"{new}: &{new} [*{old}, *{old}, *{old}, *{old}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)
GOOD = """\
name: demo
package: demo
versions: ">=1"
images:
  - match: "demo:*"
patches:
  - id: one
    file: patches/one.patch
"""


def catalog(folder, manifest, patch=None):
    (folder / "manifests").mkdir(parents=True)
    (folder / "patches").mkdir()
    (folder / "manifests/demo.yaml").write_text(manifest)
    if patch is not None:
        (folder / "patches/one.patch").write_text(patch)
    return str(folder)


def section(name):
    return f"--- a/{name}\n+++ b/{name}\n@@ -1 +1 @@\n-x\n+y\n"


@pytest.mark.parametrize(
    ("manifest", "patch", "told"),
    [
        pytest.param(TYPO, None, "demo.yaml:6:1", id="a key with a typo"),
        pytest.param(BOMB, None, "demo.yaml:", id="a YAML bomb"),
        pytest.param(GOOD, section("../../etc/passwd"), "demo.yaml:8:", id="a patch that leaves the tree"),
        pytest.param(GOOD, "--- /etc/passwd\n+++ /etc/passwd\n@@ -1 +1 @@\n-x\n+y\n", "demo.yaml:8:", id="absolute"),
        pytest.param(GOOD, "this is no patch\n", "demo.yaml:8:", id="a file that is no patch"),
        pytest.param(GOOD, None, "demo.yaml:8:", id="a patch file that is missing"),
    ],
)
def test_a_bad_catalog_is_told_with_its_place_and_nothing_is_written(
    patchkit, fixture_layout, tree_of, tmp_path, tmp_path_factory, manifest, patch, told
):
    layout = fixture_layout("xpu")
    before = tree_of(layout)
    where = catalog(tmp_path_factory.mktemp("catalog") / "c", manifest, patch)
    done = patchkit("apply", "--image", f"oci:{layout}", "--catalog", where, status=2)
    assert told in done.err
    assert tree_of(layout) == before
    assert list(tmp_path.iterdir()) == [layout]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["apply", "--image", "UPPER CASE"], "bad-reference"),
        (["apply", "--image", "ocii:./x"], "unknown-transport"),
        (["apply", "--image", ""], "bad-reference"),
        (["apply", "--image", "x", "--catalog", "/no/such/folder"], "no-catalog"),
        (["apply"], "--image"),
        (["apply", "--image", "x", "--mode", "magic"], "magic"),
        (["verify"], "no-image"),
        (["status", "--image", "x:y:z"], "unknown-transport"),
        (["status", "--image", "vllm-xpu:nightly "], "bad-reference"),
        (["status", "--image", "rootfs:/"], "running-root"),
    ],
)
def test_a_call_that_is_wrong_ends_with_2_and_writes_nothing(patchkit, tmp_path, arguments, told):
    done = patchkit(*arguments, status=2)
    assert told in done.err
    assert list(tmp_path.iterdir()) == []


def test_an_error_is_json_too_when_json_was_asked_for(patchkit):
    done = patchkit("apply", "--image", "UPPER CASE", "--json", status=2)
    finding = done.json["findings"][0]
    assert (finding["id"], finding["severity"]) == ("bad-reference", "error")


def test_verify_without_a_receipt_is_refused(patchkit, fixture_layout):
    done = patchkit("verify", "--image", f"oci:{fixture_layout('xpu')}", status=1)
    assert "no-receipt" in done.err


def test_no_manifest_for_an_image_names_the_nearest_and_why_not(patchkit, fixture_layout):
    layout = fixture_layout("xpu")
    done = patchkit("status", "--image", f"oci:{layout}:latest", status=1)
    assert "no-manifest" in done.err
    assert "vllm-xpu" in done.err
    assert "--manifest" in done.err


def test_a_layout_without_a_ref_is_patched_twice_by_the_same_command(fixture_layout, patchkit, tree_of):
    layout = fixture_layout("xpu")
    options = ["apply", "--image", f"oci:{layout}", "--manifest", "vllm-xpu"]
    patchkit(*options, status=0)
    once = tree_of(layout)
    assert "was there already" in patchkit(*options, status=0).out
    assert tree_of(layout) == once
