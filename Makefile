# make demo         see it work               make test       lint, types, and the tests' sharpest part: half an hour
# make test-quick   two minutes of tests      make test-all   all tests, on Python 3.11, 3.12 and 3.13
# make lint         ruff and mypy only
# make docs    the documents as a site, in site/index.html
# make bench-engines   beside ONNX Runtime and OpenVINO, in an environment of its own (MODELS="resnet18 bert")
# make notebooks   execute notebooks/ with their longer measurements, and store their outputs
#
# make test-gpu PYTHON=/path/to/python    the device tests, by a Python whose torch has CUDA, on a machine with a GPU
#
# Each target makes the environment it needs; stamps inside the environment make re-runs quick.
# PYTHON=/path/to/python3.11 chooses another interpreter, TESTS="tests/capture" a part of the tests.

SHELL := /bin/bash
PYTHON ?= $(shell tools/find-python 3.11)
TESTS ?= tests
WORKERS ?= 2
GPU_WORKERS ?= 6
GPU_TESTS ?= tests/gpu

# An exact pin, so that a CPU build is taken where one is offered.
TORCH_3.11 := torch==2.13.0
TORCH_3.12 := torch==2.11.0
TORCH_3.13 := torch==2.13.0
TRITON_3.11 := triton==3.9.0
TRITON_3.12 := triton==3.6.0
TRITON_3.13 :=

