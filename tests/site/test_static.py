"""Reading must give what real interpreters do: the same search path, the same files, on every layout."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from patchkit.errors import Refused
from patchkit.site.facts import compare
from patchkit.site.launch import launch_of
from patchkit.site.model import Launch
from patchkit.site.probe import Question, ask
from patchkit.site.static import Module, Search, find_module, search_of
from patchkit.site.view import View
from tests.site.host import HostFiles, HostImage
from tests.site.layouts import LAYOUTS, Layout, interpreters
from tests.site.roots import config, link, put, small_root

PYTHONS = interpreters()
MODULES = ("pkg", "pkg.sub", "pkg.sub.mod", "pkg.gone", "json.decoder")


def resolved(fs: HostFiles | View, launch: Launch, package: str) -> tuple[Search, Module | None]:
    search = search_of(fs, launch)
    return search, find_module(fs, search, package)


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("name", LAYOUTS)
def test_reading_and_asking_agree(tmp_path: Path, name: str, python: str) -> None:
    layout = Layout(tmp_path, python)
    LAYOUTS[name](layout)
    env = {"PATH": "/usr/bin:/bin", "HOME": "/nowhere", **layout.env}
    (tmp_path / "empty").mkdir()
    settings = [f"{key}={value}" for key, value in env.items()]
    cwd = str(layout.cwd or tmp_path / "empty")
    image = HostImage()
    launch = launch_of({"Entrypoint": layout.argv, "Env": settings, "WorkingDir": cwd}, image.fs)
    assert launch.form != "unknown", launch.source
    view = View(image.fs)
    search = search_of(view, launch)
    answer = ask(image, launch, Question(modules=MODULES))
    assert answer.spoke, answer.how_it_ended
    assert compare(view, search, answer, MODULES) == []
    kinds = {module: told and told["kind"] for module, told in answer.table("modules").items()}
    found = {module: find_module(view, search, module) for module in MODULES}
    assert {module: read and read.kind for module, read in found.items()} == kinds


def test_the_layouts_are_not_all_alike(tmp_path: Path) -> None:
    """What each layout is for: which of its copies is found."""
    wanted = {
        "venv_with_console_script_and_a_checkout_in_the_working_folder": "venv/lib",
        "module_in_the_working_folder": "work/pkg",
        "command_with_options": "venv/lib",
        "pythonpath_shadow": "shadow/pkg",
        "editable_by_path": "src/tree/pkg",
        "editable_by_finder": "src/python/pkg",
        "editable_by_scikit_build": "src/pkg",
        "editable_by_the_redirector_of_hatch_and_pdm": "src/pkg",
        "pth_that_puts_itself_first": "src/pkg",
        "nested_environment": "outer/inner/lib",
        "script_that_is_a_folder": "application/pkg",
        "script_through_a_link": "real/pkg",
        "user_site_only": "home/.local/lib",
        "user_site_below_the_working_folder": "work/base/lib",
        "interpreter_named_by_a_variable": "other/lib",
        "interpreter_named_by_the_variable_of_a_launcher": "other/lib",
        "zip_on_the_path": "bundle.zip/pkg",
    }
    for name, place in wanted.items():
        layout = Layout(tmp_path / name, PYTHONS[0])
        layout.root.mkdir()
        LAYOUTS[name](layout)
        settings = [f"{key}={value}" for key, value in {"PATH": "/usr/bin", **layout.env}.items()]
        cwd = str(layout.cwd or "/")
        launch = launch_of({"Entrypoint": layout.argv, "Env": settings, "WorkingDir": cwd}, HostFiles())
        _, module = resolved(HostFiles(), launch, "pkg")
        assert module is not None, name
        assert module.origin.startswith(f"{layout.root}/{place}"), name


def test_debians_python_looks_in_dist_packages(tmp_path: Path) -> None:
    fs = small_root(tmp_path)
    for place in ("/usr/lib/python3/dist-packages", "/usr/local/lib/python3.11/dist-packages"):
        put(tmp_path, f"{place}/marker.py")
    put(tmp_path, "/usr/lib/python3.11/site-packages/marker.py")
    search = search_of(fs, launch_of(config(["/usr/bin/python3", "-m", "marker"]), fs))
    assert search.path[-2:] == ("/usr/local/lib/python3.11/dist-packages", "/usr/lib/python3/dist-packages")
    assert "/usr/lib/python3.11/site-packages" not in search.path


def test_a_virtual_environment_of_debians_python_keeps_site_packages(tmp_path: Path) -> None:
    fs = small_root(tmp_path)
    search = search_of(fs, launch_of(config(["serve"]), fs))
    assert search.path == (
        "/opt/venv/bin",
        "/usr/lib/python311.zip",
        "/usr/lib/python3.11",
        "/usr/lib/python3.11/lib-dynload",
        "/opt/venv/lib/python3.11/site-packages",
    )
    assert search.python.version == (3, 11, 2)
    assert search.python.prefix == "/opt/venv"


def test_a_compiled_module_of_another_architecture_or_version_is_passed_over(tmp_path: Path) -> None:
    fs = small_root(tmp_path)
    base = "/opt/venv/lib/python3.11/site-packages"
    for tag in (".cpython-311-aarch64-linux-gnu.so", ".cpython-310-x86_64-linux-gnu.so", ".py"):
        put(tmp_path, f"{base}/mod{tag}")
    _, module = resolved(fs, launch_of(config(["serve"]), fs), "mod")
    assert module is not None
    assert module.kind == "source"
    put(tmp_path, f"{base}/mod.abi3.so")
    _, module = resolved(fs, launch_of(config(["serve"]), fs), "mod")
    assert module is not None
    assert module.kind == "extension"


def test_lib64_of_fedora_is_found(tmp_path: Path) -> None:
    put(tmp_path, "/usr/bin/python3.13", b"\x7fELF", 0o755)
    put(tmp_path, "/usr/lib64/python3.13/os.py")
    put(tmp_path, "/usr/lib/python3.13/site-packages/app/__init__.py")
    (tmp_path / "usr/lib64/python3.13/site-packages").mkdir()
    fs = HostFiles(tmp_path)
    search, module = resolved(fs, launch_of({"Entrypoint": ["python3.13", "-m", "app"]}, fs), "app")
    assert search.path[1] == "/usr/lib64/python313.zip"
    assert search.path[-2:] == ("/usr/lib64/python3.13/site-packages", "/usr/lib/python3.13/site-packages")
    assert module is not None


def test_an_interpreter_without_a_standard_library_is_refused(tmp_path: Path) -> None:
    fs = small_root(tmp_path)
    (tmp_path / "usr/lib/python3.11/os.py").unlink()
    with pytest.raises(Refused) as refused:
        search_of(fs, launch_of(config(["serve"]), fs))
    assert refused.value.code == "interpreter-unknown"


def test_a_python_that_leads_out_of_what_is_there_is_unknown(tmp_path: Path) -> None:
    fs = small_root(tmp_path)
    (tmp_path / "usr/bin/python3.11").unlink()
    assert launch_of(config(["serve"]), fs).form == "unknown"


def test_an_import_line_that_nobody_knows_is_told(tmp_path: Path) -> None:
    fs = small_root(tmp_path)
    put(tmp_path, "/opt/venv/lib/python3.11/site-packages/odd.pth", "import os; os.environ['X'] = '1'\n")
    search = search_of(fs, launch_of(config(["serve"]), fs))
    assert any("odd.pth" in note for note in search.notes)


def test_a_sitecustomize_is_told(tmp_path: Path) -> None:
    fs = small_root(tmp_path)
    put(tmp_path, "/opt/venv/lib/python3.11/site-packages/sitecustomize.py")
    assert any("sitecustomize" in note for note in search_of(fs, launch_of(config(["serve"]), fs)).notes)


@pytest.mark.parametrize("name", ["", ".", "a..b", "../x", "a/b", "a.", "x\0"])
def test_what_is_no_module_name_is_not_found(tmp_path: Path, name: str) -> None:
    fs = small_root(tmp_path)
    launch = launch_of(config(["serve"]), fs)
    assert find_module(fs, search_of(fs, launch), name) is None


def test_loops_of_links_end(tmp_path: Path) -> None:
    fs = small_root(tmp_path)
    base = "/opt/venv/lib/python3.11/site-packages"
    link(tmp_path, f"{base}/loop", "loop")
    link(tmp_path, f"{base}/a.pth", "a.pth")
    assert resolved(fs, launch_of(config(["serve"]), fs), "loop")[1] is None


def test_without_home_a_users_own_packages_lie_below_the_folder_that_passwd_names(tmp_path: Path) -> None:
    fs = small_root(tmp_path)
    mine = "/home/app/.local/lib/python3.11/site-packages"
    put(tmp_path, f"{mine}/app/__init__.py")
    _, module = resolved(fs, launch_of(config(["env", "-i", "/usr/bin/python3", "-m", "app"], user="app"), fs), "app")
    assert module is not None
    assert module.origin == f"{mine}/app/__init__.py"


def test_a_home_with_two_leading_slashes_has_an_end(tmp_path: Path) -> None:
    fs = small_root(tmp_path)
    put(tmp_path, "/opt/venv/pyvenv.cfg", "home = //nowhere/bin\n")
    assert "/usr/lib/python3.11" in search_of(fs, launch_of(config(["serve"]), fs)).path


def test_a_standard_library_in_the_root_belongs_to_no_interpreter_below_it(tmp_path: Path) -> None:
    fs = small_root(tmp_path)
    put(tmp_path, "/opt/venv/pyvenv.cfg", "home = /nowhere/bin\n")
    link(tmp_path, "/lib", "usr/lib")
    assert "/usr/lib/python3.11" in search_of(fs, launch_of(config(["serve"]), fs)).path


def test_a_search_asks_for_no_file_twice(tmp_path: Path) -> None:
    fs = small_root(tmp_path)
    asked: list[str] = []
    real = fs.lstat
    fs.lstat = lambda path: asked.append(path) or real(path)  # type: ignore[method-assign,func-returns-value]
    view = View(fs)
    launch = launch_of(config(["serve"]), HostFiles(tmp_path))
    resolved(view, launch, "app")
    first = len(asked)
    resolved(view, launch, "app")
    assert len(asked) - first < first / 2
    assert os.path.sep in asked[0]
