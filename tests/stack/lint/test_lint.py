"""Every finding: a start that has it, a start that has not, and what --fix makes of it."""

from __future__ import annotations

import contextlib
import random
import subprocess
from pathlib import Path

import pytest
import yaml

from patchkit.errors import BadInput
from patchkit.findings import Finding
from patchkit.stack.lint import run
from patchkit.stack.lint.composefile import starts_in_compose
from patchkit.stack.lint.known import from_source
from patchkit.stack.lint.model import Source, Start
from patchkit.stack.lint.scripts import start_of_arguments, starts_in_script
from patchkit.stack.recipes.load import general_rules, load_recipes

KNOWLEDGE = run.Knowledge(tuple(load_recipes().values()), general_rules(), decoys=("/workspace/vllm",))
GOOD = "--attention-backend TRITON_ATTN --tool-call-parser glm47 --enable-auto-tool-choice --reasoning-parser glm47"


def found(starts: list[Start], knowledge: run.Knowledge = KNOWLEDGE) -> list[Finding]:
    return run.findings([issue for start in starts for issue in run.issues_of(start, knowledge)])


def ids(starts: list[Start], knowledge: run.Knowledge = KNOWLEDGE) -> list[str]:
    return [finding.id for finding in found(starts, knowledge)]


def compose(text: str) -> list[Start]:
    return starts_in_compose(Source("compose.yaml", text))


def script(text: str) -> list[Start]:
    return starts_in_script(Source("start.sh", text))


def arguments(line: str, platform: str = "xpu", **env: str) -> list[str]:
    start = start_of_arguments("arguments", line.split(), env)
    assert start is not None
    return ids([start], run.Knowledge(KNOWLEDGE.recipes, KNOWLEDGE.general, platform))


SHELL_IN_COMPOSE = """\
services:
  flint:
    image: vllm-xpu:0.33
    healthcheck: {test: ["CMD", "true"]}
    command:
      - bash
      - -c
      - |
        exec vllm serve RecursiveSI/flint \\
          --served-model-name flint \\
          --tool-call-parser glm47 --enable-auto-tool-choice --reasoning-parser glm47 \\
          # the fast attention does not know sinks
          --attention-backend TRITON_ATTN \\
          --kv-cache-dtype auto
"""


def test_a_comment_in_a_continued_command_loses_the_flags_after_it_and_says_which() -> None:
    (finding,) = found(compose(SHELL_IN_COMPOSE))
    assert finding.id == "comment-in-command"
    assert finding.severity == "error"
    assert finding.where == "compose.yaml:12:11"
    assert finding.evidence == "lost: --attention-backend TRITON_ATTN --kv-cache-dtype auto"


