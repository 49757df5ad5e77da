"""A program that changes the search path itself: what it brings is what the real interpreter then imports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from patchkit.site.entry import doubts, path_changes
from patchkit.site.launch import launch_of
from patchkit.site.model import Launch
from patchkit.site.static import search_of
from patchkit.site.view import View
from tests.site.host import HostFiles
from tests.site.layouts import Layout
from tests.site.roots import config, put, small_root

#: Each puts ``app/vendor`` in front, where another copy lies.
FRONTS = [
    "sys.path.insert(0, ROOT + '/app/vendor')",
    "sys.path.insert(0, os.path.join(os.path.dirname(__file__), 'vendor'))",
    "sys.path.insert(1, os.path.dirname(os.path.realpath(__file__)) + '/vendor')",
    "sys.path.insert(0, str(Path(__file__).resolve().parent / 'vendor'))",
    "sys.path.insert(0, str(Path(__file__).parents[0].joinpath('vendor')))",
    "HERE = os.path.abspath(os.path.dirname(__file__))\nsys.path.insert(0, os.path.join(HERE, 'vendor'))",
    "sys.path.insert(0, os.getcwd() + '/app/vendor')",
    "sys.path.insert(0, os.path.join(os.getcwd(), 'app', 'vendor'))",
    "sys.path.insert(0, 'app/vendor')",
    "sys.path = [os.path.join(os.path.dirname(__file__), 'vendor')] + sys.path",
    "sys.path[:0] = [os.path.join(os.path.dirname(__file__), 'vendor')]",
    "def main():\n    sys.path.insert(0, sys.argv[0].replace('serve.py', 'vendor'))\nmain()",
    "import front",
    "from front import nothing",
    "if '--exec' not in sys.argv:\n    os.environ['PYTHONPATH'] = ROOT + '/app/vendor'\n"
    "    os.execv(sys.executable, [sys.executable, __file__, '--exec'])",
]
#: These change nothing about which copy is found.
LEFT = [
    "sys.path.append(ROOT + '/app/vendor')",
    "sys.path += [ROOT + '/app/vendor']",
    "sys.path = sys.path + [ROOT + '/app/vendor']",
    "sys.path.insert(0, os.path.dirname(__file__))",
    "sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))",
    "class Config:\n    def __init__(self):\n        self.path = 'x'",
    "print(sys.path, os.path.join('a', 'b'))",
]
HEAD = "import os\nimport sys\nfrom pathlib import Path\n"


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    at = Layout(tmp_path, sys.executable)
    at.package(at.venv())
    at.package("app/vendor")
    at.file("app/front.py", "import os, sys\nnothing = 0\nsys.path.insert(0, os.path.dirname(__file__) + '/vendor')\n")
    return at


def served_and_doubted(at: Layout, text: str) -> tuple[str, list[str]]:
    """Which copy the program imports when it really runs, and what reading has against the one that it finds."""
    head = HEAD + (f"ROOT = {str(at.root)!r}\n" if "ROOT" in text else "")
    script = at.file("app/serve.py", f"{head}{text}\nimport pkg\nprint(pkg.__file__)\n")
    argv = [at.python, str(script)]
    said = subprocess.run(argv, cwd=at.root, env={"PATH": "/usr/bin"}, capture_output=True, text=True, timeout=30)
    fs = HostFiles(Path("/"))
    launch = launch_of({"Entrypoint": argv, "Env": ["PATH=/usr/bin"], "WorkingDir": str(at.root)}, fs)
    view = View(fs)
    return said.stdout.strip(), doubts(view, search_of(view, launch), launch, "pkg")


@pytest.mark.parametrize("text", FRONTS)
def test_a_program_that_brings_another_copy_is_doubted_with_its_line(layout: Layout, text: str) -> None:
    served, doubted = served_and_doubted(layout, text)
    assert served == f"{layout.root}/app/vendor/pkg/__init__.py"
    assert doubted
    assert str(layout.root / "app") in doubted[0]


@pytest.mark.parametrize("text", LEFT)
def test_a_program_that_changes_nothing_about_it_is_not_doubted(layout: Layout, text: str) -> None:
    served, doubted = served_and_doubted(layout, text)
    assert "/venv/lib" in served
    assert doubted == []


def test_where_no_other_copy_lies_nothing_is_doubted(layout: Layout) -> None:
    for name in ("__init__.py", "sub/__init__.py", "sub/mod.py"):
        (layout.root / "app/vendor/pkg" / name).unlink()
    for text in FRONTS[:-1]:
        assert served_and_doubted(layout, text)[1] == []


@pytest.fixture
def fs(tmp_path: Path) -> HostFiles:
    files = small_root(tmp_path)
    for base in ("/opt/venv/lib/python3.11/site-packages", "/srv"):
        put(tmp_path, f"{base}/app/__init__.py")
        put(tmp_path, f"{base}/app/cli.py")
    return files


def of(fs: HostFiles, launch: Launch) -> list[str]:
    view = View(fs)
    return doubts(view, search_of(view, launch), launch, "app")


def test_a_server_that_goes_by_its_working_folder_is_doubted_only_where_a_copy_lies_there(
    fs: HostFiles, tmp_path: Path
) -> None:
    put(tmp_path, "/opt/venv/bin/uvicorn", "#!/opt/venv/bin/python3\nfrom uvicorn import main\nmain()\n", 0o755)
    assert of(fs, launch_of(config(["serve"]), fs)) == []
    found = of(fs, launch_of(config(["uvicorn", "x:y"]), fs))
    assert found == [
        "/opt/venv/bin/uvicorn puts /srv in front of the search path, where another copy lies: /srv/app/__init__.py"
    ]
    assert of(fs, launch_of(config(["uvicorn", "x:y"], cwd="/"), fs)) == []
    assert of(fs, launch_of(config(["python3", "-m", "uvicorn"]), fs)) == [], "it is the copy that is found"


def test_the_text_of_a_command_is_read_too(fs: HostFiles) -> None:
    text = "import sys; sys.path.insert(0, '/srv'); import app"
    assert of(fs, launch_of(config(["python3", "-c", text], cwd="/"), fs))[0].startswith("the text of -c:1 puts /srv")


@pytest.mark.parametrize(
    "start",
    [
        ["torchrun", "--nproc-per-node=2", "serve.py"],
        ["python3", "-m", "torch.distributed.run", "serve.py"],
        ["python3", "-m", "debugpy", "--listen", "5678", "serve.py"],
    ],
)
def test_a_program_that_starts_another_is_not_what_serves(fs: HostFiles, tmp_path: Path, start: list[str]) -> None:
    put(tmp_path, "/opt/venv/bin/torchrun", "#!/opt/venv/bin/python3\n", 0o755)
    launch = launch_of(config(start), fs)
    assert launch.form == "unknown"
    assert "starts another program" in launch.source


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        ("__path__.insert(0, '/alt')", True),
        ("__path__ = ['/alt', *__path__]", True),
        ("__path__[:0] = ['/alt']", True),
        ("from pkgutil import extend_path\n__path__ = extend_path(__path__, __name__)", False),
        ("__path__ = __import__('pkgutil').extend_path(__path__, __name__)", False),
        ("__path__.append('/alt')", False),
        ("__path__ = [*__path__, '/alt']", False),
        ("import pkgutil\nfor each in pkgutil.iter_modules(__path__): print(each)", False),
    ],
)
def test_a_package_that_moves_its_modules_is_told(fs: HostFiles, tmp_path: Path, text: str, changes: bool) -> None:
    place = "/opt/venv/lib/python3.11/site-packages/app/__init__.py"
    put(tmp_path, place, text)
    view = View(fs)
    found = path_changes(view, search_of(view, launch_of(config(["serve"]), fs)), "app.cli")
    assert [where.partition(":")[0] for where in found] == ([place] if changes else [])
