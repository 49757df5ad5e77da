"""The boot guard in containers: process 1, signals, users, a read-only root, and every shape of an entrypoint."""

from __future__ import annotations

import hashlib
import json
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from patchkit.catalog.model import Gpus
from patchkit.deliver.guard import Guard, GuardedFile, make_guard
from patchkit.images import open_image, parse_reference
from patchkit.site.launch import GUARD_PATH
from patchkit.site.shipped import parse_record
from tests.site import kfd

pytestmark = pytest.mark.engine

SITE = "/opt/venv/lib/python3.11/site-packages"
RECORD = f"{SITE}/tinyserve-1.2.0.dist-info/RECORD"
MOD = "tinyserve/ops/scale.py"
SHELL = ["/bin/busybox", "sh", "-c"]


@dataclass
class Server:
    """An image, and the guard of a delivery that changed nothing in it."""

    image: str
    guard: Guard
    program: Path
    names: list[str]

    def command(self, *options: str, guarded: bool = True, arguments: Sequence[str] | None = None) -> list[str]:
        mount = ["-v", f"{self.program}:{GUARD_PATH}:ro"] if guarded else []
        start = list(self.guard.entrypoint) if guarded else []
        words = [*start, *(self.guard.command if arguments is None else arguments)]
        entry = ["--entrypoint", words[0]] if words else []
        return ["docker", "run", *mount, *options, *entry, self.image, *words[1:]]

    def run(self, *options: str, **how: Any) -> subprocess.CompletedProcess[str]:
        command = self.command("--rm", "--network=none", *options, **how)
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    def instead(self, text: str, *options: str, guarded: bool) -> str:
        """What a shell command says that is started in the server's place."""
        start = self.guard.entrypoint[: self.guard.entrypoint.index(GUARD_PATH) + 1] if guarded else ()
        mount = ["-v", f"{self.program}:{GUARD_PATH}:ro"] if guarded else []
        words = [*start, *SHELL, text]
        command = ["docker", "run", "--rm", "--network=none", "--hostname=same", *mount, *options]
        done = subprocess.run(
            [*command, "--entrypoint", words[0], self.image, *words[1:]], capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def background(self, *options: str, text: str) -> str:
        """Start a shell command behind the guard and leave it running; gives the container's name."""
        name = f"patchkit-test-guard-{uuid.uuid4().hex[:8]}"
        self.names.append(name)
        start = self.guard.entrypoint[: self.guard.entrypoint.index(GUARD_PATH) + 1]
        mount = ["-v", f"{self.program}:{GUARD_PATH}:ro"]
        words = [*start, *SHELL, text]
        command = ["docker", "run", "-d", "--name", name, "--network=none", *mount, *options]
        subprocess.run([*command, "--entrypoint", words[0], self.image, *words[1:]], check=True, capture_output=True)
        return name


@pytest.fixture
def serve(fixture_image: Callable[[str], str], tmp_path: Path) -> Iterator[Callable[..., Server]]:
    names: list[str] = []

    def make(variant: str = "pure", *, gpus: Gpus | None = None, **config: object) -> Server:
        image = fixture_image(variant)
        with open_image(parse_reference(image)) as opened:
            settings = json.loads(opened.config)["config"] | config
            shipped = parse_record(opened.fs.read(RECORD))
            digest = hashlib.sha256(opened.fs.read(f"{SITE}/{MOD}")).hexdigest()
            file = GuardedFile(f"{SITE}/{MOD}", MOD, "tinyserve.ops.scale", digest, shipped[MOD])
            guard = make_guard(settings, opened.fs, [file], record=RECORD, remedy="patchkit apply", gpus=gpus)
        program = tmp_path / "guard.py"
        program.write_bytes(guard.program)
        program.chmod(0o644)
        return Server(image, guard, program, names)

    yield make
    for name in names:
        subprocess.run(["docker", "rm", "-f", name], capture_output=True)


def said(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    told: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    return next(line for line in told if line.get("who") == "server")


def test_the_server_is_process_one(serve: Callable[..., Server]) -> None:
    assert said(serve().run())["pid"] == 1


@pytest.mark.parametrize("options", [["--user", "1000"], ["--user", "4711:4711"], ["--read-only"], ["--cap-drop=ALL"]])
def test_it_starts_as_any_user_and_on_a_read_only_root(serve: Callable[..., Server], options: list[str]) -> None:
    assert said(serve().run(*options))["who"] == "server"


@pytest.mark.parametrize(
    "question",
    [
        "cat /proc/self/environ | tr '\\0' '\\n' | sort | grep -v '^PWD=\\|^SHLVL=\\|^_='",
        "grep -E '^Sig(Ign|Blk|Cgt)|^ShdPnd|^Umask|^NoNewPrivs|^Groups|^Uid' /proc/self/status",
        "ls -l /proc/self/fd | wc -l; pwd; cat /proc/self/limits; cat /proc/self/oom_score_adj",
        "trap '' PIPE; grep SigIgn /proc/self/status; echo $$",
    ],
)
def test_nothing_differs_for_what_is_started(serve: Callable[..., Server], question: str) -> None:
    server = serve()
    assert server.instead(question, guarded=True) == server.instead(question, guarded=False)


@pytest.mark.parametrize("variant", ["wrapper", "tini", "shell_exec", "shell_script", "env_shebang", "relocatable"])
def test_every_shape_of_an_entrypoint_is_guarded(
    serve: Callable[..., Server], fixture_image: Callable[[str], str], tmp_path: Path, variant: str
) -> None:
    if variant == "wrapper":
        entrypoint = {"Entrypoint": ["/bin/busybox", "sh", "-c", 'exec "$@"', "sh"], "Cmd": ["tinyserve", "serve"]}
        server = serve("pure", **entrypoint)
    else:
        server = serve(variant)
    if variant != "tini":  # its init stays process 1
        assert said(server.run())["pid"] == 1
    replaced = tmp_path / "scale.py"
    replaced.write_text("stale = True\n")
    done = server.run("-v", f"{replaced}:{SITE}/{MOD}:ro")
    assert done.returncode == 78, (done.stdout, done.stderr)
    assert done.stdout == ""


def test_arguments_keep_their_spaces(serve: Callable[..., Server]) -> None:
    done = serve().run(arguments=["--served-model-name", "a  b", "", "$HOME", '"'])
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[0]) == {"arguments": ["--served-model-name", "a  b", "", "$HOME", '"']}


@pytest.mark.parametrize("status", [0, 3, 255])
def test_the_servers_exit_status_is_the_containers(serve: Callable[..., Server], status: int) -> None:
    server = serve()
    name = server.background(text=f"exit {status}")
    done = subprocess.run(["docker", "wait", name], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == str(status)


def wait_for(name: str, text: str) -> None:
    for _ in range(200):
        output = subprocess.run(["docker", "logs", name], capture_output=True, text=True).stdout
        if text in output:
            return
        time.sleep(0.05)
    raise AssertionError(f"{name} never said {text}")


@pytest.mark.parametrize("signal", ["TERM", "INT", "HUP"])
def test_a_signal_reaches_the_server(serve: Callable[..., Server], signal: str) -> None:
    name = serve().background(text=f"trap 'exit 42' {signal}; echo ready; while :; do sleep 0.1; done")
    wait_for(name, "ready")
    subprocess.run(["docker", "kill", "--signal", signal, name], check=True, capture_output=True)
    done = subprocess.run(["docker", "wait", name], capture_output=True, text=True, timeout=20)
    assert done.stdout.strip() == "42"


def test_docker_stop_ends_it_by_its_own_handler(serve: Callable[..., Server]) -> None:
    name = serve().background(text="trap 'exit 42' TERM; echo ready; while :; do sleep 0.1; done")
    wait_for(name, "ready")
    subprocess.run(["docker", "stop", "-t", "15", name], check=True, capture_output=True)
    done = subprocess.run(["docker", "inspect", "-f", "{{.State.ExitCode}}", name], capture_output=True, text=True)
    assert done.stdout.strip() == "42"


def test_a_file_that_the_user_cannot_read_stops_the_start(serve: Callable[..., Server], tmp_path: Path) -> None:
    """A mode 0600 file of the host's root, mounted: the server would crash or, worse, catch the error."""
    secret = tmp_path / "scale.py"
    secret.write_text("x = 1\n")
    secret.chmod(0o600)
    done = serve().run("--user", "1000", "-v", f"{secret}:{SITE}/{MOD}:ro")
    assert (done.returncode, "Permission denied" in done.stderr) == (78, True)


def test_an_empty_folder_in_the_files_place_stops_the_start(serve: Callable[..., Server], tmp_path: Path) -> None:
    """What an engine makes of a mount whose source is missing, for a package that lies in one folder."""
    (tmp_path / "ops").mkdir()
    done = serve().run("-v", f"{tmp_path}/ops:{SITE}/tinyserve/ops:ro")
    assert (done.returncode, "No such file" in done.stderr) == (78, True)


def test_a_working_folder_that_shadows_is_seen_for_a_module_launch(serve: Callable[..., Server]) -> None:
    server = serve("pure", Entrypoint=["python3", "-m", "tinyserve", "serve"], WorkingDir="/")
    assert said(server.run("-w", "/"))["pid"] == 1
    done = server.run("-w", "/workspace/tinyserve")
    assert done.returncode == 78
    assert "finds /workspace/tinyserve/tinyserve/ops/scale.py" in done.stderr


INSTINCT = Gpus(("gfx90a", "gfx94[0-9]"), "another passes for an NVIDIA SM100.")


@pytest.mark.parametrize("user", ["0", "4711:4711"])
def test_a_gpu_that_the_patches_are_not_for_stops_the_start(
    serve: Callable[..., Server], tmp_path: Path, user: str
) -> None:
    done = serve(gpus=INSTINCT).run("--user", user, *kfd.options(tmp_path, {128: "100300"}))
    assert (done.returncode, done.stdout) == (78, "")
    assert done.stderr.splitlines() == [
        "patchkit guard: the server is not started, because its GPU is not one that the patches are for",
        "  it is given gfx1030 (/dev/dri/renderD128); the patches are for gfx90a, gfx94[0-9]: "
        "another passes for an NVIDIA SM100.",
        "next: none of the GPUs passed through will do: pass others through, or serve on another machine",
    ]


def test_one_such_gpu_among_others_stops_the_start_and_the_others_are_named(
    serve: Callable[..., Server], tmp_path: Path
) -> None:
    """A desktop processor's own graphics beside the card: vLLM takes the first one's name for that of all."""
    done = serve(gpus=INSTINCT).run(*kfd.options(tmp_path, {128: "100306", 129: "90402"}))
    assert done.returncode == 78
    assert "it is given gfx1036 (/dev/dri/renderD128);" in done.stderr
    assert done.stderr.endswith("next: pass these devices through and no others: /dev/kfd, /dev/dri/renderD129\n")


@pytest.mark.parametrize("version", ["", "12"])
def test_a_gpu_of_an_unknown_architecture_stops_the_start(
    serve: Callable[..., Server], tmp_path: Path, version: str
) -> None:
    done = serve(gpus=INSTINCT).run(*kfd.options(tmp_path, {128: version}))
    assert (done.returncode, "an unknown architecture" in done.stderr) == (78, True)


def test_a_gpu_that_the_patches_are_for_is_served_on(serve: Callable[..., Server], tmp_path: Path) -> None:
    kfd.sysfs(tmp_path, {128: "100300", 129: "90402"})  # the host has another one, which is not passed through
    given = ["--device", "/dev/null:/dev/kfd", "--device", "/dev/null:/dev/dri/renderD129"]
    assert said(serve(gpus=INSTINCT).run("-v", f"{tmp_path}/sys:/sys:ro", *given))["pid"] == 1


def test_without_a_gpu_or_without_a_list_there_is_nothing_to_stop(serve: Callable[..., Server], tmp_path: Path) -> None:
    assert said(serve(gpus=INSTINCT).run())["pid"] == 1
    assert said(serve().run(*kfd.options(tmp_path, {128: "100300"})))["pid"] == 1
