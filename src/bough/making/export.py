"""Rows and their images enter; a folder with the table, a VNN-LIB file for each row and `instances.csv` leaves."""

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from bough.api import load_network
from bough.errors import BadInput, OutputError
from bough.files.reading import is_there, read_bytes, resolve
from bough.files.writing import write_text
from bough.problem.vnnlib import write_property
from bough.report.runs import stem
from bough.zoo.datasets import Images
from bough.zoo.shipped import NETWORKS
from bough.zoo.table import Row, as_property, as_text, check_fits

TABLE, INSTANCES, LOG, VNNLIB = "properties.csv", "instances.csv", "probes.jsonl", "vnnlib"
TABLE_LIMIT = 1 << 28  # most bytes that are read of a table that was written before
ImagesOf = Callable[[str, str], Images]  # by data set and split


def check_same(folder: Path, rows: Sequence[Row]) -> None:
    """Refuse a folder that holds another table: its files would lie among those of this one."""
    there = folder / TABLE
    if there.is_file() and read_bytes(there, TABLE_LIMIT, OutputError) != as_text(rows).encode():
        raise OutputError(f"{folder} holds another table; give another folder")


def file_name(row: Row) -> str:
    """The name of a row's VNN-LIB file, which tells all that its property depends on."""
    unit = ("normalised" if row.normalised else "pixels") + ("-clipped" if row.clip else "")
    return f"{stem(row.network)}-{row.dataset}-{row.split}{row.image}-to{row.target}-eps{row.eps!r}-{unit}.vnnlib"


def find_network(name: str, folders: Sequence[Path]) -> Path:
    """The file of a row's network, which is named by a path or by a name without ending."""
    for path in (base / end for base in folders for end in (name, Path(name).name, f"{Path(name).name}.onnx")):
        if is_there(file := resolve(path)) and file.is_file():
            return file
    places = ", ".join(map(str, folders))
    raise BadInput(f"there is no network {name} in {places}, nor with .onnx or .gz; give its folder by --networks")


def ready(rows: Sequence[Row], images_of: ImagesOf, note: Callable[[str], None]) -> tuple[Row, ...]:
    """The rows whose image is at hand, labels filled in; each makes a property."""
    at_hand = {key: set(images_of(*key).index.tolist()) for key in {(row.dataset, row.split) for row in rows}}
    labelled = []
    for row in rows:
        if row.image in at_hand[row.dataset, row.split]:
            images = images_of(row.dataset, row.split)
            as_property(row, images)
            labelled.append(row if row.label is not None else replace(row, label=images.at(row.image)[1]))
    if len(labelled) < len(rows):
        note(f"{len(rows) - len(labelled)} of {len(rows)} rows are left out: their images are not at hand")
    return tuple(labelled)


def network_folders(table: Path, given: Path | None) -> tuple[Path, ...]:
    """Where the networks of a table are: in the folder given, else here or beside the table; or among those shipped."""
    return (*((Path(), table.parent) if given is None else (given,)), NETWORKS)


def check_networks(rows: Sequence[Row], images_of: ImagesOf, folders: Sequence[Path]) -> dict[str, Path]:
    """The file of each network of the table; each has to fit the images of its rows."""
    paths = {}
    for name, dataset, split in dict.fromkeys((row.network, row.dataset, row.split) for row in rows):
        paths[name] = find_network(name, folders)
        try:
            check_fits(load_network(paths[name]).network, images_of(dataset, split).dataset)
        except BadInput as error:
            words = str(error)
            raise type(error)(words if str(paths[name]) in words else f"{paths[name]}: {words}") from error
    return paths


def write_problems(
    folder: Path, rows: Sequence[Row], images_of: ImagesOf, networks: dict[str, Path], timeout: float
) -> None:
    """Write properties, table and list of instances; the list comes last, so all that it names is there."""
    lines = io.StringIO(newline="")
    writer = csv.writer(lines, lineterminator="\n")
    for row in {file_name(row): row for row in rows}.values():
        path = Path(VNNLIB) / file_name(row)
        text = write_property(as_property(row, images_of(row.dataset, row.split)))
        write_text(folder / path, text, parents=True)
        writer.writerow([networks[row.network].resolve(), path, f"{timeout:g}"])
    write_text(folder / TABLE, as_text(rows))
    write_text(folder / INSTANCES, lines.getvalue())