def test_fix_moves_the_comment_above_and_bash_then_sees_every_flag(tmp_path: Path) -> None:
    mended = run.mend(SHELL_IN_COMPOSE, [i for s in compose(SHELL_IN_COMPOSE) for i in run.issues_of(s, KNOWLEDGE)])
    assert found(compose(mended)) == []
    assert mended.count("# the fast attention does not know sinks") == 1
    body = mended.partition("- |\n")[2].replace("exec vllm", "exec printf '%s '")
    done = subprocess.run(["bash", "-c", body], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("--attention-backend TRITON_ATTN --kv-cache-dtype auto ")


FOLDED = """\
services:
  m:
    image: x:1
    healthcheck: {}
    command: >
      bash -c "exec vllm serve m
      --a 1
      # why
      --b 2
      --c"
"""


def test_a_comment_in_a_folded_command_swallows_the_lines_below_it() -> None:
    (finding,) = found(compose(FOLDED))
    assert (finding.id, finding.where) == ("comment-in-command", "compose.yaml:8:7")
    assert finding.evidence == "lost: --b 2 --c"
    assert found(compose(FOLDED.replace("      # why\n", ""))) == []


def test_a_flag_that_a_comment_only_speaks_of_is_not_lost() -> None:
    assert found(script("vllm serve m --a 1  # not with --b 2\n")) == []


BREAKS = {
    "comment-in-command": "vllm serve m --a 1 \\\n  # why\n  --b 2\n",
    "comment-in-command at the end": "vllm serve m --a 1 # why \\\n  --b 2\n",
    "blank-line-in-command": "vllm serve m --a 1 \\\n\n  --b 2\n",
    "space-after-backslash": "vllm serve m --a 1 \\ \n  --b 2\n",
    "missing-backslash": "vllm serve m --a 1\n  --b 2\n",
}


@pytest.mark.parametrize("name", BREAKS)
def test_each_way_to_break_a_continued_command_is_found_and_mended(name: str) -> None:
    text = BREAKS[name]
    (finding,) = found(script(text))
    assert finding.id == name.partition(" ")[0]
    assert finding.evidence == "lost: --b 2"
    mended = run.mend(text, [issue for start in script(text) for issue in run.issues_of(start, KNOWLEDGE)])
    assert found(script(mended)) == []
    done = subprocess.run(["bash", "-c", mended.replace("vllm serve", "echo")], capture_output=True, text=True)
    assert done.stdout == "m --a 1 --b 2\n"


def test_a_whole_script_of_faults_is_mended_at_once() -> None:
    text = (
        "#!/bin/bash\n  exec vllm serve m \\\n    --a 1 \\\n    # one\n    # two\n    --b 2 # three \\\n    --c \\ \n"
        "    --d \\\n\n    --e\n    --f 1\necho done\n"
    )
    mended = run.mend(text, [issue for start in script(text) for issue in run.issues_of(start, KNOWLEDGE)])
    assert mended == (
        "#!/bin/bash\n  # one\n  # two\n  # three\n  exec vllm serve m \\\n    --a 1 \\\n    --b 2 \\\n    --c \\\n"
        "    --d \\\n    --e \\\n    --f 1\necho done\n"
    )


def test_a_good_script_has_no_findings() -> None:
    assert found(script(f"#!/bin/sh\n# why\nexec vllm serve m \\\n  --a 1 \\\n  {GOOD}\n\necho --not-a-flag\n")) == []


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("command: vllm serve m --a 1 && echo up", "string-command"),
        ("command: vllm serve m | tee log", "string-command"),
        ("command: cd /x; vllm serve m", "string-command"),
        ("command: |\n      vllm serve m \\\n        --a 1", "string-command"),
        ("command: >\n      vllm serve m\n      --a 1 # why\n      --b 2", "string-command"),
        ("entrypoint: [bash, -c]\n    command: vllm serve m --a 1", "string-under-shell"),
        ('command: vllm serve m --a "1', "string-broken"),
        ("command: |\n      bash -c 'vllm serve m --a $HOME'", "compose-variable"),
        ("command: vllm serve ${MODEL}", "compose-variable"),
        ('command: |\n      bash -c "vllm serve m \\\n        --a 1"', "backslash-eaten"),
    ],
)
def test_what_compose_makes_of_a_string_is_told(command: str, expected: str) -> None:
    starts = compose(f"services:\n  m:\n    image: x:1\n    healthcheck: {{}}\n    {command}\n")
    assert expected in ids(starts)


@pytest.mark.parametrize(
    "command",
    [
        "command: vllm serve m --a 1",
        "command: [vllm, serve, m, --a, '1']",
        "command: vllm serve ${MODEL:-m} --a ${A:?say}",
        "command: [bash, -c, 'vllm serve m --a \"$$HOME\"']",
        "command: >\n      vllm serve m\n      --a 1",
    ],
)
def test_a_sound_compose_command_has_no_findings(command: str) -> None:
    assert found(compose(f"services:\n  m:\n    image: x:1\n    healthcheck: {{}}\n    {command}\n")) == []


def test_fix_takes_the_backslashes_out_of_a_string_that_no_shell_reads() -> None:
    text = (
        "services:\n  m:\n    image: x:1\n    healthcheck: {}\n    command: |\n      vllm serve m \\\n        --a 1\n"
    )
    mended = run.mend(text, [issue for start in compose(text) for issue in run.issues_of(start, KNOWLEDGE)])
    assert found(compose(mended)) == []
    assert "vllm serve m \n        --a 1" in mended


def test_an_unquoted_variable_is_told_and_a_quoted_one_is_not() -> None:
    assert ids(script('vllm serve "$M" --a $A "$@"\n')) == ["unquoted-variable"]


def test_flags_given_twice_are_told_with_both_values() -> None:
    (finding,) = found(script("vllm serve m --max_model_len 1 --max-model-len=2 --middleware a --middleware b\n"))
    assert (finding.id, finding.evidence) == ("flag-twice", "1 then 2")


FLINT = "vllm serve RecursiveSI/flint"


