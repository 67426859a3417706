"""Arrays that travel together are picked, changed and joined alike, however deep they lie; None stays None."""

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.support import generator, normal
from torch import Tensor

from bough.domain.arrays import Arrays


@dataclass(frozen=True, eq=False)
class Pair(Arrays):
    """Two arrays of different type and shape."""

    number: Tensor  # int64 [rows]
    values: Tensor  # float64 [rows, 2, 3]


@dataclass(frozen=True, eq=False)
class Nest(Arrays):
    """Arrays in arrays, and what may be missing."""

    flag: Tensor  # bool [rows]
    pair: Pair
    other: Pair | None
    more: Tensor | None


def pair(seed: int, count: int) -> Pair:
    return Pair(100 * seed + torch.arange(count), normal(generator(seed), count, 2, 3))


def nest(seed: int, count: int, *, whole: bool) -> Nest:
    flag = torch.arange(count) % 2 == 0
    return Nest(flag, pair(seed, count), pair(seed + 1, count) if whole else None, flag.float() if whole else None)


def same(a: Nest, b: Nest) -> None:
    """Field by field, without the methods that are tested here."""
    for first, second in ((a, b), (a.pair, b.pair), (a.other, b.other)):
        assert type(first) is type(second)
        for name in () if first is None else vars(first):
            value, other = getattr(first, name), getattr(second, name)
            assert type(value) is type(other), name
            if isinstance(value, Tensor):
                assert value.dtype == other.dtype, name
                assert torch.equal(value, other), name


def by_hand(arrays: Nest, rows: list[int]) -> Nest:
    """Rows picked one by one."""

    def picked(column: Tensor) -> Tensor:
        return torch.stack([column[k] for k in rows]) if rows else column[:0]

    other, more = arrays.other, arrays.more
    return Nest(
        picked(arrays.flag),
        Pair(picked(arrays.pair.number), picked(arrays.pair.values)),
        None if other is None else Pair(picked(other.number), picked(other.values)),
        None if more is None else picked(more),
    )


def test_tensors_come_in_the_order_of_the_fields():
    full, bare = nest(1, 3, whole=True), nest(1, 3, whole=False)
    assert full.other is not None
    expected = [full.flag, full.pair.number, full.pair.values, full.other.number, full.other.values, full.more]
    assert all(a is b for a, b in zip(full.tensors(), expected, strict=True))
    assert all(a is b for a, b in zip(bare.tensors(), [bare.flag, bare.pair.number, bare.pair.values], strict=True))


@pytest.mark.parametrize("whole", [True, False])
def test_map_changes_every_tensor_and_keeps_types_and_the_original(whole):
    arrays, again = nest(2, 4, whole=whole), nest(2, 4, whole=whole)
    changed = arrays.map(lambda column: column.double() + 1)
    assert type(changed) is Nest
    assert type(changed.pair) is Pair
    assert (changed.other is None) == (changed.more is None) == (not whole)
    for new, old in zip(changed.tensors(), arrays.tensors(), strict=True):
        assert torch.equal(new, old.double() + 1)
    same(arrays, again)


def test_map_calls_the_change_in_the_order_of_tensors():
    """Whoever walks two of them in step relies on it."""
    arrays, columns = nest(3, 2, whole=True), list[Tensor]()

    def note(column: Tensor) -> Tensor:
        columns.append(column)
        return column

    arrays.map(note)
    assert all(a is b for a, b in zip(columns, arrays.tensors(), strict=True))


@given(st.integers(1, 6), st.lists(st.integers(0, 5), max_size=8), st.booleans())
def test_rows_by_number_may_be_repeated_and_in_any_order(count, rows, whole):
    rows = [row % count for row in rows]
    arrays = nest(4, count, whole=whole)
    same(arrays[torch.tensor(rows, dtype=torch.int64)], by_hand(arrays, rows))


@given(st.lists(st.booleans(), min_size=1, max_size=6), st.booleans())
def test_a_mask_picks_the_rows_that_are_true(mask, whole):
    arrays = nest(5, len(mask), whole=whole)
    same(arrays[torch.tensor(mask)], by_hand(arrays, [k for k, taken in enumerate(mask) if taken]))


def test_a_mask_of_two_rows_is_no_pair_of_numbers():
    """Rows 0 and 1 by number, the second alone by mask."""
    arrays = nest(6, 2, whole=True)
    same(arrays[torch.tensor([0, 1])], arrays)
    same(arrays[torch.tensor([False, True])], by_hand(arrays, [1]))


@given(st.integers(1, 6), st.slices(6), st.booleans())
def test_a_slice_picks_the_rows_between(count, part, whole):
    if part.step is not None and part.step < 0:
        part = slice(part.start, part.stop)  # tensors have no way backwards
    arrays = nest(7, count, whole=whole)
    same(arrays[part], by_hand(arrays, list(range(count))[part]))


@given(st.lists(st.integers(0, 3), min_size=1, max_size=4), st.booleans())
def test_joining_is_undone_by_picking(counts, whole):
    parts = [nest(10 * k, count, whole=whole) for k, count in enumerate(counts)]
    joined = Nest.concatenate(parts)
    assert len(joined.flag) == sum(counts)
    first = 0
    for part, count in zip(parts, counts, strict=True):
        same(joined[first : first + count], part)
        same(joined[torch.arange(first, first + count)], part)
        first += count


def test_joining_keeps_the_rows_of_every_field_together():
    joined = Nest.concatenate([nest(1, 2, whole=True), nest(3, 1, whole=True)])
    assert joined.other is not None
    assert joined.pair.number.tolist() == [100, 101, 300]
    assert joined.other.number.tolist() == [200, 201, 400]


def test_joining_one_part_is_that_part():
    arrays = nest(8, 2, whole=False)
    assert Nest.concatenate([arrays]) is arrays


def test_parts_with_and_without_a_field_do_not_join():
    for first, second in ((True, False), (False, True)):
        with pytest.raises(ValueError, match=r"shorter|longer"):
            Nest.concatenate([nest(1, 2, whole=first), nest(2, 2, whole=second)])


def test_arrays_move_to_a_device_as_a_whole():
    moved = nest(9, 2, whole=True).to(torch.device("meta"))
    assert all(column.device.type == "meta" for column in moved.tensors())
    assert moved.more is not None
    assert moved.more.is_meta
