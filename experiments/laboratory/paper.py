"""The table of the authors' results enters, runs leave, in the form of our own records; and what the paper prints.

So every statistic that is made of our runs is made of theirs by the same functions, and can be held against the paper.
"""

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bough.errors import BadInput
from bough.files.reading import read_bytes
from laboratory.statistics import Run, with_difficulty
from laboratory.tables import PAPER, Cell, Heading, Line, Mean, Measure, Table

LIMIT = 1 << 26  # bytes
BABSR, MIP, GNN, ONLINE, REDUCED = "BaBSR", "MIPplanet", "GNN", "GNN-online", "GNN-R"
METHODS: Mapping[str, str] = {"babsr": BABSR, "mip": MIP, "gnn": GNN, "online": ONLINE}  # by prefix of a column
TIMEOUTS: Mapping[str, float] = {"cifar_base_kw": 3600.0, "cifar_wide_kw": 7200.0, "cifar_deep_kw": 7200.0}
EDGES = (800.0, 2400.0)  # seconds of BaBSR between easy, medium and hard on Base (section 6.3)
BASE, WIDE, DEEP = TIMEOUTS

_ASKED = ("network", "image", "target", "eps")
_COLUMNS = {
    *_ASKED,
    *(f"{prefix}_{what}" for prefix in METHODS for what in ("status", "time")),
    *(f"{prefix}_branches" for prefix in METHODS if prefix != "mip"),  # which did not say
}


def read_results(path: Path) -> list[Run]:
    """Four runs for each line of `paper_results.csv`; those on Base have their difficulty."""
    try:
        text = read_bytes(path, LIMIT, BadInput).decode("utf-8-sig")
        rows = csv.DictReader(io.StringIO(text, newline=""), strict=True)
        missing = _COLUMNS - set(rows.fieldnames or ())
        if missing:
            raise BadInput(f"{path}, line 1: missing column '{min(missing)}'; give the table of the paper's results")
        runs = [run for row in rows for run in _runs(row, f"{path}, line {rows.line_num}")]
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadInput(f"{path} is no CSV ({error}); give the table of the paper's results") from None
    base = [run for run in runs if run["network"] == BASE]
    judged = with_difficulty(base, BABSR, EDGES) if base else []
    return [*judged, *(run for run in runs if run["network"] != BASE)]


def _runs(row: Mapping[str, str], place: str) -> list[Run]:
    network = row["network"]
    if network not in TIMEOUTS:
        raise BadInput(f"{place}: the paper has no network '{network}'; there are: {', '.join(TIMEOUTS)}")
    prop = f"image {row['image']} target {row['target']} eps {row['eps']}"
    try:
        return [_run(row, prefix, network, prop) for prefix in METHODS]
    except ValueError as error:
        raise BadInput(f"{place}: {error}; correct the cell") from None


def _run(row: Mapping[str, str], prefix: str, network: str, prop: str) -> dict[str, Any]:
    branches = row.get(f"{prefix}_branches")
    return {
        "network": network,
        "property": prop,
        "method": METHODS[prefix],
        "timeout": TIMEOUTS[network],
        "verdict": row[f"{prefix}_status"],
        "seconds": float(row[f"{prefix}_time"]),
        "branches": int(float(branches)) if branches else None,
        "bounds": None,
        "error": None,
    }


# As printed


def _printed(title: str, groups: Mapping[str, Mapping[str, tuple[Cell, ...]]], mean: Mean = "arithmetic") -> Table:
    names = tuple(dict.fromkeys(name for group in groups.values() for name in group))
    average = "" if mean == "arithmetic" else "geometric "
    titles: Mapping[Measure, str] = {
        "seconds": f"{average}time (s)",
        "branches": f"{average}branches",
        "unsolved": "unsolved",
    }
    headings = tuple(Heading(group, titles[m], ".3f", "least") for group in groups for m in PAPER)
    nothing: tuple[Cell, ...] = (None,) * len(PAPER)
    lines = tuple(Line(name, tuple(c for g in groups.values() for c in g.get(name, nothing))) for name in names)
    return Table(title, "method", headings, lines)