@pytest.mark.parametrize(
    ("line", "platform", "env", "expected"),
    [
        (f"{FLINT} {GOOD}", "xpu", {}, []),
        (f"{FLINT} {GOOD} --kv-cache-dtype auto --dtype bfloat16", "xpu", {}, []),
        (f"{FLINT} {GOOD} --kv-cache-dtype fp8", "xpu", {}, ["kv-dtype"]),
        (f"{FLINT} {GOOD} --kv_cache_dtype=fp8_e5m2", "cuda", {}, ["kv-dtype"]),
        (f"{FLINT} {GOOD} --dtype float16", "xpu", {}, ["dtype"]),
        (f"{FLINT} --config serve.yaml", "xpu", {}, []),
        (FLINT, "cuda", {}, ["no-reasoning-parser", "no-tool-parser"]),
        (f"{FLINT} {GOOD.replace('--attention-backend', '-ac.backend')}", "xpu", {}, []),
        (f"{FLINT} {GOOD.replace('--attention-backend', '--attention-config.backend')}", "xpu", {}, []),
        (FLINT + ' -ac {"backend":"TRITON_ATTN"} ' + GOOD.partition("ATTN ")[2], "xpu", {}, []),
        (f"{FLINT} {GOOD.partition('ATTN ')[2]}", "xpu", {}, ["no-attention-backend"]),
        (f"{FLINT} {GOOD.partition('ATTN ')[2]}", "cuda", {}, []),
        (f"{FLINT} {GOOD.replace('TRITON_ATTN', 'FLASH_ATTN')}", "xpu", {}, ["attention-backend"]),
        (
            f"{FLINT} {GOOD.partition('ATTN ')[2]}",
            "xpu",
            {"VLLM_ATTENTION_BACKEND": "TRITON_ATTN"},
            ["dead-variable", "no-attention-backend"],
        ),
        (f"{FLINT} {GOOD.replace('r glm47', 'r deepseek_v3', 2)}", "xpu", {}, ["reasoning-parser"]),
        (f"{FLINT} {GOOD[:-5]}deepseek-v3", "xpu", {}, ["unknown-parser", "reasoning-parser"]),
        (
            f"{FLINT} {GOOD} --exclude-tools-when-tool-choice-none",
            "xpu",
            {"VLLM_USE_RUST_FRONTEND": "1"},
            ["rust-frontend"],
        ),
        (f"{FLINT} {GOOD}", "xpu", {"VLLM_USE_RUST_FRONTEND": "1"}, []),
        (f"{FLINT}-nvfp4-gguf {GOOD}", "cuda", {}, ["nvfp4-config", "nvfp4-tokenizer"]),
        (f"{FLINT}-nvfp4-gguf {GOOD} --hf-config-path a --tokenizer b", "cuda", {}, []),
        (f"{FLINT}-nvfp4-gguf {GOOD} --hf-config-path a --tokenizer b", "xpu", {}, ["nvfp4-platform"]),
        (f"{FLINT} {GOOD}", "rocm", {"VLLM_ROCM_USE_AITER": "1"}, ["aiter-moe"]),
        (f"{FLINT} {GOOD}", "rocm", {"VLLM_ROCM_USE_AITER": "1", "VLLM_ROCM_USE_AITER_MOE": "0"}, []),
        (f"{FLINT} {GOOD}", "rocm", {"VLLM_ROCM_SHUFFLE_KV_CACHE_LAYOUT": "1"}, ["shuffled-kv"]),
        (f"{FLINT} {GOOD} --enable-expert-parallel", "cuda", {}, ["expert-parallel"]),
        (f"{FLINT} {GOOD} -ac.backend TRITON_ATTN", "xpu", {}, ["backend-given-twice"]),
        (f"{FLINT} {GOOD.replace(' --enable-auto-tool-choice', '')}", "xpu", {}, ["tool-parser-without-switch"]),
        ("vllm serve other/model --kv-cache-dtype fp8", "xpu", {}, []),
    ],
)
def test_a_rule_fires_where_it_should_and_nowhere_else(
    line: str, platform: str, env: dict[str, str], expected: list[str]
) -> None:
    assert sorted(arguments(line, platform, **env)) == sorted(expected)


def test_a_value_that_can_only_be_one_is_mended_in_place() -> None:
    text = f"vllm serve RecursiveSI/flint {GOOD} \\\n  --kv-cache-dtype=fp8 --dtype 'float16'\n"
    mended = run.mend(text, [issue for start in script(text) for issue in run.issues_of(start, KNOWLEDGE)])
    assert mended.endswith("--kv-cache-dtype=auto --dtype bfloat16\n")


