# The commands of a developer. `make` without a target lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
CONTROLLERS := node-compactor node-refiner hpa-scaler
PACKAGES := packages/common $(CONTROLLERS:%=packages/%) packages/tightship-cli packages/simulator packages/testkit e2e
SEED ?= 7
NODES ?= 40
CLUSTERS ?= 1000
FIRST_SEED ?= 1000
SEEDS ?= 10000
FIRST ?= 0
DOCKER ?= docker
# As many workers as this machine has room for control planes; see packages/testkit/src/tightship_testkit/order.py.
PYTEST := $(BIN)/pytest -n auto
# The tests that need no Go, and less than four seconds of processor time each.
FAST := not controlplane and not slow
REGISTRY ?= ghcr.io/tightship
TAG ?= dev

# If this were set, every worker of a test run and every controller that a test starts would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help
help: ## List the targets.
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(VENV)/.installed: requirements/dev.lock $(PACKAGES:%=%/pyproject.toml)
	@$(PYTHON) -c 'import sys; sys.exit("Tightship needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Set PYTHON=") if sys.version_info < (3, 11) else 0'
	@$(PYTHON) -m venv $(VENV)
	@echo "installing locked requirements into $(VENV)"
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.lock
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation $(PACKAGES:%=-e %)
	@touch $@

.PHONY: install
install: $(VENV)/.installed ## Create .venv from the hashed lock, with all packages editable.

.PHONY: demo
demo: install ## Show one night of all three controllers on an embedded cluster, in this terminal (ARGS="--seconds 180"; ARGS="--fast": in seconds, as lines).
	@$(BIN)/python -m tightship_simulator.demo --seed $(SEED) $(ARGS)

.PHONY: plan-demo
plan-demo: install ## Generate an off-peak cluster and plan on it (SEED=7 NODES=40).
	@mkdir -p demo
	@$(BIN)/python -m tightship_simulator.generate --seed $(SEED) --nodes $(NODES) -o demo/cluster.json
	@echo "made demo/cluster.json: an off-peak cluster of $(NODES) nodes (seed $(SEED)). Planning on it:"
	@echo
	@$(BIN)/tightship plan -f demo/cluster.json -o summary
	@echo
	@echo "Next:  $(BIN)/tightship explain -f demo/cluster.json NODE"
	@echo "       $(BIN)/tightship plan -f demo/cluster.json --strategy fewest-nodes --limit 0.9"
	@echo "       $(BIN)/tightship plan        # your own cluster, read only"

.PHONY: test
test: install ## Build what this machine can build, then run every test. The run names each skipped test's requirement, and how to meet it.
	@if command -v go >/dev/null; then $(MAKE) --no-print-directory controlplane; \
	elif [ "$$CI" = true ]; then echo "Go 1.26 or newer is required under CI=true" >&2; exit 1; \
	else echo "skipped: tests on a real control plane need Go 1.26 or newer; install it and run make controlplane"; fi
	@$(PYTEST) packages charts/tests e2e/tests $(ARGS)

.PHONY: test-fast
test-fast: install ## Run only the tests that need no control plane: about six minutes.
	@$(PYTEST) packages charts/tests e2e/tests -m "$(FAST)" $(ARGS)

.PHONY: test-slow
test-slow: install ## Run what make test-fast leaves out, except the charts' own tests (needs make controlplane).
	@$(PYTEST) packages e2e/tests -m "not ($(FAST))" $(ARGS)

SEEDS ?= 10000
PROCESSES ?= 2

.PHONY: soak
soak: install ## Run ten thousand disasters by seed, on virtual time: hours on two cores (SEEDS=10000 FIRST=0 PROCESSES=2).
	@$(BIN)/python -m tightship_testkit.disasters soak --seeds $(SEEDS) --first $(or $(FIRST),0) --processes $(PROCESSES) $(ARGS)

FOLDER ?= $(addprefix packages/common/src/tightship/,objects cluster scheduler rules planning drain documents) \
	$(addprefix packages/hpa-scaler/src/hpa_scaler/,annotations judge documents)
SAMPLE ?= 200
EDGES ?= 40

.PHONY: mutants
mutants: install ## Put small faults into the pure folders and see which the fast tests find (SAMPLE=200 SEED=7 FOLDER=...; ARGS="--needless": name the tests that find nothing of their own).
	@$(BIN)/python -m tightship_testkit.mutants.code $(FOLDER) --sample $(SAMPLE) --seed $(SEED) $(ARGS)

