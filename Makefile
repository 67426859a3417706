# Everything runs from .venv, which the first call sets up; later calls find the stamps there and start at once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt

# Tests and experiments find third-party data through BOUGH_DATA; a folder `shared` beside the checkout serves unasked.
ifndef BOUGH_DATA
ifneq ($(wildcard ../shared/.),)
export BOUGH_DATA := $(abspath ../shared)
endif
endif

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test test-slow kill-test fuzz soundness mutants check bench docs pictures results experiments gpu pins corruptions verdicts verdicts-all

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

demo: $(VENV)/.installed ## answer a few small questions from start to end
	$(BIN)/bough demo

test: $(VENV)/.dev ## run the tests, without the slow ones and those that need a GPU
	$(BIN)/python -m pytest -n auto -m "not slow and not gpu"

test-slow: $(VENV)/.dev ## run the slow tests
	$(BIN)/python -m pytest -m "slow and not gpu"

kill-test: $(VENV)/.dev ## kill benches at hundreds of random moments, and see that nothing is lost
	BOUGH_KILLS=400 $(BIN)/python -m pytest tests/bench/test_kill.py

FUZZ_SECONDS ?= 600
fuzz: $(VENV)/.dev ## damage files at random, and see that every reader stands it
	$(BIN)/python -m tests.security.fuzz --seconds $(FUZZ_SECONDS) --seed $$(date +%j) --out fuzz-findings

soundness: $(VENV)/.dev ## two minutes of random problems with known answers, by every kind of bounds
	$(BIN)/python soundness/campaign.py --seconds 120 --seed 0

corruptions: $(VENV)/.dev ## spoil real certificates a thousand times, and see that `bough check` rejects each
	$(BIN)/python soundness/corrupt.py --certificates corruptions-out --out corruptions-out/tried.jsonl --count 1200

VERDICTS := $(BIN)/python soundness/table.py --timeout 5 --jobs 1
verdicts: $(VENV)/.dev ## 120 competition instances by two bounders and three rules, against the verdicts on record: an hour
	$(VERDICTS) --count 120 --out verdicts.jsonl $(if $(wildcard verdicts.jsonl),--resume)

verdicts-all: $(VENV)/.dev ## the same for all 555 instances: up to five hours
	$(VERDICTS) --count 0 --out verdicts-all.jsonl $(if $(wildcard verdicts-all.jsonl),--resume)

mutants: $(VENV)/.dev ## break the code on purpose in places that matter, and see which test notices
	$(BIN)/python soundness/mutants.py

check: $(VENV)/.dev ## lint, formatting, types, import layers, spelling
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell

bench: $(VENV)/.installed ## measure the speed of the hot paths
	@set -e; for script in $(wildcard benchmarks/*.py); do echo "$$script"; $(BIN)/python "$$script"; done

docs: $(VENV)/.docs ## build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

pictures: $(VENV)/.installed ## draw the documentation's pictures anew
	$(BIN)/python tools/draw_explanation.py

results: $(VENV)/.installed ## repeat the published figures
	$(BIN)/python experiments/00_known_verdicts.py

experiments: $(VENV)/.installed ## every table and figure of the paper on stand-ins for its data, in minutes
	$(BIN)/python experiments/all.py --scale smoke --out experiments-out

GPU_OUT ?= gpu-out
gpu: $(VENV)/.dev ## tests and figures that need a GPU, into gpu-out: half an hour of an H200
	PYTHON=$(abspath $(BIN))/python experiments/gpu.sh $(GPU_OUT)

pins: $(VENV)/.installed ## write requirements-release.txt: every dependency of a release, with its hashes
	$(BIN)/python tools/pins.py

# The stamps: one per set of packages, older than what they were installed from means out of date.
$(BIN)/pip:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/pip
	@echo "installing bough into $(VENV)"
	@$(INSTALL) -e .
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/pip
	@echo "installing bough and the development tools into $(VENV)"
	@$(INSTALL) -e '.[dev,vnnlib2,ray]'
	@touch $(VENV)/.installed $@

$(VENV)/.docs: pyproject.toml constraints.txt | $(BIN)/pip
	@echo "installing bough and the documentation tools into $(VENV)"
	@$(INSTALL) -e '.[docs]'
	@touch $(VENV)/.installed $@
