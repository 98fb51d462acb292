#!/usr/bin/env bash
# From a bare machine to a trained model: sets up, builds the program `accelerate` and one example, trains it on two
# processes. Says what it does and how long each step took. What is there already is not done again.
#
# usage: scripts/quickstart.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly begin=$SECONDS
step_begin=$SECONDS

# Says how long the last step took, then what comes next.
step() {
  printf '\n[quickstart] %s' "$1"
  [[ $SECONDS -eq $begin ]] || printf '   (%d s so far, the last step took %d s)' $((SECONDS - begin)) $((SECONDS - step_begin))
  printf '\n'
  step_begin=$SECONDS
}

step "1 of 3: packages and libtorch (about half a minute where nothing is installed)"
scripts/setup.sh quickstart

step "2 of 3: building the library, the program accelerate and the example (a good two minutes on two cores)"
cmake --preset release -DACCELERATE_BUILD_TESTS=OFF --log-level=NOTICE >/dev/null
cmake --build --preset release --target accelerate_cli fashion_mnist

step "3 of 3: training examples/fashion_mnist.cpp on two processes"
build/bin/accelerate launch --cpu --num_processes 2 build/bin/fashion_mnist --epochs 1

cat <<END

[quickstart] done in $((SECONDS - begin)) s.
Next: read examples/fashion_mnist.cpp, the program that has just run;
      change it, then run 'make quickstart' again: only what changed is built;
      'make test' runs all tests, 'make install' makes find_package(Accelerate) work in your own project.
END
