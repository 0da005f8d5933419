# Everything a developer types. `make` alone lists it.
SHELL := /bin/bash
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PACKAGES := packages/common packages/node-compactor packages/node-refiner packages/hpa-scaler packages/simulator e2e
SEED ?= 7
NODES ?= 40
CLUSTERS ?= 1000
FIRST_SEED ?= 1000

.PHONY: help
help: ## List the targets.
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(VENV)/.installed: requirements/dev.lock $(PACKAGES:%=%/pyproject.toml)
	@$(PYTHON) -c 'import sys; sys.exit("Tightship needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Set PYTHON=") if sys.version_info < (3, 11) else 0'
	@$(PYTHON) -m venv $(VENV)
	@echo "installing locked requirements into $(VENV)"
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.lock
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation $(PACKAGES:%=-e %)
	@touch $@

.PHONY: install
install: $(VENV)/.installed ## Make .venv from the hashed lock, with all packages editable.

.PHONY: demo
demo: install ## Make an off-peak cluster and plan on it (SEED=7 NODES=40).
	@mkdir -p demo
	@$(BIN)/python -m tightship_simulator.generate --seed $(SEED) --nodes $(NODES) -o demo/cluster.json
	@echo "made demo/cluster.json: an off-peak cluster of $(NODES) nodes (seed $(SEED)). Planning on it:"
	@echo
	@$(BIN)/node-compactor plan -f demo/cluster.json --until-stable
	@echo
	@echo "Next:  $(BIN)/node-compactor explain -f demo/cluster.json NODE"
	@echo "       $(BIN)/node-compactor plan -f demo/cluster.json --strategy fewest-nodes --limit 0.9"
	@echo "       $(BIN)/node-compactor plan        # your own cluster, read only"

.PHONY: test
test: install ## Set up what this machine can have, then run every test; what is skipped is named, with how to get it.
	@if command -v go >/dev/null; then $(MAKE) --no-print-directory controlplane; \
	elif [ "$$CI" = true ]; then echo "Go 1.26 or newer is required under CI=true" >&2; exit 1; \
	else echo "skipped: tests on a real control plane need Go 1.26 or newer; install it and run make controlplane"; fi
	@$(BIN)/pytest $(ARGS)

.PHONY: test-fast
test-fast: install ## Only the tests that need no control plane: seconds.
	@$(BIN)/pytest packages $(ARGS)

.PHONY: agreement
agreement: install controlplane ## More random clusters against the real kube-scheduler (CLUSTERS=1000 FIRST_SEED=1000).
	@$(BIN)/pytest e2e/tests/test_scheduler_agreement.py --clusters $(CLUSTERS) --first-seed $(FIRST_SEED) --timeout 0 $(ARGS)

.PHONY: controlplane
controlplane: ## Build the real control plane for tests into a cache outside the repository (needs Go 1.26+).
	@$(PYTHON) e2e/controlplane/build.py

.PHONY: check
check: install ## Lint, format, types and the rules of which layer may import which.
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

.PHONY: format
format: install ## Format and fix what can be fixed.
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

.PHONY: bench
bench: install ## What is promised about speed, memory and packing, as ratios within this run (needs make controlplane).
	@$(BIN)/python bench/run.py $(ARGS)

.PHONY: live
live: install controlplane ## The running controller on a real cluster of 1,523 nodes, in a real control plane (ARGS="steered --minutes 5").
	@$(BIN)/python bench/live.py $(ARGS)

COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--no-emit-find-links --no-header --no-annotate $(patsubst %,--no-emit-package %,tightship node-compactor node-refiner hpa-scaler tightship-simulator tightship-e2e)

.PHONY: lock
lock: install ## Resolve the locked requirements anew.
	@$(COMPILE) --group build --group lint --group test $(PACKAGES:%=%/pyproject.toml) -o requirements/dev.lock
	@$(COMPILE) packages/node-compactor/pyproject.toml -o requirements/node-compactor.lock
	@$(COMPILE) packages/node-refiner/pyproject.toml -o requirements/node-refiner.lock
	@$(COMPILE) packages/hpa-scaler/pyproject.toml -o requirements/hpa-scaler.lock

.PHONY: clean
clean: ## Remove what the targets above made here (not the cache of built binaries).
	@rm -rf $(VENV) demo bench/out .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
