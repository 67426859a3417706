"""What comes with the package: a name enters, the file of a network or of a table of properties leaves.

The networks are trained by `experiments/train_network.py` with its usual recipe, and the tables made by
`bough properties`; a network's card lies beside it. A file of the user's own is never hidden by one of these.
"""

from pathlib import Path

from bough.files.reading import is_there, resolve

NETWORKS, TABLES = (Path(__file__).with_name(name) for name in ("networks", "tables"))


def network_path(given: Path) -> Path:
    """The network meant: a file that is there, or else the shipped one of that name."""
    return _meant(given, NETWORKS, ".onnx")


def table_path(given: Path) -> Path:
    """The table meant: a file that is there, or else the shipped one of that name."""
    return _meant(given, TABLES, ".csv")


def _meant(given: Path, folder: Path, ending: str) -> Path:
    shipped = folder / f"{given.name.removesuffix(ending)}{ending}"
    alone = given.parent == Path()
    return shipped if alone and shipped.is_file() and not is_there(resolve(given)) else given
