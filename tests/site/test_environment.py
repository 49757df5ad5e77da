"""Which variables count when environments are compared, kept or followed; what each does, the layouts show."""

from __future__ import annotations

import pytest

from patchkit.site.environment import decides_imports


@pytest.mark.parametrize(
    "name", ["PATH", "HOME", "PYTHONPATH", "PYTHONHOME", "PYTHONUSERBASE", "__PYVENV_LAUNCHER__", "CONDA_PREFIX"]
)
def test_what_decides_imports_counts(name: str) -> None:
    assert decides_imports(name)


@pytest.mark.parametrize("name", ["HF_TOKEN", "LD_LIBRARY_PATH", "path", "MYPYTHONPATH", ""])
def test_what_decides_no_import_does_not(name: str) -> None:
    assert not decides_imports(name)
