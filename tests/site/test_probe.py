from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import pytest

from patchkit.errors import Refused
from patchkit.site.gpus import amd_gpus
from patchkit.site.model import Launch
from patchkit.site.probe import Answer, Question, argv_of, ask, read_answers
from tests.site.host import HostImage
from tests.site.layouts import Layout, interpreters

NONCE = "ab" * 16


def line(part: object, nonce: str = NONCE) -> bytes:
    text = json.dumps(part)
    return f"patchkit-answer {hashlib.sha256((nonce + text).encode()).hexdigest()} {text}\n".encode()


def launch(python: str, cwd: str = "/", *, flags: tuple[str, ...] = (), **env: str) -> Launch:
    return Launch("module", python, "pkg", cwd, {"PATH": "/usr/bin:/bin", "HOME": "/nowhere", **env}, flags=flags)


def test_answers_with_the_proof_are_merged_and_noise_is_passed_over() -> None:
    output = b"banner\n" + line({"a": 1}) + b"\xff\x00more\n" + line({"b": 2}) + b"patchkit-answer x y\n"
    assert read_answers(output, NONCE) == {"a": 1, "b": 2}


@pytest.mark.parametrize(
    "output",
    [
        b"",
        b'patchkit-answer 00 {"a": 1}\n',
        line({"a": 1}, nonce="00" * 16),
        b"patchkit-answer " + NONCE.encode() + b' {"a": 1}\n',
        line([1, 2]),
        line(None),
        line({"a": 1})[:-3],
    ],
)
def test_an_answer_without_the_right_proof_is_nobodys(output: bytes) -> None:
    assert read_answers(output, NONCE) == {}


@pytest.mark.parametrize("told", [None, 7, "gfx942", [7], [["one"]], [["one", "two", "three"]]])
def test_gpus_in_another_shape_were_not_told(told: object) -> None:
    assert Answer({"gpus": told}).gpus is None


def test_no_argument_is_longer_than_linux_allows() -> None:
    question = Question(modules=[f"m{number}" for number in range(40_000)])
    assert max(len(text.encode()) for text in argv_of(launch(sys.executable), question, NONCE)) < 128 * 1024


def test_a_long_question_arrives_whole(tmp_path: Path) -> None:
    question = Question(modules=[f"missing{number}" for number in range(20_000)])
    answer = ask(HostImage(), launch(sys.executable, str(tmp_path)), question)
    assert len(answer.table("modules")) == 20_000


def test_an_unknown_launch_is_refused() -> None:
    with pytest.raises(Refused):
        ask(HostImage(), Launch("unknown", "", "", "/", {}), Question())


def test_nothing_of_the_package_is_imported_to_resolve_it(tmp_path: Path) -> None:
    layout = Layout(tmp_path, sys.executable)
    package = layout.package("work")
    (package / "__init__.py").write_text(f"open('{tmp_path}/imported', 'w')\n")
    answer = ask(HostImage(), launch(sys.executable, f"{tmp_path}/work"), Question(modules=["pkg.sub.mod"]))
    assert answer.table("modules")["pkg.sub.mod"]["origin"] == str(package / "sub/mod.py")
    assert not (tmp_path / "imported").exists()


@pytest.mark.parametrize("python", interpreters())
def test_every_python_answers_every_question(tmp_path: Path, python: str) -> None:
    layout = Layout(tmp_path, python)
    package = layout.package("work")
    layout.file("work/pkg/broken.py", "def f(:\n")
    layout.file("work/pkg/fails.py", "\nraise ValueError('why') from KeyError('cause')\n")
    layout.file("work/pkg/leaves.py", "import os\nos._exit(3)\n")
    source, broken = str(package / "sub/mod.py"), str(package / "broken.py")
    question = Question(
        modules=["pkg"],
        files=[source, str(package / "gone.py"), str(package)],
        sources=[source, broken],
        imports=["pkg.sub.mod", "pkg.fails", "pkg.absent"],
        asserts=[
            {
                "module": "pkg",
                "before": "import sys; sys.marker = 1",
                "code": "assert sys.marker == 1 and module is pkg",
            },
            {"module": "pkg", "before": "", "code": "\nassert False, 'no'"},
            {"module": "pkg.leaves", "before": "", "code": ""},
        ],
        timeout=60,
    )
    answer = ask(HostImage(), launch(python, f"{tmp_path}/work"), question)
    assert answer.gpus == tuple(amd_gpus())
    files = answer.table("files")
    assert files[source]["sha256"] == hashlib.sha256(b"value = 1\n").hexdigest()
    assert files[str(package / "gone.py")] is None
    assert files[str(package)] == {"kind": "other"}
    compiles = answer.table("compiles")
    assert compiles[source] == ""
    assert compiles[broken].startswith("line 1: ")
    for part in ("imports", "spawned"):
        told = answer.table(part)
        assert told["pkg.sub.mod"]["real"] == source
        assert told["pkg.absent"]["error"][0]["name"] == "pkg.absent"
        first, second = told["pkg.fails"]["error"]
        assert (first["type"], first["text"], first["link"]) == ("ValueError", "why", "cause")
        assert first["frames"][-1] == [str(package / "fails.py"), 2]
        assert second["type"] == "KeyError"
    assert answer.table("assert 0")["output"] == ""
    assert answer.table("assert 1")["error"][0]["frames"][-1] == ["<assert>", 2]
    assert answer.table("assert 2") == {"ended": 3}


