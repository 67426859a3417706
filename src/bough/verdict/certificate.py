"""Certificates on disk: the proof of a verdict as a stream of chunks, each with its own checksum; no pickle, no code.

    8 bytes of magic, then chunks: tag (4 bytes), number, compressed length, length, CRC-32 (4 bytes each), zlib data

A chunk holds a few arrays whose order and meaning its tag fixes (the dataclasses below); bytes of equal weight lie
together, since that compresses. The first chunk names the question, the last one (`END `) the verdict, with the SHA-256
of all before it. Chunks are handed to the system whole as soon as they are full, so a process that dies leaves all that
it had finished; a file without a last chunk, or with a torn one, is incomplete, and never a proof.
"""

import hashlib
import itertools
import math
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from bough.errors import OutputError, UnreadableCertificate
from bough.files.writing import own, write_all
from bough.network.graph import Network
from bough.problem.property import Property

Array = NDArray[Any]
MAGIC = b"BOUGHCT1"
HEAD = struct.Struct(">4sIII")  # of a frame, which ends with the checksum of this and the data
FRAME = struct.Struct(">4sIIII")
MOST_BYTES = 1 << 28  # a chunk has at most so many bytes, decompressed
LEVEL = 7  # zlib's level of compression: at 9, files are a tenth smaller and writing is eight times as slow
MOST_LEAVES = 1 << 16  # a chunk has at most so many leaves, which a checker looks at together
DTYPES = ("u1", "u2", "u4", "u8", "f8")
VERDICTS = ("verified", "falsified", "timeout", "unknown")
EMPTY, SLOPES, FINE, DIRECT, LOCAL = range(5)  # how a leaf is proved: `Leaves.kind`


@dataclass(frozen=True, eq=False)
class ProblemHashes:
    """Chunk `ASK ` says what the certificate is about, by the SHA-256 of network and property as they were read."""

    network: Array  # u1 [32]
    property: Array

    @staticmethod
    def of(network: Network, prop: Property) -> "ProblemHashes":
        """Hashes of a network and a property."""
        return ProblemHashes(_network_hash(network), _property_hash(prop))


@dataclass(frozen=True, eq=False)
class Lemma:
    """Chunk `RELU` bounds ReLU inputs over a whole box; or, for one clause, where all of its rows hold.

    A ReLU z of `neurons` is bounded by the functionals z and -z, which pass earlier ReLUs with the lower slopes given
    (in 255ths), plus `weights` times the clause's rows.
    """

    head: Array  # u4 [2]: box, clause + 1 (0: all points of the box)
    neurons: Array  # u4 [m], ascending
    slots: Array  # u4 [n]: the ReLUs that slopes are about
    slopes: Array  # u1 [2 m, n]
    weights: Array  # f8 [2 m, rows], or [2 m, 0]


@dataclass(frozen=True, eq=False)
class TreeLemma:
    """Chunk `TREE` bounds ReLU inputs as `RELU` does, each side over patterns of splits: the least of these counts.

    A side is twice the ReLU's number, plus one for -z. A pattern has splits with multipliers, as leaves have; other
    ReLUs pass with the lower slopes in row `vector`, which patterns share, and the clause's rows have weights.
    """

    head: Array  # u4 [2]: box, clause + 1 (0: all points of the box)
    sides: Array  # u4 [patterns]
    vector: Array  # u4 [patterns]
    splits: Array  # u4 [patterns]: how many
    literals: Array  # u4 [splits of all]
    signs: Array  # f8 [splits of all]
    weights: Array  # f8 [patterns, rows], or [patterns, 0]
    slots: Array  # u4 [n]: the ReLUs that slopes are about
    slopes: Array  # u1 [vectors, n]

    def __len__(self) -> int:
        return len(self.sides)


