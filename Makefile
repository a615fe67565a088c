# Everything a newcomer or a CI machine runs. Needs Python 3.11 or newer, make and a package index.

# Any interpreter from 3.11 on; the locks are made for 3.11.
PYTHON ?= $(firstword $(foreach p,python3.11 python3,$(shell $(p) --version >/dev/null 2>&1 && echo $(p))))
# A uv that starts (a version manager's shim may not), or our own from the lock.
UV := $(shell uv --version >/dev/null 2>&1 && echo uv || echo .venv-uv/bin/uv)
BIN := .venv/bin
LOCKS := infra/locks/cpu.txt infra/locks/dev.txt infra/locks/demo.txt
# Where wheels lie that the index lacks: uv does not read this variable itself.
FIND_LINKS := $(foreach place,$(PIP_FIND_LINKS),--find-links $(place))
NEEDS_TORCH = @test -n "$(PIP_FIND_LINKS)" || { echo "Set PIP_FIND_LINKS to a folder with the CPU wheel of torch: \
	$$(grep -m 1 -o '^torch==[^ ]*' $<)" >&2; exit 1; }
INSTALL_SELF := $(UV) pip install --python .venv --no-deps --no-build-isolation --quiet -e .

.DEFAULT_GOAL := help
.PHONY: help quickstart install test test-slow peers lint lock

help:
	@echo "make quickstart  install, then train a real model with pipelines/quickstart.yaml"
	@echo "make test        install, then run the fast tests"
	@echo "make test-slow   install PyTorch, transformers, TRL, vLLM, trackers, Postgres and Redis too, then run the slow tests"
	@echo "make peers       install what benchmarks are measured against"
	@echo "make lint        ruff, pyright and the import contracts"
	@echo "make lock        bring infra/locks up to date; newest versions with UPGRADE=--upgrade"

quickstart: install
	$(BIN)/temper run pipelines/quickstart.yaml

install: .venv/.installed

test: install
	$(BIN)/pytest -n 2 --dist loadfile

test-slow: .venv/.installed-parity .venv/.installed-apt .venv-vllm/.installed .venv-trackers/.installed .venv-trl/.installed
	$(BIN)/pytest -m "slow and not gpu and not tpu"

peers: .venv-tunix/.installed .venv-trl/.installed

lint: install
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright
	$(BIN)/lint-imports --no-logo

.venv-uv/bin/uv: infra/locks/uv.txt
	$(PYTHON) -m venv .venv-uv
	.venv-uv/bin/python -m pip install --quiet --require-hashes -r infra/locks/uv.txt
	touch $@

.venv/bin/python: | $(filter .venv-uv/bin/uv,$(UV))
	@test -n "$(PYTHON)" || { echo "No python3.11 found: install Python 3.11, or name one with PYTHON=..." >&2; exit 1; }
	$(UV) venv --quiet --python $(PYTHON) .venv

# `uv pip sync` removes what its files do not name, so the sets that stand together are synced in one command.
.venv/.installed: $(LOCKS) pyproject.toml | .venv/bin/python
	$(UV) pip sync --compile-bytecode --python .venv $(LOCKS)
	$(INSTALL_SELF)
	touch $@

# Servers that slow tests start for themselves. Debian starts one of each as well, unless told that this is no time to.
.venv/.installed-apt: infra/apt/test-slow.txt | .venv/bin/python
	@set -e; packages="$$(grep -v '^#' $<)"; \
	dpkg-query --show $$packages >/dev/null 2>&1 || { \
		command -v apt-get >/dev/null || { echo "Install what $< lists" >&2; exit 1; }; \
		apt-get update --quiet=2; \
		RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install --quiet=2 --yes --no-install-recommends $$packages; }
	touch $@

.venv/.installed-parity: infra/locks/parity.txt infra/locks/server.txt .venv/.installed
	$(NEEDS_TORCH)
	$(UV) pip sync --compile-bytecode --python .venv $(FIND_LINKS) $(LOCKS) infra/locks/parity.txt infra/locks/server.txt
	$(INSTALL_SELF)
	touch $@

# Environments of their own, for packages that cannot stand beside Temper's.
.venv-vllm/.installed: infra/locks/vllm.txt | .venv/bin/python
	$(NEEDS_TORCH)
	$(UV) venv --quiet --clear --python $(PYTHON) .venv-vllm
	$(UV) pip sync --compile-bytecode --python .venv-vllm $(FIND_LINKS) $<
	touch $@

.venv-trackers/.installed: infra/locks/trackers.txt | .venv/bin/python
	$(UV) venv --quiet --clear --python $(PYTHON) .venv-trackers
	$(UV) pip sync --compile-bytecode --python .venv-trackers $<
	touch $@

.venv-trl/.installed: infra/locks/trl.txt | .venv/bin/python
	$(NEEDS_TORCH)
	$(UV) venv --quiet --clear --python $(PYTHON) .venv-trl
	$(UV) pip sync --compile-bytecode --python .venv-trl $(FIND_LINKS) $<
	touch $@

.venv-tunix/.installed: infra/locks/tunix.txt | .venv/bin/python
	$(UV) venv --quiet --clear --python $(PYTHON) .venv-tunix
	$(UV) pip sync --compile-bytecode --python .venv-tunix $<
	touch $@

COMPILE := $(UV) pip compile --quiet $(UPGRADE) --python-version 3.11 --generate-hashes --no-emit-index-url \
	--no-emit-find-links --custom-compile-command "make lock"

lock: | .venv/bin/python
	$(COMPILE) pyproject.toml --extra cpu --extra gcs --extra data --group build -o infra/locks/cpu.txt
	$(COMPILE) pyproject.toml --extra cuda --extra gcs --extra data --group build -c infra/locks/cpu.txt -o infra/locks/cuda.txt
	$(COMPILE) pyproject.toml --extra tpu --extra gcs --extra data --group build -c infra/locks/cpu.txt -o infra/locks/tpu.txt
	$(COMPILE) infra/locks/server.in -c infra/locks/cpu.txt -o infra/locks/server.txt
	$(COMPILE) --group dev -c infra/locks/cpu.txt -o infra/locks/dev.txt
	$(COMPILE) infra/locks/demo.in --no-deps -o infra/locks/demo.txt
	$(COMPILE) infra/locks/parity.in -c infra/locks/cpu.txt -c infra/locks/dev.txt $(FIND_LINKS) -o infra/locks/parity.txt
	$(COMPILE) infra/locks/vllm.in --override infra/locks/vllm-overrides.in $(FIND_LINKS) -o infra/locks/vllm.txt
	$(COMPILE) infra/locks/trackers.in -c infra/locks/cpu.txt -o infra/locks/trackers.txt
	$(COMPILE) infra/locks/trl.in $(FIND_LINKS) -o infra/locks/trl.txt
	$(COMPILE) infra/locks/tunix.in -o infra/locks/tunix.txt
	$(COMPILE) infra/locks/uv.in -o infra/locks/uv.txt
