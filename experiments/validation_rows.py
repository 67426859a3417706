"""The properties of a table whose images models are judged by, and not taught: a table enters, a smaller one leaves.

    python experiments/validation_rows.py experiments/training/cifar_base_kw_fixed.csv > validation.csv
    bough bench validation.csv --out validation.jsonl --device cpu --timeout 30
        --method bounds=dual,intermediate=fixed,batch=8,branching=learnt-local,weights=cifar-local
        --method bounds=dual,intermediate=fixed,batch=8,branching=gnn,weights=FILE
    python experiments/compare_rules.py validation.jsonl --against "learnt-local (cifar-local)"

Weights are chosen by these, and only what was chosen is tried on the test properties.
"""

import argparse
import sys
from pathlib import Path

from bough.errors import BadInput
from bough.learning.dataset import split_of
from bough.zoo.table import as_text, read_table


def main() -> int:
    """Read, choose, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("table", type=Path)
    try:
        rows = read_table(parser.parse_args().table)
    except BadInput as error:
        print(f"{Path(sys.argv[0]).name}: {error}", file=sys.stderr)
        return 2
    print(as_text([row for row in rows if split_of(row.dataset, row.split, row.image) == "validation"]), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
