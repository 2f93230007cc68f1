# The same targets at home and in CI. Each installs what it needs into .venv, without root; afterwards no network is used.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
MODEL ?= Qwen/Qwen3.5-35B-A3B
GPU ?= rtx-4080
ROWS := src/tonnage/data/measurements
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: help plan test check docs docs-check scores score-check bench test-trace test-train test-contracts test-oracle faults clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-12s %s\n", $$1, $$2}'

plan: $(VENV)/.run ## plan a real model on a real card: make plan MODEL=Qwen/Qwen3.5-27B GPU=rtx-4090
	@$(BIN)/tonnage plan $(MODEL) --serve --gpu $(GPU)

test: export HYPOTHESIS_PROFILE ?= ci
test: $(VENV)/.test ## run the tests
	$(BIN)/python -m pytest -q -n auto -m "not trace and not contract and not train"

check: $(VENV)/.dev ## style, types and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/basedpyright --level error

docs: $(VENV)/.run ## regenerate every generated block
	$(BIN)/python docs/generate.py

docs-check: $(VENV)/.run ## fail when a generated block is stale
	$(BIN)/python docs/generate.py --check

scores: $(VENV)/.run ## score the shipped measurements again and write SCORES.md (minutes)
	$(BIN)/python validation/scores.py

score-check: $(VENV)/.run ## hold the accuracies to their bounds, and SCORES.md to the accuracies
	$(BIN)/python validation/scores.py --check
	$(BIN)/tonnage score $(ROWS)/training.jsonl --leave-out unit --check --json > $(VENV)/training.json
	$(BIN)/tonnage score $(ROWS)/inference.jsonl --leave-out unit --check --bounds validation/bounds_inference.toml --json > $(VENV)/serving.json
	$(BIN)/python validation/regret.py --check
	$(BIN)/python validation/scores.py --compare $(VENV)/training.json $(VENV)/serving.json

bench: $(VENV)/.test ## measure speed, as ratios to this machine's own
	$(BIN)/python -m pytest -q -s bench

test-trace: $(VENV)/.dev ## count the models again with transformers on the meta device
	$(BIN)/python -m pip install -q -e '.[test-trace]'
	OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive HF_HUB_OFFLINE=1 $(BIN)/python -m pytest -q -m trace

test-oracle: $(VENV)/.test ## hold the training formulae against PyTorch on tensors without data (two minutes)
	$(BIN)/python -m pip install -q -e '.[test-trace]'
	OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive HF_HUB_OFFLINE=1 $(BIN)/python -m pytest -q -n auto tests/oracle src/tonnage/oracle

test-train: $(VENV)/.test ## train small models on this machine, and stop, hurt and resume them (minutes)
	$(BIN)/python -m pip install -q -e '.[test-train]'
	PATH="$(CURDIR)/$(BIN):$$PATH" DS_ACCELERATOR=cpu OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive HF_HUB_OFFLINE=1 \
	  $(BIN)/python -m pytest -q -m train

test-contracts: $(VENV)/.test .venv-sky/.installed ## hold what is rendered against the programs that read it (two minutes)
	$(BIN)/python -m pip install -q -e '.[test-contracts]'
	OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive HF_HUB_OFFLINE=1 $(BIN)/python -m pytest -q -m contract tests/contract

# SkyPilot wants older versions of much that the tests use: it has an environment of its own.
.venv-sky/.installed: pyproject.toml | $(BIN)/python
	@$(PYTHON) -m venv .venv-sky || $(PYTHON) -m virtualenv -q .venv-sky
	@.venv-sky/bin/python -m pip install -q 'skypilot==0.14.1'
	@touch $@

faults: $(VENV)/.test ## hurt runs of a job without PyTorch in 120 ways and see how they end (a minute)
	$(BIN)/python validation/faults.py --number 120

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "tonnage needs Python 3.11 or newer: make PYTHON=python3.12 ..."; exit 1; }
	@$(PYTHON) -m venv $(VENV) || $(PYTHON) -m virtualenv -q $(VENV) || { rm -rf $(VENV); \
	  echo "this Python cannot make environments: pip install --user virtualenv, or install python3-venv"; exit 1; }

$(VENV)/.run: pyproject.toml | $(BIN)/python
	@$(BIN)/python -m pip install -q -e .
	@$(BIN)/python -m compileall -q src
	@touch $@

$(VENV)/.test: pyproject.toml | $(BIN)/python
	@$(BIN)/python -m pip install -q -e '.[test]'
	@$(BIN)/python -m compileall -q src
	@touch $@ $(VENV)/.run

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	@$(BIN)/python -m pip install -q -e '.[dev]'
	@$(BIN)/python -m compileall -q src
	@touch $@ $(VENV)/.run $(VENV)/.test

clean: ## remove what the targets made
	rm -rf $(VENV) .venv-wheel .venv-sky dist build .pytest_cache .ruff_cache .hypothesis .benchmarks .import_linter_cache
