"""A table of properties enters; a folder of problems beside the records, and the instances in it, leave."""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bough.bench.tasks import Asked, about
from bough.errors import BadInput
from bough.files.reading import read_bytes
from bough.files.writing import make_folder
from bough.making import export
from bough.making.export import ImagesOf
from bough.problem.instances import Instance
from bough.zoo.table import COLUMNS, PAPER_COLUMNS, TABLE_LIMIT, Row, read_table

TIMEOUT = 300.0  # seconds per run unless the user says how many; as `bough properties` writes it
INSTANCE_COLUMNS = 3  # columns of a list of instances; a table has more


def is_table(path: Path) -> bool:
    """Whether a file is meant as a table of properties: many columns, and their names in the first line."""
    try:
        lines = csv.reader(io.StringIO(read_bytes(path, TABLE_LIMIT, BadInput).decode("utf-8-sig"), newline=""))
        first = next((cells for cells in lines if any(cells)), [])
    except (UnicodeDecodeError, csv.Error):
        return False
    return len(first) > INSTANCE_COLUMNS and bool({*COLUMNS, *PAPER_COLUMNS} & set(first))


@dataclass(frozen=True, eq=False)
class Problems:
    """The rows of a table whose images are at hand, and the folder where their files are, or will be."""

    folder: Path
    rows: Sequence[Row]
    networks: Mapping[str, Path]
    images_of: ImagesOf

    def listed(self) -> tuple[Asked, ...]:
        """An instance for each row."""
        folder = self.folder / export.VNNLIB
        return tuple(
            Asked(Instance(self.networks[row.network], folder / export.file_name(row), TIMEOUT), about(row))
            for row in self.rows
        )

    def write(self) -> None:
        """Write the files, unless they are there; a folder of another table is refused."""
        make_folder(self.folder)
        export.check_same(self.folder, self.rows)
        if not (self.folder / export.INSTANCES).exists():  # it is written last
            export.write_problems(self.folder, self.rows, self.images_of, dict(self.networks), TIMEOUT)


def read_problems(
    table: Path, folder: Path, networks: Path | None, images_of: ImagesOf, note: Callable[[str], None]
) -> Problems:
    """The problems of a table, with their files in `folder`."""
    rows = export.ready(read_table(table), images_of, note)
    if not rows:
        raise BadInput(f"none of the images of {table} is at hand; say by --data where they are")
    paths = export.check_networks(rows, images_of, export.network_folders(table, networks))
    return Problems(folder, rows, paths, images_of)
