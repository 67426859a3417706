#!/usr/bin/env bash
# Installs bough for the competition: install_tool.sh v1
# A virtual environment beside this folder, with the versions of constraints.txt; PYTHON says which interpreter.
set -euo pipefail
if [[ $# -ne 1 || $1 != v1 ]]; then
    echo "usage: $0 v1" >&2
    exit 1
fi
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
"${PYTHON:-python3}" -m venv "$root/.venv"
"$root/.venv/bin/python" -m pip install --disable-pip-version-check -c "$root/constraints.txt" "$root[vnnlib2]"
"$root/.venv/bin/bough" doctor