def test_the_environment_of_a_service_is_read_with_its_place() -> None:
    text = (
        "services:\n  flint:\n    image: vllm-xpu:1\n    healthcheck: {}\n    environment:\n"
        f"      VLLM_ATTENTION_BACKEND: TRITON_ATTN\n    command: {FLINT} {GOOD}\n"
    )
    (finding,) = found(compose(text))
    assert (finding.id, finding.where) == ("dead-variable", "compose.yaml:6:7")


def test_the_environment_of_a_script_counts_too() -> None:
    text = f"export VLLM_ATTENTION_BACKEND=x\nVLLM_USE_RUST_FRONTEND=1 {FLINT} {GOOD} --tokenizer t\n"
    assert ids(script(text))[:2] == ["dead-variable", "rust-frontend"]


@pytest.mark.parametrize(
    ("image", "devices", "expected"),
    [
        ("vllm-xpu:nightly", "", True),
        ("intel/vllm:1", "", True),
        ("registry.example/a/b:1", 'devices: ["/dev/dri"]', True),
        ("vllm/vllm-openai-rocm:v1", 'devices: ["/dev/kfd", "/dev/dri"]', False),
        ("vllm/vllm-openai:v1", "gpus: all", False),
    ],
)
def test_the_platform_is_told_from_image_and_devices(image: str, devices: str, expected: bool) -> None:
    text = (
        f"services:\n  flint:\n    image: {image}\n    healthcheck: {{}}\n    {devices}\n"
        f"    command: {FLINT} {GOOD.partition('ATTN ')[2]}\n"
    )
    assert ("no-attention-backend" in ids(compose(text))) is expected


def test_an_unknown_platform_is_a_note_not_a_guess() -> None:
    assert ids(script(f"{FLINT} {GOOD}\n")) == ["accelerator-unknown"]


def test_a_mount_onto_a_decoy_is_an_error() -> None:
    text = (
        "services:\n  m:\n    image: x:1\n    healthcheck: {}\n    command: vllm serve m\n    volumes:\n"
        "      - ./norm.py:/workspace/vllm/vllm/models/flint/ops/norm.py:ro\n"
        "      - {type: bind, source: ./a, target: /opt/venv/lib/python3.12/site-packages/vllm/a.py}\n"
    )
    (finding,) = found(compose(text))
    assert (finding.id, finding.severity, finding.where) == ("decoy-mounted", "error", "compose.yaml:7:9")


@pytest.mark.parametrize(
    ("image", "moving"),
    [("x", True), ("x:latest", True), ("r.example:5/x", True), ("x:1", False), ("x@sha256:0", False)],
)
def test_an_image_without_a_fixed_name_is_told(image: str, moving: bool) -> None:
    text = f"services: {{m: {{image: '{image}', healthcheck: {{}}, command: vllm serve m}}}}"
    assert ("unpinned-image" in ids(compose(text))) is moving


def test_a_missing_or_disabled_healthcheck_is_told() -> None:
    assert ids(compose("services: {m: {image: 'x:1', command: vllm serve m}}")) == ["missing-healthcheck"]
    text = "services: {m: {image: 'x:1', command: vllm serve m, healthcheck: {disable: true}}}"
    assert ids(compose(text)) == ["missing-healthcheck"]


def test_unknown_flags_are_told_with_the_nearest_known_one() -> None:
    known = frozenset({"--tensor-parallel-size", "-tp", "--enable-prefix-caching", "--attention-config", "-ac"})
    knowledge = run.Knowledge(KNOWLEDGE.recipes, KNOWLEDGE.general, "xpu", known)
    line = (
        "vllm serve m --tensor-paralel-size 4 -tp 4 --no-enable-prefix-caching --disable-prefix-caching -ac.backend A"
    )
    start = start_of_arguments("arguments", [*line.split(), "--tensor-par", "4", "-O3"], {})
    assert start is not None
    findings = [each for each in found([start], knowledge) if each.id == "unknown-flag"]
    assert [each.evidence for each in findings] == ["--tensor-paralel-size"]
    assert findings[0].remedy == "did you mean --tensor-parallel-size?"


def test_options_are_read_in_the_source_of_the_parser() -> None:
    files = {
        "vllm/engine/arg_utils.py": b'g.add_argument("--tensor-parallel-size", "-tp", **k)\nx.add_argument("model")\n',
        "vllm/entrypoints/common/cli_args.py": b"class FrontendArgs(Base):\n    api_key: str = ''\n",
        "vllm/broken_cli_args.py": b"def (",
    }
    assert from_source(files) == {"--tensor-parallel-size", "-tp", "--api-key"}


