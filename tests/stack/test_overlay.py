"""The overlay's text is read by the real Compose, and started by a real engine where there is one."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from patchkit.errors import BadInput
from patchkit.stack import compose_model
from patchkit.stack.overlay import OverlayMount, PinnedImage, Start, overlay

IMAGE_ID = "sha256:" + "ab" * 32


def effective(tmp_path: Path, base: str, text: str) -> compose_model.Model:
    (tmp_path / "compose.yaml").write_text(base)
    (tmp_path / "overlay.yaml").write_text(text)
    return compose_model.read([tmp_path / "compose.yaml", tmp_path / "overlay.yaml"])


def test_a_mount_is_read_only_and_never_creates_its_source(tmp_path: Path) -> None:
    text = overlay(["flint"], mounts=[OverlayMount("/host/norm.py", "/opt/norm.py", selinux="z")])
    (service,) = effective(tmp_path, "services: {flint: {image: x}}", text).services
    (mount,) = service.raw["volumes"]
    assert not mount["bind"].pop("create_host_path", False)
    assert mount == {
        "type": "bind",
        "source": "/host/norm.py",
        "target": "/opt/norm.py",
        "read_only": True,
        "bind": {"selinux": "z"},
    }


def test_command_entrypoint_and_other_mounts_of_the_service_stay(tmp_path: Path) -> None:
    base = """
    services:
      flint: {image: x, command: [vllm, serve, a], entrypoint: [/bin/tini, --], volumes: ["/models:/models"]}
    """
    text = overlay(["flint"], image=PinnedImage(IMAGE_ID, True), mounts=[OverlayMount("/h/n.py", "/opt/n.py")])
    (service,) = effective(tmp_path, base, text).services
    assert service.command == ("vllm", "serve", "a")
    assert service.entrypoint == ("/bin/tini", "--")
    assert [each.target for each in service.mounts] == ["/models", "/opt/n.py"]
    assert service.image == IMAGE_ID
    assert service.raw["pull_policy"] == "never"


def test_an_image_that_a_registry_knows_keeps_the_pull_policy(tmp_path: Path) -> None:
    text = overlay(["flint"], image=PinnedImage(f"reg.example/x@{IMAGE_ID}", False))
    (service,) = effective(tmp_path, "services: {flint: {image: x, pull_policy: always}}", text).services
    assert service.raw["pull_policy"] == "always"
    assert service.image == f"reg.example/x@{IMAGE_ID}"


def test_a_pinned_image_takes_the_place_of_a_build(tmp_path: Path) -> None:
    text = overlay(["flint", "plain"], image=PinnedImage(IMAGE_ID, True, instead_of_build=True))
    model = effective(tmp_path, "services: {flint: {build: .}, plain: {image: x}}", text)
    assert [service.builds for service in model.services] == [False, False]
    assert [service.image for service in model.services] == [IMAGE_ID, IMAGE_ID]


def test_a_guard_repeats_the_whole_start(tmp_path: Path) -> None:
    start = Start(("/guard",), ("vllm", "serve", "$HOME", "a b"))
    text = overlay(["flint"], start=start)
    (service,) = effective(tmp_path, "services: {flint: {image: x, command: vllm serve}}", text).services
    assert service.entrypoint == start.entrypoint
    assert service.command == start.command


_hostile = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\0"), min_size=1, max_size=12)


@settings(max_examples=60, deadline=None)
@given(_hostile, _hostile, _hostile)
def test_any_text_comes_back_from_yaml_as_it_went_in(name: str, value: str, header: str) -> None:
    text = overlay(
        ["flint"], mounts=[OverlayMount("/" + value, "/t")], labels={name: value}, header=f"made for {header}"
    )
    read = yaml.safe_load(text)
    assert list(read) == ["services"]
    assert read["services"]["flint"]["labels"] == {name: value.replace("$", "$$")}
    assert read["services"]["flint"]["volumes"][0]["source"] == "/" + value.replace("$", "$$")


@pytest.mark.parametrize("value", ["a$b", "$$", "${X:?}", "é\u2028\x85\ufeff", "tab\tline\nend", '"#: {', "\U0001f600"])
def test_compose_itself_reads_odd_text_as_it_was_meant(tmp_path: Path, value: str) -> None:
    text = overlay(["flint"], environment={"ODD": value}, labels={"dev.patchkit.receipt": value}, header=value)
    (service,) = effective(tmp_path, "services: {flint: {image: x}}", text).services
    assert service.environment == {"ODD": value}
    assert service.labels == {"dev.patchkit.receipt": value}


def test_the_same_arguments_give_the_same_bytes_in_any_order() -> None:
    mounts = [OverlayMount("/h/b", "/t/b"), OverlayMount("/h/a", "/t/a")]
    one = overlay(["flint"], mounts=mounts, labels={"b": "1", "a": "2"})
    other = overlay(["flint"], mounts=mounts[::-1], labels={"a": "2", "b": "1"})
    assert one == other


@pytest.mark.parametrize(
    ("mounts", "code"),
    [
        ([OverlayMount("norm.py", "/opt/norm.py")], "relative-mount"),
        ([OverlayMount("/h/norm.py", "opt/norm.py")], "relative-mount"),
        ([OverlayMount("/h/a", "/opt/a"), OverlayMount("/h/b", "/opt/./a")], "double-mount"),
    ],
)
def test_a_mount_that_compose_would_misplace_is_refused(mounts: list[OverlayMount], code: str) -> None:
    with pytest.raises(BadInput) as caught:
        overlay(["flint"], mounts=mounts)
    assert caught.value.code == code


@pytest.mark.engine
def test_a_local_image_by_id_starts_with_the_patched_file_in_place(tmp_path: Path) -> None:
    image_id = import_busybox("patchkit-stack-test:overlay")
    project = "patchkitstackoverlay"
    patched = tmp_path / "pa$tched.py"
    patched.write_text("patched\n")
    (tmp_path / "compose.yaml").write_text(
        "services: {flint: {image: 'patchkit-stack-test:overlay', network_mode: none,"
        " command: [/bin/busybox, cat, /opt/site/norm.py]}}"
    )
    (tmp_path / "overlay.yaml").write_text(
        overlay(
            ["flint"],
            image=PinnedImage(image_id, True),
            mounts=[OverlayMount(str(patched), "/opt/site/norm.py")],
            labels={"dev.patchkit.receipt": "/a/$b"},
        )
    )
    base = [*compose_model.compose_command(), "-p", project]
    base += ["-f", str(tmp_path / "compose.yaml"), "-f", str(tmp_path / "overlay.yaml")]
    try:
        up = subprocess.run([*base, "up", "--abort-on-container-exit"], capture_output=True, text=True, check=False)
        assert up.returncode == 0, up.stderr
        logs = subprocess.run([*base, "logs", "--no-log-prefix"], capture_output=True, text=True, check=True)
        assert logs.stdout.strip() == "patched"
        names = subprocess.run([*base, "ps", "-aq"], capture_output=True, text=True, check=True).stdout.split()
        label = subprocess.run(
            ["docker", "inspect", "-f", '{{.Image}} {{index .Config.Labels "dev.patchkit.receipt"}}', *names],
            capture_output=True,
            text=True,
            check=True,
        )
        assert label.stdout.strip() == f"{image_id} /a/$b"
        patched.unlink()
        again = subprocess.run([*base, "up", "-d", "--force-recreate"], capture_output=True, text=True, check=False)
        assert again.returncode != 0
        assert not patched.exists()
    finally:
        subprocess.run([*base, "down", "-t", "0"], capture_output=True, check=False)
        subprocess.run(["docker", "rmi", "-f", "patchkit-stack-test:overlay"], capture_output=True, check=False)


def import_busybox(tag: str) -> str:
    """An image of one static program, from Debian's busybox-static; returns its ID."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.add("/bin/busybox", "bin/busybox")
        archive.addfile(tarfile.TarInfo("opt/site/norm.py"), io.BytesIO(b""))
    made = subprocess.run(["docker", "import", "-", tag], input=buffer.getvalue(), capture_output=True, check=True)
    return made.stdout.decode().strip()
