"""The checks, one module a subject. Importing this package registers them all."""

from patchkit.doctor.checks import catalog, containers, engine, images

__all__ = ["catalog", "containers", "engine", "images"]
