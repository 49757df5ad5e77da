"""Which variables of an environment decide what Python imports.

Part of programs that travel into containers as text: Python 3.8 or newer, standard library only, ASCII.
"""

# PATH: which interpreter a name stands for; HOME: where the user's own packages lie. __PYVENV_LAUNCHER__ makes a Python
# 3.11 or newer take itself for another one, as PYTHONEXECUTABLE does, and not on macOS alone (CPython,
# Modules/getpath.py). The other two decide nothing by themselves: they name the environment that was activated.
_NAMES = frozenset(("PATH", "HOME", "__PYVENV_LAUNCHER__", "VIRTUAL_ENV", "CONDA_PREFIX"))


def decides_imports(name: str) -> bool:
    """Whether the variable decides which interpreter starts or what it imports, or tells of that which does. Python's
    own count all: those that matter differ from version to version (docs.python.org, using/cmdline)."""
    return name in _NAMES or name.startswith("PYTHON")
