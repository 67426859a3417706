#!/bin/sh
# The figures of docs/results.md that need a GPU, stage by stage; logs and records go to OUT, and what is there is kept.
#
#     BOUGH_DATA=... experiments/gpu.sh OUT [tests oval21 paper throughput rules naive decision]
#
# Seconds are of one H200, each stage alone: 70, 310, 90, 110, 300, 480, 60.
set -eu
out=${1:?a folder for logs and records}
shift
python=${PYTHON:-python}
data=${BOUGH_DATA:?the folder with data/ and vnncomp/}
paper="$data/data/paper_results.csv"
cd "$(dirname "$0")/.."
mkdir -p "$out"

rules() { # where, and what else 06_branching_rules.py is told
    where=$1
    shift
    "$python" experiments/06_branching_rules.py --out "$out/$where" --resume --device cuda --timeout 10 --seed 0 \
        --fields bounds=dual,intermediate=fixed --rows "$paper" cifar_base_kw/easy 6 --rows "$paper" cifar_base_kw/medium 6 \
        --rows "$paper" cifar_base_kw/hard 6 --rows "$paper" cifar_wide_kw 6 --rows "$paper" cifar_deep_kw 6 "$@"
}

stage() {
    case $1 in
    tests) # only files that have some: others import what tools/bundle.sh leaves out
        "$python" -m pytest -q -p no:cacheprovider -m gpu $(grep -rl "mark\.gpu" tests)
        ;;
    oval21) "$python" experiments/02_oval21.py --out "$out/oval21.jsonl" --device cuda --resume ;;
    paper) "$python" experiments/03_paper_properties.py --out "$out/paper.jsonl" --device cuda ;;
    throughput)
        "$python" benchmarks/ascent.py --device cuda --lp-seconds 1 --json "$out/ascent.jsonl"
        "$python" benchmarks/search.py --device cuda --ascent "$out/ascent.jsonl"
        "$python" benchmarks/strong.py --device cuda
        ;;
    rules) rules rules --rule babsr --rule babsr-min --rule fsb --rule kfsb --rule strong ;;
    naive) rules naive --cheapest 6 --rule babsr --rule gradient --rule random --rule earliest --rule widest ;;
    decision) "$python" benchmarks/decision.py --device cuda --json "$out/decision.jsonl" ;;
    *) echo "there is no stage '$1'" && return 2 ;;
    esac
}

for name in ${*:-tests oval21 paper throughput rules naive decision}; do
    began=$(date +%s)
    stage "$name" >"$out/$name.log" 2>&1 || echo "$name: exit status $?, $(tail -n 1 "$out/$name.log")" # the others still run
    echo "$name: $(($(date +%s) - began)) s"
done
