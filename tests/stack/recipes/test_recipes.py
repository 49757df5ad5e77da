"""Flint's recipe: what it renders is what the sources say, and what they would refuse is refused."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import click
import pytest

from patchkit.catalog.load import load_catalog
from patchkit.catalog.refused import setting_findings
from patchkit.cli import main, root
from patchkit.errors import BadInput
from patchkit.findings import Finding
from patchkit.stack import compose_model
from patchkit.stack.lint import run
from patchkit.stack.lint.composefile import starts_in_compose
from patchkit.stack.lint.model import Source, Start
from patchkit.stack.lint.scripts import starts_in_script
from patchkit.stack.recipes.load import general_rules, load_recipe, load_recipes
from patchkit.stack.recipes.memory import plan_kv
from patchkit.stack.recipes.render import Choice, as_json, as_markdown, choose, render

REPOSITORY = Path(__file__).parents[3]
FLINT = load_recipe("flint")
HARDWARE = ["b70x4", "h100", "h200", "b200", "gb200", "b300", "gb300", "mi300x", "mi325x", "mi350x", "mi355x"]


def every_choice() -> list[Choice]:
    return [
        choose(FLINT, hardware=hardware, variant=variant)
        for hardware in HARDWARE
        for variant, each in FLINT.variants.items()
        if FLINT.hardware[hardware].platform in each.platforms
    ]


def test_the_recipe_knows_the_hardware_of_the_page_and_the_four_arc_cards() -> None:
    assert list(FLINT.hardware) == HARDWARE


def test_the_layers_add_up() -> None:
    model = FLINT.model
    assert model.dense_layers + model.moe_layers == model.layers == model.full_layers + model.sliding_layers


def test_on_the_page_s_own_machine_the_page_s_own_command_comes_out() -> None:
    assert render(choose(FLINT, hardware="gb200")).serve == (
        "vllm serve RecursiveSI/flint \\\n  --served-model-name flint \\\n  --tensor-parallel-size 1 \\\n"
        "  --enable-auto-tool-choice \\\n  --tool-call-parser glm47 \\\n  --exclude-tools-when-tool-choice-none \\\n"
        "  --reasoning-parser glm47"
    )


def test_the_nvfp4_checkpoint_takes_config_and_tokenizer_of_the_other_and_gguf() -> None:
    rendered = render(choose(FLINT, hardware="gb200", variant="nvfp4"))
    assert "vllm serve RecursiveSI/flint-nvfp4-gguf" in rendered.serve
    assert "--hf-config-path RecursiveSI/flint \\\n  --tokenizer RecursiveSI/flint" in rendered.serve
    assert "uv pip install 'gguf>=0.19.0'" in rendered.install


@pytest.mark.parametrize("hardware", ["b70x4", "mi300x"])
def test_the_two_flags_that_matter_are_there_off_cuda(hardware: str) -> None:
    options = choose(FLINT, hardware=hardware).options
    assert "--attention-backend TRITON_ATTN" in options
    assert "--kv-cache-dtype auto" in options


def test_features_can_be_left_out() -> None:
    options = choose(FLINT, hardware="gb200", features=["reasoning"]).options
    assert not any("tool" in option for option in options)
    assert choose(FLINT, features=[""]).features == ()


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"hardware": "b70"}, "b70x4"),
        ({"variant": "fp8"}, "default, nvfp4"),
        ({"strategy": "multi"}, "single_node_tp"),
        ({"features": ["vision"]}, "tool_calling, reasoning"),
        ({"hardware": "b70x4", "variant": "nvfp4"}, "Marlin"),
        ({"hardware": "mi300x", "variant": "nvfp4"}, "valid there are default"),
        ({"nodes": 2}, "one node"),
    ],
)
def test_a_wrong_value_is_refused_with_the_valid_ones_or_replaced_aloud(wrong: dict[str, object], told: str) -> None:
    with pytest.raises(BadInput) as caught:
        choose(FLINT, **wrong)  # type: ignore[arg-type]
    assert told in caught.value.what
    assert len(choose(FLINT, lenient=True, **wrong).notes) == 1  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("gib", "in_flight", "tokens", "concurrency"),
    [(7.0, 8192, 953_430, 3.64), (6.5, 8192, 885_316, 3.38), (7.0, 4096, 995_876, 3.80)],
)
def test_the_kv_cache_is_planned_in_groups_as_the_server_plans_it(
    gib: float, in_flight: int, tokens: int, concurrency: float
) -> None:
    plan = plan_kv(FLINT.model, int(gib * 2**30), tensor_parallel=4, tokens_in_flight=in_flight)
    assert plan.groups == ("14 full", "14 sliding", "14 sliding", "14 sliding")
    assert (plan.tokens, round(plan.concurrency, 2)) == (tokens, concurrency)


def test_the_plan_brackets_what_was_seen_on_four_arc_cards_and_a_plain_sum_does_not() -> None:
    plans = [
        plan_kv(FLINT.model, int(float(gib) * 2**30), tensor_parallel=4, tokens_in_flight=8192)
        for gib in FLINT.hardware["b70x4"].kv_gib
    ]
    assert plans[0].tokens < 904_000 < plans[1].tokens
    assert plans[0].concurrency < 904_000 / 262_144 < plans[1].concurrency
    plain = 7.0 * 2**30 / (49 * 2 * 128 * 2)
    assert round(plain / 1000) == 300


def test_more_cards_than_kv_heads_keep_copies() -> None:
    four = plan_kv(FLINT.model, 2**33, tensor_parallel=4, tokens_in_flight=8192)
    assert plan_kv(FLINT.model, 2**33, tensor_parallel=8, tokens_in_flight=8192).tokens == four.tokens


def test_a_block_size_changes_little() -> None:
    small = plan_kv(FLINT.model, 7 * 2**30, tensor_parallel=4, tokens_in_flight=8192)
    large = plan_kv(FLINT.model, 7 * 2**30, tensor_parallel=4, tokens_in_flight=8192, block=64)
    assert abs(small.tokens - large.tokens) < 1000


def issues(starts: list[Start]) -> list[str]:
    knowledge = run.Knowledge((FLINT,), general_rules(), decoys=("/workspace/vllm",))
    return [issue.finding.id for start in starts for issue in run.issues_of(start, knowledge)]


@pytest.mark.parametrize("choice", every_choice(), ids=lambda choice: f"{choice.hardware_name} {choice.variant_name}")
def test_everything_that_is_rendered_passes_lint_and_the_shell_and_compose(choice: Choice, tmp_path: Path) -> None:
    rendered = render(choice)
    assert issues(starts_in_compose(Source("compose.yaml", rendered.compose))) == []
    runs = starts_in_script(Source("run.sh", rendered.run))
    assert len(runs) == 1
    assert issues(runs) == []
    for text in (rendered.serve, rendered.run, rendered.client):
        assert subprocess.run(["bash", "-n"], input=text, text=True).returncode == 0
    shown = subprocess.run(
        ["bash", "-c", rendered.serve.replace("vllm", "printf '%s\\n'", 1)], capture_output=True, text=True
    )
    words = [word for option in choice.options for word in option.split(" ", 1)]
    assert shown.stdout.split() == ["serve", choice.variant.repository, *words]

    file = tmp_path / "compose.yaml"
    file.write_text(rendered.compose)
    (service,) = compose_model.read([file]).services
    assert service.entrypoint == ("vllm", "serve")
    assert service.command == (choice.variant.repository, *(option.replace(" ", "=", 1) for option in choice.options))


@pytest.mark.parametrize(("name", "hardware"), [("xpu", "b70x4"), ("rocm", "mi300x"), ("cuda", "gb200")])
def test_the_ready_stacks_are_what_the_recipe_renders(name: str, hardware: str) -> None:
    text = (REPOSITORY / "compose" / f"flint-{name}.yaml").read_text()
    assert text == render(choose(FLINT, hardware=hardware)).compose


@pytest.mark.parametrize("name", ["xpu", "rocm", "cuda"])
def test_a_ready_stack_waits_for_health_and_stops_slower_than_the_server(name: str) -> None:
    (service,) = compose_model.read([REPOSITORY / "compose" / f"flint-{name}.yaml"]).services
    assert "/health" in service.raw["healthcheck"]["test"][-1]
    assert service.raw["stop_grace_period"] == "30s"
    assert service.raw["ipc"] == "host"
    assert {mount.target for mount in service.mounts} == {"/root/.cache/huggingface", "/root/.cache/vllm"}


def test_the_health_probe_tells_a_serving_server_from_a_silent_one() -> None:
    (service,) = compose_model.read([REPOSITORY / "compose" / "flint-xpu.yaml"]).services
    test = service.raw["healthcheck"]["test"][1:]
    code = test[-1].replace(":8000", ":1")
    assert subprocess.run([*test[:-1], code], capture_output=True).returncode == 1


def test_every_manifest_that_a_machine_needs_is_in_the_catalog() -> None:
    known = {manifest.name for manifest in load_catalog().manifests}
    assert {each.patches for each in FLINT.hardware.values() if each.patches} <= known


def refused_in(services: Sequence[compose_model.Service], manifest: str) -> list[Finding]:
    refused = next((each.refused_env for each in load_catalog(REPOSITORY).manifests if each.name == manifest), ())
    settings = [{name: value or "" for name, value in each.environment.items()} for each in services]
    return [finding for env in settings for finding in setting_findings(refused, env, "")]


@pytest.mark.parametrize("file", sorted((REPOSITORY / "compose").glob("*.yaml")), ids=lambda file: file.stem)
def test_no_ready_stack_sets_what_any_manifest_refuses(file: Path) -> None:
    services = compose_model.read([file]).services
    assert [found for each in load_catalog(REPOSITORY).manifests for found in refused_in(services, each.name)] == []


@pytest.mark.parametrize("choice", every_choice(), ids=lambda each: each.hardware_name)
def test_no_recipe_writes_what_its_manifest_refuses(choice: Choice, tmp_path: Path) -> None:
    rendered = render(choice)
    (tmp_path / "compose.yaml").write_text(rendered.compose)
    assert refused_in(compose_model.read([tmp_path / "compose.yaml"]).services, choice.hardware.patches) == []
    refused = {one.name for each in load_catalog(REPOSITORY).manifests for one in each.refused_env}
    assert [name for name in refused if name in rendered.serve + rendered.run + "".join(rendered.install)] == []


def test_all_recorded_figures_of_the_page_are_told() -> None:
    nvfp4 = {each["name"]: each["value"] for each in as_json(render(choose(FLINT, variant="nvfp4")))["figures"]}
    assert nvfp4["GSM8K"] == "0.950"
    assert nvfp4["decode 32 x 100K"] == "16716"
    assert nvfp4["TPOT at concurrency 128"] == "8.5"
    bf16 = {each["name"]: each["value"] for each in as_json(render(choose(FLINT, hardware="b70x4")))["figures"]}
    assert bf16["GPQA-Diamond, 4 repeats"] == "0.721"
    assert bf16["KV cache in all"] == "904000"


def test_the_page_tells_what_was_not_tested() -> None:
    text = as_markdown(render(choose(FLINT, hardware="b70x4")))
    assert "Tensor parallel size 4: not validated upstream." in text
    assert "953k tokens" in text
    assert "Not tested on H100" in as_markdown(render(choose(FLINT, hardware="h100")))


def call(*arguments: str) -> int:
    with pytest.raises(SystemExit) as stop:
        main(["recipe", *arguments])
    return int(stop.value.code or 0)


@pytest.mark.parametrize("form", ["text", "install", "serve", "run", "compose", "client", "json", "markdown"])
def test_each_format_is_printed(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("flint", "--hardware", "b70x4", "--format", form) == 0
    text = capsys.readouterr().out
    assert text.endswith("\n")
    assert "```" not in text or form == "markdown"
    if form == "json":
        assert json.loads(text)["recipe"]["configuration"]["hardware"] == "b70x4"


def test_what_is_wrong_is_exit_two_and_lenient_says_so_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("flint", "--hardware", "b71x4") == 2
    assert "b70x4" in capsys.readouterr().err
    assert call("flint", "--hardware", "b71x4", "--lenient", "--format", "serve") == 0
    assert "note: hardware b71x4 is unknown; gb200 is used" in capsys.readouterr().err
    assert call("flnt") == 2


def test_recipes_can_be_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("--list") == 0
    assert "--variant  default, nvfp4" in capsys.readouterr().out
    assert call("--json") == 0
    (recipe,) = json.loads(capsys.readouterr().out)["recipes"]
    assert (recipe["name"], recipe["variant"]) == ("flint", ["default", "nvfp4"])


@pytest.mark.parametrize(
    "choice", [each for each in every_choice() if each.hardware.patches], ids=lambda each: each.hardware_name
)
def test_the_printed_way_to_the_patches_is_one_that_patchkit_takes(choice: Choice) -> None:
    page, stack = as_markdown(render(choice)), render(choice).compose
    (line,) = {line for line in page.splitlines() if line.startswith("patchkit compose")}
    name, *words = shlex.split(line)[1:]
    command = root.get_command(click.Context(root), name)
    assert command is not None
    options = command.make_parser(click.Context(command)).parse_args(words)[0]
    assert options["image"] == choice.image_name
    assert f"# Patches: {line}\n" in stack
    assert f"docker compose -f THIS -f {options['target']} up -d" in stack


@pytest.mark.parametrize("stack", ["xpu", "rocm", "cuda"])
def test_a_ready_stack_is_what_the_recipe_writes(stack: str) -> None:
    hardware = {"xpu": "b70x4", "rocm": "mi300x", "cuda": "gb200"}[stack]
    written = (REPOSITORY / "compose" / f"flint-{stack}.yaml").read_text()
    assert written == render(choose(FLINT, hardware=hardware)).compose


@pytest.fixture
def own_catalog(tmp_path: Path) -> Path:
    """A catalog with one manifest, without recipes and rules."""
    (tmp_path / "manifests").mkdir()
    (tmp_path / "manifests" / "tiny.yaml").write_text("name: tiny\n")
    return tmp_path


@pytest.mark.parametrize("by_variable", [True, False])
def test_recipes_and_rules_are_those_of_the_catalog_that_everything_else_comes_from(
    own_catalog: Path, monkeypatch: pytest.MonkeyPatch, by_variable: bool
) -> None:
    recipes = own_catalog / "manifests" / "recipes"
    shutil.copytree(REPOSITORY / "manifests" / "recipes", recipes)
    (recipes / "flint.yaml").rename(recipes / "mine.yaml")
    (recipes / "mine.yaml").write_text((recipes / "mine.yaml").read_text().replace("name: flint", "name: mine", 1))
    rules = recipes / "rules" / "vllm.yaml"
    rules.write_text(rules.read_text().replace("repeatable: [", "repeatable: [--mine, "))
    monkeypatch.setenv("PATCHKIT_CATALOG", str(own_catalog) if by_variable else "")
    named = None if by_variable else own_catalog
    assert list(load_recipes(named)) == ["mine"]
    assert general_rules(named).repeatable[0] == "--mine"


def test_a_catalog_of_patches_alone_goes_with_the_recipes_and_rules_that_are_built_in(
    own_catalog: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATCHKIT_CATALOG", str(own_catalog))
    assert load_recipe("flint") == FLINT
    assert general_rules() == general_rules(REPOSITORY)


def test_recipes_of_a_catalog_that_is_not_there_are_not_the_built_in_ones(tmp_path: Path) -> None:
    for load in (load_recipes, general_rules):
        with pytest.raises(BadInput) as caught:
            load(tmp_path / "none")
        assert caught.value.code == "no-catalog"
