"""Images that lie in a registry or in files, patched at the speed of the patch: a 3 GB image, and one of 60 000 files.

Registry: read three files, patch them, write the image back; against pull + build + push with Docker, and, where a
``crane`` is on the PATH, against ``crane export`` + ``patch`` + ``crane append``. Archive: in place against a copy.
Second look: files of a known image against the first time.

    python -m benchmarks.images              about 10 GB of disk below .build and /tmp, some minutes
    python -m benchmarks.images archive      one of: registry, archive, look
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

from benchmarks.harness import Aim, Case, measure, report, run
from patchkit.images import edit, open_image, parse_reference
from patchkit.images.client import Client
from patchkit.images.model import Change, Derivation, Image
from patchkit.images.paths import realpath
from tests import images
from tests.image_stores.servers import registry
from tests.images.large import Filler
from tests.images.variants import SITE

FILES = ("vllm/models/flint/ops/norm.py", "vllm/models/flint/ops/moe.py", "vllm/models/flint/model.py")


def derivation(image: Image) -> Derivation:
    """The three files, each with a line more that was never there before."""
    changes = []
    for name in FILES:
        path = realpath(image.fs, f"{SITE}/{name}")
        entry = image.fs.lstat(path)
        assert entry is not None
        data = image.fs.read(path) + f"\n# {uuid.uuid4()}\n".encode()
        changes.append(Change(path, data, entry.mode, entry.uid, entry.gid, entry.mtime))
    return Derivation(tuple(changes), {edit.FINGERPRINT: uuid.uuid4().hex}, "benchmark")


def patch(source: str, target: str, *, in_place: bool = False) -> Image:
    with open_image(parse_reference(source)) as image:
        image.derive(derivation(image), parse_reference(target), in_place=in_place)
        return image


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="patchkit-bench-") as folder:
        os.environ["PATCHKIT_CACHE"] = f"{folder}/cache"
        yield Path(folder)


def forget() -> None:
    shutil.rmtree(os.environ["PATCHKIT_CACHE"], ignore_errors=True)


def bench_registry() -> None:
    with scratch() as work, registry(work / "registry") as host:
        source = f"{host}/big:latest"
        unknown_image(work / "layout")
        copy = ("skopeo", "copy", "-q", "--preserve-digests", "--dest-tls-verify=false")
        run(*copy, f"oci:{work}/layout:latest", f"docker://{source}")
        shutil.rmtree(work / "layout")
        told: dict[str, object] = {}

        def ours(name: str) -> None:
            image = patch(f"docker://{source}", f"docker://{host}/big:{uuid.uuid4().hex}")
            client: Client = image.store.client  # type: ignore[attr-defined]
            told[name] = f"{client.requests} requests, {client.sent} bytes out, {client.received} bytes in"

        def elsewhere() -> None:
            patch(f"docker://{source}", f"docker://{host}/other/{uuid.uuid4().hex}:new")

        derived = f"{host}/big:{uuid.uuid4().hex}"

        def docker() -> None:
            run("docker", "pull", "-q", source)
            built.append(build(source, derived, work / "context"))
            run("docker", "push", "-q", derived)

        built: list[str] = []

        def unload() -> None:
            for name in (derived, source, *built):  # what was built before holds the base's layers too
                subprocess.run(["docker", "rmi", "-f", name], capture_output=True, check=False)

        cases = [
            Case("patchkit, known base", lambda: ours("patchkit, known base")),
            Case("patchkit, first sight", lambda: ours("patchkit, first sight"), forget),
            Case("patchkit, into another repository", elsewhere),
            Case("docker pull + build + push, image there", docker),
        ]
        aims = [Aim("patchkit, known base", "docker pull + build + push, image there", 0.05)]
        if shutil.which("crane"):
            cases.append(Case("crane export + patch + append", lambda: crane(source, f"{host}/big:crane", work)))
            aims.append(Aim("patchkit, known base", "crane export + patch + append", 0.05))
        else:
            told["crane"] = "not on the PATH, not measured"
        try:
            report(measure("images-registry", cases, rounds=5), aims, told)
            unload()
            cold = [cases[0], Case("docker pull + build + push, image not there", docker, unload)]
            aim = Aim("patchkit, known base", "docker pull + build + push, image not there", 0.05)
            report(measure("images-registry-cold", cold, rounds=1, warm=0), [aim])
        finally:
            unload()


def unknown_image(layout: Path) -> None:
    """The ``big`` fixture with other filler, which no engine can have seen; PATCHKIT_BENCH_GB makes it smaller."""
    known = images.build("big")
    filler = layout.with_name("filler.tar")
    count = int(float(os.environ.get("PATCHKIT_BENCH_GB", "3")) * 16)
    Filler(f"/opt/weights-{uuid.uuid4()}", count, 64 * 1024 * 1024).write(filler)
    layers = [filler if path.stat().st_size > 1_000_000_000 else path for path in known.layers]
    config = json.loads(known.config)
    with filler.open("rb") as stream:
        digest = f"sha256:{hashlib.file_digest(stream, 'sha256').hexdigest()}"
    ids = config["rootfs"]["diff_ids"]
    config["rootfs"]["diff_ids"] = [digest if path == filler else one for path, one in zip(layers, ids, strict=True)]
    images.write_layout(layout, json.dumps(config).encode(), tuple(layers))
    filler.unlink()


def build(source: str, target: str, context: Path) -> str:
    """The same work as a Dockerfile: three files copied over, new each time. Gives the image ID."""
    context.mkdir(exist_ok=True)
    lines = [f"FROM {source}"]
    for number, name in enumerate(FILES):
        (context / str(number)).write_text(f"# {uuid.uuid4()}\n")
        lines.append(f"COPY {number} {SITE}/{name}")
    (context / "Dockerfile").write_text("\n".join(lines) + "\n")
    return run("docker", "build", "-q", "-t", target, context).strip()


def crane(source: str, target: str, work: Path) -> None:
    """The same work with crane: the whole file system comes out as one tar to get at three files."""
    root = work / "crane"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    names = [f"{SITE}/{name}".lstrip("/") for name in FILES]
    run("sh", "-c", f"crane export --insecure {source} - | tar -x -C {root} {' '.join(names)}")
    for name in names:
        with (root / name).open("a") as stream:
            stream.write(f"# {uuid.uuid4()}\n")
    run("tar", "-cf", work / "crane.tar", "-C", root, *names)
    run("crane", "append", "--insecure", "-b", source, "-f", work / "crane.tar", "-t", target)


def bench_archive() -> None:
    with scratch() as work:
        path = work / "big.tar"
        images.docker_archive(images.build("big"), path, "big:latest")
        source = f"docker-archive:{path}:big:latest"
        cases = [
            Case("in place", lambda: patch(source, source, in_place=True)),
            Case(
                "into a copy",
                lambda: patch(source, f"docker-archive:{work}/copy.tar:big:new"),
                lambda: (work / "copy.tar").unlink(missing_ok=True),
            ),
            Case(
                "cp",
                lambda: run("cp", "--reflink=never", path, work / "cp.tar"),
                lambda: (work / "cp.tar").unlink(True),
            ),
        ]
        report(measure("images-archive", cases, rounds=3), [Aim("in place", "cp", 0.05), Aim("into a copy", "cp", 1.2)])


def bench_look() -> None:
    for variant in ("big", "manyfiles"):
        with scratch():
            source = f"oci:{images.layout(variant)}:latest"

            def look(source: str = source) -> None:
                with open_image(parse_reference(source)) as image:
                    derivation(image)
                    image.fs.listdir("/opt")

            cases = [Case("first look", look, forget), Case("second look", look)]
            report(measure(f"images-look-{variant}", cases, rounds=3), [Aim("second look", "first look", 0.05)])


def main() -> None:
    parts = {"registry": bench_registry, "archive": bench_archive, "look": bench_look}
    for name in sys.argv[1:] or parts:
        parts[name]()


if __name__ == "__main__":
    main()
