#!/usr/bin/env bash
# Runs one instance: run_instance.sh v1 CATEGORY ONNX VNNLIB RESULTS TIMEOUT
# RESULTS is one word (sat, unsat, timeout, unknown, error) and, for sat, the point. Nothing depends on CATEGORY or on
# the names of the files. An answer is written whole or not at all; whatever goes wrong is `error`, never an answer.
set -uo pipefail
if [[ $# -ne 6 || $1 != v1 ]]; then
    echo "usage: $0 v1 CATEGORY ONNX VNNLIB RESULTS TIMEOUT" >&2
    exit 1
fi
if [[ ! $6 =~ ^[0-9]+(\.[0-9]+)?$ ]]; then
    echo "$0: the timeout '$6' is no number of seconds" >&2
    exit 1
fi
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
bough=${BOUGH:-$here/../.venv/bin/bough}
left=${TMPDIR:-/tmp}/bough-vnncomp-$(id -u).pid
results=$5
answer=$results.part
rm -f "$results" "$answer" || exit 1

# bough's own clock starts when the files are read, the competition's now: so there is one around it, too.
timeout --kill-after=5 "$6" "$bough" verify "$3" "$4" --timeout "$6" --vnncomp "$answer" --quiet &
number=$!
rm -f "$left"
(umask 077 && set -o noclobber && echo "$number" > "$left") 2>/dev/null
wait "$number"
status=$?
rm -f "$left"

case $(head -n 1 "$answer" 2>/dev/null) in
    sat | unsat | timeout | unknown) mv "$answer" "$results" ;;
    *)
        if [[ $status -eq 124 || $status -eq 137 ]]; then
            echo timeout > "$results"
        else
            echo error > "$results"
        fi
        ;;
esac
