"""The file format: what is written is read again; what is not a certificate is refused with a sentence, never worse."""

import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from tests.verdict.certificates import chunks_of, made, same

from bough.errors import BadInput, CertificateError, OutputError
from bough.verdict.certificate import (
    FRAME,
    LAYOUT,
    MAGIC,
    TAGS,
    Chunk,
    Leaves,
    Lemma,
    ProblemHashes,
    Torn,
    Writer,
    framed,
    pack,
    read,
    unpack,
)

HASH = np.zeros(32, np.uint8)


def everything(data: bytes) -> list[Chunk]:
    return list(read(io.BytesIO(data)))


@given(st.data())
def test_every_chunk_reads_back_as_it_was(data):
    kind = data.draw(st.sampled_from(list(LAYOUT)))
    values = []
    for dtype, axes in LAYOUT[kind]:
        shape = data.draw(st.tuples(*[st.integers(0, 4)] * axes))
        values.append(data.draw(arrays.arrays(dtype, shape)))
    chunk = kind(*values)
    again = unpack(kind, pack(chunk))
    assert same(chunk, again)
    assert all(a.dtype == np.dtype(dtype) for a, (dtype, _) in zip(vars(again).values(), LAYOUT[kind], strict=True))


@given(st.binary(max_size=300))
@settings(max_examples=300)
def test_any_bytes_are_refused_with_a_sentence(data):
    for start in (b"", MAGIC):
        with pytest.raises((CertificateError, Torn)):
            everything(start + data)


@given(st.sampled_from(list(LAYOUT)), st.binary(max_size=200))
@settings(max_examples=300)
def test_any_contents_of_a_chunk_are_refused_or_read(kind, data):
    try:
        chunk = unpack(kind, data)
    except CertificateError:
        return
    assert pack(chunk) is not None


def test_every_flipped_byte_is_noticed(tmp_path: Path):
    _, data = made("dense", 2, "dual")
    generator = np.random.default_rng(0)
    for at in generator.choice(len(data), size=min(400, len(data)), replace=False).tolist():
        damaged = bytearray(data)
        damaged[at] ^= int(generator.integers(1, 256))
        with pytest.raises((CertificateError, Torn)):
            everything(bytes(damaged))


def test_what_is_cut_off_is_torn_and_the_rest_reads_back():
    _, data = made("dense", 2, "dual")
    whole = everything(data)
    for length in [*range(1, 60), *range(60, len(data), 7), len(data) - 1]:
        chunks: list[Chunk] = []
        with pytest.raises(Torn):
            chunks.extend(read(io.BytesIO(data[:length])))
        assert all(same(a, b) for a, b in zip(chunks, whole, strict=False))
    assert len(chunks) == len(whole) - 1


def test_more_after_the_end_is_refused():
    _, data = made("dense", 2, "dual")
    with pytest.raises(CertificateError, match="more after the end"):
        everything(data + b"x")


def test_chunks_out_of_order_are_refused(tmp_path: Path):
    _, data = made("dense", 0, "dual")
    frames, at = [], len(MAGIC)
    while at < len(data):
        length = FRAME.unpack_from(data, at)[2]
        frames.append(data[at : at + FRAME.size + length])
        at += FRAME.size + length
    assert len(frames) > 4
    frames[1], frames[2] = frames[2], frames[1]
    with pytest.raises(CertificateError):
        everything(MAGIC + b"".join(frames))
    assert len(chunks_of(data, tmp_path / "proof")) == len(frames) - 1


def bomb(tag: bytes, raw: bytes, claimed: int) -> bytes:
    data = zlib.compress(raw)
    head = (tag, 0, len(data), claimed)
    return MAGIC + FRAME.pack(*head, zlib.crc32(data, zlib.crc32(struct.pack(">4sIII", *head)))) + data


def test_a_bomb_is_refused_before_it_is_unpacked():
    zeros = bytes(1 << 26)
    for claimed in (100, len(zeros) - 1, len(zeros) + 1, (1 << 32) - 1):
        with pytest.raises(CertificateError):
            everything(bomb(b"ASK ", zeros, claimed))


def test_an_array_larger_than_its_chunk_is_refused():
    shapes = struct.pack(">BIBI", 0, 1 << 31, 0, 1 << 31)
    with pytest.raises(CertificateError, match="shorter than its arrays"):
        unpack(ProblemHashes, shapes)
    rows = struct.pack(">BIBIBIBIIBII", 0, 3, 0, 0, 0, 0, 0, (1 << 32) - 1, (1 << 32) - 1, 4, 0, 0)
    with pytest.raises(CertificateError, match="shorter than its arrays"):
        unpack(Lemma, rows + bytes(3))


def test_narrow_numbers_do_not_fill_the_memory(monkeypatch):
    """A file of zeros that is small, and whose chunk is, but for what its numbers become."""
    monkeypatch.setattr("bough.verdict.certificate.MOST_BYTES", 1 << 12)
    head = np.array([0, 0])
    inside = Lemma(head, np.zeros(1000), np.zeros(900), np.zeros((0, 0)), np.zeros((0, 0)))
    assert len(unpack(Lemma, pack(inside)).neurons) == 1000
    outside = Lemma(head, np.zeros(1000), np.zeros(1100), np.zeros((0, 0)), np.zeros((0, 0)))
    with pytest.raises(CertificateError, match="more memory"):
        unpack(Lemma, pack(outside))


def test_whole_numbers_are_stored_narrow():
    head = np.array([1, 2])
    small = Lemma(head, np.arange(200), np.arange(200), np.zeros((400, 200), np.uint8), np.zeros((0, 0)))
    wide = Lemma(head, np.arange(200) + 70_000, np.arange(200), np.zeros((400, 200), np.uint8), np.zeros((0, 0)))
    assert len(pack(wide)) == len(pack(small)) + 3 * 200


def test_a_file_that_cannot_be_written_is_bad_input(tmp_path: Path):
    with pytest.raises(OutputError, match="cannot write"):
        Writer(tmp_path / "missing" / "proof", ProblemHashes(HASH, HASH))
    assert issubclass(CertificateError, BadInput)


def test_chunks_are_in_the_file_as_soon_as_they_are_written(tmp_path: Path):
    path = tmp_path / "proof"
    writer = Writer(path, ProblemHashes(HASH, HASH))
    count = len(path.read_bytes())
    assert count == len(MAGIC + framed(0, ProblemHashes(HASH, HASH)))
    writer.write(ProblemHashes(HASH, HASH))
    assert len(path.read_bytes()) > count
    with pytest.raises(OutputError, match="another run"):
        Writer(path, ProblemHashes(HASH, HASH))
    assert len(path.read_bytes()) > count
    assert TAGS[Leaves] == b"LEAF"
    writer.close()
