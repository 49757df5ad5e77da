"""Images whose Python lies, hangs, forks, floods or deletes: the proof ends in bounded time, and is true."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from patchkit.images import open_image, parse_reference
from patchkit.images.model import Image, Mount
from patchkit.proof.model import Expectation, Proof
from patchkit.proof.prove import prove
from patchkit.proof.verdict import verdict
from patchkit.site.facts import site_facts
from patchkit.site.model import Launch

pytestmark = pytest.mark.engine

BASE = "/opt/venv/lib/python3.11/site-packages"
MOD = "tinyserve/ops/scale.py"
PASSED = dict.fromkeys(("bytes", "resolves", "compiles", "bytecode", "imports", "asserts"), "passed")

# What /hostile/KIND/bin/python3.11 is. `question` cuts the nonce out of the arguments as a liar would.
PROGRAMS = {
    "silent": "exit 0\n",
    "fails": "echo broken >&2; exit 3\n",
    "false": 'echo \'patchkit-answer 0000 {"search_path": [], "compiles": {}}\'\n',
    "echoes": 'for a in "$@"; do echo "patchkit-answer $a"; done\n',
    "forges": (
        'nonce=$(echo "$*" | sed -n \'s/.*"nonce": "\\([0-9a-f]*\\)".*/\\1/p\')\n'
        'text=\'{"search_path": [], "modules": {}, "files": {}, "compiles": {"PATH": ""}, '
        '"imports": {}, "spawned": {}, "bytecode": {"PATH": {"runs": false}}}\'\n'
        'sum=$(printf "%s%s" "$nonce" "$text" | sha256sum | cut -d" " -f1)\n'
        'echo "patchkit-answer $sum $text"\n'
    ).replace("PATH", f"{BASE}/{MOD}"),
    "hangs": "while :; do sleep 1; done\n",
    "floods": "exec yes floodfloodfloodfloodfloodfloodfloodflood\n",
    "forks": "f() { f | f & }; f; while :; do f; done\n",
    "deletes": "rm -rf /opt/venv /workspace /usr/lib/python3.11; exit 0\n",
}

# How the proof says what they did.
SAID = {
    "fails": "it ended with status 3: broken",
    "hangs": "did not end within its time",
    "floods": "output ran over the limit",
}

# What a sitecustomize does before the real Python answers.
CUSTOMS = {
    "chatters": "print('banner'); print('patchkit-answer 00 {}')\n",
    "quits": "import os\nos._exit(0)\n",
    "closes": "import os\nos.close(1)\nos.close(2)\n",
    "redirects": (
        "import sys\nfrom importlib.util import spec_from_file_location as spec\n"
        "class F:\n    @staticmethod\n    def find_spec(name, path=None, target=None):\n"
        "        if name == 'tinyserve.ops.scale':\n            return spec(name, '/hostile/other.py')\n"
        "sys.meta_path.insert(0, F)\n"
    ),
    "spins": "while True:\n    pass\n",
}


@pytest.fixture(scope="module")
def hostile(engine: Any, fixture_image: Callable[[str], str]) -> Iterator[Image]:
    """The plain fixture image with all of these beside its own Python."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:

        def add(name: str, text: str, mode: int = 0o644) -> None:
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(text), mode
            archive.addfile(member, io.BytesIO(text.encode()))

        docker = f"FROM {fixture_image('pure')}\nCOPY hostile /hostile\n"
        add("Dockerfile", docker)
        for kind, text in PROGRAMS.items():
            add(f"hostile/{kind}/bin/python3.11", f"#!/bin/busybox sh\nPATH=/busy:$PATH\n{text}", 0o755)
            add(f"hostile/{kind}/lib/python3.11/os.py", "")
            add(f"hostile/{kind}/lib/python3.11/site-packages/x.pth", f"{BASE}\n")
        for kind, text in CUSTOMS.items():
            add(f"hostile/{kind}/sitecustomize.py", text)
        add("hostile/other.py", "")
    content.seek(0)
    tag = "patchkit-test-hostile:latest"
    engine.images.build(fileobj=content, custom_context=True, tag=tag, rm=True)
    with open_image(parse_reference(tag)) as image:
        yield image
    engine.images.remove(tag, force=True)


