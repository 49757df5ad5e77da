"""The command line and running servers, as the end-to-end tests have them."""

from tests.e2e.conftest import patchkit, running, tiny

__all__ = ["patchkit", "running", "tiny"]
