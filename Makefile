#: make prove       see PagedAttention at work on a real model, and check the first claims about it
#: make test        lint and every fast test
#: make test-all    lint and every test: the mutants, the report in a Chromium (skipped where there is none),
#:                  and random traffic DEPTH times as long (default 10)
#: make lint        ruff, mypy, import-linter
#: make bench       the benchmarks, some minutes; the last line of each is one JSON object
#: make clean       remove the virtual environment and what the tools left behind
#:
#: Each of them makes the virtual environment it needs (.venv) and uses your own pip settings.
#:
#: PYTHON=python3.12     the interpreter to make it with, 3.11 or newer       (default: python3)
#: ARGS="--json"         passed on to `pellucid prove` or, after their own options, to the tests
#: TORCH_INDEX=address   one more package index, for torch alone. Plain torch for Linux is a CUDA
#:                       build of several GB; without a GPU name PyTorch's CPU index (see README)
#: QUIET=                let pip say all that it does

PYTHON ?= python3
ARGS ?=
DEPTH ?= 10
# Threads that sleep at barriers instead of spinning: a busy machine is no longer five times slower.
export OMP_WAIT_POLICY ?= PASSIVE
TORCH_INDEX ?=
QUIET ?= -qq

# A CUDA build of torch brings the triton that it needs. Beside another build this one runs the kernels' tests.
TRITON := 3.6.0

VENV := .venv
BIN := $(VENV)/bin
ENGINE := $(VENV)/.engine
KERNELS := $(VENV)/.kernels
DEV := $(VENV)/.dev
BROWSER := $(VENV)/.browser
PIP := $(BIN)/python -m pip install $(QUIET) --disable-pip-version-check --constraint constraints.txt
OR_HINT := || { echo 'pellucid: pip failed; is a package index within reach? Repeat with QUIET= to see all that pip says' >&2; exit 1; }
SAY := @printf 'pellucid: %s\n' >&2

# The stamps ENGINE, KERNELS, DEV and BROWSER are set when an installation is complete: an interrupted one starts afresh.
# They are worth nothing once the interpreter is gone or this folder has moved.
IS_WHOLE := import importlib.util as u, os; \
  assert os.path.samefile(u.find_spec("pellucid").origin, "src/pellucid/__init__.py")
IGNORED := $(shell $(BIN)/python -c '$(IS_WHOLE)' 2>/dev/null || rm -f $(ENGINE) $(KERNELS) $(DEV) $(BROWSER))
IS_NEW_ENOUGH := import sys; v = sys.version_info; v >= (3, 11) or sys.exit( \
  "Pellucid needs Python 3.11 or newer, and $(PYTHON) is %d.%d: name a newer one with PYTHON=..." % v[:2])

ifneq ($(TORCH_INDEX),)
  ifneq ($(wildcard $(ENGINE)),)
    $(info pellucid: torch is installed already, so TORCH_INDEX changes nothing; `make clean` first for another build)
  endif
endif

.PHONY: help prove test test-all lint bench clean

help:
	@sed -n 's/^#: \{0,1\}//p' Makefile

prove: $(KERNELS)
	@$(BIN)/pellucid prove $(ARGS)

test: lint
	@$(BIN)/pytest -m 'not slow' $(ARGS)

test-all: lint $(BROWSER)
	@PELLUCID_TEST_DEPTH=$(DEPTH) $(BIN)/pytest $(ARGS)

lint: $(DEV)
	$(SAY) 'ruff, mypy, import-linter'
	@$(BIN)/ruff check --quiet
	@$(BIN)/ruff format --check --quiet
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

bench: $(KERNELS)
	@$(BIN)/python benchmarks/scheduler.py
	@$(BIN)/python benchmarks/host.py
	@$(BIN)/python benchmarks/journal.py
	@$(BIN)/python benchmarks/cpu.py

clean:
	rm -rf $(VENV) build dist kernels/build kernels/*.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests benchmarks kernels -name __pycache__ -o -name '*.egg-info' | xargs rm -rf

$(ENGINE): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { \
	  echo 'Pellucid needs Python 3.11 or newer, and there is no $(PYTHON): name yours with PYTHON=...' >&2; exit 1; }
	@$(PYTHON) -c '$(IS_NEW_ENOUGH)'
	@if test -e $@; then rm -f $@; else \
	  echo 'pellucid: making $(VENV)' >&2; $(PYTHON) -m venv --clear $(VENV) >&2; fi
	$(SAY) 'installing torch, the largest part (for a small build without CUDA see TORCH_INDEX in `make help`)'
	@$(if $(TORCH_INDEX),PIP_EXTRA_INDEX_URL="$$PIP_EXTRA_INDEX_URL $(TORCH_INDEX)") $(PIP) torch $(OR_HINT)
	$(SAY) 'installing the engine'
	@$(PIP) --editable '.[engine]' $(OR_HINT)
	@touch $@

# Compiled kernels are worth having and nothing depends on them: without a compiler the package is empty.
$(KERNELS): $(ENGINE) kernels/setup.py kernels/pyproject.toml $(wildcard kernels/src/*) $(wildcard kernels/pellucid_kernels/*.py)
	$(SAY) 'compiling the kernels for this kind of processor (optional)'
	@rm -rf kernels/build
	@if $(PIP) ./kernels; then touch $@; else \
	  echo 'pellucid: the kernels could not be installed; torch does their work. Repeat with QUIET= to see why' >&2; fi

$(DEV): $(KERNELS)
	$(SAY) 'installing what the tests need'
	@$(BIN)/python -c 'import triton' 2>/dev/null || test "$$(uname)" != Linux || $(PIP) triton==$(TRITON) $(OR_HINT)
	@$(PIP) --editable '.[engine,dev]' $(OR_HINT)
	@touch $@

$(BROWSER): $(DEV)
	$(SAY) 'installing what drives a browser'
	@$(PIP) --editable '.[engine,dev,browser]' $(OR_HINT)
	@touch $@
