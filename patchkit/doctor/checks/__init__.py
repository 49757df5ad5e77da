"""The checks, one module a subject. Importing this package registers them all."""

from patchkit.doctor.checks import catalog, compose, containers, engine, host, images, plan

__all__ = ["catalog", "compose", "containers", "engine", "host", "images", "plan"]
