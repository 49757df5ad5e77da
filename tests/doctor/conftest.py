"""The command line and running servers, as the end-to-end tests have them."""

from tests.e2e.conftest import compose, engine_by_tcp, patchkit, running, tiny

__all__ = ["compose", "engine_by_tcp", "patchkit", "running", "tiny"]
