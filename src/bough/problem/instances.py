"""A competition's `instances.csv` enters (network, property, timeout per line), a tuple of instances leaves."""

import math
from dataclasses import dataclass
from pathlib import Path

from bough.errors import BadInput
from bough.files.reading import is_there, read_csv, resolve

INSTANCES_LIMIT = 1 << 26  # a list of instances may have at most so many bytes


@dataclass(frozen=True)
class Instance:
    """One problem of a benchmark: both files are there, the timeout is in seconds."""

    network: Path
    property: Path
    timeout: float


def read_instances(path: str | Path) -> tuple[Instance, ...]:
    """Every instance of a CSV with the columns network, property, timeout; paths are relative to the CSV.

    A path that is absent but there with `.gz` means the `.gz`. Blank lines are skipped.
    """
    wanted = "a CSV with the columns network, property, timeout"
    instances = []
    for place, row in read_csv(path, INSTANCES_LIMIT, wanted, "quote a path that holds a comma or a quote"):
        cells = [cell.strip() for cell in row]
        if any(cells):
            instances.append(_instance(cells, Path(path).parent, place))
    if not instances:
        raise BadInput(f"{path} lists no instance; give one line `network,property,timeout` for each")
    return tuple(instances)


def _instance(cells: list[str], folder: Path, place: str) -> Instance:
    if len(cells) != 3 or not all(cells):
        line = ",".join(cells)[:80]
        raise BadInput(f"{place}: expected `network,property,timeout`, found {line!r}; give these three columns")
    try:
        timeout = float(cells[2])
    except ValueError:
        timeout = math.nan
    if not (math.isfinite(timeout) and timeout > 0):
        raise BadInput(f"{place}: the timeout {cells[2][:40]!r} is no positive number of seconds; give one")
    network, prop = (resolve(folder / cell) for cell in cells[:2])
    for kind, path in (("network", network), ("property", prop)):
        if not is_there(path):
            raise BadInput(f"{place}: no {kind} at {path}, nor with .gz; give its path relative to the CSV")
    return Instance(network, prop, timeout)
