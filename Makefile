# Everything a developer does, by name; `make` alone lists it.
#
# The environment is $(VENV). A piece of it is installed when a target first needs it, and again
# when what it is made from has changed: the files in $(MADE) say what stands there.

VENV := .venv
PYTHON := python3# any Python >= 3.10; where it is older, the newest pythonX.Y on the path is taken
INSTALL := editable# how vlaprep gets into $(VENV): `editable` from the sources, or the built `wheel`
PROFILE := release# of the wheel; `dist` for one to hand out
PYTEST := -q
TRAINERS := lerobot opentau# those that `make interop` runs

MADE := $(VENV)/.made
BIN := $(abspath $(VENV))/bin
SOURCES := Cargo.toml Cargo.lock pyproject.toml $(shell find rust -name '*.rs' -o -name Cargo.toml)
WHEEL_INPUT := $(SOURCES) README.md LICENSE $(shell find python -name '*.py*' -not -name '*.pyc')
LOCKED := $(if $(CI),--locked)# in CI, Cargo.lock is what is built
CI_STAGES := env lint-rust test-rust wheel install lint-python docs test-python

MAKEFLAGS += --no-print-directory
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.SECONDARY:

export VIRTUAL_ENV := $(abspath $(VENV))
export PATH := $(BIN):$(PATH):$(HOME)/.cargo/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_QUIET := 1
# Of a robot's workspace or of conda, and none of them belongs into this environment.
unexport PYTHONPATH PYTHONHOME CONDA_PREFIX

##@ The two commands on a bare machine with Rust and Python >= 3.10

.PHONY: help
help: ## list these targets
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {print "\n" substr($$0, 5)} \
	/^[a-z-]+:.*## / {printf "  make %-7s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

.PHONY: demo
demo: install ## build, install, and run both jobs on a small data set made on the spot
	vlaprep demo build/demo

.PHONY: test
test: test-rust test-python ## install and run every test but the slow ones

##@ Work

.PHONY: setup
setup: env install ## make the whole environment in .venv

.PHONY: lint
lint: lint-rust lint-python ## rustfmt, clippy, ruff, mypy, stubtest

.PHONY: docs
docs: install $(MADE)/group-docs ## build the documentation into site/, strictly
	NO_MKDOCS_2_WARNING=1 mkdocs build --quiet --strict

.PHONY: bench
bench: $(MADE)/wheel $(MADE)/group-bench ## time the kernels and both jobs against NumPy (release build)
	cargo bench $(LOCKED) -p vlaprep-benches
	python benches/python/run.py

.PHONY: wheel
wheel: dist/built ## build the manylinux_2_28 wheel into dist/

.PHONY: ci
ci: ## what a change has to pass, with the time of each stage
	@CI=1 tools/stages.sh $(MAKE) INSTALL=wheel -- $(CI_STAGES)

.PHONY: slow
slow: $(MADE)/wheel $(MADE)/group-test ## long searches, other Pythons and transformers (an hour)
	VLAPREP_FUZZ_SECONDS=300 cargo test $(LOCKED) -p vlaprep-core --test fuzz -- --nocapture
	VLAPREP_WHEEL=$$(echo dist/*.whl) pytest $(PYTEST) -m "slow or not slow" \
	    --hypothesis-profile=deep --timeout=3600

.PHONY: interop
interop: $(MADE)/wheel $(MADE)/group-test $(TRAINERS:%=build/interop/%/vlaprep) ## run torchrun, LeRobot and OpenTau on what vlaprep writes (10 GB of packages)
	pytest $(PYTEST) -m interop

.PHONY: clean
clean: ## delete what was built, the environment included
	rm -rf $(VENV) build dist site target python/vlaprep/*.so

# ------------------------------------------------------------------------ the parts of the above

.PHONY: lint-rust lint-python test-rust test-python env install

lint-rust: $(BIN)/python
	cargo fmt --all --check
	cargo clippy --quiet $(LOCKED) --workspace --all-targets -- -D warnings

lint-python: install $(MADE)/group-lint # mypy follows imports into what is installed
	ruff check
	ruff format --check
	mypy
	stubtest --mypy-config-file pyproject.toml vlaprep._native

# The binding has no tests here, it is driven from Python; but beside it the core is compiled as it
# is for the extension, and nothing twice.
test-rust: $(BIN)/python
	if cargo nextest --version >/dev/null 2>&1; \
	then cargo nextest run $(LOCKED) && cargo test $(LOCKED) --doc; \
	else cargo test $(LOCKED); fi

# Given a wheel, the tests are told to insist on it.
test-python: install $(MADE)/group-test
	$(if $(filter wheel,$(INSTALL)),VLAPREP_WHEEL=$$(echo dist/*.whl)) pytest $(PYTEST)

env: $(foreach group,build test lint docs bench,$(MADE)/group-$(group))

install: $(MADE)/$(INSTALL)

$(MADE)/editable: $(SOURCES) $(MADE)/group-build
	maturin develop $(LOCKED)
	rm -f $(MADE)/wheel && touch $@

$(MADE)/wheel: dist/built $(MADE)/pip
	python -m pip uninstall --yes vlaprep
	python -m pip install dist/*.whl
	rm -f $(MADE)/editable && touch $@

# zig links against the old C library of the training images, whatever this machine has.
dist/built: $(WHEEL_INPUT) $(MADE)/group-build
	rm -rf dist
	maturin build $(LOCKED) --profile $(PROFILE) --zig --compatibility manylinux_2_28 --out dist
	touch $@

build/interop/%/vlaprep: build/interop/%/made dist/built
	if [ -x $(@D)/bin/python ]; \
	then $(@D)/bin/python -m pip install --no-deps --force-reinstall dist/*.whl; fi
	touch $@

build/interop/%/made: tools/interop.sh
	tools/interop.sh $* $(@D)
	mkdir -p $(@D) && touch $@

$(MADE)/group-%: pyproject.toml $(MADE)/pip
	python -m pip install --group $*
	touch $@

$(MADE)/pip: | $(BIN)/python
	python -m pip install --upgrade 'pip>=25.1' # the first that knows dependency groups
	mkdir -p $(MADE) && touch $@

$(BIN)/python:
	@cargo --version >/dev/null || { echo 'Rust is missing: install it from https://rustup.rs' >&2; exit 1; }
	@for python in $(PYTHON) python3.{20..10}; do \
	  if "$$python" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; \
	  then echo "$$python -m venv $(VENV)"; exec "$$python" -m venv $(VENV); fi; \
	done; \
	echo 'No Python >= 3.10 with venv on the path: install one, or name it: make PYTHON=...' >&2; exit 1
