"""A path enters, the bytes of the file leave: plain or `.gz`, never more than a stated size, and one kind of error."""

import csv
import gzip
import io
import json
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bough.errors import BadInput

NETWORK_LIMIT = 1 << 30  # most bytes a network may have once decompressed
PROPERTY_LIMIT = 1 << 28  # most bytes a property may have once decompressed
LINES_LIMIT = 1 << 30  # most bytes a file of JSON lines (records, manifests, logs) may have
_CHUNK = 1 << 20  # bytes that are read at once

JsonObject = Mapping[str, object]
"""What a JSON object holds of which nothing more is known: names, with whatever JSON can say."""


def parsed_json(text: str | bytes) -> Any:
    """What JSON holds; whatever is wrong with it, also nesting that is too deep, is a `ValueError`."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it nests too deep") from None


def resolve(path: str | Path) -> Path:
    """The path itself, or the same with `.gz` where only that is there."""
    path = Path(path)
    zipped = path.with_name(path.name + ".gz") if path.name else path
    return zipped if not is_there(path) and is_there(zipped) else path


def is_there(path: Path) -> bool:
    """Whether the path leads anywhere; one the system cannot even look up does not."""
    try:
        return path.exists()
    except OSError:
        return False


def read_bytes(path: str | Path, limit: int, error_class: type[BadInput]) -> bytes:
    """Contents of a file, decompressed where its name ends in `.gz`.

    A path that is absent but there with `.gz` means the `.gz`. Whatever goes wrong, also more than `limit` bytes, is
    an `error_class`.
    """
    path = resolve(path)
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            # In chunks, so that a gzip bomb costs no more memory than the limit.
            contents = io.BytesIO()
            while chunk := file.read(_CHUNK):
                if contents.tell() + len(chunk) > limit:
                    raise error_class(
                        f"{path} holds more than {limit:,} bytes, the most bough reads here; give a smaller file"
                    )
                contents.write(chunk)
            return contents.getvalue()
    except EOFError:
        raise error_class(f"{path} ends in the middle of its gzip data; fetch the file again") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        advice = "fetch it again, or drop .gz from its name"
        raise error_class(f"{path} is no sound gzip file ({error}); {advice}") from None
    except IsADirectoryError:
        raise error_class(f"{path} is a directory; give the file in it") from None
    except FileNotFoundError:
        raise error_class(f"{path} does not exist, nor does it with .gz; check the path") from None
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL character in it
        reason = getattr(error, "strerror", None) or error
        raise error_class(f"{path} cannot be read: {reason}; check its path and permissions") from None


def read_text(path: str | Path, limit: int, error_class: type[BadInput], wanted: str) -> str:
    """Contents of a text file, read as by `read_bytes`; an error asks for what is wanted."""
    try:
        return read_bytes(path, limit, error_class).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise error_class(f"{path} is not text; give {wanted}") from None


def read_csv(path: str | Path, limit: int, wanted: str, advice: str) -> Iterator[tuple[str, list[str]]]:
    """Lines of a CSV, each with its place; errors ask for what is wanted, or advise how to write a line."""
    lines = csv.reader(io.StringIO(read_text(path, limit, BadInput, wanted), newline=""), strict=True)
    try:
        for cells in lines:
            yield f"{path}, line {lines.line_num}", cells
    except csv.Error as error:
        raise BadInput(f"{path}, line {lines.line_num}: not a CSV line ({error}); {advice}") from None
