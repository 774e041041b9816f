# The commands of the repository. `make help` lists them; each does what it needs first, and only what changed since.

SHELL := /bin/bash
.DEFAULT_GOAL := help
VENV := .venv
BIN := $(VENV)/bin
# Stamps live in the environment, so that they go with it.
STAMPS := $(VENV)/stamps
TORCH := torch==2.13.0

.PHONY: help setup setup-test demo test check check-service check-others lint bench clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 10

setup: $(STAMPS)/venv ## .venv with `pit`, `snakepit` and all that they need
	@scripts/system-packages run || true

setup-test: $(STAMPS)/venv $(STAMPS)/torch
	@scripts/system-packages test

demo: setup ## a cluster on this machine, and a training job on it
	@$(BIN)/python scripts/demo.py

test: setup-test lint ## every test, with the real programs
	$(BIN)/pytest tests

# Side by side: the types and the two halves of the fast tests take about as long as each other.
check: $(STAMPS)/venv ## format, lint, types, imports, fast tests
	@$(MAKE) --no-print-directory --jobs=3 --output-sync=target lint check-service check-others

SERVICE := tests/service tests/store
check-service: $(STAMPS)/venv
	$(BIN)/pytest $(SERVICE) -q -m "not system"
check-others: $(STAMPS)/venv
	$(BIN)/pytest tests $(addprefix --ignore=,$(SERVICE)) -q -m "not system"

lint: $(STAMPS)/venv
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(STAMPS)/venv ## how fast, next to the peers, as ratios
	@scripts/system-packages run
	@for bench in $(filter-out __init__ measure,$(basename $(notdir $(wildcard bench/*.py)))); do \
		echo "== $$bench"; $(BIN)/python -m bench.$$bench || exit 1; done

clean: ## removes what was made here (.venv, caches)
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find src tests bench scripts -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMPS)/venv: pyproject.toml scripts/make-venv
	@scripts/make-venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[server,dev]'
	@mkdir -p $(STAMPS) && touch $@

# Only the tests of distributed jobs need it, so `make setup` and `make demo` go without these megabytes.
$(STAMPS)/torch: | $(STAMPS)/venv
	$(BIN)/pip install --quiet --disable-pip-version-check $(TORCH) numpy
	@touch $@
