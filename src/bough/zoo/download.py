"""The name, size and checksum of a published file enter; the file leaves, fetched from the first mirror that serves it.

Bytes gather in `NAME.part`, which a later call continues; `NAME` appears only once its checksum is right.
"""

import fcntl
import hashlib
import os
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from bough.errors import BadInput, OutputError

Progress = Callable[[str, int, int], None]
"""Called with a file's name, the bytes that are here and the bytes there will be."""

_CHUNK = 1 << 16
_TIMEOUT = 30.0  # seconds without a byte
_TRIES = 5  # for each mirror, as long as every try brings the file further


@dataclass(frozen=True)
class RemoteFile:
    """A published file that never changes, and the splits of its data set that it holds something of."""

    name: str
    size: int
    sha256: str
    splits: tuple[str, ...] = ("train", "test")

    def is_at(self, path: Path) -> bool:
        """Whether the file at this path is the published one, bit by bit."""
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
        return digest.hexdigest() == self.sha256


class _NotServed(Exception):
    """Why a mirror did not send what it was asked for."""


def fetch(file: RemoteFile, mirrors: tuple[str, ...], folder: Path, progress: Progress | None = None) -> Path:
    """The file in this folder, downloaded unless it is there; whatever goes wrong is one sentence in a `BadInput`."""
    target = folder / file.name
    part = folder / f"{file.name}.part"
    failures = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _alone_in(folder):
            for mirror in mirrors:
                if target.exists():  # another process was quicker
                    return target
                why = _gather(mirror + file.name, part, file, progress)
                if not why and file.is_at(part):
                    return part.replace(target)
                if not why:
                    part.unlink()
                    why = "its checksum is wrong, so what was received is deleted"
                failures.append(f"{mirror}{file.name} ({why})")
            kept = _size(part)
            if not kept:
                part.unlink(missing_ok=True)
    except OSError as error:
        advice = f"set BOUGH_DATA to another folder, or put {file.name} into it"
        raise OutputError(f"cannot write {part}: {error.strerror or error}; {advice}") from error
    advice = f"check the network connection and try again, or put {file.name} into {folder}"
    later = f" (a new try continues after the {kept:,} bytes that are here)" if kept else ""
    raise BadInput(f"cannot download {' nor '.join(failures)}; {advice}{later}")


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Let one process at a time download into a folder; the next one waits, and then finds the file."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # network drives may know no locks; there the checksum has to serve
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _gather(url: str, part: Path, file: RemoteFile, progress: Progress | None) -> str:
    """Continue the part until it is as long as the file; says why it is not, or nothing."""
    why = ""
    for _ in range(_TRIES):
        before = _size(part)
        if before >= file.size:  # left by an earlier run; too long a part fails its checksum
            return ""
        try:
            with closing(_served(url, before, file.size)) as chunks, part.open("ab") as kept:
                for place, chunk in chunks:
                    if place == 0:
                        kept.truncate(0)
                    kept.write(chunk)
                    if progress is not None:
                        progress(file.name, place + len(chunk), file.size)
            why = "the connection was cut"
        except _NotServed as error:
            why = str(error)
        after = _size(part)
        if after == file.size:
            return ""
        if after <= before:
            break
    return why


def _served(url: str, start: int, size: int) -> Generator[tuple[int, bytes], None, None]:
    """Chunks with their places in the file, from `start` on, or from 0 where the server knows no ranges."""
    try:
        request = Request(url, headers={"Range": f"bytes={start}-"} if start else {})  # noqa: S310 - a mirror's address
        with urlopen(request, timeout=_TIMEOUT) as answer:  # noqa: S310 - as above; what arrives has a checksum
            place = start if answer.status == HTTPStatus.PARTIAL_CONTENT else 0
            # Asked before the part is touched: a hotel's log-in page is no reason to lose what is here.
            if answer.length is not None and place + answer.length != size:
                raise _NotServed(f"it has {place + answer.length:,} bytes there instead of {size:,}")
            if place and not answer.headers.get("Content-Range", "").startswith(f"bytes {place}-"):
                raise _NotServed("it sent another range than it was asked for")
            while place < size and (chunk := answer.read(min(_CHUNK, size - place))):
                yield place, chunk
                place += len(chunk)
    except HTTPError as error:
        error.close()
        raise _NotServed(f"HTTP status {error.code}") from None
    except (OSError, HTTPException, ValueError) as error:  # ValueError: a proxy setting that is no address
        cause = getattr(error, "reason", error)
        raise _NotServed(getattr(cause, "strerror", None) or str(cause) or type(cause).__name__) from None


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
