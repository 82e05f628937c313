# SPDX-License-Identifier: Apache-2.0
# The front door. Everything runs in the Debian 13 root that tools/root makes once; NPUD_ROOT=none uses this machine's packages.
#
#   make demo     set everything up and watch real models answer over gRPC
#   make check    set everything up, run unit and integration tests and fuzzers, build the modules for every kernel, run them in guests
#   make help     the other targets

SHELL := /bin/bash
RUN := tools/root run --
BUILD ?= build
JOBS ?= $(shell nproc)
KERNELS ?= 6.1 6.12 7.3
SUITES ?=

.DEFAULT_GOAL := help
.PHONY: help demo check check-unit check-integration check-fuzz check-kernel check-guests check-vm check-sanitize check-debug-kernel \
        dkms-check board-check modules build models lint format bench serve root clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 28

root: ## make the build root (every other target does so when it is needed)
	@tools/root make

build: root ## the daemon, the clients, the virtual board and all tests
	@$(RUN) tools/build $(BUILD) $(JOBS)

models: root ## fetch real models (and the JavaScript client's libraries) from npm into the cache, with this machine's npm
	@tools/models fetch

modules: root ## npud_rknpu.ko and npud_vboard.ko for KERNELS="6.1 6.12 7.3", arm64 and amd64
	@$(RUN) tools/build-modules $(KERNELS)

board-check: root ## build/board-check/npud-board-check-arm64 and -amd64: one static program for an owner of a board (man/npud-board-check.8)
	@$(RUN) tools/board-check $(BUILD)/board-check

demo: build models ## real networks answer over gRPC from one shared device, several tenants at once
	@$(RUN) tools/demo $(BUILD)

serve: build ## run the daemon on REPOSITORY=directory [SOCKET=/tmp/npud.sock [CONFIG=file.toml]]
	@$(RUN) tools/serve $(BUILD) "$(REPOSITORY)" $(SOCKET) $(CONFIG)

check: root models ## unit and integration tests, short fuzzing, the modules for every kernel, short guest tests; ends with "N passed, N failed"
	@$(RUN) tools/check $(BUILD) $(SUITES)

check-unit: root ## GoogleTest programs
	@$(RUN) tools/check $(BUILD) unit

check-integration: root models ## the running daemon, met by real clients
	@$(RUN) tools/check $(BUILD) integration

check-fuzz: root ## a short run of every libFuzzer target
	@$(RUN) tools/check $(BUILD) fuzz

check-kernel: root ## modules for every kernel without warnings, sparse, checkpatch
	@$(RUN) tools/check $(BUILD) kernel

check-guests: root models ## guest tests of two minutes or less: the driver on the virtual board, npud on both
	@$(RUN) tools/check $(BUILD) vm-short

check-vm: root models ## the driver and npud in guests with the virtual board, with all faults, stress and fuzzing
	@$(RUN) tools/check $(BUILD) vm

check-sanitize: root ## unit and integration tests under ASan+UBSan, then TSan
	@$(RUN) tools/check $(BUILD) sanitize

check-debug-kernel: build ## KUnit and the driver's tests on kernels with KASAN, lockdep and kmemleak (amd64, arm64)
	@$(RUN) tools/debug-kernel check amd64
	@$(RUN) tools/debug-kernel check arm64

dkms-check: root ## add, build, install and remove through dkms
	@$(RUN) tools/dkms-check

lint: root ## clang-format, clang-tidy, shell syntax, man pages
	@$(RUN) tools/lint $(BUILD)

format: root ## clang-format everything in place
	@$(RUN) tools/lint --format

bench: build models ## print a table of ratios and write build/bench.json
	@$(RUN) bench/run $(BUILD)

clean: ## remove what was built; the cache outside the checkout stays
	rm -rf build build-*