@pytest.mark.parametrize(
    "line",
    [
        "docker run --rm -it --gpus all -e A=b -v a:b --name x vllm/vllm-openai:v1 RecursiveSI/flint --dtype half",
        "docker run --privileged --ipc=host vllm/vllm-openai:v1 --model RecursiveSI/flint --dtype half",
        "podman run -d --entrypoint vllm x/vllm-xpu:1 vllm serve RecursiveSI/flint --dtype half",
        "sudo env A=b /opt/venv/bin/vllm serve RecursiveSI/flint --dtype half",
        "python3 -m vllm.entrypoints.openai.api_server --model RecursiveSI/flint --dtype half",
    ],
)
def test_a_start_is_found_behind_whatever_starts_it(line: str) -> None:
    assert "dtype" in ids(script(line + "\n"))


def test_a_file_that_is_no_compose_file_is_refused_with_its_place() -> None:
    with pytest.raises(BadInput) as caught:
        compose("services: [\n")
    assert str(caught.value.where).startswith("compose.yaml:2")
    with pytest.raises(BadInput):
        compose("a: 1\n")


def test_tags_anchors_and_merge_keys_do_not_hide_a_start() -> None:
    text = (
        "x-a: &a\n  image: vllm-xpu:1\n  healthcheck: {}\n  command: !override\n"
        f"    - bash\n    - -ec\n    - {FLINT} {GOOD} --dtype half\n"
        "services:\n  one:\n    <<: *a\n    volumes: !reset []\n"
    )
    assert ids(compose(text)) == ["dtype"]


JOINS = [
    " \\\n  ",
    " \\\n\n  ",
    " \\ \n  ",
    "\n  ",
    " \\\n  # c\n  ",
    " # c \\\n  ",
    " # c\n  ",
    " \\\n  # c\n\n  # d \\\n  ",
]


@pytest.mark.parametrize("seed", range(8))
def test_whatever_breaks_a_command_fix_puts_every_flag_back_in_its_order(seed: int) -> None:
    chance = random.Random(seed)
    flags = [f"--f{number} {number}" for number in range(6)]
    text = "echo vllm serve m" + "".join(chance.choice(JOINS) + flag for flag in flags) + "\necho end\n"
    mended = run.mend(text, [issue for start in script(text) for issue in run.issues_of(start, KNOWLEDGE)])
    done = subprocess.run(["bash", "-c", mended], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n") == [f"vllm serve m {' '.join(flags)}", "end", ""]
    assert mended.count("# c") == text.count("# c")
    indented = "services:\n  m:\n    command:\n      - bash\n      - -c\n      - |\n" + "".join(
        f"        {line}\n" if line else "\n" for line in text.splitlines()
    )
    again = run.mend(indented, [issue for start in compose(indented) for issue in run.issues_of(start, KNOWLEDGE)])
    block = yaml.safe_load(again)["services"]["m"]["command"][2]
    done = subprocess.run(["bash", "-c", block], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n") == [f"vllm serve m {' '.join(flags)}", "end", ""]


@pytest.mark.parametrize("seed", range(3))
def test_no_text_however_broken_makes_lint_fall_over(seed: int) -> None:
    chance = random.Random(seed)
    pieces = [
        "\\\n",
        "#",
        "\n",
        "$",
        "'",
        '"',
        "`",
        "(",
        ")",
        "&&",
        "<<E",
        "\t",
        "|",
        ">",
        "- ",
        ": ",
        "*c",
        "&c ",
        "\0",
    ]
    pieces += ["!reset ", "\u2028", "\r\n", "{", "]", FLINT, "--kv-cache-dtype fp8", "~", "bash -c "]
    for _ in range(60):
        text = list(SHELL_IN_COMPOSE)
        for _ in range(chance.randint(1, 10)):
            place = chance.randrange(len(text))
            if chance.random() < 0.6:
                text[place:place] = chance.choice(pieces)
            else:
                del text[place : place + chance.randint(1, 30)]
        for starts in (compose, script):
            with contextlib.suppress(BadInput):
                found(starts("".join(text)))


def test_aliases_that_merge_each_other_end() -> None:
    bomb = "x0: &a0 {x: 1}\n" + "".join(f"x{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}\n" for n in range(1, 40))
    assert compose(f"{bomb}services: {{m: {{<<: *a39, command: vllm serve m}}}}\n") != []
