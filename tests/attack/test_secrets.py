"""A secret that a start knows is in nothing that patchkit writes or says."""

from __future__ import annotations

import json
import subprocess

import pytest

from patchkit.findings import hidden
from patchkit.proof.processes import Inside, Process, judge
from patchkit.site.model import Launch

WORDS = ("hf_SECRET", "SECRET2")


@pytest.mark.engine
def test_secrets_of_environment_and_launch_stay_out_of_receipt_overlay_cache_and_answer(
    patchkit, tiny, fixture_image, scratch, engine, tmp_path
):
    name = scratch.name("secret:1")
    text = f"FROM {fixture_image('pure')}\nENV HF_TOKEN=hf_SECRET\n"
    subprocess.run(["docker", "build", "-q", "-t", name, "-"], input=text.encode(), check=True, capture_output=True)
    for launch in ([], ["--launch", 'sh -c "exec tinyserve serve --api-key SECRET2"']):
        done = patchkit(
            *("apply", "--image", name, *tiny, "--mode", "bind", "--json", *launch),
            env={"PATCHKIT_CACHE": str(tmp_path / "cache")},
            status=0,
        )
        written = [path.read_text() for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".sqlite"]
        assert [word for word in WORDS for text in (*written, done.out, done.err) if word in text] == []
    receipt = json.loads((tmp_path / ".patchkit/receipt.json").read_text())
    assert receipt["launch_given"].endswith('--api-key HIDDEN"')
    assert sorted(receipt["launch"]["env"]) == ["HOME", "PATH", "VIRTUAL_ENV"]
    assert list((tmp_path / "cache/facts").iterdir())
    assert patchkit("verify", "--image", name, "--json", status=0).levels["bytes"] == "passed"


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("serve --api-key X1 --port 3", "serve --api-key HIDDEN --port 3"),
        ("env HF_TOKEN=X1 serve", "env HF_TOKEN=HIDDEN serve"),
        ('serve --api-key="X 1"', "serve --api-key=HIDDEN"),
        ("sh -c 'serve --hf-token X1'", "sh -c 'serve --hf-token HIDDEN'"),
        ('sh -c "serve --hf-token \\"X 1\\" a"', 'sh -c "serve --hf-token HIDDEN a"'),
        ("python -m token serve --max-token-len 4 --api-key --port 3", None),
        ("serve org/my-key x --tokenizer t", None),
    ],
)
def test_the_values_of_secret_options_are_hidden_and_nothing_else(given, kept):
    assert hidden(given) == (kept or given)


def test_a_process_is_shown_without_the_secrets_of_its_command():
    launch = Launch("module", "/bin/python3", "p", "/", {})
    process = Process(1, "/bin/python3", ("python3", "-m", "p", "--api-key", "SECRET2"), "/", 0.0, {})
    (found,) = judge(Inside((process,), changed={"/p/a.py": 100.0}), launch, "c")
    assert found.evidence == "python3 -m p --api-key HIDDEN"
