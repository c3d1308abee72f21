# Two commands matter: `make demo` and `make test`. Both set up what they need.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
UV := $(shell command -v uv 2>/dev/null)
PYTEST_ARGS ?=
WORKERS ?= 6
ORDERS ?= full
SEEDS ?= 1000
MINUTES ?= 5
PLACES ?= postgres+redis postgres mariadb
ROWS ?= 1000000
KILLS ?= 100
REQUESTS ?= 100000
BULK_PLACES ?= postgres sqlite+postgres postgres+postgres postgres+mariadb mariadb
UPGRADE_PLACES ?= postgres mariadb
INTERLEAVED := tests/fence/test_interleavings.py tests/ledger/test_interleavings.py tests/leases/test_sql_interleavings.py

# Tests start thousands of processes: without bytecode on disk, each would compile all it imports.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup servers demo demo-web stories test interleave simulate chaos chaos-bulk chaos-upgrade chaos-rolling crashpoints audit why mutants fuzz-api screenshots check format bench clean

help:  ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY)  ## make .venv with everything in it

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Fencepost needs Python 3.11 or later; set PYTHON=python3.x")'
ifdef UV
	@test -x $(BIN)/python || uv venv --quiet --python $(PYTHON) $(VENV)
	@uv pip install --quiet --python $(BIN)/python -c constraints.txt -e '.[all,testing]' --group dev
else
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --upgrade -c constraints.txt pip
	@$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[all,testing]' --group dev
endif
	@touch $@

servers: $(READY)  ## fetch or build the real servers that the tests need
	@$(BIN)/python -m testbed.provision

demo: $(READY)  ## three nodes on SQLite, of which the busiest is killed; then everything is counted anew
	@$(BIN)/fencepost demo

demo-web: $(READY)  ## nodes that are killed and started all the time, live in a browser: until Ctrl-C
	@$(BIN)/fencepost demo --web

stories: $(READY)  ## five stories of jobs that go wrong, each without protection and with it, on a private PostgreSQL
	@for story in paused_settlement split_network month_end lost_commit config_sync; do \
	  $(BIN)/python examples/stories/$$story.py --unprotected; test $$? = 3 || exit 1; echo; \
	  $(BIN)/python examples/stories/$$story.py || exit 1; echo; \
	done

test: $(READY)  ## all tests, against real servers
	@$(BIN)/python -m testbed.provision --meanwhile
	@TMPDIR=$$($(BIN)/python -m testbed.scratch) $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --durations 20 $(PYTEST_ARGS)

interleave: $(READY) servers  ## every order of statements of two and three sessions, counted
	@FENCEPOST_INTERLEAVE=$(ORDERS) $(BIN)/python -m pytest -q -n 2 --dist loadscope --timeout 3600 $(INTERLEAVED) $(PYTEST_ARGS)

chaos: $(READY) servers  ## nodes, lock holders, networks and servers are killed, stopped and cut off; then all is checked
	@$(BIN)/python -m tests.chaos.drive $(PLACES) --minutes $(MINUTES) $(CHAOS_ARGS)

chaos-rolling: $(READY) servers  ## the same, with rolling restarts and a deploy in the middle of it
	@$(BIN)/python -m tests.chaos.drive $(PLACES) --minutes $(MINUTES) --rolling $(CHAOS_ARGS)

chaos-bulk: $(READY) servers  ## a bulk job whose workers and supervisors are killed, on one database and on two; then recounted
	@$(BIN)/python -m tests.bulk_chaos $(BULK_PLACES) --rows $(ROWS) --kills $(KILLS) $(CHAOS_ARGS)

chaos-upgrade: $(READY) servers  ## nodes of an older version and of today on one ledger, killed and restarted while it is migrated
	@$(BIN)/python -m tests.chaos_upgrade $(UPGRADE_PLACES) --minutes $(MINUTES) $(CHAOS_ARGS)

simulate: $(READY)  ## whole clusters on virtual time, one per seed: make simulate SEEDS=10000
	@$(BIN)/python -m fencepost.testing.simulation --seeds 0:$(SEEDS) --keep tests/simulation/kept.jsonl

crashpoints: $(READY) servers  ## cut a node before and after every statement and message, on each database
	@$(BIN)/python -m tests.crashpoints

audit: $(READY) servers  ## the audit: writers at once, random changes, and every act cut at every statement
	@$(BIN)/python -m tests.audit

why: $(READY) servers  ## what became of each past due time, against an oracle, on each database
	@$(BIN)/python -m tests.why

mutants: $(READY) servers  ## plant bugs, one at a time: each must be caught, by the simulator or by a named test
	@$(BIN)/python -m tests.mutants

fuzz-api: $(READY)  ## requests made from the description of REST: none fails, all answers are as described
	@$(BIN)/python -m tests.api.fuzzing --requests $(REQUESTS)

screenshots: $(READY)  ## the pictures of the docs, in Debian's Chromium
	@$(BIN)/python -m testbed.provision --only chromium
	@$(BIN)/python -m tests.web.screenshots

check: $(READY)  ## format, lint, types, direction of imports
	@$(BIN)/ruff format --check --quiet . && $(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: $(READY)  ## put the code into shape
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix .

bench: $(READY) servers  ## locks and runs, measured side by side with the barest equivalent
	@for program in leases takeover throughput ticks scale fence bulk logs migrate web; do \
	  echo "== bench/$$program.py"; $(BIN)/python bench/$$program.py || failed="$$failed $$program"; \
	done; test -z "$$failed" || { echo "short of their targets:$$failed"; exit 1; }

clean:  ## remove .venv and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
