# The same targets at home and in CI. Each installs what it needs into .venv, without root.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
MODEL ?= Qwen/Qwen3.5-35B-A3B
GPU ?= rtx-4080
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: plan test check docs docs-check bench test-trace clean

plan: $(VENV)/.run ## plan a real model on a real card: make plan MODEL=Qwen/Qwen3.5-27B GPU=rtx-4090
	@$(BIN)/tonnage plan $(MODEL) --serve --gpu $(GPU)

test: $(VENV)/.test ## run the tests
	$(BIN)/python -m pytest -q -n auto

check: $(VENV)/.test ## style, types and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/basedpyright --level error

docs: $(VENV)/.test ## regenerate every generated block
	$(BIN)/python docs/generate.py

docs-check: $(VENV)/.test ## fail when a generated block is stale
	$(BIN)/python docs/generate.py --check

bench: $(VENV)/.test ## measure speed as ratios
	$(BIN)/python -m pytest -q bench --benchmark-only

test-trace: $(VENV)/.test ## count the models again with transformers on the meta device
	$(BIN)/python -m pip install -q -e '.[test-trace]'
	OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive HF_HUB_OFFLINE=1 $(BIN)/python -m pytest -q -m trace

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run: pyproject.toml | $(VENV)/bin/python
	@$(BIN)/python -m pip install -q -e .
	@touch $@

$(VENV)/.test: pyproject.toml | $(VENV)/bin/python
	@$(BIN)/python -m pip install -q -e '.[test]'
	@touch $@ $(VENV)/.run

clean:
	rm -rf $(VENV) dist build .pytest_cache .ruff_cache .hypothesis
