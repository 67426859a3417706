"""Arrays that travel together, one row a domain: picked, moved and joined in one place."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import torch
from torch import Tensor
from typing_extensions import Self

Kind = TypeVar("Kind", bound="Arrays")


class Arrays:
    """The base of frozen dataclasses whose fields are tensors [domains, ...], further such arrays, or None."""

    def tensors(self) -> Iterator[Tensor]:
        """Every tensor, in the order of the fields."""
        for value in vars(self).values():
            if isinstance(value, Tensor):
                yield value
            elif value is not None:
                yield from value.tensors()

    def map(self, change: Callable[[Tensor], Tensor]) -> Self:
        """The same arrays with every tensor changed."""
        fields: dict[str, object] = {}
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                fields[name] = change(value)
            else:
                fields[name] = value if value is None else value.map(change)
        return type(self)(**fields)

    def __getitem__(self: Kind, rows: Tensor | slice) -> Kind:  # noqa: PYI019 - Python 3.10 has no Self
        """The rows with these numbers (int64 or a slice), or under this mask (bool)."""
        if isinstance(rows, Tensor) and rows.dtype == torch.bool:
            rows = rows.nonzero()[:, 0]
        return type(self)(**{name: None if value is None else value[rows] for name, value in vars(self).items()})

    def to(self: Kind, device: torch.device) -> Kind:  # noqa: PYI019 - as above
        """The same arrays on a device."""
        return type(self)(**{name: None if value is None else value.to(device) for name, value in vars(self).items()})

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        """All rows of several batches, in order."""
        if len(parts) == 1:
            return parts[0]
        # A list, so that fields which only the first part lacks are noticed.
        joined = iter([torch.cat(columns) for columns in zip(*(part.tensors() for part in parts), strict=True)])
        return parts[0].map(lambda _: next(joined))
