"""A new catalog is sound from its first minute."""

import json

import pytest

from patchkit.catalog.check import findings
from patchkit.catalog.load import load_catalog
from patchkit.errors import BadInput, Refused
from patchkit.lifecycle.init import create


def test_a_new_catalog_is_sound_and_has_all_that_the_next_command_needs(tmp_path):
    files = create(tmp_path / "mine", "mine", "vllm", "vllm-xpu:*")
    catalog = load_catalog(tmp_path / "mine")
    assert findings(catalog) == []
    (manifest,) = catalog.manifests
    assert (manifest.name, manifest.package, manifest.images[0].match) == ("mine", "vllm", "vllm-xpu:*")
    assert all(file.is_file() for file in files)
    first = manifest.path.read_text().partition("\n")[0]
    assert first == "# yaml-language-server: $schema=../manifest.schema.json"
    assert json.loads((tmp_path / "mine" / "manifest.schema.json").read_text())["title"] == "patchkit manifest"


def test_the_same_call_twice_changes_nothing(tmp_path):
    before = {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in create(tmp_path, "m", "p", "p:*")}
    assert {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in create(tmp_path, "m", "p", "p:*")} == before


def test_a_file_that_is_somebody_elses_is_never_overwritten(tmp_path):
    (tmp_path / "README.md").write_text("mine\n")
    with pytest.raises(Refused) as caught:
        create(tmp_path, "m", "p", "p:*")
    assert caught.value.code == "file-exists"
    assert [file.name for file in tmp_path.iterdir()] == ["README.md"]


@pytest.mark.parametrize(("name", "package", "image"), [("A b", "p", "p:*"), ("m", "p q", "p:*"), ("m", "p", 'p"x')])
def test_a_name_that_no_manifest_can_have_writes_nothing(tmp_path, name, package, image):
    with pytest.raises(BadInput):
        create(tmp_path / "new", name, package, image)
    assert not (tmp_path / "new").exists()
