# The commands of the house. `make` alone lists them; more come from mk/*.mk.

SHELL := /bin/sh
VENV := .venv
PYTHON := $(VENV)/bin/python
# The first interpreter that is new enough; PYTHON3=... chooses another.
PYTHON3 ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.14; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
ifeq ($(CI),true)
SETUP := 1
endif

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test lint format fuzz bench wheel setup clean

help: ## This list.
	@sed -n 's/^\([a-z][a-z-]*\):[^#]*## /\1\t/p' $(MAKEFILE_LIST) | while IFS="$$(printf '\t')" read -r name text; do \
		printf '  make %-14s %s\n' "$$name" "$$text"; done

demo: $(VENV)/installed ## The whole job on an OCI layout with real vLLM files; needs no engine.
	@$(PYTHON) scripts/demo.py

test: $(if $(SETUP),setup) $(VENV)/developing ## All tests. SETUP=1 (root, Debian) installs and starts what they need.
	$(PYTHON) -m pytest -n auto --dist worksteal $(PYTEST_ARGS)

lint: $(VENV)/developing ## Format, style, types, import layers.
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

format: $(VENV)/developing ## Put the code into the one format.
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .

fuzz: $(VENV)/developing ## Long runs with a stated seed: properties, and the engine beside GNU patch and git apply.
	$(PYTHON) -m pytest -m hypothesis --hypothesis-profile=fuzz --hypothesis-seed=1 $(PYTEST_ARGS)
	$(PYTHON) -m tests.fuzz --seed 1 --runs 20000 --debian --releases

bench: $(VENV)/developing ## All benchmarks, side by side, as ratios.
	@for file in benchmarks/*.py; do case $$file in */__init__.py|*/harness.py) continue;; esac; \
		$(PYTHON) -m benchmarks.$$(basename $$file .py) || exit; done

wheel: $(VENV)/installed ## Build the wheel into dist/.
	$(PYTHON) -m pip wheel -q --no-deps -w dist .

setup:
	@test -n "$(PYTHON3)" || { echo "Python 3.11 or newer is needed: https://www.python.org/downloads/" >&2; exit 1; }
	$(PYTHON3) scripts/setup.py

clean: ## Remove everything that was made here, fixture images in the engine included.
	-test ! -x $(VENV)/developing || $(PYTHON) -m tests.images clean
	rm -rf $(VENV) .build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

# Two stamps of one environment: what runs patchkit, and what works on it.
$(VENV)/installed: pyproject.toml
	@test -n "$(PYTHON3)" || { echo "Python 3.11 or newer is needed: https://www.python.org/downloads/" >&2; exit 1; }
	test -x $(PYTHON) || $(PYTHON3) -m venv $(VENV)
	$(PYTHON) -m pip install -q --disable-pip-version-check -e .
	@touch $@

$(VENV)/developing: $(VENV)/installed
	$(PYTHON) -m pip install -q --disable-pip-version-check -e '.[dev]'
	@touch $@

-include mk/*.mk
