#!/usr/bin/env bash
# Makes ready for one instance: prepare_instance.sh v1 CATEGORY ONNX VNNLIB
# No analysis: the files have to be there, bough has to start (which brings its libraries into the system's memory),
# and what an earlier run_instance.sh of ours may have left running, whose number it wrote down, is ended.
set -euo pipefail
if [[ $# -ne 4 || $1 != v1 ]]; then
    echo "usage: $0 v1 CATEGORY ONNX VNNLIB" >&2
    exit 1
fi
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
bough=${BOUGH:-$here/../.venv/bin/bough}
left=${TMPDIR:-/tmp}/bough-vnncomp-$(id -u).pid
for file in "$3" "$4"; do
    if [[ ! -r $file && ! -r $file.gz ]]; then
        echo "$0: there is no file $file" >&2
        exit 1
    fi
done
if [[ -O $left ]]; then
    number=$(cat "$left")
    if [[ $number =~ ^[0-9]+$ ]] && ps -o args= -p "$number" 2>/dev/null | grep -q "bough verify"; then
        kill -9 -- "-$number" 2>/dev/null || kill -9 "$number" 2>/dev/null || true  # its whole group
    fi
    rm -f "$left"
fi
"$bough" doctor
