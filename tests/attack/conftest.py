"""The command line of the end-to-end tests, for what is meant to break it."""

from __future__ import annotations

from tests.e2e.conftest import patchkit, tiny, tree_of

__all__ = ["patchkit", "tiny", "tree_of"]