.PHONY: edge-mutants
edge-mutants: install ## Take one precaution after the other out of the edges, and run disasters until one finds it (EDGES=40 disasters at most).
	@$(BIN)/python -m tightship_testkit.mutants.edges --seeds $(EDGES) $(ARGS)

.PHONY: replay
replay: install ## Repeat one disaster, with the controllers' log, each write, and the broken promises (SEED=7).
	@$(BIN)/python -m tightship_testkit.disasters replay --seed $(SEED) $(ARGS)

.PHONY: agreement
agreement: install controlplane ## Compare more random clusters with the real kube-scheduler (CLUSTERS=1000 FIRST_SEED=1000).
	@$(PYTEST) e2e/tests/test_scheduler_agreement.py --clusters $(CLUSTERS) --first-seed $(FIRST_SEED) $(ARGS)

.PHONY: controlplane
controlplane: ## Build the programs of a real control plane into a cache outside the repository (needs Go 1.26+).
	@$(PYTHON) e2e/controlplane/build.py

OLDER ?= 1.34

.PHONY: skew
skew: install ## Build an older Kubernetes and run the contract suite, the scheduler's agreement, the charts and a day against it (OLDER=1.34; needs Go 1.26+).
	@TIGHTSHIP_KUBERNETES=$(OLDER) $(PYTHON) e2e/controlplane/build.py
	@TIGHTSHIP_KUBERNETES=$(OLDER) $(PYTEST) packages/simulator/tests/contract e2e/tests/test_scheduler_agreement.py e2e/tests/test_release.py e2e/tests/test_day.py $(ARGS)

.PHONY: check
check: install ## Check lint, format, types, which layer imports which, what the charts render, and the site.
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/hadolint images/Dockerfile
	@$(BIN)/zizmor --quiet --offline --persona pedantic .github
	@if command -v go >/dev/null; then $(MAKE) --no-print-directory lint-charts; \
	else echo "skipped: kube-score on the charts needs Go 1.26 or newer; install it and run make lint-charts"; fi
	@$(MAKE) --no-print-directory site

.PHONY: site
site: install ## Build the site from docs/ into build/site. A link that leads nowhere is an error.
	@$(BIN)/zensical build --clean --strict

.PHONY: lint-charts
lint-charts: install ## Check what the charts render with kube-score (needs Go 1.26+).
	@$(PYTHON) e2e/controlplane/build.py helm kube-score
	@$(BIN)/pytest -q -n 0 charts/tests/test_linters.py

