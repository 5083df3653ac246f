# Every target sets up what it needs by itself. ARGS="..." is passed on to the command behind a target.
.DEFAULT_GOAL := help
.PHONY: help setup test test-all test-long check format demo bench docs lock clean

bin := .venv/bin
# Some machines forbid Python to keep bytecode; then every process of every test compiles everything again.
export PYTHONDONTWRITEBYTECODE :=
ARGS ?=
# More processes than cores: tests wait for servers, leases and brokers.
WORKERS ?= 4
parallel = -n $(WORKERS) --dist loadgroup

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Make .venv from the hashed lock; see to Java and the test brokers
	@scripts/setup

test: setup ## Run the tests (ARGS="-k lease" and the like go to pytest)
	$(bin)/pytest $(parallel) $(ARGS)

test-all: export HYPOTHESIS_PROFILE ?= thorough
test-all: setup ## Run all tests, the long ones too: Spark end to end, crashes on a cluster, a golden day
	$(bin)/pytest $(parallel) -m "long or not long" $(ARGS)

test-long: export HYPOTHESIS_PROFILE ?= search
test-long: setup ## Run the long tests, and search properties further (ARGS="--time-box 1500" starts none after 1500 s)
	$(bin)/pytest -n 2 --dist loadfile -m "long or hypothesis" $(ARGS)

check: setup ## Check format, lint, types, import contracts, dead code and the tree
	$(bin)/ruff format --check .
	$(bin)/ruff check .
	$(bin)/mypy
	$(bin)/lint-imports
	$(bin)/vulture
	scripts/check-tree

format: setup ## Format the code and apply the safe fixes of the linter
	$(bin)/ruff format .
	$(bin)/ruff check --fix .

demo: ## Start everything, publish, deliver, show the result; sets up only what this needs
	@scripts/setup demo
	$(bin)/penstock demo $(ARGS)

bench: setup ## Run a benchmark: make bench ARGS=router
	$(bin)/penstock bench $(ARGS)

docs: setup ## Build the documentation into .cache/site; a broken link fails it
	$(bin)/mkdocs build --quiet

lock: setup ## Write requirements/*.txt from pyproject.toml (ARGS=--upgrade for the newest versions)
	scripts/lock $(ARGS)

clean: ## Remove .venv, caches and builds
	rm -rf .venv .cache .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis dist
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
