"""The kernel evidence needs torch and Triton, which the light environment of `make test` does not have."""

from importlib.util import find_spec

import pytest

from tests import needs

collect_ignore_glob = [] if find_spec("torch") and find_spec("triton") else ["test_*.py"]


def pytest_configure(config: pytest.Config) -> None:
    """Make the engine and bubblewrap known, and have told what was left out."""
    needs.register(config)
