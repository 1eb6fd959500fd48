# Two commands for a newcomer: `make demo` and `make test`. Each sets up what it needs.
PYTHON ?= python3
BIN := .venv/bin
PART ?= all
SHELL := /bin/bash

.DEFAULT_GOAL := help
.PHONY: help setup setup-browser screenshots demo run-demo quick packages peers examples test proof bench build clean lock
.PHONY: check check-format check-lint check-types check-words check-imports

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: .venv/.ready ## make .venv from the pinned, hashed requirements (quick when nothing changed)

.venv/.ready: requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "primacy needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Say which one with: make PYTHON=python3.12")'
	@echo "sets up .venv from the pinned requirements: a minute or two, the first time" >&2
	@$(PYTHON) -m venv .venv || { echo "cannot make a virtual environment: on Debian, install python3-venv"; exit 4; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --editable .
	@touch $@

demo: setup ## five real nodes to watch and to break; ARGS="--scenario tour" does it for you
	@$(BIN)/primacy demo $(ARGS)

run-demo: demo ## the same, by its older name

quick: setup check ## under two minutes: checks, rules, transcripts, a few trials
	@$(BIN)/python -m tests.sizes quick

packages: ## what the tests can use of Debian's packages (strace, servers), where this machine lets us install it
	@$(call debian,strace,command -v strace)
	@$(call debian,postgresql,ls /usr/lib/postgresql/*/bin/postgres)
	@$(call debian,mariadb-server,test -x /usr/sbin/mariadbd)
	@$(call debian,etcd-server,command -v etcd)
	@$(call debian,etcd-client,command -v etcdctl)
	@$(call debian,pgbouncer,test -x /usr/sbin/pgbouncer)

# $(call debian,PACKAGE,TEST): installs it unless the test succeeds. No service of it is started.
debian = { $(2); } >/dev/null 2>&1 || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
  { RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $(1) || \
    { apt-get update -qq && RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $(1); }; } >/dev/null 2>&1; } || \
  echo "$(1) is not here and cannot be installed: the tests that need it are skipped, and say so"

setup-browser: ## Chromium of the distribution, for the tests of the dashboard, where this machine lets us install it
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	  { apt-get install -y -qq chromium >/dev/null 2>&1 || { apt-get update -qq && apt-get install -y -qq chromium; } >/dev/null 2>&1; }; } || \
	  echo "Chromium is not here and cannot be installed: the tests that need it are skipped, and say so"

screenshots: setup setup-browser ## a picture of each page, light and dark, wide and narrow, into screenshots/; the README's into docs/pictures/
	@$(BIN)/python -m tests.support.screenshots screenshots

peers: setup ## what the benchmarks compare with: etcd (Debian's packages, unpacked), Redis, memcached, libzmq, and their clients
	@[ -x .venv/peers/usr/bin/etcdctl ] || { command -v etcd && command -v etcdctl; } >/dev/null || { mkdir -p .venv/peers/deb && cd .venv/peers/deb && \
	  { apt-get download -qq etcd-server etcd-client 2>/dev/null || { apt-get update -qq && apt-get download -qq etcd-server etcd-client; } >/dev/null 2>&1; } && \
	  for package in *.deb; do dpkg -x "$$package" ..; done; } || \
	  echo "etcd is not here and cannot be had: what compares with it is skipped, and says so"
	@$(call debian,redis-server,command -v redis-server)
	@$(call debian,memcached,command -v memcached)
	@$(call debian,libzmq3-dev,test -e /usr/include/zmq.h)
	@$(BIN)/python -c 'import pymemcache, pysyncobj, redis' 2>/dev/null || \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-bench.txt || \
	  echo "PySyncObj, redis-py and pymemcache cannot be installed: what compares with them is skipped, and says so"

examples: setup ## the packages that the programs in examples/ are run with
	@$(BIN)/python -c 'import apscheduler, celery, django, fastapi, uvicorn' 2>/dev/null || \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-examples.txt || \
	  echo "they cannot be installed: the examples are not run, and the tests say so"

test: setup check packages peers examples setup-browser ## everything once
	@$(BIN)/python -m tests.sizes test

proof: setup check packages peers examples setup-browser ## the counts and durations that a release must show; PART=core|members|run|dashboard|store|slots|manager|cache
	@$(BIN)/python -m tests.sizes proof $(PART)

# The hooks of .pre-commit-config.yaml call these parts one by one.
check: check-format check-lint check-types check-imports check-words ## format, lint, strict types, import arrows, words

check-format: setup
	@$(BIN)/ruff format --check --quiet src tests bench examples || { echo "run: .venv/bin/ruff format src tests bench examples"; exit 1; }

check-lint: setup
	@$(BIN)/ruff check --quiet src tests bench examples

check-words: setup
	@$(BIN)/python -m tests.support.words

check-types: setup
	@$(BIN)/mypy --no-error-summary

check-imports: setup
	@$(BIN)/lint-imports --no-cache > .venv/lint-imports.log 2>&1 || { cat .venv/lint-imports.log; exit 1; }

build: setup ## the wheel and the source archive, into dist/; needs no network
	@rm -rf dist
	@$(BIN)/python -m hatchling build -d dist

bench: setup peers ## speed, as ratios: the simulator, then failover and idleness beside the peers (docs/speed.md)
	@$(BIN)/python -m bench
	@$(BIN)/python -m bench.failover
	@$(BIN)/python -m bench.lease
	@$(call debian,redis-server,command -v redis-server)
	@$(BIN)/python -m bench.slots
	@$(BIN)/python -m bench.manager
	@$(BIN)/python -m bench.cache

lock: ## renew the requirements from pyproject.toml (needs uv; names no registry)
	@env -u UV_INDEX -u UV_DEFAULT_INDEX -u UV_INDEX_URL uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header --group test --python-version 3.11 pyproject.toml -o requirements.txt
	@env -u UV_INDEX -u UV_DEFAULT_INDEX -u UV_INDEX_URL uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header --group bench --python-version 3.11 -o requirements-bench.txt
	@env -u UV_INDEX -u UV_DEFAULT_INDEX -u UV_INDEX_URL uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header --group examples --constraints requirements.txt --python-version 3.11 -o requirements-examples.txt

clean: ## remove what make made
	rm -rf .venv screenshots .pytest_cache .mypy_cache .ruff_cache .hypothesis dist build .coverage htmlcov .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
