# Everything a newcomer types. `make help` lists it. Each recipe is one command that also works without make.
.DEFAULT_GOAL := help
SHELL := bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# Wheels stay in the cache outside the clone, so that the next clone asks no index: its pages have thousands of links for
# each package. Hashes are checked either way. What is a wheel on no index is built by the last command.
WHEELS := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/pointsman/wheels
INSTALL = from() { $(PIP) install --require-hashes --find-links $(WHEELS) $$files "$$@"; }; mkdir -p $(WHEELS); \
	{ from --no-index || { $(PIP) download --require-hashes --dest $(WHEELS) $$files && from --no-index; }; } 2>/dev/null || from
EDITABLE := $(PIP) install --no-deps --no-build-isolation --editable .
# On two cores: tests with a control plane or a node wait for a third of their time, and two more workers use it.
WORKERS ?= 4

.PHONY: help up demo check test e2e lint compiled bench fuzz docs install format lock manifests clean cluster-up cluster-image cluster-shell cluster-down \
	charts deploy deploy-all deploy-kserve status undeploy

help:  ## list the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

up: $(VENV)/.runtime  ## run the stack on this machine (Ctrl-C stops it); ARGS="--replicas 5"
	@$(BIN)/pointsman up $(ARGS)

demo: $(VENV)/.runtime  ## start a stack, send requests, show pick and answer, stop; exit 0 only if they agree
	@$(BIN)/pointsman demo $(ARGS)

check: $(VENV)/.dev  ## lint and the pure unit tests: about a minute
	@BIN=$(BIN) tools/check quick

test: $(VENV)/.dev  ## all checks and all tests
	@BIN=$(BIN) WORKERS=$(WORKERS) tools/check all

e2e: $(VENV)/.dev  ## tests on a real node: one on this machine (root on Linux), or E2E_KUBECONFIG=… E2E_IMAGE=…
	@# In order: they tell one story, from the install to the uninstall; a node for each would take an hour.
	@POINTSMAN_E2E=1 $(BIN)/python -m pytest -q -p no:randomly -o cache_dir=.pytest_cache/e2e tests/e2e $(ARGS)

cluster-up: $(VENV)/.dev  ## a Kubernetes with a real node on this machine, in namespaces of its own (root)
	@$(BIN)/python -m tools.node.cluster up

cluster-image: $(VENV)/.dev  ## build our image and bring it on that node, under every name that samples use for it
	@$(BIN)/python -m tools.node.cluster ours

cluster-shell: $(VENV)/.dev  ## a shell inside that node, where kubectl, Pod and Service addresses work; ARGS="kubectl get pods -A"
	@$(BIN)/python -m tools.node.cluster shell $(ARGS)

cluster-down: $(VENV)/.dev  ## end that node; nothing of it stays
	@$(BIN)/python -m tools.node.cluster down

PLATFORM ?= platform/platform.yaml
CHARTS ?= build/charts
charts: $(VENV)/.runtime  ## Helm charts of the platform's operators, from their bundles, in build/charts
	@$(BIN)/pointsman platform render --file $(PLATFORM) --out $(CHARTS) $(ARGS)

deploy: $(VENV)/.runtime  ## install the operators that LLMInferenceService needs on the cluster of KUBECONFIG
	@$(BIN)/pointsman platform deploy --file $(PLATFORM) $(ARGS)

deploy-all: $(VENV)/.runtime  ## the operators, the inference definitions and a gateway
	@$(BIN)/pointsman platform deploy --file $(PLATFORM) --all $(ARGS)

deploy-kserve: $(VENV)/.runtime  ## KServe's controller, after deploy-all
	@$(BIN)/pointsman platform deploy kserve --file $(PLATFORM) $(ARGS)

status: $(VENV)/.runtime  ## what of the platform is installed, by whom, and how it is
	@$(BIN)/pointsman platform status --file $(PLATFORM) $(ARGS)

undeploy: $(VENV)/.runtime  ## remove what deploy installed, and nothing else
	@$(BIN)/pointsman platform undeploy --file $(PLATFORM) $(ARGS)

lint: $(VENV)/.dev  ## ruff, mypy, import-linter
	@BIN=$(BIN) tools/check lint

compiled: $(VENV)/.dev  ## the tests of picker and wire once more, with the picker's hot path compiled (needs a C compiler)
	@folder=$$($(BIN)/python -m tools.compiled) && PYTHONPATH=$$folder GRPC_ENABLE_FORK_SUPPORT=false \
		$(BIN)/python -m pytest -q -n $(WORKERS) tests/unit/epp tests/unit/wire tests/unit/core/http tests/wire \
		tests/fuzz/epp/sources tests/parts/epp/sources $(ARGS)

bench: $(VENV)/.dev  ## the figures of docs/performance.md
	@$(BIN)/python -m bench $(ARGS)

fuzz: $(VENV)/.dev  ## the fuzz tests of `make test`, for longer; EXAMPLES=100000
	@POINTSMAN_FUZZ_EXAMPLES=$(or $(EXAMPLES),100000) $(BIN)/python -m pytest -q -k fuzz --timeout 0 tests $(ARGS)

docs: $(VENV)/.dev  ## the documentation as a site, in build/site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict && echo "build/site/index.html"

install: $(VENV)/.runtime  ## the environment in .venv, with .venv/bin/pointsman

format: $(VENV)/.dev  ## rewrite the code as ruff wants it
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix --quiet .

lock:  ## write requirements/*.txt anew from pyproject.toml (needs uv)
	@tools/lock

manifests: $(VENV)/.dev  ## write what is generated: config/crd, docs/reference, and the copies in the chart
	@$(BIN)/python tools/manifests

clean:  ## remove the environment and what tools left (the cache outside the clone stays)
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(f"pointsman needs Python 3.11 or newer, $(PYTHON) is {sys.version.split()[0]}: set PYTHON=…") if sys.version_info < (3, 11) else None'
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime: requirements/runtime.txt requirements/build.txt pyproject.toml | $(BIN)/python
	@echo "installing the environment in $(VENV)"
	@files="-r requirements/build.txt -r requirements/runtime.txt"; $(INSTALL)
	@$(EDITABLE)
	@touch $@

$(VENV)/.dev: requirements/dev.txt $(VENV)/.runtime
	@echo "installing the tools of make test in $(VENV)"
	@files="-r requirements/dev.txt"; $(INSTALL)
	@touch $@
