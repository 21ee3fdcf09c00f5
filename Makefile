SHELL := /bin/sh
PYTHON ?= $(shell .ci/python)
PORT ?= 8000
BIN := .venv/bin
STAMP := .venv/.made-from-lock
CHARTS := .venv/.chart-script
LOCK := --group dev --group docs --universal --python-version 3.11 --fork-strategy fewest --generate-hashes \
	--no-emit-index-url --no-emit-find-links --no-header --no-annotate

.PHONY: help up test test-all test-servers test-kubernetes kube tools lint lint-fast fmt bench bench-more docs screenshots lock clean

help: ## show this list
	@sed -n "s/^\([a-z-]*\):[^#]*## /\1\t/p" $(MAKEFILE_LIST)

up: $(STAMP) $(CHARTS) ## serve the console at http://127.0.0.1:8000 (another port: make up PORT=8001)
	@exec $(BIN)/python manage.py up --port $(PORT)

# mypy keeps one core busy for a minute after a fresh clone, so it runs beside the tests.
test: lint-fast $(CHARTS) ## the checks before a change is committed: ruff, mypy, import-linter, pytest
	@log=$$(mktemp); trap 'rm -f $$log' EXIT; \
	$(BIN)/mypy --no-error-summary >$$log 2>&1 & types=$$!; \
	.ci/suite; tests=$$?; \
	wait $$types || { echo "mypy:"; cat $$log; tests=1; }; exit $$tests

test-all: test test-servers ## every test: more of the browser, PostgreSQL and Redis, real clusters, tests that compare times
	@.ci/test-on-servers "nightly or not servers"
	@HYPOTHESIS_PROFILE=full .ci/suite -m "(nightly or larger or servers_only or hypothesis) and not kubernetes"
	@.ci/test-on-kubernetes -m kubernetes
	@$(BIN)/python -m pytest -m timing

test-servers: $(STAMP) ## the tests marked `servers` again, on PostgreSQL and Redis
	@.ci/test-on-servers

test-kubernetes: $(STAMP) ## the tests on real Kubernetes clusters
	@.ci/test-on-kubernetes

kube: ## build the Kubernetes servers for these tests, once, into ~/.cache/fleetui/kube (Go 1.25, or Debian bookworm as root; 6 to 15 minutes)
	@KUBE_VERSION=$(KUBE_VERSION) .ci/kube.sh build

tools: ## build Helm and promtool for the tests of deploy/, once, into ~/.cache/fleetui/tools (Go; 5 minutes)
	@.ci/tools.sh build

lint: lint-fast ## the checks that run no code
	@$(BIN)/mypy --no-error-summary

lint-fast: $(STAMP)
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports --no-logo

fmt: $(STAMP) ## format the code and fix what ruff can fix
	@$(BIN)/ruff check --fix --quiet .
	@$(BIN)/ruff format --quiet .

bench: $(STAMP) $(CHARTS) ## measure deciding, the console on its database, pages, memory and rest, polling, with goals (15 minutes)
	@# Each part, also after one that missed a goal.
	@status=0; \
	for part in engine scale console pages polling rest; do \
		$(BIN)/python -m tests.load.bench_$$part || status=1; \
	done; \
	exit $$status

bench-more: $(STAMP) $(CHARTS) ## compare times, and measure exact search, 1,000 clusters, Kubernetes, the mirror of a hub, generated calls (15 minutes)
	@status=0; \
	$(BIN)/python -m pytest -m timing || status=1; \
	for part in foresight members; do \
		$(BIN)/python -m tests.load.bench_$$part || status=1; \
	done; \
	for part in load/bench_kubernetes load/bench_hubs api/bench_sequences; do \
		$(BIN)/python -m pytest -q -s -n 0 tests/$$part.py || status=1; \
	done; \
	exit $$status

docs: $(STAMP) ## build the documentation into var/docs; warnings are errors
	@$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going docs var/docs
	@echo "Open var/docs/index.html"

screenshots: $(STAMP) $(CHARTS) ## take screenshots of the main pages of all demo fleets into var/screenshots (make screenshots FLEETS="4 9")
	@$(BIN)/python -m tests.screenshots $(FLEETS)

# Installs uv where there is none: only this target needs it.
lock: ## write requirements.lock, keeping its pins (newer versions: make lock UPGRADE=--upgrade)
	@uv=$$(command -v uv) || { $(PYTHON) -m venv .venv-lock && .venv-lock/bin/pip install -q uv && uv=.venv-lock/bin/uv; }; \
	$$uv pip compile --quiet $(LOCK) $(UPGRADE) -o requirements.lock pyproject.toml
	@rm -rf .venv-lock

clean: ## remove what the tools created; the data in var/ stays
	@rm -rf .venv .venv-lock .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache var/static
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Created again whenever the lock is newer, so that no package stays installed that it no longer names.
# pip is used where uv is missing or cannot reach the packages; both check every hash.
$(STAMP): requirements.lock
	@$(PYTHON) -c "import sys; sys.version_info >= (3, 11) or sys.exit(\"FleetUI needs Python 3.11 or newer: make PYTHON=python3.11\")"
	@echo "Installing requirements.lock into .venv"
	@$(WITH_UV) || $(WITH_PIP)
	@printf '%s\n' '#!/bin/sh' $(COMMAND) > $(BIN)/fleetui && chmod +x $(BIN)/fleetui
	@touch $@

# Tried once: pages also run with the script of the Python package.
$(CHARTS): .ci/chart-script | $(STAMP)
	@.ci/chart-script
	@touch $@

# Runs this tree from any folder, and needs no build as an editable install does.
COMMAND = "PYTHONPATH='$(CURDIR)' exec '$(CURDIR)/$(BIN)/python' -P -m placements.client.main \"\$$@\""

WITH_UV = { command -v uv && uv venv --quiet --clear --no-python-downloads --python $(PYTHON) .venv \
	&& uv pip install --quiet --require-hashes --python $(BIN)/python -r requirements.lock; } >/dev/null
WITH_PIP = { $(PYTHON) -m venv --clear .venv \
	&& $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock; }
