# Every target does its own set-up: `make serve` works on a fresh machine.
.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := .venv/bin
HOST ?= 127.0.0.1
PORT ?= 8000
# Two per core, because most tests wait for a server; those of test-fast do not.
WORKERS ?= $(shell expr $$(nproc) \* 2)
PYTEST = $(BIN)/pytest -n $(WORKERS) --dist loadscope --no-loadscope-reorder
test-fast: WORKERS := $(shell nproc)

help: ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 20

# Serving needs the runtime dependencies only; the development tools are several hundred MB more.
.venv/.runtime: pyproject.toml constraints.txt scripts/setup
	@PYTHON="$(PYTHON)" scripts/setup runtime

.venv/.ready: pyproject.toml constraints.txt scripts/setup
	@PYTHON="$(PYTHON)" scripts/setup dev

serve: .venv/.runtime ## serve Open Responses on http://127.0.0.1:8000 (HOST=, PORT=)
	@$(BIN)/antiphon serve --host $(HOST) --port $(PORT)

JS_FILES = $(shell find js tests/node examples/hashbrown-react -type f -not -path '*/node_modules/*' -not -path '*/dist/*')
.venv/js/.example: .venv/.ready scripts/setup-js $(JS_FILES)
	@scripts/setup-js example

example: .venv/js/.example ## build and serve an example app; WHAT=hashbrown (HOST=, PORT=)
	@[ "$(WHAT)" = hashbrown ] || { echo "make example: WHAT=hashbrown is the only one" >&2; exit 1; }
	@cd .venv/js/examples/hashbrown-react && $(CURDIR)/$(BIN)/antiphon serve --app server:app --host $(HOST) --port $(PORT)

.venv/node/.ready: .venv/.ready tests/node/package-lock.json scripts/setup-node
	@scripts/setup-node

.venv/js/.tests: .venv/.ready scripts/setup-js scripts/setup-chromium $(JS_FILES)
	@scripts/setup-chromium
	@scripts/setup-js tests

.venv/.nginx: .venv/.ready scripts/setup-nginx
	@scripts/setup-nginx && touch $@

.venv/xaibo/.ready: .venv/.ready tests/bridges/xaibo/constraints.txt scripts/setup-xaibo
	@scripts/setup-xaibo

test: .venv/.ready .venv/.nginx .venv/node/.ready .venv/js/.tests .venv/xaibo/.ready ## run every test, in parallel (ARGS= goes to pytest)
	$(PYTEST) $(ARGS)

test-fast: .venv/.ready ## run the tests that start no server and no process
	$(PYTEST) -m "not server" $(ARGS)

test-busy: .venv/.ready .venv/.nginx .venv/node/.ready .venv/js/.tests .venv/xaibo/.ready ## test-fast ten times and test twice, while every core is busy
	@scripts/test-busy

test-long: .venv/.ready ## the fault test of several servers, in full: 5000 background responses, 1000 readers, 5000 turns
	ANTIPHON_FAULT_RESPONSES=5000 ANTIPHON_FAULT_READERS=1000 ANTIPHON_FAULT_TURNS=5000 \
		$(BIN)/pytest -q -s tests/faults/test_replicas.py

soak: .venv/.ready ## an hour of mixed load and faults (SECONDS=3600); prints memory, files, tasks and loop lag
	ANTIPHON_SOAK_SECONDS=$(or $(SECONDS),3600) $(BIN)/pytest -q -s tests/faults/test_soak.py

check: .venv/.ready ## format, lint, types, layers, file sizes, spelling
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/lint-imports
	$(BIN)/python scripts/sizes.py
	$(BIN)/codespell

format: .venv/.ready ## rewrite the code the way `make check` wants it
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: .venv/.ready ## measure; WHAT=micro|imports|serve|store|state|gateway|client|loop|agents|scale for one; OLD=commit compares
	@$(BIN)/python -m bench $(WHAT) $(if $(OLD),--old $(OLD))

constraints: ## take the newest versions of everything, and pin them
	rm -rf .venv && touch constraints.txt && UNPINNED=1 PYTHON="$(PYTHON)" scripts/setup dev
	{ echo "# Exact versions of everything this project installs. Regenerate with: make constraints"; \
	  $(BIN)/uv pip freeze --exclude-editable | grep -vE '^(pip|setuptools)=='; } > constraints.txt

clean: ## remove what the other targets made
	rm -rf .venv .pytest_cache .hypothesis .ruff_cache .import_linter_cache

.PHONY: help serve example test test-fast test-busy test-long soak check format bench constraints clean