TABLE_1 = _printed(
    "The paper's Table 1: Base",
    {
        "Easy": {
            BABSR: (545.457, 578.828, 0.0),
            MIP: (1499.375, None, 0.165),
            GNN: (272.695, 285.682, 0.002),
            ONLINE: (208.821, 252.807, 0.002),
        },
        "Medium": {
            BABSR: (1370.395, 1405.301, 0.0),
            MIP: (2240.980, None, 0.430),
            GNN: (592.118, 583.210, 0.004),
            ONLINE: (556.163, 501.595, 0.001),
        },
        "Hard": {
            BABSR: (3127.995, 2493.870, 0.413),
            MIP: (2250.623, None, 0.462),
            GNN: (1577.156, 995.437, 0.216),
            ONLINE: (1369.326, 813.502, 0.183),
        },
    },
)
TABLE_2 = _printed(
    "The paper's Table 2: Wide and Deep",
    {
        "Wide": {
            BABSR: (4137.467, 843.476, 0.0),
            MIP: (5855.059, None, 0.743),
            GNN: (2367.693, 387.403, 0.127),
            ONLINE: (2179.306, 353.879, 0.095),
        },
        "Deep": {
            BABSR: (4016.336, 416.824, 0.0),
            MIP: (5426.160, None, 0.608),
            GNN: (2308.612, 208.760, 0.048),
            ONLINE: (2220.351, 199.032, 0.040),
        },
    },
)
GEOMETRIC_1 = _printed(
    "The paper's geometric means (E.5): Base",
    {
        "Easy": {
            BABSR: (471.547, 468.117, 0.0),
            MIP: (836.049, None, 0.165),
            GNN: (180.638, 191.514, 0.002),
            ONLINE: (143.968, 180.575, 0.002),
        },
        "Medium": {
            BABSR: (1304.032, 1236.398, 0.0),
            MIP: (1401.273, None, 0.430),
            GNN: (412.880, 417.970, 0.004),
            ONLINE: (399.786, 380.463, 0.001),
        },
        "Hard": {
            BABSR: (3094.794, 2271.796, 0.413),
            MIP: (1374.794, None, 0.462),
            GNN: (985.142, 691.599, 0.216),
            ONLINE: (833.343, 605.443, 0.183),
        },
    },
    "geometric",
)
GEOMETRIC_2 = _printed(
    "The paper's geometric means (E.5): Wide and Deep",
    {
        "Wide": {
            BABSR: (3510.960, 699.826, 0.0),
            MIP: (4430.098, None, 0.743),
            GNN: (1403.841, 296.821, 0.127),
            ONLINE: (1316.455, 279.298, 0.095),
        },
        "Deep": {
            BABSR: (3580.469, 359.464, 0.0),
            MIP: (4014.469, None, 0.608),
            GNN: (1529.542, 158.498, 0.048),
            ONLINE: (1502.349, 155.523, 0.040),
        },
    },
    "geometric",
)
FEATURES = _printed(
    "The paper's E.2: features, 140 easy, 70 medium and 50 hard properties of Base",
    {
        "Easy": {
            BABSR: (429.589, 641.300, 0.0),
            GNN: (268.592, 319.386, 0.0),
            REDUCED: (348.482, 441.043, 0.0),
        },
        "Medium": {
            BABSR: (1622.669, 1504.366, 0.0),
            GNN: (724.883, 529.070, 0.0),
            REDUCED: (898.011, 720.958, 0.0),
        },
        "Hard": {
            BABSR: (2466.712, 1931.098, 0.0),
            GNN: (1025.826, 772.667, 0.0),
            REDUCED: (1340.559, 967.804, 0.0),
        },
    },
)
NODES = _printed(
    "The paper's E.3: MIPplanet's nodes, which are not comparable with the others' branches",
    {
        "Base": {
            BABSR: (1472.508, 1420.839, 0.067),
            MIP: (1783.800, 3780.408, 0.258),
            GNN: (714.224, 817.017, 0.017),
            ONLINE: (582.738, 642.387, 0.008),
        },
        "Wide": {
            BABSR: (2985.199, 918.167, 0.111),
            MIP: (5254.134, 2949.625, 0.556),
            GNN: (996.811, 268.333, 0.074),
            ONLINE: (949.694, 257.667, 0.033),
        },
        "Deep": {
            BABSR: (3811.712, 482.167, 0.111),
            MIP: (4566.080, 4332.375, 0.407),
            GNN: (1893.081, 201.500, 0.0),
            ONLINE: (1776.278, 192.167, 0.0),
        },
    },
)
MNIST = _printed(
    "The paper's F.3: MNIST",
    {
        "Base": {
            BABSR: (878.226, 2659.276, 0.0),
            MIP: (411.167, None, 0.0),
            GNN: (623.291, 1549.867, 0.019),
            ONLINE: (547.102, 1363.057, 0.009),
        },
        "Wide": {
            BABSR: (1888.084, 399.571, 0.0),
            MIP: (3567.109, None, 0.990),
            GNN: (1526.381, 322.510, 0.040),
            ONLINE: (1133.429, 283.673, 0.010),
        },
        "Deep": {
            BABSR: (1895.032, 211.644, 0.0),
            MIP: (3437.918, None, 0.833),
            GNN: (1189.271, 144.238, 0.010),
            ONLINE: (1121.066, 139.980, 0.0),
        },
    },
)
MNIST_GEOMETRIC = _printed(
    "The paper's F.5: MNIST, geometric means",
    {
        "Base": {
            BABSR: (740.740, 2210.248, 0.0),
            MIP: (330.455, None, 0.0),
            GNN: (501.966, 1268.780, 0.019),
            ONLINE: (450.033, 1123.867, 0.009),
        },
        "Wide": {
            BABSR: (1683.816, 362.171, 0.0),
            MIP: (3506.400, None, 0.990),
            GNN: (1267.736, 284.452, 0.040),
            ONLINE: (973.015, 254.641, 0.0),
        },
        "Deep": {
            BABSR: (1694.555, 187.723, 0.0),
            MIP: (3356.780, None, 0.833),
            GNN: (1022.466, 131.171, 0.010),
            ONLINE: (991.552, 128.115, 0.0),
        },
    },
    "geometric",
)


