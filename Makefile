# Two commands for a newcomer: `make demo` and `make test`. Each sets up what it needs.
PYTHON ?= python3
BIN := .venv/bin
PART ?= all
SHELL := /bin/bash
NEEDS_PYTHON := import sys; sys.exit(0 if sys.version_info >= (3, 11) else "primacy needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Say which one with: make PYTHON=python3.12")

.DEFAULT_GOAL := help
.PHONY: help kube-apiserver setup setup-browser screenshots demo run-demo quick packages image-wheels peers examples site-tools page-tools site test proof bench wheel build release-tools release clean lock
.PHONY: check check-format check-lint check-types check-words check-imports check-pages

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: .venv/.ready ## make .venv from the pinned, hashed requirements (quick when nothing changed)

.venv/.ready: requirements.txt pyproject.toml
	@$(PYTHON) -c '$(NEEDS_PYTHON)'
	@echo "sets up .venv from the pinned requirements: a minute or two, the first time" >&2
	@$(PYTHON) -m venv .venv || { echo "cannot make a virtual environment: on Debian, install python3-venv"; exit 4; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --editable .
	@touch $@

# The demo needs the product only (60 MB, half a minute); where the environment of the tests is there, it takes that one.
IS_SET_UP := $(wildcard .venv/.ready)

demo: $(if $(IS_SET_UP),setup,.venv-product/.ready) ## five real nodes to watch and to break; ARGS="--scenario tour" does it for you
	@$(if $(IS_SET_UP),.venv,.venv-product)/bin/python -m primacy demo $(ARGS)

.venv-product/.ready: requirements-product.txt
	@$(PYTHON) -c '$(NEEDS_PYTHON)'
	@echo "sets up .venv-product with what primacy needs: half a minute, the first time" >&2
	@$(PYTHON) -m venv .venv-product || { echo "cannot make a virtual environment: on Debian, install python3-venv"; exit 4; }
	@.venv-product/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements-product.txt
	@echo "$(CURDIR)/src" > "$$(.venv-product/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/primacy.pth"
	@touch $@

run-demo: demo ## the same, by its older name

quick: setup check ## under two minutes: checks, rules, transcripts, a few trials
	@$(BIN)/python -m tests.sizes quick

packages: ## what the tests can use of Debian's packages (strace, servers), where this machine lets us install it
	@$(call debian,strace,command -v strace)
	@$(call debian,postgresql,ls /usr/lib/postgresql/*/bin/postgres)
	@$(call debian,mariadb-server,test -x /usr/sbin/mariadbd)
	@$(call debian,etcd-server,command -v etcd)
	@$(call debian,etcd-client,command -v etcdctl)
	@$(call debian,redis-server,command -v redis-server || command -v valkey-server)
	@$(call debian,pgbouncer,test -x /usr/sbin/pgbouncer)
	@$(call debian,haproxy,test -x /usr/sbin/haproxy)
	@$(call debian,logrotate,test -x /usr/sbin/logrotate)
	@$(call debian,prometheus,command -v promtool)
	@$(call debian,docker.io,test -x /usr/sbin/dockerd,--no-install-recommends)
	@$(call debian,docker-cli,command -v docker,--no-install-recommends)
	@$(call debian,python3-venv,/usr/bin/python3 -c 'import ensurepip')

# $(call debian,PACKAGE,TEST,OPTIONS): installs it unless the test succeeds. No service of it is started.
debian = { $(2); } >/dev/null 2>&1 || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
  { RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $(3) $(1) || \
    { apt-get update -qq && RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $(3) $(1); }; } >/dev/null 2>&1; } || \
  echo "$(1) is not here and cannot be installed: the tests that need it are skipped, and say so"

image-wheels: setup build/wheels/.ready ## what the tests build the image from: the locked wheels, for Debian's own Python

build/wheels/.ready: requirements-product.txt | .venv/.ready
	@mkdir -p build/wheels && { version=$$(/usr/bin/python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])') && \
	  $(BIN)/python -m pip download --quiet --disable-pip-version-check --require-hashes --no-deps --only-binary :all: \
	    --python-version "$$version" -d build/wheels -r requirements-product.txt && touch $@; } || \
	  echo "the wheels for an image cannot be had: the tests that build one are skipped, and say so"

setup-browser: ## Chromium of the distribution, for the tests of the dashboard, where this machine lets us install it
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	  { apt-get install -y -qq chromium >/dev/null 2>&1 || { apt-get update -qq && apt-get install -y -qq chromium; } >/dev/null 2>&1; }; } || \
	  echo "Chromium is not here and cannot be installed: the tests that need it are skipped, and say so"

screenshots: setup setup-browser ## a picture of each page and fault, light and dark, wide and narrow, into screenshots/; the README's into docs/pictures/
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
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements-bench.txt || \
	  echo "PySyncObj, redis-py and pymemcache cannot be installed: what compares with them is skipped, and says so"

kube-apiserver: ## the API server of Kubernetes, for the tests of its store: built once from Go's modules, 5 to 8 minutes, kept in ~/.cache/primacy
	@tests/support/kube_apiserver/build

examples: setup ## the packages that the programs in examples/ are run with
	@$(BIN)/python -c 'import apscheduler, celery, django, fastapi, uvicorn' 2>/dev/null || \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements-examples.txt || \
	  echo "they cannot be installed: the examples are not run, and the tests say so"

site-tools: setup ## what builds the site (Zensical)
	@$(BIN)/python -c 'import zensical' 2>/dev/null || \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements-site.txt || \
	  echo "Zensical cannot be installed: the site is not built, and the tests say so"

page-tools: setup ## what checks the modules of the pages (Deno)
	@[ -x $(BIN)/deno ] || \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements-page.txt || \
	  echo "Deno cannot be installed: the modules of the pages are not checked"

site: site-tools ## the documents as a site with search, into build/site/; it needs no server and no network
	@$(BIN)/python -m tests.support.site build

test: setup page-tools check packages image-wheels peers examples site-tools release-tools setup-browser ## everything once
	@$(BIN)/python -m tests.sizes test

proof: setup page-tools check packages image-wheels peers examples site-tools release-tools setup-browser ## the counts and durations that a release must show; PART=core|members|many|run|dashboard|store|kubernetes|slots|manager|cache|containers
	@$(BIN)/python -m tests.sizes proof $(PART)

# The hooks of .pre-commit-config.yaml call these parts one by one.
check: check-format check-lint check-types check-imports check-words check-pages ## format, lint, strict types, import arrows, words, the modules of the pages

check-format: setup
	@$(BIN)/ruff format --check --quiet src tests bench examples || { echo "run: .venv/bin/ruff format src tests bench examples"; exit 1; }

check-lint: setup
	@$(BIN)/ruff check --quiet src tests bench examples

check-words: setup
	@$(BIN)/python -m tests.support.words

check-pages: setup
	@$(BIN)/python -m tests.support.page_code

check-types: setup
	@$(BIN)/mypy --no-error-summary

check-imports: setup
	@$(BIN)/lint-imports --no-cache > .venv/lint-imports.log 2>&1 || { cat .venv/lint-imports.log; exit 1; }

wheel: setup ## the wheel alone, into dist/: docs/install.md says how to install it; needs no network
	@$(BIN)/python -m hatchling build -d dist -t wheel

build: setup ## the wheel and the source archive, into dist/; needs no network
	@rm -rf dist
	@$(BIN)/python -m hatchling build -d dist

release-tools: setup ## what checks a release (twine)
	@$(BIN)/python -c 'import twine' 2>/dev/null || \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements-release.txt || \
	  echo "twine cannot be installed: the metadata of a release are not checked, and it says so"

release: release-tools ## build, check, write checksums into dist/ (KEY=… signs them), install it and run the README; uploads nothing
	@$(BIN)/python -m tests.support.release dist

bench: setup peers ## speed, as ratios: the simulator, then failover and idleness beside the peers (docs/speed.md)
	@$(BIN)/python -m bench
	@$(BIN)/python -m bench.failover
	@$(BIN)/python -m bench.lease
	@$(call debian,redis-server,command -v redis-server)
	@$(BIN)/python -m bench.slots
	@$(BIN)/python -m bench.manager
	@$(BIN)/python -m bench.elections
	@$(BIN)/python -m bench.cache

lock: ## renew the requirements from pyproject.toml (needs uv; names no registry)
	@env -u UV_INDEX -u UV_DEFAULT_INDEX -u UV_INDEX_URL uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header --group test --python-version 3.11 pyproject.toml -o requirements.txt
	@env -u UV_INDEX -u UV_DEFAULT_INDEX -u UV_INDEX_URL uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header --group bench --python-version 3.11 -o requirements-bench.txt
	@env -u UV_INDEX -u UV_DEFAULT_INDEX -u UV_INDEX_URL uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header --group site --constraints requirements.txt --python-version 3.11 -o requirements-site.txt
	@env -u UV_INDEX -u UV_DEFAULT_INDEX -u UV_INDEX_URL uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header --group release --constraints requirements.txt --python-version 3.11 -o requirements-release.txt
	@env -u UV_INDEX -u UV_DEFAULT_INDEX -u UV_INDEX_URL uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header --group examples --constraints requirements.txt --python-version 3.11 -o requirements-examples.txt
	@env -u UV_INDEX -u UV_DEFAULT_INDEX -u UV_INDEX_URL uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header --group page --python-version 3.11 -o requirements-page.txt
	@$(BIN)/python -m tests.support.product_requirements > requirements-product.txt

clean: ## remove what make made
	rm -rf .venv .venv-product screenshots .pytest_cache .mypy_cache .ruff_cache .hypothesis dist build .coverage htmlcov .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
