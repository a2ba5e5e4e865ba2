# Needs Python >= 3.10 and make; everything else comes into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Tests side by side: some wait, but many more would starve each other's launches, or whom this machine is shared with.
JOBS ?= $(shell cores=$$(getconf _NPROCESSORS_ONLN); echo $$((cores < 4 ? cores * 2 : 8)))

.DEFAULT_GOAL := help
.PHONY: help venv demo test test-all campaigns quick check lint properties hostile slowpool whypool profilepool faultpool ends calm weeks gpu k8s k8s-down bench bench-quick snapshots screenshots recording docs docs-zh coldstart lines clean

help:  ## print this
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18
	@echo "make test ARGS='-m \"not launch\"'    passes arguments on to pytest"
	@echo "make venv PYTHON=/path/to/python3.11  takes that Python"

venv: $(STAMP)  ## make .venv with cockpit, the examples' torch and deepspeed, and the tools

# An environment keeps its Python unless another one is given: two of them in one would break what it starts.
# torch comes first and at its pinned version, so that no later step can pull another one in.
$(STAMP): pyproject.toml constraints.txt
	@if [ '$(origin PYTHON)' != 'command line' ] && $(BIN)/python -m pip --version >/dev/null 2>&1; then exit; fi; \
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	  echo "make: Python >= 3.10 is needed, and '$(PYTHON)' is not; type: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; exit 2; }; \
	echo '$(PYTHON) -m venv --clear $(VENV)'; $(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt torch
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[demo,dev]'
	@touch $@

demo: $(STAMP)  ## a small cluster on this machine and real training on it, in cockpit
	@$(BIN)/cockpit demo $(ARGS); code=$$?; case $$code in 1|130) ;; *) exit $$code ;; esac

# A third of what the thousands of short Pythons in the tests take is compiling, if nothing compiled is kept.
test test-all campaigns quick properties hostile slowpool whypool profilepool faultpool ends calm weeks gpu k8s: export PYTHONDONTWRITEBYTECODE :=

test: $(STAMP)  ## the tests but for the slow ones, in 8 minutes on two cores; what this machine lacks is skipped, with the reason
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal --no-slow $(ARGS)

test-all: $(STAMP)  ## all tests but campaigns, in 20 minutes on two cores
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal $(ARGS)

campaigns: $(STAMP)  ## more cases of what other tests show, which those leave out; half an hour
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal --campaigns -m campaign $(ARGS)

quick: $(STAMP)  ## the tests of what you changed, in a minute; then the slow ones of its layer
	$(BIN)/python -m tests.quick

check: $(STAMP)  ## lint, format, types, import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

lint: $(STAMP)  ## mend what ruff can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

properties: $(STAMP)  ## what must always hold, tried with inputs that nobody has tried; ten minutes
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal --hypothesis-profile=random -m hypothesis $(ARGS)

hostile: $(STAMP)  ## a hostile node against every verb, for up to an hour; prints what was tried
	$(BIN)/python -m tests.hostile $(ARGS)

slowpool: $(STAMP)  ## real training with a slow rank: who is named? half an hour; prints a table
	$(BIN)/python -m tests.slowpool $(ARGS)

whypool: $(STAMP)  ## real training with a rank slow in one phase: is the reason right? 20 minutes; prints a table
	$(BIN)/python -m tests.whypool $(ARGS)

profilepool: $(STAMP)  ## the same, profiled: does a profile say the same reason? half an hour; prints a table
	$(BIN)/python -m tests.profilepool $(ARGS)

faultpool: $(STAMP)  ## real runs with a fault: is the culprit named, and nobody healthy? an hour at most; prints a table
	$(BIN)/python -m tests.faultpool $(ARGS)

ends: $(STAMP)  ## ends of several ranks in every order, in simulated time: who broke first? a minute; ARGS=--real: real ones too
	$(BIN)/python -m tests.ends $(ARGS)

calm: $(STAMP)  ## healthy runs that pause for a minute: does the watch raise an alarm? half an hour; prints a table
	$(BIN)/python -m tests.calm $(ARGS)

weeks: $(STAMP)  ## a month of 16 nodes in simulated time: is all told, kept, bounded? half an hour
	$(BIN)/python -m tests.weeks $(ARGS)

gpu: $(STAMP)  ## what only a machine with an NVIDIA GPU shows, part by part; five minutes; ARGS='--python PATH': whose torch
	$(BIN)/python -m tests.gpu $(ARGS)

k8s: $(STAMP)  ## pods of a real Kubernetes on this machine, built once (ten minutes), as root; then ten minutes
	@$(BIN)/python -m tests.kube.cluster up
	@trap '$(BIN)/python -m tests.kube.cluster down' EXIT; \
	  $(BIN)/python -m pytest -p no:cacheprovider tests/kube/real $(ARGS)

k8s-down: $(STAMP)  ## take down what an interrupted make k8s may have left
	$(BIN)/python -m tests.kube.cluster down

bench: $(STAMP)  ## measure, and print the ratios that benchmarks/RESULTS.md keeps
	$(BIN)/python -m benchmarks $(ARGS)

bench-quick: $(STAMP)  ## five of them in three minutes, each beside the recorded figure
	$(BIN)/python -m benchmarks --quick

snapshots: $(STAMP)  ## draw the pictures of the app anew for the tests; a page shows old beside new
	COCKPIT_SNAPSHOTS=write $(BIN)/python -m pytest -q tests/tui/test_states.py tests/tui/test_stacks.py tests/tui/test_doctor.py tests/tui/test_profile.py -k looks_as_designed
	$(BIN)/python -m tests.tui.pictures

screenshots: $(STAMP)  ## take the stills of the docs anew, of the demo as it runs; a quarter of an hour
	$(BIN)/python -m tests.tui.stills docs/screenshots
	$(BIN)/python -m tests.tui.screenshots docs/screenshots

recording: $(STAMP)  ## record the demo of 64 ranks anew, as an asciicast and a GIF; two minutes
	$(BIN)/python -m tests.tui.recording docs/screenshots

docs: $(STAMP)  ## draw the tables in the docs anew (keys, events, verbs, troubles), and the manual pages
	$(BIN)/python -m tests.tables

docs-zh: $(STAMP)  ## accept the Chinese pages, revised, as those of the English ones as they are now
	$(BIN)/python -m tests.chinese --accept

coldstart: $(STAMP)  ## print the slowest imports of the command line (microseconds: own, with its own imports)
	@$(BIN)/python -X importtime -c 'import cockpit.cli.main' 2>&1 | sort -t '|' -k 2 -n | tail -n 20

lines: $(STAMP)  ## count the lines of program, without docstrings, comments and blanks
	@$(BIN)/python -m tests.lines

clean:  ## remove .venv and every cache
	rm -rf $(VENV) build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
