"""Every kind of change that a diff can tell arrives, or is refused: in the image and by mounts."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

HEAD = "Description: a test\nOrigin: vendor\n\n"
RENAME = """\
diff --git a/tinyserve/ops/scale.py b/tinyserve/ops/scaled.py
similarity index 100%
rename from tinyserve/ops/scale.py
rename to tinyserve/ops/scaled.py
"""
MODE = """\
diff --git a/tinyserve/ops/scale.py b/tinyserve/ops/scale.py
old mode 100644
new mode 100755
"""
SCRIPT = """\
diff --git a/tinyserve/run.sh b/tinyserve/run.sh
new file mode 100755
--- /dev/null
+++ b/tinyserve/run.sh
@@ -0,0 +1 @@
+#!/bin/sh
"""
FOLDER = """\
diff --git a/tinyserve/fresh/__init__.py b/tinyserve/fresh/__init__.py
new file mode 100644
--- /dev/null
+++ b/tinyserve/fresh/__init__.py
@@ -0,0 +1 @@
+A = 1
diff --git a/tinyserve/fresh/deep/one.py b/tinyserve/fresh/deep/one.py
new file mode 100644
--- /dev/null
+++ b/tinyserve/fresh/deep/one.py
@@ -0,0 +1 @@
+B = 2
"""


@pytest.fixture
def options(tmp_path: Path, fixture_layout: Callable[[str], Path]) -> Callable[..., list[str]]:
    """Give the options of ``apply`` for the small package with a catalog of this one diff."""

    def write(diff: str, *more: str) -> list[str]:
        catalog = tmp_path / "catalog"
        (catalog / "manifests").mkdir(parents=True)
        (catalog / "patches").mkdir()
        (catalog / "patches/one.patch").write_text(HEAD + diff)
        manifest = "name: t\npackage: tinyserve\nversions: '>=1'\nimages: [{match: '*'}]\n"
        manifest += "patches: [{id: one, file: patches/one.patch}]\n"
        (catalog / "manifests/t.yaml").write_text(manifest)
        image = f"oci:{fixture_layout('pure')}:latest"
        return ["apply", "--image", image, "--catalog", str(catalog), "--no-run", "--json", *more]

    return write


def test_a_rename_takes_the_old_file_away_and_proves_it(patchkit, options, tmp_path):
    patchkit(*options(RENAME), status=0)
    files = json.loads((tmp_path / ".patchkit/receipt.json").read_text())["files"]
    assert {file["path"]: file["post"] == "absent" for file in files} == {
        "tinyserve/ops/scale.py": True,
        "tinyserve/ops/scaled.py": False,
    }


def test_a_rename_by_mounts_is_refused_since_the_old_file_would_stay(patchkit, options):
    done = patchkit(*options(RENAME, "--mode", "bind"), status=1)
    assert [finding["id"] for finding in done.json["findings"]] == ["removal-by-mount"]


@pytest.mark.parametrize("diff", [MODE, SCRIPT], ids=["old", "new"])
def test_a_file_made_executable_is_mounted_as_such_and_proven_to_be(patchkit, options, diff, tmp_path):
    patchkit(*options(diff, "--mode", "bind"), status=0)
    (mount,) = json.loads((tmp_path / ".patchkit/receipt.json").read_text())["mounts"]
    assert stat.S_IMODE(Path(mount["source"]).stat().st_mode) == 0o755
    Path(mount["source"]).chmod(0o644)

    image = json.loads((tmp_path / ".patchkit/receipt.json").read_text())["delivered"]
    assert patchkit("verify", "--image", image, "--no-run", "--json", status=1).levels["bytes"] == "failed"


def test_a_new_executable_file_keeps_its_mode_in_the_image(patchkit, options, tmp_path):
    patchkit(*options(SCRIPT), status=0)
    (file,) = json.loads((tmp_path / ".patchkit/receipt.json").read_text())["files"]
    assert file["mode"] == 0o755


def test_a_new_package_by_mounts_is_found_though_its_folder_is_not_there_before(patchkit, options):
    assert patchkit(*options(FOLDER, "--mode", "bind"), status=0).levels["resolves"] == "passed"


@pytest.fixture
def container(engine, fixture_image, scratch):
    """A container of the small package in which a Python runs."""
    name = scratch.tagged(fixture_image("pure"), "tinyserve:1")
    program = ["/opt/venv/bin/python3", "-c", "import time; time.sleep(300)"]
    running = engine.containers.run(name, entrypoint=program, detach=True)
    yield running
    running.remove(force=True)


def in_container(options, container) -> list[str]:
    place = options.index("--image")
    return [
        *options[:place],
        "--container",
        container.name,
        *options[place + 2 : -2],
        "--json",
        "--launch",
        "tinyserve",
    ]


@pytest.mark.engine
def test_a_new_folder_is_made_in_a_running_container(patchkit, options, container):
    done = patchkit(*in_container(options(FOLDER), container))
    assert done.levels["resolves"] == "passed"
    found = container.exec_run(
        ["/opt/venv/bin/python3", "-I", "-c", "from tinyserve.fresh.deep.one import B; print(B)"]
    )
    assert found.output == b"2\n"


@pytest.mark.engine
def test_a_module_removed_under_a_running_process_is_told_as_still_in_its_memory(patchkit, options, container):
    done = patchkit(*in_container(options(RENAME), container), status=1)
    told = [finding["what"] for finding in done.json["findings"] if finding["id"] == "process-older"]
    assert any("scale.py before it was removed" in what for what in told)
