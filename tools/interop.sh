#!/usr/bin/env bash
# Make an environment that has a trainer, torch included, from the first fitting Python there is.
#
#     tools/interop.sh lerobot|opentau FOLDER
#
# Without such a Python the folder stays away, and the tests that want it skip.
set -eu

trainer=$1 folder=$2
case $trainer in
lerobot)
  versions='3.12 3.13 3.14'
  packages=('lerobot[dataset,accelerate-dep,transformers-dep,scipy-dep]==0.6.1')
  bare=()
  ;;
opentau)
  versions=3.10
  bare=(opentau==0.14.0)
  # What its fit script and its datasets import, of the many packages that it asks for.
  packages=('torch>=2.7.1' 'torchvision>=0.22.1' 'transformers>=4.57,<4.58' 'datasets>=2.19'
    'draccus>=0.10' 'scipy>=1.15.2' 'accelerate>=1.4' 'pandas>=2.2.2' 'jsonlines>=4' 'av>=12'
    'imageio>=2.34' 'einops>=0.8' 'packaging>=24.2')
  ;;
esac

for version in $versions; do
  for python in "python$version" "$HOME/.pyenv/versions/$version".*/bin/python; do
    if "$python" -c 'import ensurepip, venv' 2>/dev/null; then break 2; fi
    python=
  done
done
if [ -z "$python" ]; then
  echo "No Python $versions on the path or under pyenv: $trainer is left out" >&2
  exit 0
fi

"$python" -m venv "$folder"
if [ ${#bare[@]} -gt 0 ]; then "$folder/bin/python" -m pip install --no-deps "${bare[@]}"; fi
"$folder/bin/python" -m pip install "${packages[@]}"