.PHONY: lint-workflows
lint-workflows: ## Check the workflows with actionlint (needs Go 1.26+).
	@GOWORK=off GOFLAGS= go -C .github/actionlint tool actionlint $(abspath $(wildcard .github/workflows/*.yml))

.PHONY: format
format: install ## Format the code and apply automatic fixes.
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

.PHONY: charts
charts: install ## Regenerate values, schemas, READMEs, alerts and dashboards of the charts, the reference pages in docs/ and the pictures.
	@PYTHONPATH=charts/tooling $(BIN)/python -m tightship_charts

.PHONY: golden
golden: install ## Write the golden clusters anew, and the outputs and examples that tests compare to the letter; look at the diff.
	@$(BIN)/python packages/node-compactor/tests/golden_cluster.py
	@$(BIN)/python packages/node-refiner/tests/golden_cluster.py
	@TIGHTSHIP_UPDATE_GOLDEN=1 $(BIN)/pytest -q -n 0 packages/*/tests/test_cli_golden.py

.PHONY: charts-test
charts-test: install ## Render the charts with many values and test the manifests (needs Helm: make controlplane).
	@$(PYTEST) charts/tests $(ARGS)

.PHONY: images
images: ## Build the image of each controller for this machine (REGISTRY=ghcr.io/tightship TAG=dev).
	@for controller in $(CONTROLLERS); do \
		$(DOCKER) build --file images/Dockerfile --target $$controller --tag $(REGISTRY)/$$controller:$(TAG) \
			--build-arg SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) --build-arg REVISION=$$(git rev-parse HEAD) . || exit 1; \
	done

.PHONY: wheels
wheels: install ## Build the wheels of the command tightship, and of what it needs of ours, into build/wheels.
	@rm -rf build/wheels
	@for package in common $(CONTROLLERS) tightship-cli; do \
		(cd packages/$$package && $(abspath $(BIN))/hatchling build -t wheel -d $(abspath build/wheels) >/dev/null 2>&1) || exit 1; \
	done

PLUGIN := build/plugin
PLATFORM := $(shell uname -s | tr A-Z a-z)-$(subst aarch64,arm64,$(subst x86_64,amd64,$(shell uname -m)))

.PHONY: plugin
plugin: wheels ## Build kubectl tightship for this machine with a Python of its own, as the archive that krew installs.
	@rm -rf $(PLUGIN)
	@$(PYTHON) -m venv $(PLUGIN)/env
	@$(PLUGIN)/env/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/plugin.lock
	@$(PLUGIN)/env/bin/pip install --quiet --disable-pip-version-check --no-index --no-deps build/wheels/*.whl
	@$(PLUGIN)/env/bin/pyinstaller --log-level WARN --name kubectl-tightship \
		--specpath $(PLUGIN) --workpath $(PLUGIN)/work --distpath $(PLUGIN)/linked \
		$(foreach each,tightship tightship_cli node_compactor node_refiner hpa_scaler,--collect-submodules $(each) --collect-data $(each)) \
		$(PLUGIN)/env/lib/python*/site-packages/tightship_cli/__main__.py
	@: krew unpacks no links.
	@cp -RL $(PLUGIN)/linked/kubectl-tightship LICENSE $(PLUGIN)
	@mv $(PLUGIN)/LICENSE $(PLUGIN)/kubectl-tightship
	@tar -czf $(PLUGIN)/kubectl-tightship-$(PLATFORM).tar.gz -C $(PLUGIN) kubectl-tightship
	@echo $(PLUGIN)/kubectl-tightship-$(PLATFORM).tar.gz

NODE_IMAGE ?=
START ?= fresh

.PHONY: kind-cluster
kind-cluster: install ## Create the kind cluster for the e2e scenarios, with 11 nodes (needs Docker and kind; NODE_IMAGE=kindest/node:...).
	@$(BIN)/python -m tightship_e2e.providers.kind_cluster create --node-image "$(NODE_IMAGE)"

.PHONY: e2e-kind
e2e-kind: install ## Run scenarios of whole releases on the kind cluster, with images of this commit (REGISTRY= TAG=; START=upgrade: from the installed release).
	@$(BIN)/python -m tightship_e2e.providers.kind_cluster load --registry "$(REGISTRY)" --tag "$(TAG)"
	@$(BIN)/pytest --provider kind --registry "$(REGISTRY)" --tag "$(TAG)" --timeout 2400 \
		$(if $(filter upgrade,$(START)),e2e/tests/test_upgrade.py) e2e/tests/test_release.py e2e/tests/test_day.py $(ARGS)

.PHONY: bench
bench: install ## Measure speed, memory and packing, as ratios within this run (needs make controlplane).
	@$(BIN)/python bench/run.py $(ARGS)

.PHONY: live
live: install controlplane ## Run the controller on the data of a real cluster of 1,523 nodes, in a real control plane (ARGS="steered --minutes 5").
	@$(BIN)/python bench/live.py $(ARGS)

# UPGRADE=--upgrade takes newer packages; without it versions stay where they can.
UPGRADE ?=

COMPILE := $(BIN)/uv pip compile --quiet $(UPGRADE) --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--no-emit-find-links --no-header --no-annotate $(patsubst %,--no-emit-package %,tightship node-compactor node-refiner hpa-scaler tightship-cli tightship-simulator tightship-testkit tightship-e2e)

.PHONY: lock
lock: install ## Resolve the locked requirements again.
	@$(COMPILE) --group build --group lint --group site --group test --group bench $(PACKAGES:%=%/pyproject.toml) -o requirements/dev.lock
	@$(COMPILE) --group wheels -o requirements/build.lock
	@$(COMPILE) packages/node-compactor/pyproject.toml -o requirements/node-compactor.lock
	@$(COMPILE) packages/node-refiner/pyproject.toml -o requirements/node-refiner.lock
	@$(COMPILE) packages/hpa-scaler/pyproject.toml -o requirements/hpa-scaler.lock
	@$(COMPILE) packages/tightship-cli/pyproject.toml -o requirements/tightship-cli.lock
	@$(COMPILE) --group plugin packages/tightship-cli/pyproject.toml -o requirements/plugin.lock

.PHONY: clean
clean: ## Remove what these targets created here (not the cache of built binaries).
	@rm -rf $(VENV) demo bench/out build .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
