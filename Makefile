# Everything here needs only make and a Python from 3.11 on; PYTHON=... chooses one.
# With CI set, the environment is exactly the pins of requirements-ci.txt.

MINIMUM := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python; do \
	"$$p" -c '$(MINIMUM)' >/dev/null 2>&1 && { echo "$$p"; break; }; done)

VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check --quiet
PINS := requirements-ci.txt
RUN_ENV := $(VENV)/.ready-$(if $(CI),ci,run)
DEV_ENV := $(VENV)/.ready-$(if $(CI),ci,dev)
DEFAULT := not slow and not nightly
WORKERS ?= auto
PYTEST := $(PY) -m pytest -n $(WORKERS) --maxprocesses 4 --dist loadfile
# Files with tests of a mark: to collect all others takes longer than to run these with bounds checks.
WITH = $(shell grep -rl --include='test_*.py' 'pytest\.mark\.$(1)' tests)

.DEFAULT_GOAL := help
.PHONY: help run test test-jit test-nojit test-boundscheck test-slow test-nightly lint types layers bench docs site lock clean FORCE

help:
	@echo "make run               run dispatch on the emulated pod"
	@echo "make test              all tests: JIT, some with the JIT off, some with bounds checks"
	@echo "make test-slow         the tests that take longer than a few seconds"
	@echo "make test-nightly      the tests that take minutes"
	@echo "make lint types layers ruff, mypy, import-linter"
	@echo "make bench             the benchmarks; SINCE=REVISION says what to compare with, else the last tag"
	@echo "make docs              the pages made by tools, again: json, corpus, caches, orders, synchronizations, protocols, fidelity, benchmarks"
	@echo "make site              the pages as a site, build/site, to be opened as files"
	@echo "make lock              write $(PINS) again"
	@echo "make clean             remove the environment and the caches of the tools"

run: $(RUN_ENV)
	$(PY) -m xccl_emu run dispatch

test: test-jit test-nojit test-boundscheck

test-jit: $(DEV_ENV)
	$(PYTEST)

test-nojit: $(DEV_ENV)
	NUMBA_DISABLE_JIT=1 $(PYTEST) -m "nojit and $(DEFAULT)" $(call WITH,nojit)

test-boundscheck: $(DEV_ENV)
	NUMBA_BOUNDSCHECK=1 $(PYTEST) -m "boundscheck and $(DEFAULT)" $(call WITH,boundscheck)

test-slow: $(DEV_ENV)
	$(PYTEST) -m "slow and not nightly"

test-nightly: test-slow
	HYPOTHESIS_PROFILE=nightly $(PYTEST) -rP -m "nightly"

docs: $(DEV_ENV)
	$(PY) tools/requests_page.py
	$(PY) tools/json_page.py
	$(PY) tools/corpus.py
	$(PY) tools/caches.py
	$(PY) tools/ascendc_cuts.py
	$(PY) tools/orders.py
	$(PY) tools/proofs.py
	$(PY) tools/confirmed.py
	$(PY) tools/synchronizations.py
	$(PY) tools/protocols.py
	$(PY) tools/fidelity.py
	$(PY) tools/benchmarks.py
	$(PY) tools/table7.py
	$(PY) tools/errors.py
	$(PY) tools/curves.py
	$(PY) tools/mixserve.py

# A warning (a link that leads nowhere, a name that is not documented) fails it. Nothing is kept from the run before.
site: $(DEV_ENV)
	$(PY) -m sphinx --quiet --fail-on-warning --fresh-env --conf-dir docs . build/site

lint: $(DEV_ENV)
	$(PY) -m ruff check .

types: $(DEV_ENV)
	$(PY) -m mypy

# import-linter has no __main__; the script beside the interpreter would break when the folder is moved.
layers: $(DEV_ENV)
	$(PY) -c 'from importlinter.cli import lint_imports_command; lint_imports_command()'

bench: $(RUN_ENV)
	@set -e; for file in benchmarks/bench_*.py; do echo "== $$file"; $(PY) "$$file"; done

# A .venv that works is kept, whoever made it; one that does not (half made, its Python gone or too old) is made again.
# .checked holds the path of the checkout: in one that was moved or copied the package is installed again. The check
# runs each time (FORCE), but as long as it leaves the file alone nothing that depends on it is done again.
$(VENV)/.checked: FORCE
	@if ! { $(PY) -c '$(MINIMUM)' && $(PY) -m pip --version; } >/dev/null 2>&1; then \
		if [ -z "$(PYTHON)" ]; then echo "make: found no Python from 3.11 on; set PYTHON=..." >&2; exit 1; fi; \
		"$(PYTHON)" -m venv --clear $(VENV); fi
	@[ "$$(cat $@ 2>/dev/null)" = "$(CURDIR)" ] || echo "$(CURDIR)" > $@

$(VENV)/.ready-run: $(VENV)/.checked pyproject.toml
	$(PIP) install -e .
	@touch $@

$(VENV)/.ready-dev: $(VENV)/.checked pyproject.toml
	$(PIP) install -e '.[dev]'
	@touch $@ $(VENV)/.ready-run

$(VENV)/.ready-ci: $(VENV)/.checked pyproject.toml $(PINS)
	$(PIP) install -r $(PINS)
	$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

# The pins come from an environment of their own, so that nothing installed by hand gets in.
lock:
	@test -n "$(PYTHON)"
	"$(PYTHON)" -m venv --clear build/lock
	build/lock/bin/python -m pip --disable-pip-version-check --quiet install '.[dev]'
	build/lock/bin/python -m pip freeze --all --exclude pip --exclude xccl_emu > $(PINS)

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .coverage