def _shares(title: str, lines: Mapping[str, tuple[float, float, float, float]]) -> Table:
    words = ("learnt (avg)", "fail-safe (avg)", "fail-safe (min)", "fail-safe (max)")
    rows = tuple(Line(name, cells) for name, cells in lines.items())
    return Table(title, "network", tuple(Heading("", word) for word in words), rows)


FAIL_SAFE = _shares(
    "The paper's E.1: who decides, CIFAR",
    {"Base": (0.934, 0.066, 0.0, 0.653), "Wide": (0.950, 0.050, 0.0, 0.274), "Deep": (0.964, 0.036, 0.0, 0.290)},
)
MNIST_FAIL_SAFE = _shares(
    "The paper's F.4: who decides, MNIST",
    {"Base": (0.962, 0.038, 0.0, 0.204), "Wide": (0.884, 0.116, 0.0, 0.376), "Deep": (0.938, 0.062, 0.0, 0.407)},
)
COSTS = Table(
    "The paper's E.4: seconds",
    "network",
    (Heading("", "GNN decision", ".2f"), Heading("", "LP", ".1f")),
    (Line("Base", (0.02, 1.1)), Line("Wide", (0.03, 4.9)), Line("Deep", (0.08, 9.6))),
)
FEWER_BRANCHES, LESS_TIME = 0.6152, 0.6020  # GNN-online against GNN on Base (section 6.3)
