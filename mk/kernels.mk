# The evidence for the shipped patches: heavy (a CPU build of torch, 1.5 GB), so it has an environment of its own.

KERNELS_VENV := .venv-kernels
KERNELS_PYTHON := $(KERNELS_VENV)/bin/python
# Where CPU builds of torch lie; without it pip takes the default build, which brings CUDA along (5 GB).
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
# The environment for the GPU evidence: its torch must be a CUDA build.
GPU_PYTHON ?= $(KERNELS_PYTHON)

.PHONY: test-kernels test-gpu

# pip asks an index that it cannot reach again and again unless told not to.
$(KERNELS_VENV)/.made: requirements/kernels.txt pyproject.toml
	$(if $(wildcard $(KERNELS_PYTHON)),,python3 -m venv $(KERNELS_VENV))
	PIP_RETRIES=1 PIP_TIMEOUT=15 $(KERNELS_PYTHON) -m pip install --quiet --extra-index-url $(TORCH_INDEX) -r requirements/kernels.txt -e .
	touch $@

test-kernels: $(if $(SETUP),setup) $(KERNELS_VENV)/.made ## The shipped patches' evidence on real torch and Triton, without a GPU.
	$(KERNELS_PYTHON) -m pytest --confcutdir=tests/kernels -n auto --dist loadfile tests/kernels

test-gpu: $(KERNELS_VENV)/.made ## The evidence that needs a CUDA GPU; says what it leaves out where there is none.
	trees=$$($(KERNELS_PYTHON) -m tests.kernels vllm-cuda) && set -- $$trees && \
	$(GPU_PYTHON) -m tests.kernels.gpu --shipped $$1 --patched $$2