@dataclass(frozen=True, eq=False)
class Leaves:
    """Chunk `LEAF` holds closed parts of the tree.

    A leaf has a clause, splits of ReLUs (twice the ReLU's number, plus one where it passes) with the multiplier of each
    sign, and halvings of inputs (the input, how often, and which halves: the first decides the highest bit used). It is
    proved by weights of the clause's rows, and by its kind:

    EMPTY: the splits contradict the bounds. SLOPES: lower slopes in 255ths, row `vector - 1` of `coarse`; 0: those that
    follow from the bounds. FINE: the same by row `vector` of `fine`. DIRECT: multipliers of ReLU inputs, that row.
    LOCAL: the bounds of all ReLUs are derived again in the leaf; `vector` is a kind of slopes, plus 4 times the effort.
    """

    clause: Array  # u4 [leaves]
    kind: Array  # u1 [leaves]
    vector: Array  # u4 [leaves]
    splits: Array  # u4 [leaves]: how many
    literals: Array  # u4 [splits of all]
    signs: Array  # f8 [splits of all]
    halvings: Array  # u4 [leaves]: how many inputs
    inputs: Array  # u4 [halvings of all]
    times: Array  # u1 [halvings of all]
    halves: Array  # u8 [halvings of all]
    weights: Array  # f8 [leaves, rows]
    slots: Array  # u4 [n]
    coarse: Array  # u1 [vectors, n]
    fine: Array  # f8 [vectors, n]

    def __len__(self) -> int:
        return len(self.clause)


@dataclass(frozen=True, eq=False)
class Point:
    """Chunk `CEX ` holds a counterexample."""

    x: Array  # f8 [inputs]
    box: Array  # u4 [1]


@dataclass(frozen=True, eq=False)
class End:
    """Chunk `END ` holds the verdict, the number of leaves, the search's seconds, and the hash of all before it."""

    verdict: Array  # u1 [1]: its place in VERDICTS
    leaves: Array  # u8 [1]
    seconds: Array  # f8 [1]
    digest: Array  # u1 [32]


Chunk = ProblemHashes | Lemma | TreeLemma | Leaves | Point | End
KINDS: dict[bytes, type[Any]] = {
    b"ASK ": ProblemHashes,
    b"RELU": Lemma,
    b"TREE": TreeLemma,
    b"LEAF": Leaves,
    b"CEX ": Point,
    b"END ": End,
}
TAGS = {kind: tag for tag, kind in KINDS.items()}
# The types that each array may have: whole numbers are stored as narrow as they fit.
WHOLE = {"u1": ("u1",), "u2": ("u1", "u2"), "u4": ("u1", "u2", "u4"), "u8": ("u1", "u2", "u4", "u8")}
LAYOUT: dict[type[Any], Sequence[tuple[str, int]]] = {
    ProblemHashes: (("u1", 1),) * 2,
    Lemma: (("u4", 1), ("u4", 1), ("u4", 1), ("u1", 2), ("f8", 2)),
    TreeLemma: (*(("u4", 1),) * 5, ("f8", 1), ("f8", 2), ("u4", 1), ("u1", 2)),
    Leaves: (
        *(("u4", 1), ("u1", 1), ("u4", 1), ("u4", 1), ("u4", 1), ("f8", 1)),
        *(("u4", 1), ("u4", 1), ("u1", 1), ("u8", 1), ("f8", 2)),
        *(("u4", 1), ("u1", 2), ("f8", 2)),
    ),
    Point: (("f8", 1), ("u4", 1)),
    End: (("u1", 1), ("u8", 1), ("f8", 1), ("u1", 1)),
}


def _network_hash(network: Network) -> Array:
    """SHA-256 of everything that a network is, as bough read it, but for names."""
    sha = hashlib.sha256()
    for node in network.nodes:
        words: list[object] = [type(node.op).__name__, node.inputs, node.shape]
        for field in fields(node.op):
            value = getattr(node.op, field.name)
            if hasattr(value, "numpy"):
                sha.update(np.ascontiguousarray(value.cpu().numpy()).tobytes())
                value = (tuple(value.shape), str(value.dtype))
            words += [field.name, value]
        sha.update(repr(words).encode())
    return np.frombuffer(sha.digest(), dtype=np.uint8)


