"""``patchkit compose`` on a real engine: what it looks at before it writes, and what the overlay really starts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from patchkit import api
from patchkit.api import stacks
from patchkit.images.engine import Engine
from patchkit.stack import compose_model

pytestmark = pytest.mark.engine

SITE = "/opt/venv/lib/python3.11/site-packages"
NORM = f"{SITE}/vllm/models/flint/ops/norm.py"


@pytest.fixture
def image(fixture_image: Callable[[str], str], scratch: Any) -> str:
    name: str = scratch.tagged(fixture_image("xpu"), "vllm-xpu:nightly")
    return name


def call(tmp_path: Path, *arguments: object, status: int = 0) -> subprocess.CompletedProcess[str]:
    """Run it without the proof's container, which other tests are about."""
    command = [sys.executable, "-m", "patchkit", "compose", "--manifest", "vllm-xpu", "--no-run", *map(str, arguments)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == status, done.stdout + done.stderr
    return done


def stack(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "compose.yaml"
    file.write_text(text)
    return file


def test_the_overlay_is_yaml_alone_for_the_services_that_run_the_image(image: str, tmp_path: Path) -> None:
    file = stack(
        tmp_path,
        f"services:\n  one: {{image: '{image}', profiles: [a]}}\n  two: {{extends: {{service: one}}}}\n"
        "  proxy: {image: 'nginx:1'}\n",
    )
    overlay = yaml.safe_load(call(tmp_path, "--image", image, "-f", file).stdout)
    assert list(overlay["services"]) == ["one", "two"]
    for service in overlay["services"].values():
        assert service["image"].startswith("sha256:")
        assert service["pull_policy"] == "never"
        assert "command" not in service
        assert "entrypoint" not in service


def test_compiled_kernels_get_folders_of_their_own_unless_told_not_to(image: str, tmp_path: Path) -> None:
    file = stack(tmp_path, f"services: {{one: {{image: '{image}', environment: {{TRITON_CACHE_DIR: /c/$$x}}}}}}\n")
    overlay = yaml.safe_load(call(tmp_path, "--image", image, "-f", file).stdout)
    service = overlay["services"]["one"]
    fingerprint = service["labels"]["dev.patchkit.fingerprint"].removeprefix("sha256:")[:12]
    assert service["environment"] == {
        "TRITON_CACHE_DIR": f"/c/$$x/patchkit-{fingerprint}",
        "VLLM_CACHE_ROOT": f"/root/.cache/vllm/patchkit-{fingerprint}",
    }
    shared = yaml.safe_load(call(tmp_path, "--image", image, "-f", file, "--shared-caches").stdout)
    assert "environment" not in shared["services"]["one"]


@pytest.mark.parametrize("mode", ["image", "bind"])
def test_the_container_that_the_overlay_starts_has_the_patched_file(image: str, tmp_path: Path, mode: str) -> None:
    file = stack(tmp_path, f"services: {{one: {{image: '{image}', network_mode: none}}}}\n")
    overlay = tmp_path / "overlay.yaml"
    call(tmp_path, "--image", image, "-f", file, "--mode", mode, "-o", overlay)
    receipt = json.loads((tmp_path / ".patchkit" / "receipt.json").read_text())
    wanted = {each["image_path"]: each["post"] for each in receipt["files"]}
    compose = [*compose_model.compose_command(), "-p", f"patchkit-{os.getpid()}", "-f", file, "-f", overlay]
    try:
        done = subprocess.run(
            [*compose, "run", "--rm", "--entrypoint", "sha256sum", "one", NORM], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        assert wanted[NORM] == "sha256:" + done.stdout.split()[0]
    finally:
        subprocess.run([*compose, "down", "-t", "0"], capture_output=True)


@pytest.mark.parametrize("mode", ["image", "bind"])
@pytest.mark.parametrize("mount", [NORM, SITE, "/opt/venv/"])
def test_a_mount_over_a_patched_file_is_refused_before_anything_is_written(
    image: str, tmp_path: Path, mode: str, mount: str
) -> None:
    file = stack(tmp_path, f"services: {{one: {{image: '{image}', volumes: ['/x:{mount}']}}}}\n")
    done = call(tmp_path, "--image", image, "-f", file, "--mode", mode, status=1)
    assert "target-mounted" in done.stderr
    assert not (tmp_path / ".patchkit").exists()


@pytest.mark.parametrize(
    ("service", "code", "status"),
    [
        ("{image: 'nginx:1'}", "image-unused", 1),
        ("{image: IMAGE, environment: {PYTHONPATH: /workspace/vllm}}", "other-copy", 1),
        (
            "{image: IMAGE, entrypoint: [/opt/venv/bin/python3, -m, vllm], working_dir: /workspace/vllm}",
            "other-copy",
            1,
        ),
        ("{image: IMAGE, comand: x}", "compose-invalid", 2),
        ("{image: IMAGE, volumes: ['./src:/src'], environment: {PYTHONPATH: /src}}", "other-copy", 1),
        (f"{{image: IMAGE, volumes: ['./src:/src', './src/first.pth:{SITE}/a.pth']}}", "other-copy", 1),
        ("{image: IMAGE, volumes: ['./src/start.py:/opt/venv/bin/vllm']}", "other-copy", 1),
        (
            "{image: IMAGE, volumes: ['./src/vllm:/opt/venv/lib64/python3.11/site-packages/vllm']}",
            "target-mounted",
            1,
        ),
    ],
)
def test_an_overlay_that_would_patch_nothing_is_refused(
    image: str, tmp_path: Path, service: str, code: str, status: int
) -> None:
    source = tmp_path / "src"
    (source / "vllm").mkdir(parents=True)
    (source / "vllm/__init__.py").touch()
    (source / "first.pth").write_text("import sys; sys.path.insert(0, '/src')\n")
    start = "#!/opt/venv/bin/python3\nimport sys\nsys.path.insert(0, '/workspace/vllm')\nimport vllm\n"
    (source / "start.py").write_text(start)
    (source / "start.py").chmod(0o755)
    file = stack(tmp_path, f"services: {{one: {service.replace('IMAGE', repr(image))}}}\n")
    done = call(tmp_path, "--image", image, "-f", file, status=status)
    assert code in done.stderr
    assert not (tmp_path / ".patchkit").exists()


def test_folders_that_a_service_mounts_beside_the_package_are_no_matter(image: str, tmp_path: Path) -> None:
    (tmp_path / "src/vllm").mkdir(parents=True)
    (tmp_path / "src/vllm/__init__.py").touch()
    text = f"services: {{one: {{image: '{image}', volumes: ['./src:/data', './gone:/gone'], tmpfs: /tmp}}}}\n"
    call(tmp_path, "--image", image, "-f", stack(tmp_path, text))


def test_a_service_whose_start_cannot_be_read_is_warned_about(image: str, tmp_path: Path) -> None:
    file = stack(tmp_path, f"services: {{one: {{image: '{image}', entrypoint: [/bin/sh, -c, '. /x; $$RUN']}}}}\n")
    assert "service-launch-unknown" in call(tmp_path, "--image", image, "-f", file).stderr


def test_a_start_through_a_shell_imports_the_same_copy_and_is_no_matter(image: str, tmp_path: Path) -> None:
    text = f"services: {{one: {{image: '{image}', entrypoint: [sh, -c, 'exec vllm serve m']}}}}\n"
    done = call(tmp_path, "--image", image, "-f", stack(tmp_path, text))
    assert "warning" not in done.stderr


def test_one_of_several_services_can_be_named(image: str, tmp_path: Path) -> None:
    file = stack(tmp_path, f"services: {{one: {{image: '{image}'}}, two: {{image: '{image}'}}}}\n")
    overlay = yaml.safe_load(call(tmp_path, "--image", image, "-f", file, "--service", "two").stdout)
    assert list(overlay["services"]) == ["two"]


def test_without_a_compose_file_the_manifest_s_service_is_taken(image: str, tmp_path: Path) -> None:
    assert list(yaml.safe_load(call(tmp_path, "--image", image).stdout)["services"]) == ["vllm"]


def test_a_service_that_builds_its_image_runs_the_pinned_one_instead(image: str, tmp_path: Path) -> None:
    file = stack(tmp_path, f"services: {{one: {{image: '{image}', build: .}}}}\n")
    overlay = tmp_path / "overlay.yaml"
    call(tmp_path, "--image", image, "-f", file, "-o", overlay)
    (service,) = compose_model.read([file, overlay]).services
    assert not service.builds
    assert service.image.startswith("sha256:")


def test_the_command_line_starts_the_patched_container_too(image: str, tmp_path: Path) -> None:
    file = stack(
        tmp_path, f"services: {{one: {{image: '{image}', network_mode: none, entrypoint: [cat], command: [{NORM}]}}}}\n"
    )
    line = call(tmp_path, "--image", image, "-f", file, "--mode", "bind", "--format", "run").stdout
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (stored,) = (tmp_path / ".patchkit" / "files").glob("*/norm.py")
    assert done.stdout == stored.read_text()


def test_a_guard_over_mounts_is_in_the_overlay_and_in_the_command_line(image: str, tmp_path: Path) -> None:
    file = stack(tmp_path, f"services: {{one: {{image: '{image}'}}}}\n")
    options = ["--image", image, "-f", file, "--mode", "bind", "--guard"]
    service = yaml.safe_load(call(tmp_path, *options).stdout)["services"]["one"]
    assert service["entrypoint"] == ["/opt/venv/bin/python3", "/.patchkit/guard.py", "vllm", "serve"]
    assert "VLLM_CACHE_ROOT" in service["environment"]
    assert "/.patchkit/guard.py vllm serve" in call(tmp_path, *options, "--format", "run").stdout


def test_a_guard_before_a_service_s_own_start_is_refused(image: str, tmp_path: Path) -> None:
    file = stack(tmp_path, f"services: {{one: {{image: '{image}', entrypoint: [a]}}}}\n")
    assert "guarded-service" in call(tmp_path, "--image", image, "-f", file, "--guard", status=1).stderr


def test_mounts_carry_a_label_only_where_the_engine_enforces_labels(
    image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mounts(security: list[str]) -> list[dict[str, Any]]:
        # No engine here enforces labels: only what it says of itself is stood in for.
        monkeypatch.setattr(Engine, "info", {"SecurityOptions": security})
        options = api.Options(manifest="vllm-xpu", run=False)
        composed = stacks.compose(image, options, api.Delivery(mode="bind", output=tmp_path / "out"))
        volumes: list[dict[str, Any]] = yaml.safe_load(composed.overlay)["services"]["vllm"]["volumes"]
        return volumes

    assert {each["bind"].get("selinux") for each in mounts(["name=seccomp", "name=selinux"])} == {"z"}
    assert {each["bind"].get("selinux") for each in mounts(["name=seccomp"])} == {None}


def test_a_local_image_gives_no_component_and_mounts_do(image: str, tmp_path: Path) -> None:
    refused = call(tmp_path, "--image", image, "--format", "kustomize", "-o", tmp_path / "c", status=1)
    assert "local-image" in refused.stderr
    assert "push" in refused.stderr
    call(tmp_path, "--image", image, "--mode", "bind", "--format", "kustomize", "-o", tmp_path / "c")
    text = (tmp_path / "c" / "mounts.yaml").read_text()
    assert NORM in text
    assert 'name: "vllm"' in text


def test_a_component_needs_a_folder(image: str, tmp_path: Path) -> None:
    assert "no-folder" in call(tmp_path, "--image", image, "--format", "kustomize", status=2).stderr


def test_json_holds_the_text_and_the_services(image: str, tmp_path: Path) -> None:
    answer = json.loads(call(tmp_path, "--image", image, "--json").stdout)
    assert answer["schema"] == "patchkit.compose"
    assert answer["overlay"]["services"] == ["vllm"]
    assert answer["overlay"]["text"].startswith("# ")


def test_twice_gives_the_same_bytes(image: str, tmp_path: Path) -> None:
    assert call(tmp_path, "--image", image).stdout == call(tmp_path, "--image", image).stdout
