"""What the docs say is so: generated pages are current, commands exist, examples run, the site builds."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
import yaml

from patchkit.catalog.load import load_catalog
from patchkit.cli import root
from patchkit.lifecycle.init import create, skeleton
from scripts.reference import PAGES

ROOT = Path(__file__).parents[2]
DOCS = sorted((ROOT / "docs").rglob("*.md"))
WRITTEN = [page for page in DOCS if page.parent.name != "reference"]


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def command_lines():
    found = []
    for page in [*WRITTEN, ROOT / "README.md"]:
        for block in blocks(page, "console"):
            lines = [line.removeprefix("$ ") for line in block.splitlines() if line.startswith("$ patchkit ")]
            found += [(page.name, line) for line in lines]
    for name, text in skeleton("mine", "vllm", "vllm-xpu:*").items():
        found += [(name, line) for line in re.findall(r"^ *(?:- run: )?(patchkit .*)$", text, re.MULTILINE)]
    context = click.Context(root, info_name="patchkit")
    for name in root.list_commands(context):
        found += [(name, line) for line in re.findall(r"^ *(patchkit .*)$", help_of(name, context), re.MULTILINE)]
    return found


def help_of(name, context):
    command = root.get_command(context, name)
    groups = [command, *(command.commands.values() if isinstance(command, click.Group) else [])]
    return "\n".join(each.help or "" for each in groups)


@pytest.fixture(scope="module")
def generated(tmp_path_factory):
    """The generated pages, by a process of its own: click keeps in a command how it was first called."""
    folder = tmp_path_factory.mktemp("docs") / "reference"
    subprocess.run([sys.executable, "scripts/reference.py", folder], cwd=ROOT, check=True)
    return folder


@pytest.mark.parametrize("page", sorted(PAGES))
def test_a_generated_page_is_what_the_code_says(page, generated):
    written = (ROOT / "docs/reference" / page).read_text("utf-8")
    assert written == (generated / page).read_text("utf-8"), "run: make docs"


@pytest.mark.parametrize(("where", "line"), command_lines())
def test_a_command_line_in_docs_and_help_is_one_that_patchkit_takes(where, line):
    words = shlex.split(line.split(" # ")[0].split(">>")[0].split(" > ")[0].split(" | ")[0], comments=True)[1:]
    command, context = root, click.Context(root, info_name="patchkit")
    while isinstance(command, click.Group):
        found = command.get_command(context, words[0])
        assert found is not None, f"{where}: {line}"
        command, words = found, words[1:]
    parser = command.make_parser(click.Context(command))
    parser.parse_args(words)


def test_every_command_has_an_example_in_its_help():
    context = click.Context(root, info_name="patchkit")
    assert [name for name in root.list_commands(context) if f"patchkit {name}" not in help_of(name, context)] == []


def test_the_shell_completes_commands_and_options():
    def completed(words, number):
        environment = {"_PATCHKIT_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(number)}
        done = subprocess.run(
            [sys.executable, "-m", "patchkit"], env=os.environ | environment, capture_output=True, text=True, cwd="/"
        )
        return [line.partition(",")[2] for line in done.stdout.splitlines()]

    assert {"rebase", "receipt", "retire", "revert"} <= set(completed("patchkit re", 1))
    assert "--drop-missing" in completed("patchkit import --drop", 2)


def test_the_python_examples_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in blocks(ROOT / "docs/howto/python.md", "python"):
        exec(compile(block, "python.md", "exec"), names)
    assert load_catalog(tmp_path / "my-patches").manifests[0].package == "tinyserve"
    assert callable(names["deliver"])
    assert names["newest_states"]("tinyserve") == {}


@pytest.mark.engine
def test_the_python_example_delivers(tmp_path, monkeypatch, engine, fixture_image, scratch):
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in blocks(ROOT / "docs/howto/python.md", "python"):
        exec(compile(block, "python.md", "exec"), names)
    names["options"] = names["api"].Options(catalog=ROOT / "tests/catalogs/tiny", manifest="tinyserve")
    image = scratch.tagged(fixture_image("pure"), "tinyserve:latest")
    assert names["deliver"](image) == f"docker-daemon:{image}-patchkit"


def test_yaml_examples_are_sound_where_they_stand(tmp_path):
    create(tmp_path, "mine", "vllm", "vllm-xpu:*")
    manifest = tmp_path / "manifests/mine.yaml"
    start = manifest.read_text()
    (hints,) = blocks(ROOT / "docs/howto/new-image.md", "yaml")
    manifest.write_text(start + hints)
    assert load_catalog(tmp_path).manifests[0].hints[0].mentions == "flint"
    (condition,) = blocks(ROOT / "docs/howto/first-patch.md", "yaml")
    (tmp_path / "patches/fix.patch").write_text("--- a/vllm/envs.py\n+++ b/vllm/envs.py\n@@ -1 +1 @@\n-a\n+b\n")
    entry = f"patches:\n  - id: fix\n    file: patches/fix.patch\n{condition}"
    manifest.write_text(start.replace("patches: []\n", entry))
    assert load_catalog(tmp_path).manifests[0].patches[0].drop_when.syntax.function == "get_value"


def test_workflows_are_yaml_and_the_shipped_one_is_what_init_writes():
    for file in sorted((ROOT / "docs/ci").glob("*.yml")):
        assert "jobs" in yaml.safe_load(file.read_text())
    written = (ROOT / "docs/ci/patches.yml").read_text()
    assert written == skeleton("mine", "vllm", "vllm-xpu:*")[".github/workflows/patches.yml"]


def test_the_site_builds_without_a_warning(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", tmp_path / "site"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site/index.html").is_file()