def _property_hash(prop: Property) -> Array:
    """SHA-256 of everything that a property is."""
    sha = hashlib.sha256()
    for box in prop.boxes:
        sha.update(b"box" + box.lower.numpy().tobytes() + box.upper.numpy().tobytes())
        if not box.is_closed:  # the hash of a closed box is what it was before boxes could be strict
            sha.update(b"strict" + b"".join(side.numpy().tobytes() for side in box.strict))
    for clause in prop.clauses:
        sha.update(repr((clause.box, tuple(clause.coefficients.shape), clause.strict)).encode())
        sha.update(clause.coefficients.contiguous().numpy().tobytes() + clause.offsets.numpy().tobytes())
    return np.frombuffer(sha.digest(), dtype=np.uint8)


def pack(chunk: Chunk) -> bytes:
    """A chunk's arrays as bytes: types and shapes, then the data, bytes of equal weight together."""
    head, data = [], []
    for field, (widest, axes) in zip(fields(chunk), LAYOUT[type(chunk)], strict=True):
        array = np.asarray(getattr(chunk, field.name))
        kind = next(k for k in WHOLE[widest] if array.max(initial=0) <= np.iinfo(k).max) if widest in WHOLE else widest
        stored = np.ascontiguousarray(array, dtype=np.dtype(kind).newbyteorder("<"))
        head.append(struct.pack(f">B{axes}I", DTYPES.index(kind), *stored.shape))
        data.append(stored.reshape(-1, 1).view(np.uint8).T.tobytes())
    return b"".join(head + data)


def unpack(kind: type[Any], data: bytes) -> Any:
    """The chunk again; raises `UnreadableCertificate` unless the bytes are exactly one."""
    at = 0
    shapes: list[tuple[str, str, tuple[int, ...]]] = []
    for expected, axes in LAYOUT[kind]:
        head = struct.Struct(f">B{axes}I")
        if len(data) < at + head.size:
            raise UnreadableCertificate("a chunk ends before its arrays begin")
        code, *sides = head.unpack_from(data, at)
        at += head.size
        if code >= len(DTYPES) or DTYPES[code] not in WHOLE.get(expected, (expected,)):
            raise UnreadableCertificate(f"a chunk has numbers of another type than {expected} in an array")
        shapes.append((expected, DTYPES[code], tuple(sides)))
    needed = at + sum(math.prod(shape) * np.dtype(stored).itemsize for _, stored, shape in shapes)
    if needed != len(data):
        raise UnreadableCertificate(f"a chunk is {'shorter' if needed > len(data) else 'longer'} than its arrays")
    # Narrow numbers are widened: a few zeros in a file must not become gigabytes here.
    if sum(math.prod(shape) * np.dtype(expected).itemsize for expected, _, shape in shapes) > 2 * MOST_BYTES:
        raise UnreadableCertificate("a chunk asks for more memory than it may take")
    arrays = []
    for expected, stored, shape in shapes:
        size = math.prod(shape)
        width = np.dtype(stored).itemsize
        planes = np.frombuffer(data, dtype=np.uint8, count=size * width, offset=at).reshape(width, size)
        values = np.ascontiguousarray(planes.T).reshape(-1).view(np.dtype(stored).newbyteorder("<"))
        arrays.append(values.astype(expected).reshape(shape))
        at += size * width
    return kind(*arrays)


