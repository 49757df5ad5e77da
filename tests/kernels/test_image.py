"""patchkit itself on a Docker image in which vLLM's modules import, with the decoy that Intel's image has.

All levels pass for all three modules: in the derived image, and in a container that Compose starts with the mounts
behind the boot guard.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
import subprocess
import time
from dataclasses import dataclass

import pytest
import yaml

from patchkit.stack.compose_model import compose_command
from tests.kernels import root, trees
from tests.kernels.command import MANIFEST, MODULES, SERIES, assert_shown, levels_of, patchkit
from tests.needs import Scratch

PRE = {path: digest for entry in SERIES.patches for path, digest in entry.pre.items()}
POST = {path: digest for entry in SERIES.patches for path, digest in entry.post.items()}
NAMED = ("--manifest", MANIFEST)
REQUIRED = ("--require", "imports", "--require", "asserts")
HASHES = "import hashlib, sys; [print(hashlib.sha256(open(path, 'rb').read()).hexdigest()) for path in sys.argv[1:]]"
#: In the server's place, which wants a GPU: a spawned worker that does what the XPU worker does before it loads a model
#: (it runs vLLM's own wrapper), loads Flint, tells which files that were, and waits.
SERVER = f"""#!/opt/venv/bin/python
import hashlib, multiprocessing, sys, time


def worker():
    from vllm.v1.worker.xpu_model_runner import _torch_cuda_wrapper

    with _torch_cuda_wrapper():
        pass
    import vllm.models.flint.model

    for name in {MODULES}:
        with open(sys.modules[name].__file__, "rb") as source:
            print("loaded", source.name, hashlib.sha256(source.read()).hexdigest(), flush=True)
    print("ready", flush=True)
    time.sleep(3600)


if __name__ == "__main__":
    process = multiprocessing.get_context("spawn").Process(target=worker)
    process.start()
    process.join()
    sys.exit(process.exitcode)