NATIVE := $(wildcard runtime/native/*.* runtime/native/*/*) $(wildcard codegen/kernels/*.h codegen/kernels/prebuilt/*) codegen/build/flags.py setup.py
PACKAGE := pyproject.toml
ENGINES := benchmarks/engines/requirements.txt
PYTEST_FLAGS ?= -q -n $(WORKERS) --dist worksteal --durations=20
TIER ?= all
MINUTES ?= 600

export PIP_DISABLE_PIP_VERSION_CHECK := 1
# One kernel store for all workers; with two workers on two cores, threads that wait must not spin.
TEST_ENVIRONMENT := GRAFTJIT_CHECK=1 GRAFTJIT_CACHE_DIR=$(CURDIR)/.kernels \
	OMP_NUM_THREADS=2 OMP_WAIT_POLICY=passive

# A Python that has torch with CUDA, triton, pytest and graftjit: given, or this checkout's.
GPU_PYTHON := $(if $(filter command line environment,$(origin PYTHON)),$(PYTHON),.venv/bin/python)

.PHONY: demo test test-quick test-rest test-gpu test-all test-3.11 test-3.12 test-3.13 lint format bench bench-engines doctor notebooks docs clean distclean help
.DELETE_ON_ERROR:
.NOTPARALLEL:

help:
	@sed -n '1,10s/^# \{0,1\}//p' Makefile

demo: .venv/.demo .venv/.native
	.venv/bin/python -P -m graftjit demo

test: lint .venv/.dev .venv/.native
	$(TEST_ENVIRONMENT) .venv/bin/pytest $(PYTEST_FLAGS) --tier test $(TESTS)

test-quick: .venv/.dev .venv/.native
	$(TEST_ENVIRONMENT) .venv/bin/pytest $(PYTEST_FLAGS) --tier quick $(TESTS)

# What `make test` leaves out, for so many MINUTES: what the last changes are nearest to comes first.
test-rest: .venv/.dev .venv/.native
	files=$$(.venv/bin/python tools/order_tests.py) && $(TEST_ENVIRONMENT) \
		.venv/bin/pytest $(PYTEST_FLAGS) --dist load --tier rest --minutes $(MINUTES) $$files

test-gpu:
	@$(GPU_PYTHON) -P -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' || \
		{ echo "$(GPU_PYTHON) has no torch that sees a GPU: make test-gpu PYTHON=/path/to/python"; exit 1; }
	@$(GPU_PYTHON) -P -c 'import graftjit' || \
		{ echo "install it first: $(GPU_PYTHON) -m pip install --no-deps --no-build-isolation -e ."; exit 1; }
	$(TEST_ENVIRONMENT) $(GPU_PYTHON) -P -m pytest -q --tb=short --maxfail=80 -p no:cacheprovider \
		-o faulthandler_timeout=60 -o faulthandler_exit_on_timeout=true $(GPU_FLAGS) \
		$$($(GPU_PYTHON) -P -c 'import xdist' 2>/dev/null && echo --numprocesses=$(GPU_WORKERS)) $(GPU_TESTS)

test-all: lint test-3.11 test-3.12 test-3.13

test-3.11: .venv/.dev .venv/.native
	$(TEST_ENVIRONMENT) .venv/bin/pytest $(PYTEST_FLAGS) --tier $(TIER) --minutes $(MINUTES) $(TESTS)

test-3.12 test-3.13: test-%: .venv-%/.dev .venv-%/.native
	$(TEST_ENVIRONMENT) .venv-$*/bin/pytest $(PYTEST_FLAGS) --tier $(TIER) --minutes $(MINUTES) $(TESTS)

lint: .venv/.dev
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/python tools/typecheck.py

format: .venv/.dev
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .

doctor: .venv/.demo .venv/.native
	.venv/bin/python -P -m graftjit doctor

bench: .venv/.dev .venv/.native
	.venv/bin/python -m benchmarks.compare all --resume \
		--report benchmarks/results/$$(git rev-parse --short HEAD)

# Goes on with the models that its file does not have: remove it to measure again.
bench-engines: .venv-engines/.native
	mkdir -p benchmarks/results
	.venv-engines/bin/python -m benchmarks.engines $(MODELS) --out benchmarks/results/engines.jsonl \
		--table benchmarks/results/engines.md --chart benchmarks/results/engines

# Warnings are errors. The pages of the reference are made of docstrings: nothing of ours is imported.
docs: .venv/.dev
	NO_MKDOCS_2_WARNING=1 .venv/bin/python -m mkdocs build --strict --quiet
	@echo "open site/index.html; to search in it: python -m http.server -d site"

notebooks: .venv/.dev .venv/.native
	.venv/bin/python -P tools/notebooks.py $(NOTEBOOKS)

clean:
	rm -rf site build dist *.egg-info .typecheck .kernels .mypy_cache .ruff_cache .pytest_cache .hypothesis
	rm -f runtime/_native*.so codegen/kernels/_ready*.so
	rm -f .venv*/.native
	find . -name __pycache__ -not -path './.venv*' -prune -exec rm -rf {} +

distclean: clean
	rm -rf .venv .venv-3.12 .venv-3.13 .venv-engines

# -- environments: .made -> .torch -> .demo / .dev -> .native -------------------------------------

.venv/.made:
	@test -n "$(PYTHON)" || { echo "Python 3.11 is needed: install it, or say make PYTHON=/path/to/python3.11"; exit 1; }
	test -x .venv/bin/python || $(PYTHON) -m venv .venv
	touch $@

.venv-%/.made:
	python=$$(tools/find-python $*) && { test -x .venv-$*/bin/python || $$python -m venv .venv-$*; }
	touch $@

.venv/.torch: .venv/.made
	.venv/bin/python -m pip install -qq $(TORCH_3.11)
	touch $@

.venv-%/.torch: .venv-%/.made
	.venv-$*/bin/python -m pip install -qq $(TORCH_$*)
	touch $@

.venv/.demo: .venv/.torch $(PACKAGE)
	.venv/bin/python -m pip install -qq $(TORCH_3.11) -e '.[demo]'
	touch $@

.venv/.dev: .venv/.torch $(PACKAGE)
	.venv/bin/python -m pip install -qq $(TORCH_3.11) $(TRITON_3.11) -e '.[demo,dev]'
	touch $@

.venv-%/.dev: .venv-%/.torch $(PACKAGE)
	.venv-$*/bin/python -m pip install -qq $(TORCH_$*) $(TRITON_$*) -e '.[demo,dev]'
	touch $@

.venv-engines/.made:
	test -x .venv-engines/bin/python || $(PYTHON) -m venv .venv-engines
	touch $@

.venv-engines/.torch: .venv-engines/.made $(ENGINES) $(PACKAGE)
	.venv-engines/bin/python -m pip install -qq -r $(ENGINES) -e '.[bench]'
	touch $@

# The extension is built into runtime/, under a name that has the version of Python in it. What installed
# the package has set up the build already: this rebuilds when a source has changed since.
.venv/.native: $(NATIVE) | .venv/.torch
	.venv/bin/python -m pip install -qq 'setuptools>=77'
	.venv/bin/python setup.py -q build_ext --inplace
	touch $@

.venv-%/.native: $(NATIVE) | .venv-%/.torch
	.venv-$*/bin/python -m pip install -qq 'setuptools>=77'
	.venv-$*/bin/python setup.py -q build_ext --inplace
	touch $@

.PRECIOUS: .venv-%/.made .venv-%/.torch .venv-%/.dev .venv-%/.native
