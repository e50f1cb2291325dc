# The commands for developers and a local installation. Needs git and Python 3.11 or newer with venv.

PYTHON ?= python3
FAULTS_LONG ?= 1
VENV := .venv
RUN := $(VENV)/bin/python

.DEFAULT_GOAL := help
.PHONY: help up agents new-agent manage test test-quick interop faults mutants bench screenshots reference figures check check-quick format lock clean

help: ## list the commands
	@sed -n 's/^\([a-z-]*\):.*## /make \1\t/p' Makefile

up: environment ## run everything on this machine (PORT=8000 HOME_DIR=~/.local/share/signoff DEMO=0: no people yet, RELOAD=1: new workers when a file of AGENTS_DIR changes, AGENTS_REQUIREMENTS=requirements.txt: packages of your agents)
	@exec $(RUN) -m config.local up --port "$(PORT)" --home "$(HOME_DIR)" --demo "$(DEMO)" --reload "$(RELOAD)"

agents: environment ## list the agents of SIGNOFF_AGENTS with all mistakes in them (AGENTS_DIR=~/my-agents SIGNOFF_AGENTS=shop)
	@exec $(RUN) manage.py agents check

new-agent: environment ## write a working agent with a gate, and its test (NAME=refunds AGENTS_DIR=~/my-agents)
	@AGENTS_DIR= exec $(RUN) manage.py agents new $(if $(NAME),"$(NAME)",--help) $(if $(AGENTS_DIR),--folder "$(AGENTS_DIR)")

manage: environment ## run a command on the data of make up (CMD="people list" HOME_DIR=...)
	@exec $(RUN) -m config.local manage --home "$(HOME_DIR)" -- $(CMD)

test: developer-environment ## run the tests (TESTS=tests/core to run some)
	@exec $(RUN) -m $(if $(TESTS),pytest $(TESTS),tests.run)

test-quick: developer-environment ## run the pure and the Postgres tier, without slow tests, in 90 seconds
	@exec $(RUN) -m tests.run --quick

interop: developer-environment ## run agents of six other frameworks against the application; print what became of each case
	@INTEROP=1 exec $(RUN) -m pytest tests/interop -q

faults: developer-environment ## kill processes at every point and at random, hours of it; print the figures (FAULTS_LONG= for minutes, FAULTS_SEED=1)
	@FAULTS_LONG="$(FAULTS_LONG)" FAULTS_EVERY_SCORE=1 exec $(RUN) -m pytest tests/system/fault_injection tests/approvals/decisions/test_pairs.py tests/approvals/test_version_changes.py tests/approvals/decisions/test_mutations.py tests/browser/test_hostile_text.py tests/provider/test_storm_runs.py -s -q

mutants: developer-environment ## break the code on purpose and see whether a test notices (MUTANTS=400 MUTANTS_SEED=1)
	@exec $(RUN) -m tests.mutants

bench: developer-environment ## measure against bare references, write docs/explanation/performance.md (BENCH="--only engine --quick")
	@exec $(RUN) -m tests.bench $(if $(BENCH),$(BENCH),--write)

screenshots: developer-environment ## start the application for the purpose and take the pictures of the docs
	@exec $(RUN) -m tests.docs.screenshots

reference: developer-environment ## write the lists of docs/reference from the code
	@exec $(RUN) -m tests.docs.reference

figures: developer-environment ## print how large and how tangled the code is, with bounds and goals (FIGURES="--names approvals/web", FIGURES=--help)
	@exec $(RUN) -m tests.code_figures $(FIGURES)

check: check-quick ## format, lint, types, imports, words, date of figures, bounds of the code, lock is current
	@sh requirements/lock.sh check "$(RUN)"

check-quick: developer-environment ## the same without the lock, as .pre-commit-config.yaml asks before each commit
	$(RUN) -m ruff format --check .
	$(RUN) -m ruff check .
	$(RUN) -m mypy
	$(VENV)/bin/lint-imports --no-logo
	$(RUN) -m tests.docs.words
	$(RUN) -m tests.docs.figures
	$(RUN) -m tests.code_figures --check

format: developer-environment ## format the code and put its imports in order
	$(RUN) -m ruff format .
	$(RUN) -m ruff check --fix .

lock: ## resolve requirements/*.in again, keeping the versions that still fit
	@$(ENVIRONMENT) runtime embedded dev || test -x $(VENV)/bin/uv
	@sh requirements/lock.sh write "$(RUN)"

clean: ## remove the environment and everything that can be made again
	rm -rf $(VENV) .interop .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache staticfiles
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Creates or updates the environment, with the interpreter of PYTHON= and the packages of AGENTS_REQUIREMENTS= if set.
ENVIRONMENT = $(PYTHON) requirements/environment.py $(if $(filter file default undefined,$(origin PYTHON)),,--this-python) $(if $(AGENTS_REQUIREMENTS),--also "$(AGENTS_REQUIREMENTS)") $(VENV)

.PHONY: environment developer-environment
environment:
	@$(ENVIRONMENT) runtime embedded

developer-environment:
	@$(ENVIRONMENT) runtime embedded dev
