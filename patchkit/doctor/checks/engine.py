"""The container engine itself."""

from __future__ import annotations

from collections.abc import Iterator

from patchkit.doctor.model import Report, check
from patchkit.doctor.world import World


@check(
    "engine-unreachable",
    "error",
    "no container engine answers",
    """Without an engine no image can be patched there, no mount reaches a container and no proof can run. Images in
    folders, archives and registries can still be patched: name them oci:PATH, docker-archive:FILE or docker://NAME.""",
)
def unreachable(world: World) -> Iterator[Report]:
    error = world.engine_error
    if error is not None:
        yield Report(error.what, where=error.where or "", remedy=error.remedy or "")


@check(
    "engine",
    "note",
    "which engine answers",
    """Tells version, API and image store of the engine. On the containerd store an image ID names a manifest or index,
    on the classic store a config: the same image has two IDs.""",
)
def which(world: World) -> Iterator[Report]:
    engine = world.engine
    if engine is not None:
        api = ".".join(map(str, engine.api_version))
        version = engine.version.get("Version", "?")
        yield Report(f"{engine.kind} {version}, API {api}, {engine.store} store", where=engine.host)


@check(
    "engine-remote",
    "note",
    "the engine runs on another machine",
    "Bind mounts show the engine's machine, not this one: deliver derived images there (--mode image).",
)
def remote(world: World) -> Iterator[Report]:
    if world.engine is not None and world.engine.is_remote:
        yield Report("mounts cannot deliver patches to it", where=world.engine.host, remedy="use --mode image")


@check(
    "leftover-containers",
    "warning",
    "a killed run left temporary containers",
    "patchkit removes what it creates; a run that was killed cannot. The next run sweeps them away.",
)
def leftovers(world: World) -> Iterator[Report]:
    if world.engine is not None:
        for item in world.engine.leftovers():
            yield Report(
                "a temporary container of a run that is over", item["Id"][:12], remedy=f"docker rm -f {item['Id'][:12]}"
            )
