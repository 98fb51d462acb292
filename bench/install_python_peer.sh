#!/usr/bin/env bash
# Installs the Python side of the benchmarks into an environment of its own, which nothing else of the project uses:
# .deps/python-peer, or the folder named as the argument. About 5 GB; does nothing where it is complete already.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

environment=${1:-.deps/python-peer}
requirements=bench/python_peer/requirements.txt

# A copy of the requirements, written last, says what a complete environment holds.
if cmp -s "$requirements" "$environment/installed.txt"; then
  exit 0
fi
echo "installing the Python peer into $environment (about 5 GB)" >&2
python3 -m venv --clear "$environment"
"$environment/bin/pip" install --quiet --disable-pip-version-check --requirement "$requirements"
cp "$requirements" "$environment/installed.txt"