class Writer:
    """Appends chunks to a file, each of them whole."""

    def __init__(self, path: Path, hashes: ProblemHashes) -> None:
        self.path = path
        self._hash = hashlib.sha256()
        self._chunks = self.leaves = self.bytes = 0
        refusal = f"cannot write {path}: another run writes its certificate there"
        self._file: BinaryIO = os.fdopen(own(path, refusal), "ab", buffering=0)
        try:
            if path.is_file():
                self._file.truncate(0)
        except OSError as error:
            raise OutputError(f"cannot write {path}: {error.strerror or error}") from error
        self._put(MAGIC)
        self.write(hashes)

    def _put(self, data: bytes) -> None:
        try:
            write_all(self._file.fileno(), data)
        except OSError as error:
            raise OutputError(f"cannot write the certificate {self.path}: {error.strerror or error}") from error
        self._hash.update(data)
        self.bytes += len(data)

    def write(self, chunk: Chunk) -> None:
        """Append a chunk; the system has all of it when this returns."""
        self._put(framed(self._chunks, chunk))
        self._chunks += 1
        if isinstance(chunk, Leaves):
            self.leaves += len(chunk)

    def end(self, verdict: str, seconds: float) -> None:
        """Append the verdict, and close."""
        digest = np.frombuffer(self._hash.digest(), dtype=np.uint8)
        self.write(End(np.array([VERDICTS.index(verdict)]), np.array([self.leaves]), np.array([seconds]), digest))
        self.close()

    def close(self) -> None:
        """Close the file as it is."""
        self._file.close()


def framed(number: int, chunk: Chunk) -> bytes:
    """A chunk as it lies in the file."""
    raw = pack(chunk)
    data = zlib.compress(raw, LEVEL)
    head = HEAD.pack(TAGS[type(chunk)], number, len(data), len(raw))
    return head + struct.pack(">I", zlib.crc32(data, zlib.crc32(head))) + data


class Torn(Exception):
    """The file ends without its last chunk."""


def read(file: BinaryIO) -> Iterator[Chunk]:
    """All chunks in order; raises `Torn` where the last, an `End`, is missing, `UnreadableCertificate` at damage."""
    seen = hashlib.sha256()
    magic = file.read(len(MAGIC))
    if magic != MAGIC[: len(magic)] or not magic:
        raise UnreadableCertificate("this is no certificate of bough")
    seen.update(magic)
    for number in itertools.count():
        head, data, chunk = _next(file, number)
        if (number == 0) != isinstance(chunk, ProblemHashes):
            raise UnreadableCertificate("a certificate begins with its question, and has one only")
        if isinstance(chunk, End):
            if len(chunk.digest) != 32 or chunk.digest.tobytes() != seen.digest():
                raise UnreadableCertificate("the hash at the end is not that of the certificate")
            if file.read(1):
                raise UnreadableCertificate("there is more after the end of the certificate")
            yield chunk
            return
        seen.update(head + data)
        yield chunk


def _next(file: BinaryIO, number: int) -> tuple[bytes, bytes, Chunk]:
    """Head, data and contents of the chunk that follows in the file."""
    head = file.read(FRAME.size)
    if len(head) < FRAME.size:
        raise Torn
    tag, stored_number, length, raw, crc = FRAME.unpack(head)
    kind = KINDS.get(tag)
    if kind is None or stored_number != number or length > MOST_BYTES or raw > MOST_BYTES:
        raise UnreadableCertificate(f"chunk {number} has no sound head")
    data = file.read(length)
    if len(data) < length:
        raise Torn
    if zlib.crc32(data, zlib.crc32(head[: HEAD.size])) != crc:
        raise UnreadableCertificate(f"chunk {number} does not fit its checksum")
    return head, data, unpack(kind, _inflated(data, raw, number))


def _inflated(data: bytes, raw: int, number: int) -> bytes:
    stream = zlib.decompressobj()
    try:
        inflated = stream.decompress(data, raw + 1)
    except zlib.error as error:
        raise UnreadableCertificate(f"chunk {number} cannot be decompressed") from error
    if len(inflated) != raw or not stream.eof or stream.unused_data:
        raise UnreadableCertificate(f"chunk {number} decompresses to another length than it says")
    return inflated
