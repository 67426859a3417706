#!/bin/sh
# What a machine with a GPU but no network needs, as one folder: packages for its Python, and the data of experiments.
#
#     BOUGH_DATA=... tools/bundle.sh [device-packages] [3.12]
#
# There: PYTHONPATH=src:device-packages/py:. BOUGH_DATA=device-packages experiments/gpu.sh OUT
# It has to have torch, numpy, onnx, onnxruntime and, for fast kernels, triton by itself. The folder has some 60 MB.
set -eu
out=${1:-device-packages}
version=${2:-3.12}
data=${BOUGH_DATA:?the folder with data/ and vnncomp/}
python=${PYTHON:-.venv/bin/python}
packages="highspy iniconfig hypothesis markdown-it-py mdurl packaging pluggy Pygments pytest rich safetensors scipy sortedcontainers"

mkdir -p "$out/py" "$out/vnncomp"
# shellcheck disable=SC2086 # one word each
"$python" -m pip install -qq --disable-pip-version-check --target "$out/py" --upgrade --python-version "$version" \
    --only-binary=:all: --no-deps -c constraints.txt $packages 2>/dev/null
# Of scipy only sparse matrices are used, which stand by themselves.
find "$out/py/scipy" -mindepth 1 -maxdepth 1 -type d ! -name _lib ! -name sparse -exec rm -rf {} +
rm -rf "$out/py/scipy.libs" "$out/py/scipy/sparse/csgraph" "$out/py/scipy/sparse/linalg" "$out"/py/highspy/libhighs.so.1.*
find "$out/py" \( -name tests -o -name __pycache__ \) -prune -exec rm -rf {} +
rm -rf "$out/data" "$out/vnncomp/oval21"
cp -r "$data/data" "$out/"
cp -r "$data/vnncomp/oval21" "$data/vnncomp/known_results.csv" "$out/vnncomp/"
chmod -R u+w "$out"
du -sh "$out"
