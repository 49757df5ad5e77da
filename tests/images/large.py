"""Images for benchmarks: what must not grow with an image's size is measured on these. Built on demand."""

from __future__ import annotations

import io
import random
import tarfile
from pathlib import Path

from tests.images import packages
from tests.images.tree import MTIME
from tests.images.variants import SITE, Variant, serving, variant

_MIB = 1024 * 1024


class Filler:
    """A layer of ``count`` files of ``size`` bytes that no compressor makes smaller; the same bytes every time."""

    def __init__(self, folder: str, count: int, size: int, per_folder: int = 100) -> None:
        self.folder = folder.lstrip("/")
        self.count = count
        self.size = size
        self.per_folder = per_folder

    def write(self, path: Path) -> None:
        """Write the layer's tar."""
        source = random.Random(self.folder)
        with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
            for number in range(self.count):
                folder = f"{self.folder}/part_{number // self.per_folder:04}"
                if number % self.per_folder == 0:
                    info = tarfile.TarInfo(folder)
                    info.type, info.mode, info.mtime = tarfile.DIRTYPE, 0o755, MTIME
                    archive.addfile(info)
                info = tarfile.TarInfo(f"{folder}/file_{number:06}.py")
                info.size, info.mtime = self.size, MTIME
                archive.addfile(info, io.BytesIO(source.randbytes(self.size)))


@variant("large")
def big() -> Variant:
    """3 GB that cannot be compressed, below the layers that hold vLLM."""
    image = serving(packages.vllm())
    return Variant((Filler("/opt/weights", 48, 64 * _MIB), *image.layers), image.config)


@variant("large")
def manyfiles() -> Variant:
    """60 000 small files in site-packages, beside vLLM."""
    image = serving(packages.vllm())
    return Variant((image.layers[0], Filler(f"{SITE}/filler", 60_000, 200), image.layers[1]), image.config)
