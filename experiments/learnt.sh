#!/bin/sh
# Learnt rules beside hand-made ones, only the rule changed: what 08_learning.py wrote enters, records and tables leave.
#
#     BOUGH_DATA=... [JOBS=8] [LIMIT=500] [EVERY=1] experiments/learnt.sh OUT LEARNING|shipped
#         [thirty thirty-seconds ours ours-seconds mnist]
#
# `shipped` tries the weights that come with bough. Models that are not there are left out.
#
# thirty: thirty of the paper's properties, drawn as for the hand-made rules, CROWN's root bounds, eight domains a step.
# ours: the test half of the published CIFAR-10 set, medium and hard, bough's own root bounds, 256 domains a step.
# mnist: the published MNIST set, by the weights of each data set and of both. All of these run JOBS at a time, and count
# branches and bounds. The others are seconds: full batches, one run at a time. A stage ends after LIMIT seconds, and goes
# on with what is there; EVERY takes every N-th property only.
set -eu
out=${1:?a folder for records and tables}
learning=${2:?what 08_learning.py wrote, or shipped}
shift 2
python=${PYTHON:-python}
data=${BOUGH_DATA:?the folder with data/ and vnncomp/}
cd "$(dirname "$0")/.."
export PYTHONPATH="$PWD/experiments${PYTHONPATH:+:$PYTHONPATH}" # the laboratory's models and rules
mkdir -p "$out"

bench() { # instances, name, runs at once, and what else `bough bench` is told
    instances=$1 name=$2 once=$3
    shift 3
    case $instances in */instances.csv) ;; *) # a table: its files have to be written, and its data found
        set -- "$@" --networks "$data/data/networks" --data "$data/data/images" --problems "$out/problems-$name" ;;
    esac
    "$python" -m bough bench "$instances" --out "$out/$name.jsonl" --resume --device "${DEVICE:-cuda}" --timeout 20 \
        --every "${EVERY:-1}" --jobs "$once" --limit-seconds "${LIMIT:-500}" "$@" || true # what is left is run next time
    "$python" experiments/compare_rules.py "$out/$name.jsonl"
}

weights() { # of a model
    case $learning/$1 in
    shipped/fast) echo cifar ;;
    shipped/fast-strong) echo cifar-strong ;;
    shipped/local | shipped/local-strong | shipped/reduced) echo "cifar-$1" ;;
    shipped/mnist | shipped/joint) echo "$1" ;;
    *) echo "$learning/model-$1/weights.safetensors" ;;
    esac
}

methods() { # fields, and rules; a learnt one by the name of its model
    fields=$1
    shift
    for rule in "$@"; do
        case $rule in
        fast | fast-strong | mean | mnist | joint | paper | paper-code | letter-paper* | letter-fast) learnt="gnn,weights=$(weights "$rule")" ;;
        online) learnt="gnn-online,weights=$(weights fast)" ;;
        reduced) learnt="gnn-r,weights=$(weights reduced)" ;;
        local | local-strong | letter-local) learnt="learnt-local,weights=$(weights "$rule")" ;;
        *) learnt=$rule ;;
        esac
        case $learnt in */*) [ -e "${learnt#*weights=}" ] || continue ;; esac
        echo "--method bounds=dual,${fields}branching=$learnt"
    done
}

stage() {
    paper="$data/data/paper_results.csv"
    case $1 in
    thirty*)
        "$python" experiments/06_branching_rules.py --out "$out/thirty" --resume --limit-seconds 0 --seed 0 --rule babsr \
            --rows "$paper" cifar_base_kw/easy 6 --rows "$paper" cifar_base_kw/medium 6 --rows "$paper" cifar_base_kw/hard 6 \
            --rows "$paper" cifar_wide_kw 6 --rows "$paper" cifar_deep_kw 6 || true # writes the problems, runs none
        ;;
    ours*)
        awk -F, 'NR == 1 || ($(NF - 1) ~ /medium|hard/ && $NF == "test")' src/bough/zoo/tables/cifar10.csv >"$out/ours.csv"
        ;;
    esac
    case $1 in
    thirty) bench "$out/thirty/instances.csv" "$1" "$jobs" \
        $(methods intermediate=fixed,batch=8, babsr fsb kfsb strong fast fast-strong mean local local-strong reduced online paper paper-code \
            letter-paper letter-paper-code letter-fast letter-local) ;;
    thirty-seconds) bench "$out/thirty/instances.csv" "$1" 1 $(methods intermediate=fixed, babsr fsb kfsb fast fast-strong mean local local-strong) ;;
    ours) bench "$out/ours.csv" "$1" "$jobs" \
        $(methods batch=256, babsr fsb kfsb strong fast fast-strong mean local local-strong reduced online paper paper-code) ;;
    ours-seconds) bench "$out/ours.csv" "$1" 1 $(methods "" babsr fsb kfsb fast fast-strong mean local local-strong) ;;
    mnist) bench src/bough/zoo/tables/mnist.csv "$1" "$jobs" $(methods batch=8, babsr fsb fast mnist joint) ;;
    *) echo "there is no stage '$1'" && return 2 ;;
    esac
}

jobs=${JOBS:-8}
for name in ${*:-thirty ours mnist thirty-seconds ours-seconds}; do
    began=$(date +%s)
    stage "$name" >"$out/$name.log" 2>&1 || echo "$name: exit status $?, $(tail -n 1 "$out/$name.log")"
    echo "$name: $(($(date +%s) - began)) s"
done