def expectation(image: Image) -> Expectation:
    path = f"{BASE}/{MOD}"
    entry = image.fs.lstat(path)
    assert entry is not None
    digest = hashlib.sha256(image.fs.read(path)).hexdigest()
    return Expectation(path, MOD, digest, entry.mode, entry.uid, entry.gid, "tinyserve.ops.scale")


def proven(image: Image, kind: str, wanted: Expectation, mounts: tuple[Mount, ...] = ()) -> Proof:
    launch = Launch("module", f"/hostile/{kind}/bin/python3.11", "tinyserve", "/", {"PATH": "/bin"})
    if kind in CUSTOMS:
        env = {"PATH": "/opt/venv/bin:/bin", "PYTHONPATH": f"/hostile/{kind}"}
        launch = Launch("console-script", "/opt/venv/bin/python3", "/opt/venv/bin/tinyserve", "/", env)
    return prove(image, launch, "tinyserve", [wanted], mounts=mounts, timeout=2)


def states(proof: Proof) -> dict[str, str]:
    return {level.name: level.state for level in proof.levels}


@pytest.mark.parametrize("kind", PROGRAMS)
def test_a_program_that_is_no_python_proves_nothing(hostile: Image, kind: str) -> None:
    wanted = expectation(hostile)
    proof = proven(hostile, kind, wanted)
    found = states(proof)
    # The forger says that the file is not there at all; what it cannot change is what was read from outside.
    assert found["bytes"] == ("failed" if kind == "forges" else "passed")
    assert found["imports"] == "failed"
    assert SAID.get(kind, "") in proof.levels[4].detail
    assert verdict(proof.levels) == 1
    assert proof.disagreements
    assert expectation(hostile) == wanted


def test_a_forgery_cannot_make_wrong_bytes_right(hostile: Image) -> None:
    wanted = expectation(hostile)
    wrong = Expectation(wanted.path, MOD, "0" * 64, module="tinyserve.ops.scale")
    found = states(proven(hostile, "forges", wrong))
    assert (found["bytes"], found["resolves"]) == ("failed", "failed")


def test_what_is_mounted_cannot_be_deleted_from_inside(hostile: Image, tmp_path: Path) -> None:
    source = tmp_path / "scale.py"
    source.write_text("patched = True\n")
    wanted = expectation(hostile)
    mounts = (Mount(str(source), wanted.path),)
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    proven(hostile, "deletes", Expectation(wanted.path, MOD, digest, module=wanted.module), mounts)
    assert source.read_text() == "patched = True\n"


def test_noise_on_standard_output_is_no_answer_and_does_no_harm(hostile: Image) -> None:
    assert states(proven(hostile, "chatters", expectation(hostile))) == PASSED


@pytest.mark.parametrize("kind", ["quits", "closes", "spins"])
def test_a_python_that_cannot_answer_fails(hostile: Image, kind: str) -> None:
    proof = proven(hostile, kind, expectation(hostile))
    assert states(proof)["imports"] == "failed"
    assert verdict(proof.levels) == 1


def test_an_import_hook_that_redirects_is_found_by_asking(hostile: Image) -> None:
    proof = proven(hostile, "redirects", expectation(hostile))
    resolves = proof.levels[1]
    assert (resolves.state, resolves.cause) == ("failed", "two answers")
    assert "/hostile/other.py by asking" in resolves.detail
    assert [difference.about for difference in proof.disagreements] == ["import tinyserve.ops.scale"]


def test_facts_keep_both_answers_where_the_interpreter_gives_none(hostile: Image) -> None:
    launch = Launch("module", "/hostile/silent/bin/python3.11", "tinyserve", "/", {"PATH": "/bin"})
    site = site_facts(hostile, launch, "tinyserve", [MOD])
    assert site.winner is not None
    assert [(item.about, "status 0" in item.dynamic) for item in site.disagreements] == [("the interpreter", True)]
