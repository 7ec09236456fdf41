# Every target makes the virtual environment .venv that it needs, once, and uses it from then on.
# It is made anew when pyproject.toml or constraints.txt changes. Another Python: make test PYTHON=python3.12

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# processes of pytest: one a core, but each holds its own torch
WORKERS ?= auto
# where `make bench` writes its JSON, and the folder of CelebA-HQ that it may prepare
RESULTS ?= runs/benchmarks
DATA ?=

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
.PHONY: help demo test check bench docs wheel wheel-test clean

# pip's lines for what takes long: large downloads, and the installation itself
PIP_SAYS := { grep --line-buffered -oE '(Downloading|Using cached|Processing) .*\([0-9.]+ [MG]B\)|Installing collected packages' || true; }

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s%s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.dev ## the whole method on the embedded task, from nothing to a report
	@$(BIN)/nogs demo

test: check ## all checks, then all tests
	@$(BIN)/pytest -q -n $(WORKERS) --maxprocesses 8

check: $(VENV)/.dev ## ruff, mypy and the order of the packages
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

bench: $(VENV)/.dev ## measure speed, as JSON in RESULTS=runs/benchmarks; DATA=DIR adds preparing CelebA-HQ
	$(BIN)/python benchmarks/cut.py --out $(RESULTS)/cut.json
	$(BIN)/python benchmarks/attention.py --out $(RESULTS)/attention.json
	$(if $(DATA),$(BIN)/python benchmarks/prepare.py --data $(DATA) --out $(RESULTS)/prepare.json)

docs: $(VENV)/.dev ## the manual, as web pages in site/
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open site/index.html"

wheel: $(VENV)/.dev ## the package as a wheel in dist/
	@rm -rf dist
	@$(BIN)/python -m build --wheel --no-isolation --outdir dist

wheel-test: wheel ## install the wheel into an empty environment and run its demo (minutes, 5 GB for a while)
	@.ci/wheel dist/nogs-*.whl

clean: ## remove caches, builds and the manual; .venv and runs stay
	rm -rf build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .benchmarks
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.dev: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo 'nogs needs Python 3.11 or newer as $(PYTHON); name one with PYTHON=python3.12.' >&2; exit 2; }
	@echo "Making $(VENV) with $$($(PYTHON) --version): a few minutes the first time, about 5 GB with torch."
	@$(PYTHON) -m venv $(VENV) || \
	  { echo '$(PYTHON) has no module venv; install it (on Debian: python3-venv) and run make again.' >&2; exit 2; }
	@$(BIN)/python -m pip install --progress-bar off -e '.[dev]' -c constraints.txt | $(PIP_SAYS)
	@touch $@
	@echo "$(VENV) is ready: $$($(BIN)/nogs --version), $(BIN)/nogs --help"