def test_an_import_sees_only_the_modules_that_the_server_would_have_loaded(tmp_path: Path) -> None:
    layout = Layout(tmp_path, sys.executable)
    layout.package("work")
    layout.file("work/pkg/lazy.py", "import sys\nassert 'json' not in sys.modules and 'hashlib' not in sys.modules\n")
    answer = ask(HostImage(), launch(sys.executable, f"{tmp_path}/work"), Question(imports=["pkg.lazy"]))
    assert "error" not in answer.table("imports")["pkg.lazy"]


@pytest.mark.parametrize("flags", [(), ("-E",), ("-I",)])
def test_a_question_leaves_no_bytecode_behind(tmp_path: Path, flags: tuple[str, ...]) -> None:
    layout = Layout(tmp_path, sys.executable)
    layout.package(layout.venv())
    answer = ask(HostImage(), launch(layout.python, flags=flags), Question(imports=["pkg.sub.mod"]))
    for part in ("imports", "spawned"):
        assert "error" not in answer.table(part)["pkg.sub.mod"]
    assert not list(tmp_path.rglob("*.pyc"))


def test_bytecode_that_would_run_is_told_with_whether_it_is_of_this_source(tmp_path: Path) -> None:
    layout = Layout(tmp_path, sys.executable)
    names = ("fresh", "stale", "unchecked", "untouched")
    for name in names:
        layout.file(f"work/{name}.py", "value = 1\n")
    import os
    import py_compile

    sources = {name: str(tmp_path / f"work/{name}.py") for name in names}
    for name in ("fresh", "stale"):
        py_compile.compile(sources[name])
    py_compile.compile(sources["unchecked"], invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    for name in ("stale", "unchecked"):
        before = Path(sources[name]).stat()
        Path(sources[name]).write_text("value = 2\n")
        os.utime(sources[name], ns=(before.st_atime_ns, before.st_mtime_ns))
    answer = ask(HostImage(), launch(sys.executable), Question(sources=list(sources.values())))
    told = {name: answer.table("bytecode")[path] for name, path in sources.items()}
    assert told["untouched"]["runs"] is False
    assert (told["fresh"]["runs"], told["fresh"]["same"]) == (True, True)
    assert (told["stale"]["runs"], told["stale"]["same"]) == (True, False)
    assert (told["unchecked"]["runs"], told["unchecked"]["same"], told["unchecked"]["unchecked"]) == (True, False, True)


def test_options_reach_the_interpreter_and_its_children(tmp_path: Path) -> None:
    layout = Layout(tmp_path, sys.executable)
    layout.package("work")
    layout.file(
        "work/pkg/opt.py",
        "import sys\nassert sys.flags.optimize == 0, 'x'\nif sys.flags.optimize != 1:\n    raise OSError\n",
    )
    started = launch(sys.executable, f"{tmp_path}/work", flags=("-O",))
    answer = ask(HostImage(), started, Question(imports=["pkg.opt"]))
    for part in ("imports", "spawned"):
        assert "error" not in answer.table(part)["pkg.opt"]


def test_what_never_ends_is_stopped_and_the_rest_is_still_told(tmp_path: Path) -> None:
    layout = Layout(tmp_path, sys.executable)
    layout.package("work")
    layout.file("work/pkg/forever.py", "import time\nwhile True:\n    time.sleep(1)\n")
    source = str(tmp_path / "work/pkg/sub/mod.py")
    question = Question(sources=[source], imports=["pkg.forever"], timeout=1.5)
    answer = ask(HostImage(), launch(sys.executable, f"{tmp_path}/work"), question)
    assert answer.table("compiles") == {source: ""}
    assert answer.table("imports") == {"ended": "timeout"}
    assert answer.table("spawned") == {"ended": "timeout"}


def test_an_answer_that_is_missing_says_how_the_run_ended(tmp_path: Path) -> None:
    place = tmp_path / "python3"
    place.write_text("#!/bin/sh\necho 'cannot open library' >&2\nexit 127\n")
    place.chmod(0o755)
    answer = ask(HostImage(), launch(str(place)), Question())
    assert not answer.spoke
    assert answer.how_it_ended == "it ended with status 127: cannot open library"
    assert Answer().how_it_ended == "nothing was run"
