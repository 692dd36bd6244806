# Everything runs in .venv, made here from PyPI. The two commands of the README are `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help demo test lint test-slow test-faults soak fuzz test-engines clean
.DEFAULT_GOAL := help

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

.venv/.installed: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q --upgrade pip
	$(BIN)/python -m pip install -q -e '.[dev]'
	@touch $@

demo: .venv/.installed  ## tune a simulated server to the end: three minutes, one more to install, no GPU
	$(BIN)/autotune tune studies/demo.toml
	$(BIN)/autotune export studies/demo.toml

lint: .venv/.installed  ## ruff and mypy (strict) over package and tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint  ## lint and the fast tests, under ten minutes on two cores
	$(BIN)/pytest -n 2 -m "not engine and not slow and not faults"

test-slow: .venv/.installed  ## the demo, killed at ten moments, and other tests that take minutes
	$(BIN)/pytest -m slow --timeout 900

test-faults: .venv/.installed  ## the fault matrix: every fault at every stage, kills, signals, disks, locks
	$(BIN)/pytest -n 2 --dist worksteal -m faults tests/faults

soak: .venv/.installed  ## 300 trials with random faults and kills of the tuner
	$(BIN)/python -m benchmarks.soak

fuzz: .venv/.installed  ## 100,000 cases of damaged outside text
	$(BIN)/python -m benchmarks.fuzz

test-engines: .venv/.installed  ## real SGLang, vLLM and llama.cpp on the CPU (6 GB under .engines)
	bash tests/engines/install.sh .engines
	$(BIN)/pytest -n 2 --dist loadgroup -m engine --timeout 1500 tests/engines

clean:  ## remove the virtual environment and caches, keep studies and engines
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache
