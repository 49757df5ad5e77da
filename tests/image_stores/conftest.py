from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """No test sees another's cache."""
    monkeypatch.setenv("PATCHKIT_CACHE", str(tmp_path / "cache"))
