#!/usr/bin/env bash
# Installs the Python side of the benchmarks and of the interop tests into an environment of its own, which nothing else
# of the project uses: .deps/python-peer, or the folder named as the first argument. About 5 GB; does nothing where it holds
# all that scripts/python_peer_requirements.txt names, or another file of requirements that the second argument names.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

environment=${1:-.deps/python-peer}
requirements=${2:-scripts/python_peer_requirements.txt}

# pip installs what a package needs before the package itself: those that are named are the last.
if [[ -x $environment/bin/python ]] && "$environment/bin/python" - "$requirements" <<'PYTHON'; then
import importlib.metadata
import sys

for line in open(sys.argv[1], encoding="utf-8").read().split():
    name, _, version = line.partition("==")
    try:
        installed = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        sys.exit(1)
    # "2.11.0+cpu" is a build of 2.11.0.
    if version and installed.partition("+")[0] != version:
        sys.exit(1)
PYTHON
  exit 0
fi
size=$([[ $requirements == scripts/python_peer_requirements.txt ]] && echo " (about 5 GB)" || true)
echo "installing the Python peer into $environment$size" >&2
[[ -x $environment/bin/python ]] || python3 -m venv --clear "$environment"
"$environment/bin/pip" install --quiet --disable-pip-version-check --requirement "$requirements"
