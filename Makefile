# `make demo` and `make test` need python3 (3.11 or newer) and a way to the package index.
# They build environments from lock files whose hashes pip checks; running them again is quick.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
FLOWER := .venv-flower
DOCS := .venv-docs
BROWSER := .venv-browser
PIP := $(BIN)/python -m pip --disable-pip-version-check
JOBS ?= 2
# What mypy does not ask of benchmarks: they are scripts. Those in benchmarks/peers run beside
# other packages.
LOOSE := --allow-untyped-defs --allow-incomplete-defs --allow-untyped-calls --allow-any-generics --no-warn-return-any
PYTEST_ARGS ?=
NETWORK_TESTS := tests/models tests/synthesizers tests/core tests/protocols tests/methods tests/guarantees

# One thread for each test process: two processes with two threads each would fight over two cores.
# Frames of a few rows, as tests have them, gain nothing from threads, which wait for each other.
export OPENBLAS_NUM_THREADS ?= 1
export OMP_NUM_THREADS ?= 1
export POLARS_MAX_THREADS ?= 1

# Compiled modules are kept, also where the caller's environment says not to: tests start hundreds of
# processes, and each would compile the package anew. Python takes an empty value as none.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help demo test lint types unit slow engine browser docs format lock clean

help:
	@echo "make demo    a synthetic table from four parties, and its report"
	@echo "make test    ruff, mypy, the site of the documentation, and pytest"
	@echo "make slow    the tests that take minutes or need the large benchmark tables, and those of"
	@echo "             networks again, compiled as they are for users"
	@echo "make engine  the tests of the network engine, in $(FLOWER) with the flower extra; minutes"
	@echo "make browser the tests of local pages in Chromium without a window, in $(BROWSER)"
	@echo "make docs    the documentation as a site, in build/site, with every link checked"
	@echo "make format  lay the code out as 'make test' wants it"
	@echo "make lock    write the lock files anew (needs uv)"
	@echo "make clean   remove .venv and every cache"

demo: $(VENV)/.demo-ready
	$(BIN)/siloweave demo

# All of them run even if one fails, so that one run shows everything. The first three use one core
# each, so two of them run at a time; the environment that two of them use is built before.
test: $(VENV)/.test-ready
	@failed=; \
	  $(MAKE) --no-print-directory --keep-going --jobs=2 lint types docs || failed=" lint, types or docs"; \
	  $(MAKE) --no-print-directory unit || failed="$$failed unit"; \
	  if [ -n "$$failed" ]; then echo "make test failed in:$$failed"; exit 1; fi

lint: $(VENV)/.test-ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.test-ready
	$(BIN)/mypy --strict src
	$(BIN)/mypy $(LOOSE) --exclude benchmarks/peers benchmarks

unit: $(VENV)/.test-ready
	$(BIN)/pytest -n $(JOBS) --dist worksteal $(PYTEST_ARGS)

# An empty XLA_FLAGS compiles networks as they are for users; tests/conftest.py says more. Golden runs
# are held where they were made: with the flags of the tests.
slow: $(VENV)/.test-ready
	XLA_FLAGS= $(BIN)/pytest -m slow $(PYTEST_ARGS)
	$(BIN)/pytest -n $(JOBS) --dist worksteal -m slow tests/synthesizers/test_golden.py
	XLA_FLAGS= $(BIN)/pytest -n $(JOBS) --dist worksteal $(NETWORK_TESTS)

# The engine holds back packages that the other tests have newer, so it has an environment of its own.
engine: $(FLOWER)/.ready
	$(FLOWER)/bin/python -m pytest -m "engine and not slow" $(PYTEST_ARGS) tests

# Chromium is Playwright's own, which is downloaded once; SILOWEAVE_BROWSER=FILE names another one, and
# nothing is downloaded then. Without either, the tests say so and are skipped.
browser: $(BROWSER)/.ready
	$(BROWSER)/bin/python -m pytest -m browser -rs $(PYTEST_ARGS) tests/browser

# Sources are read and not imported, so the site's environment needs nothing that siloweave needs.
docs: $(DOCS)/.ready build/examples/.ready
	$(DOCS)/bin/python tools/build_site.py

format: $(VENV)/.test-ready
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock:
	scripts/lock

clean:
	rm -rf $(VENV) $(FLOWER) $(DOCS) $(BROWSER) .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist

# The package itself is installed in place, without asking the index for anything.
$(VENV)/.demo-ready: requirements.lock pyproject.toml | $(BIN)/python
	$(PIP) install --quiet --require-hashes -r requirements.lock
	$(PIP) install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.test-ready: requirements-test.lock pyproject.toml | $(BIN)/python
	$(PIP) install --quiet --require-hashes -r requirements-test.lock
	$(PIP) install --quiet --no-deps --no-build-isolation --editable .
	@touch $@ $(VENV)/.demo-ready

$(FLOWER)/.ready: requirements-flower.lock pyproject.toml | $(BIN)/python
	$(BIN)/python -m venv $(FLOWER)
	$(FLOWER)/bin/python -m pip --disable-pip-version-check install --quiet --require-hashes -r requirements-flower.lock
	$(FLOWER)/bin/python -m pip --disable-pip-version-check install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

$(BROWSER)/.ready: requirements-browser.lock pyproject.toml | $(BIN)/python
	$(BIN)/python -m venv $(BROWSER)
	$(BROWSER)/bin/python -m pip --disable-pip-version-check install --quiet --require-hashes -r requirements-browser.lock
	$(BROWSER)/bin/python -m pip --disable-pip-version-check install --quiet --no-deps --no-build-isolation --editable .
	@test -n "$(SILOWEAVE_BROWSER)" || $(BROWSER)/bin/python -m playwright install chromium \
	  || echo "no Chromium could be downloaded: name one that is here, SILOWEAVE_BROWSER=FILE make browser"
	@touch $@

$(DOCS)/.ready: requirements-docs.lock | $(BIN)/python
	$(BIN)/python -m venv $(DOCS)
	$(DOCS)/bin/python -m pip --disable-pip-version-check install --quiet --require-hashes -r requirements-docs.lock
	@touch $@

# The pages of a small run, a minute of one core: made anew if what writes reports has changed.
build/examples/.ready: tools/example_pages.py $(wildcard src/siloweave/report/*) | $(VENV)/.demo-ready
	$(BIN)/python tools/example_pages.py
	@touch $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "siloweave needs Python 3.11 or newer, and $(PYTHON) is %d.%d: name another, as in make demo PYTHON=python3.12" % sys.version_info[:2])'
	$(PYTHON) -m venv $(VENV)
