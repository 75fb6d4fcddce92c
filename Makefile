# The two most useful commands are `make demo` and `make test`. Both install all that they need.
# The first Python that runs and is new enough. A name on the PATH may be a wrapper without an installed Python.
PYTHON ?= $(shell for each in python3.13 python3.12 python3.11 python3; do \
	$$each -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$each; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
BUILD := .venv-build
# Three test processes for each core, because many tests wait. tests/conftest.py makes the groups.
PARALLEL := -n $(shell echo $$((3 * $$(nproc)))) --dist loadscope --no-loadscope-reorder
QUICK := tests/wire tests/controller/core tests/agent/attempts/test_attempt_states.py tests/cli/spec tests/cli/output
# Many containers set this variable. Four test processes would then compile every test at each start.
export PYTHONDONTWRITEBYTECODE =
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: help demo test engines quick check format lint types imports bench pictures faults takeovers binary deb zipapp pins clean

help: ## list these commands
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(VENV)/run: requirements.txt pyproject.toml
	@test -n "$(PYTHON)" || { echo "Corral needs Python 3.11 or newer: install one, or name it: make PYTHON=…"; exit 1; }
	@echo "Setting up $(VENV) (once, under a minute) …"
	@test -x $(BIN)/pip || $(PYTHON) -m venv --clear $(VENV)
	@$(PIP) install --require-hashes -r requirements.txt
	@$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/dev: requirements-dev.txt $(VENV)/run
	@$(PIP) install --require-hashes -r requirements-dev.txt
	@touch $@

demo: $(VENV)/run ## a cluster of four simulated 8-GPU hosts, forty jobs, and the terminal UI on it
	@exec $(BIN)/corral demo

test: $(VENV)/dev ## all tests, on all cores; ARGS="-n 0 -x" runs them in one process
	$(BIN)/python -m pytest $(PARALLEL) $(ARGS)

engines: $(VENV)/dev ## long runs of the execution engines with the real systems that are installed here
	$(BIN)/python -m pytest -m engines $(ARGS)

quick: $(VENV)/dev ## tests that need under a minute: protocol, scheduling engine, attempts, command line
	$(BIN)/python -m pytest $(PARALLEL) $(QUICK) $(ARGS)

check: $(VENV)/dev format-check lint types imports test ## what every commit passes

format: $(VENV)/dev ## format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

format-check: $(VENV)/dev
	$(BIN)/ruff format --check .

lint: $(VENV)/dev
	$(BIN)/ruff check .

types: $(VENV)/dev
	$(BIN)/mypy

imports: $(VENV)/dev
	$(BIN)/lint-imports

bench: $(VENV)/dev ## figures, never asserted
	$(BIN)/python -m benchmarks

pictures: $(VENV)/dev ## the pictures in docs/images, from a demo cluster (needs Chromium: apt install chromium)
	$(BIN)/python -m tests.tui.pictures $(ARGS)

faults: $(VENV)/dev ## kill processes and cut links at random under load, then check the guarantees: SECONDS=60 SEED=7
	$(BIN)/python -m tests.integration.controller.faults --seconds $(or $(SECONDS),60) $(if $(SEED),--seed $(SEED))
	$(BIN)/python -m tests.link_cuts --seconds $(or $(SECONDS),60) $(if $(SEED),--seed $(SEED))

takeovers: $(VENV)/dev ## force take-overs between two controllers on PostgreSQL, then check the guarantees: COUNT=20 SEED=7 ARGS="--pool session"
	$(BIN)/python -m tests.takeovers.driver --count $(or $(COUNT),20) --seed $(or $(SEED),1) $(ARGS)

$(BUILD)/ready: requirements-binary.txt pyproject.toml
	@test -n "$(PYTHON)" || { echo "Corral needs Python 3.11 or newer: install one, or name it: make PYTHON=…"; exit 1; }
	@test -x $(BUILD)/bin/pip || $(PYTHON) -m venv --clear $(BUILD)
	@$(BUILD)/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes -r requirements-binary.txt
	@$(BUILD)/bin/python -m pip --disable-pip-version-check --quiet install --no-deps --no-build-isolation -e .
	@touch $@

binary: $(BUILD)/ready ## dist/corral: one file for Linux hosts without Python (about a minute)
	@$(BUILD)/bin/python deploy/binary/build.py

deb: binary ## dist/corral_*.deb: the Debian package, with a systemd unit
	@$(BUILD)/bin/python -m deploy.debian.build

zipapp: $(BUILD)/ready ## dist/corral.pyz: one smaller file for hosts with Python 3.11 or newer; and the wheel
	@mkdir -p dist
	@rm -rf build/zipapp dist/corral-*.whl
	@$(BUILD)/bin/python -m hatchling build -t wheel -d dist
	@$(BUILD)/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes -r requirements.txt --target build/zipapp
	@$(BUILD)/bin/python -m pip --disable-pip-version-check --quiet install --no-deps --target build/zipapp dist/corral-*.whl
	@$(BUILD)/bin/shiv --compressed --reproducible --site-packages build/zipapp -c corral -p '/usr/bin/env python3' -o dist/corral.pyz
	@du -h dist/corral.pyz

pins: ## resolve the pinned requirements again (needs uv)
	uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url pyproject.toml --group build -o requirements.txt
	uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url pyproject.toml --group dev -o requirements-dev.txt
	uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url pyproject.toml --extra postgres --group binary -c requirements-dev.txt -o requirements-binary.txt

clean: ## remove the environment and all caches
	rm -rf $(VENV) $(BUILD) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