"""


@dataclass(frozen=True)
class Shipped:
    """The image as shipped, its names in the engine, and where its serving copy of vLLM lies."""

    names: Scratch
    reference: str
    site: str

    def hashes(self, *python: str) -> tuple[dict[str, str], dict[str, str]]:
        """Path -> hash of the patched files, in the copy that serves and in the decoy, as a Python of the image sees
        them; ``python`` is what starts it after the word ``docker``."""
        paths = [f"{folder}/{path}" for folder in (self.site, root.CHECKOUT) for path in PRE]
        output = subprocess.check_output(["docker", *python, "-ISc", HASHES, *paths], text=True)
        found = [f"sha256:{line}" for line in output.splitlines()]
        return dict(zip(PRE, found[: len(PRE)], strict=True)), dict(zip(PRE, found[len(PRE) :], strict=True))

    def hashes_in(self, reference: str) -> tuple[dict[str, str], dict[str, str]]:
        """The same of an image."""
        return self.hashes("run", "--rm", "--network=none", "--entrypoint=python", reference)


@pytest.fixture(scope="module")
def shipped(engine):
    """Removed at the end, and so is what a killed run of this checkout left."""
    checkout = hashlib.sha256(str(trees.REPOSITORY).encode()).hexdigest()[:8]
    names = Scratch(engine, f"patchkit-fixture/kernels-{checkout}")
    with root.built("image-root") as folder:
        names.clean()
        try:
            reference = names.name("vllm-xpu:torch")
            root.load(folder, reference)
            (record,) = folder.glob("opt/venv/lib/python3*/site-packages/vllm-*.dist-info")
            yield Shipped(names, reference, f"/{record.parent.relative_to(folder)}")
        finally:
            names.clean()


@pytest.fixture(scope="module")
def derived(shipped, tmp_path_factory):
    """The image that patchkit made of it, and the copies of vLLM that it told. Proven by a test of its own."""
    given = ("--image", shipped.reference, *NAMED, "--no-run", "--json")
    done = patchkit("apply", *given, cwd=tmp_path_factory.mktemp("derived"))
    assert done.returncode == 0, done.stderr
    return f"{shipped.reference}-patchkit", json.loads(done.stdout)["copies"]


@pytest.fixture
def server(tmp_path):
    """A program for the place of the server."""
    program = tmp_path / "server.py"
    program.write_text(SERVER)
    program.chmod(0o755)
    return program


def test_the_image_as_shipped_is_not_vouched_for(shipped, tmp_path):
    done = patchkit("verify", "--image", shipped.reference, cwd=tmp_path)
    assert done.returncode == 1
    assert "[no-receipt]" in done.stderr


def test_in_the_derived_image_all_three_modules_import_and_every_assert_without_a_gpu_passes(derived, tmp_path):
    image, _ = derived
    assert_shown(patchkit("verify", "--image", image, *REQUIRED, "--json", cwd=tmp_path))


def test_the_copy_that_serves_is_patched_and_the_decoy_is_left_alone(shipped, derived):
    image, copies = derived
    assert [(copy["root"], copy["serves"], copy["decoy"]) for copy in copies] == [
        (f"{shipped.site}/vllm", True, False),
        (f"{root.CHECKOUT}/vllm", False, True),
    ]
    assert shipped.hashes_in(shipped.reference) == (PRE, PRE)
    assert shipped.hashes_in(image) == (POST, PRE)


def test_a_launch_that_imports_the_decoy_is_not_proven(derived, tmp_path):
    image, _ = derived
    launch = "python -m vllm.entrypoints.openai.api_server"
    done = patchkit("verify", "--image", image, "--launch", launch, "--no-run", "--json", cwd=tmp_path)
    assert done.returncode == 1
    resolves = levels_of(done)["resolves"]
    assert resolves["state"] == "failed"
    assert root.CHECKOUT in resolves["detail"]


def test_patches_that_apply_and_fix_nothing_fail_every_assert(shipped, tmp_path):
    catalog = tmp_path / "catalog"
    (catalog / "manifests").mkdir(parents=True)
    manifest = (trees.REPOSITORY / f"manifests/{MANIFEST}.yaml").read_text()
    for entry in SERIES.patches:
        ((path, post),) = entry.post.items()
        before = (trees.pristine() / path).read_text()
        after = f"{before}# Nothing.\n"
        manifest = manifest.replace(post, f"sha256:{hashlib.sha256(after.encode()).hexdigest()}")
        lines = difflib.unified_diff(before.splitlines(True), after.splitlines(True), f"a/{path}", f"b/{path}")
        (catalog / entry.file).parent.mkdir(parents=True, exist_ok=True)
        (catalog / entry.file).write_text("".join(lines))
    (catalog / f"manifests/{MANIFEST}.yaml").write_text(manifest)
    given = ("--catalog", str(catalog), *NAMED, "--mode", "bind", "--json")
    done = patchkit("apply", "--image", shipped.reference, *given, cwd=tmp_path)
    levels = levels_of(done)
    assert {name: level["state"] for name, level in levels.items() if level["state"] != "passed"} == {
        "asserts": "failed"
    }
    failed = {proof["name"].partition(":")[0] for proof in levels["asserts"]["files"] if proof["state"] == "failed"}
    assert failed == set(MODULES)
    assert not [proof for proof in levels["asserts"]["files"] if proof["state"] in ("passed", "blocked")]
    assert done.returncode == 1


def test_a_worker_that_fails_as_shipped_loads_the_model_from_the_mounts_behind_the_guard(shipped, server, tmp_path):
    applied = patchkit(
        *("apply", "--image", shipped.reference, *NAMED, "--mode", "bind", "--guard", "--no-run"), cwd=tmp_path
    )
    assert applied.returncode == 0, applied.stderr
    container = shipped.names.name("server")
    service = {
        "image": shipped.reference,
        "container_name": container,
        "network_mode": "none",
        "volumes": [f"{server}:/opt/venv/bin/vllm:ro"],
    }
    base = tmp_path / "compose.yaml"
    base.write_text(yaml.safe_dump({"services": {"vllm": service}}))

    status, said = started(container, base)
    assert status == 1
    assert "TypeError: unsupported operand type(s) for |: 'function' and 'NoneType'" in said

    status, said = started(container, base, tmp_path / ".patchkit/compose.patchkit.yaml")
    assert status is None, said
    loaded = dict(re.findall(rf"^loaded {shipped.site}/(\S+) (\w+)$", said, re.MULTILINE))
    assert {path: f"sha256:{digest}" for path, digest in loaded.items()} == POST
    command = json.loads(subprocess.check_output(["docker", "inspect", container]))[0]["Config"]["Entrypoint"]
    assert command[1].endswith("/guard.py")
    assert shipped.hashes("exec", container, "python") == (POST, PRE)
    assert_shown(patchkit("verify", "--container", container, *REQUIRED, "--json", cwd=tmp_path))


def test_the_guard_starts_no_server_over_files_as_shipped(shipped, server, tmp_path):
    applied = patchkit(
        *("apply", "--image", shipped.reference, *NAMED, "--mode", "bind", "--guard", "--no-run"), cwd=tmp_path
    )
    assert applied.returncode == 0, applied.stderr
    overlay = tmp_path / ".patchkit/compose.patchkit.yaml"
    content = yaml.safe_load(overlay.read_text())
    service = content["services"]["vllm"]
    (lost,) = [mount for mount in service["volumes"] if mount["target"].endswith("/moe.py")]
    service["volumes"].remove(lost)
    service.update(container_name=shipped.names.name("unguarded"), network_mode="none")
    service["volumes"].append(f"{server}:/opt/venv/bin/vllm:ro")
    overlay.write_text(yaml.safe_dump(content))
    status, said = started(service["container_name"], overlay)
    assert status == 78
    assert "the server is not started" in said
    assert "ops/moe.py" in said
    assert "loaded" not in said


def started(container, *files):
    """Start the service as a person does; give its exit status, None where its worker is ready, and what it said."""
    options = [word for file in files for word in ("-f", str(file))]
    command = [*compose_command(), "-p", container, *options, "up", "--detach", "--force-recreate"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for _ in range(3000):
        state = json.loads(subprocess.check_output(["docker", "inspect", container]))[0]["State"]
        said = subprocess.check_output(["docker", "logs", container], stderr=subprocess.STDOUT, text=True)
        if state["Status"] != "running":
            return state["ExitCode"], said
        if "\nready\n" in said:
            return None, said
        time.sleep(0.2)
    raise AssertionError(said)
