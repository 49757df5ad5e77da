"""A secret that a start knows is in nothing that patchkit writes or says."""

from __future__ import annotations

import json
import subprocess

import pytest

from patchkit.deliver.receipt import hidden

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
    assert json.loads((tmp_path / ".patchkit/receipt.json").read_text())["launch_given"].endswith('--api-key HIDDEN"')
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
