# A thin front over CMake presets: `make help` lists the targets. PRESET=debug, asan-ubsan, tsan, gcc or clang16 selects
# another build than the default, PREFIX where `make install` puts things, LIBTORCH the torch to build with.
PRESET ?= release
PREFIX ?= /usr/local
BUILD := $(if $(filter release,$(PRESET)),build,$(if $(filter asan-ubsan,$(PRESET)),build-asan,build-$(PRESET)))
LEAN := -DACCELERATE_BUILD_TESTS=OFF -DACCELERATE_BUILD_BENCH=OFF

.DEFAULT_GOAL := help
.PHONY: help quickstart transformers deps build test bench fuzz lint format install clean

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 20

quickstart: ## set up, build what the example needs, train it on two processes
	@scripts/setup.sh quickstart
	@cmake --preset release $(LEAN)
	@cmake --build --preset release --target accelerate_cli fashion_mnist
	build/bin/accelerate launch --cpu --num_processes 2 build/bin/fashion_mnist --epochs 2
	@echo
	@echo "Next: read examples/fashion_mnist.cpp, the program that has just run;"
	@echo "      change it, then run 'make quickstart' again: only what changed is built;"
	@echo "      'make test' runs all tests, 'make install' makes find_package(Accelerate) work in your own project."

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

deps: ## install the Debian packages and libtorch that building and testing need
	@scripts/setup.sh test

build: deps ## build everything
	@cmake --preset $(PRESET)
	@cmake --build --preset $(PRESET)

test: build ## build everything and run all tests
	@ctest --preset $(PRESET)

bench: build ## build everything and run the benchmarks; BENCH_ARGS=--quick for a short run
	@bench/run.py --build $(BUILD) $(BENCH_ARGS)

fuzz: deps ## build the fuzz targets and run each for ten seconds; FUZZ_SECONDS=n for longer
	@cmake -S . -B build-fuzz -G Ninja -DACCELERATE_BUILD_FUZZ=ON -DACCELERATE_FUZZ_SECONDS=$(or $(FUZZ_SECONDS),10) \
	  -DACCELERATE_BUILD_BENCH=OFF -DACCELERATE_BUILD_EXAMPLES=OFF
	@cmake --build build-fuzz --target fuzz
	@ctest --test-dir build-fuzz -L fuzz --output-on-failure

lint: build ## check format, include directions, headers and clang-tidy; FULL=1 for all files
	@FULL=$(FULL) scripts/lint.sh $(BUILD)

format: deps ## rewrite all C++ files with clang-format
	@scripts/format.sh

install: ## build and install under PREFIX (default /usr/local)
	@scripts/setup.sh quickstart
	@cmake --preset $(PRESET) $(LEAN)
	@cmake --build --preset $(PRESET) --target installable
	@cmake --install $(BUILD) --prefix $(PREFIX)

clean: ## remove all build folders; the downloaded libtorch stays
	@rm -rf build build-*
