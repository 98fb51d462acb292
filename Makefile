# A thin front over CMake presets: `make help` lists the targets. PRESET=debug, single, asan-ubsan, tsan, gcc, gcc-single, clang16 or xla
# selects another build than the default, PREFIX where `make install` puts things, LIBTORCH the torch to build with.
PRESET ?= release
PREFIX ?= /usr/local
BUILD := $(if $(filter release,$(PRESET)),build,$(if $(filter asan-ubsan,$(PRESET)),build-asan,build-$(PRESET)))
# Tests that mostly wait count as one job, those that compute on several ranks as two (docs/testing.md). One job more than
# there are cores keeps the cores busy.
TEST_JOBS := $(shell expr $$(nproc) + 1)
LEAN := -DACCELERATE_BUILD_TESTS=OFF -DACCELERATE_BUILD_BENCH=OFF

.DEFAULT_GOAL := help
# Targets share build folders.
.NOTPARALLEL:
.PHONY: help quickstart transformers docs deps build test test-full test-fuzz test-faults test-interop test-browser test-packages \
        test-notebook test-sanitizers \
        test-gcc test-single test-analyzer test-xla deps-xla bench fuzz lint times format install clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 24

quickstart: ## set up, build what the example needs, train it on two processes (three minutes)
	@scripts/quickstart.sh

transformers: ## set up, fine-tune a pretrained model on real texts on two processes (about two minutes)
	@scripts/setup.sh transformers
	@cmake --preset release $(LEAN)
	@cmake --build --preset release --target accelerate_cli transformers_sequence_classification transformers_embed
	build/bin/accelerate launch --cpu --num_processes 2 build/bin/transformers_sequence_classification \
	  --output build/sayings_model
	build/bin/transformers_embed --query "Programs never do what they should."
	@echo
	@echo "Next: read examples/transformers/sequence_classification.cpp, the program that has just run;"
	@echo "      build/sayings_model is a folder that Python's transformers loads too."

docs: ## build the documentation site in build/site (installs Doxygen; no compiler, no libtorch)
	@scripts/setup.sh docs
	@scripts/build_site.py

deps: ## install the Debian packages and libtorch that building and testing need
	@scripts/setup.sh test

deps-xla: ## fetch torch 2.9.0 and torch_xla 2.9.0, for training on XLA devices, into .deps/xla (2 GB)
	@scripts/install_xla.sh

build: deps ## build the library, the program, the examples and the tests
	@cmake --preset $(PRESET) -DACCELERATE_BUILD_TESTS=ON
	@cmake --build --preset $(PRESET)

# For what reads build/ and no other.
.PHONY: release-build
release-build:
	@[ "$(PRESET)" = release ] || { echo "error: this target works on the preset release alone" >&2; exit 2; }
	@$(MAKE) build

test: build ## build and run the default tests
	@ctest --preset $(PRESET) -j $(TEST_JOBS)

lint: release-build ## check format, include directions, names, headers and sources alone, clang-tidy
	@ctest --preset release-lint -j $(TEST_JOBS)

# The long groups: docs/testing.md says what each holds and when it was last green.
test-full: test lint test-analyzer test-fuzz test-faults test-interop test-browser test-notebook test-packages test-sanitizers test-gcc test-single test-xla ## the default tests and all long groups (hours)

test-fuzz: release-build ## fuzz every reader of files for a minute each
	@scripts/run_group.sh fuzz_long

test-faults: release-build ## kill ranks and machines in training a thousand times
	@scripts/run_group.sh faults_long

test-interop: release-build ## exchange files with Python's torch, accelerate and transformers (installs 5 GB)
	@scripts/run_group.sh interop

test-browser: release-build ## the live page and the documentation site in a headless Chromium (installs Debian's)
	@scripts/setup.sh browser
	@scripts/run_group.sh browser

test-notebook: release-build ## the C++ kernel for Jupyter, and the notebooks of examples/notebook (installs 0.2 GB)
	@scripts/setup.sh notebook
	@scripts/run_group.sh notebook

test-packages: release-build ## build the packages, install them in clean places, build README's program there
	@scripts/setup.sh packages
	@scripts/run_group.sh packages

test-analyzer: release-build ## clang's analyzer over every file of src
	@scripts/run_group.sh analyzer

test-sanitizers: ## the default tests with the address, undefined-behaviour and thread sanitizers
	@scripts/setup.sh sanitizers
	@export ASAN_SYMBOLIZER_PATH="$$(ls /usr/lib/llvm-*/bin/llvm-symbolizer 2>/dev/null | tail -n 1)"; \
	  export TSAN_SYMBOLIZER_PATH="$$ASAN_SYMBOLIZER_PATH"; \
	  $(MAKE) test PRESET=asan-ubsan && $(MAKE) test PRESET=tsan

test-gcc: ## the default tests, compiled by g++
	@$(MAKE) test PRESET=gcc

# Reading a source gives all of a compiler's warnings but those of its optimiser, which the batches give.
test-single: release-build ## every source alone, outside of its batch: all of them by clang, those of src by g++ too
	@scripts/check_alone.py build src tests examples
	@cmake --preset gcc
	@cmake --build --preset gcc --target accelerate_torch_pch
	@scripts/check_alone.py build-gcc src

test-xla: deps deps-xla ## train on XLA's own CPU devices: a build of its own with torch 2.9.0
	@cmake --preset xla
	@cmake --build --preset xla --target xla_tests
	@scripts/run_group.sh xla xla

times: ## where the time of the last build and test run went
	@scripts/times.py $(BUILD)

bench: deps ## build and run the benchmarks; BENCH_ARGS=--quick for a short run
	@cmake --preset $(PRESET) -DACCELERATE_BUILD_BENCH=ON
	@cmake --build --preset $(PRESET)
	@bench/run.py --build $(BUILD) $(BENCH_ARGS)

fuzz: deps ## build the fuzz targets and run each for ten seconds; FUZZ_SECONDS=n for longer
	@cmake -S . -B build-fuzz -G Ninja -DACCELERATE_BUILD_FUZZ=ON -DACCELERATE_FUZZ_LONG_SECONDS=$(or $(FUZZ_SECONDS),10) \
	  -DACCELERATE_BUILD_EXAMPLES=OFF
	@cmake --build build-fuzz --target fuzz
	@ctest --test-dir build-fuzz -L '^fuzz_long$$' --output-on-failure

format: deps ## rewrite all C++ files with clang-format
	@scripts/format.sh

install: ## build and install under PREFIX (default /usr/local)
	@scripts/setup.sh quickstart
	@cmake --preset $(PRESET) $(LEAN)
	@cmake --build --preset $(PRESET) --target installable
	@cmake --install $(BUILD) --prefix $(PREFIX)

clean: ## remove all build folders; the downloaded libtorch stays
	@rm -rf build build-*
