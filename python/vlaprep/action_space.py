"""Which numbers of a frame a tokenizer encodes: dims by name, relative actions, padding, tails.

Trainers differ in what they call an action chunk. Here a chunk of a dataset becomes one of a policy
in this order, each step where it is asked for::

    frames of the episode, the last one repeated past its end       tail="clamp"
    a[t, d] - s[0, d], s the state at the chunk's first frame       relative=, absolute=
    the dims to encode, in the order asked for                      dims=
    normalisation                                                   (vlaprep.normalization)
    zeros behind the last dim                                       max_action_dim=
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from operator import index
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from vlaprep.errors import DatasetFormatError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from vlaprep.dataset import Dataset
    from vlaprep.sampling import Tail

    Dims: TypeAlias = "Iterable[str | int | range | slice] | str"

__all__ = ["ActionRequest", "ActionSpace", "column_width"]

TAILS = ("exclude", "clamp")
_RANGE = re.compile(r"(\d*):(\d*)")


@dataclass(frozen=True)
class ActionSpace:
    """What the dims of a chunk are, in a dataset at hand.

    Parameters
    ----------
    action_key, state_key : str
        Columns of the actions, and of the state that relative ones start from.
    dims : tuple of int, optional
        Dims of the column, in the order of the chunk's; None: all.
    relative : tuple of int
        Dims of the column that are relative to the state.
    names : tuple of str, optional
        Names of the chunk's dims.
    tail : {"exclude", "clamp"}
        Whether chunks end with the episode, or repeat its last frame.
    max_action_dim : int, optional
        Dims that normalised chunks are filled up to with zeros.
    """

    action_key: str
    state_key: str | None = None
    dims: tuple[int, ...] | None = None
    relative: tuple[int, ...] = ()
    names: tuple[str, ...] | None = None
    tail: Tail = "exclude"
    max_action_dim: int | None = None

    @property
    def by_row(self) -> bool:
        """Whether a window is nothing but its rows, so that windows share them."""
        return not self.relative and self.tail == "exclude"

    @property
    def columns(self) -> str:
        """The columns that a chunk is made of, for messages."""
        state = "" if self.state_key is None else f" or {self.state_key!r}"
        return f"{self.action_key!r}{state}"

    def relative_mask(self, action_dim: int) -> tuple[bool, ...] | None:
        """Tell for each dim of a chunk whether it is relative; None where none is."""
        if not self.relative:
            return None
        return tuple(dim in self.relative for dim in self.dims or range(action_dim))

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON types."""
        return {
            "action_key": self.action_key,
            "state_key": self.state_key,
            "dims": self.dims and list(self.dims),
            "relative": list(self.relative),
            "names": self.names and list(self.names),
            "tail": self.tail,
            "max_action_dim": self.max_action_dim,
        }

    @classmethod
    def from_dict(cls, told: dict[str, Any]) -> ActionSpace:
        """Read what `to_dict` gave."""
        tuples = {name: told[name] and tuple(told[name]) for name in ("dims", "relative", "names")}
        return cls(**{**told, **tuples, "relative": tuple(told["relative"])})


@dataclass(frozen=True)
class ActionRequest:
    """Dims as a caller names them, without a dataset at hand.

    Parameters
    ----------
    action_key, state_key : str
        See `ActionSpace`.
    dims, relative, absolute : tuple of str and int, optional
        Names, indices, and ranges such as ``"0:7"``. `relative` names the dims to make relative,
        `absolute` those to leave; only one of them can be given, and neither makes none relative.
    tail, max_action_dim
        See `ActionSpace`.
    """

    action_key: str
    state_key: str
    dims: tuple[str | int, ...] | None
    relative: tuple[str | int, ...] | None
    absolute: tuple[str | int, ...] | None
    tail: Tail
    max_action_dim: int | None

    @classmethod
    def of(
        cls,
        action_key: str = "action",
        *,
        state_key: str = "observation.state",
        dims: Dims | None = None,
        relative: Dims | None = None,
        absolute: Dims | None = None,
        tail: Tail = "exclude",
        max_action_dim: int | None = None,
    ) -> ActionRequest:
        """Check what needs no dataset, and bring it to normal form."""
        if relative is not None and absolute is not None:
            raise ValueError(
                "relative= names the dims to make relative and absolute= those to leave: pass one"
            )
        if tail not in TAILS:
            raise ValueError(f"tail must be one of {', '.join(TAILS)}, got {tail!r}")
        if isinstance(dims, set | frozenset):
            raise TypeError("dims= is a set, which has no order to encode in: pass a list")
        most = None if max_action_dim is None else index(max_action_dim)
        if most is not None and most < 1:
            raise ValueError(f"max_action_dim must be at least 1, got {max_action_dim}")
        return cls(
            action_key,
            state_key,
            None if dims is None else _listed("dims", dims),
            None if relative is None else _listed("relative", relative),
            None if absolute is None else _listed("absolute", absolute),
            tail,
            most,
        )

    @property
    def is_relative(self) -> bool:
        """Whether any dim may be relative."""
        return self.absolute is not None or bool(self.relative)

    def identity(self) -> dict[str, Any]:
        """All of it that can change a chunk, as JSON types: the order of relative dims cannot."""
        named = {
            name: None
            if given is None
            else sorted(set(given), key=lambda dim: (str(dim), isinstance(dim, str)))
            for name, given in (("relative", self.relative or None), ("absolute", self.absolute))
        }
        return {
            **asdict(self),
            **named,
            "state_key": self.state_key if self.is_relative else None,
        }

    def resolve(self, dataset: Dataset, label: str) -> ActionSpace:
        """Find the dims in a dataset that messages call `label`.

        Raises
        ------
        DatasetFormatError
            The dataset has no such column or dim, the message lists those there are; or a state
            too narrow for the actions.
        ValueError
            A dim comes twice, or `max_action_dim` is less than there are.
        """
        names = dataset.feature_names(self.action_key)
        if self.dims is None and not self.is_relative and self.max_action_dim is None:
            named = None if names is None else tuple(names)
            return ActionSpace(self.action_key, names=named, tail=self.tail)
        width = column_width(dataset, self.action_key)
        names = names if names is not None and len(names) == width else None
        where = f"column {self.action_key!r} of dataset {label}"
        dims = None if self.dims is None else _found(self.dims, names, width, where)
        if dims is not None and len(set(dims)) < len(dims):
            raise ValueError(f"dims={list(self.dims or ())} names a dim twice")
        if dims == ():
            raise ValueError("dims= names no dim: leave it out to encode all")
        used = len(dims) if dims is not None else width
        if self.max_action_dim is not None and self.max_action_dim < used:
            raise ValueError(
                f"max_action_dim={self.max_action_dim} is less than the {used} dims that are "
                f"encoded of {where}: raise it, or choose fewer with dims="
            )
        relative = self._relative(dataset, label, names, width, dims)
        chosen = None if names is None else tuple(names[dim] for dim in dims or range(width))
        return ActionSpace(
            self.action_key,
            self.state_key if relative else None,
            dims,
            relative,
            chosen,
            self.tail,
            self.max_action_dim,
        )

    def _relative(
        self,
        dataset: Dataset,
        label: str,
        names: Sequence[str] | None,
        width: int,
        dims: tuple[int, ...] | None,
    ) -> tuple[int, ...]:
        """Find the dims to make relative, of those that are encoded."""
        if not self.is_relative:
            return ()
        where = f"column {self.action_key!r} of dataset {label}"
        if self.relative is not None:
            relative = tuple(sorted(set(_found(self.relative, names, width, where))))
        else:
            left = set(_found(self.absolute or (), names, width, where))
            relative = tuple(dim for dim in range(width) if dim not in left)
        relative = tuple(dim for dim in relative if dims is None or dim in dims)
        if not relative:
            return ()
        if self.state_key not in dataset.columns:
            raise DatasetFormatError(
                f"there is no column {self.state_key!r} in dataset {label}, which relative actions "
                f"start from; it has: {', '.join(dataset.columns)}; choose one with state_key="
            )
        state = column_width(dataset, self.state_key)
        if relative[-1] >= state:
            raise DatasetFormatError(
                f"dim {relative[-1]} of {where} cannot be relative: the state in column "
                f"{self.state_key!r} has {state} dims; name fewer dims with relative="
            )
        return relative


def _listed(name: str, given: Any) -> tuple[str | int, ...]:
    """Write names, indices, ranges and slices as names and indices."""
    if isinstance(given, str):
        given = [part.strip() for part in given.split(",")] if given.strip() else []
    elif isinstance(given, slice) or not hasattr(given, "__iter__"):
        given = [given]
    listed: list[str | int] = []
    for item in given:
        if isinstance(item, range):
            listed.extend(item)
        elif isinstance(item, slice):
            if item.step not in (None, 1):
                raise ValueError(f"{item} has a step: list the dims")
            ends = ("" if end is None else str(end) for end in (item.start, item.stop))
            listed.append(":".join(ends))
        elif isinstance(item, bool | np.bool_):  # which would count as 0 and 1
            raise TypeError(
                f"{name}= is a mask: pass names or indices, such as {name}=np.flatnonzero(mask)"
            )
        elif isinstance(item, str) or hasattr(item, "__index__"):
            listed.append(item if isinstance(item, str) else index(item))
        else:
            raise TypeError(f"{name}= holds {item!r}, which is no name, index or range of dims")
    return tuple(listed)


def _found(
    wanted: Iterable[str | int], names: Sequence[str] | None, width: int, where: str
) -> tuple[int, ...]:
    """Give the indices of dims; a name that is there is a name, whatever it looks like."""
    known = list(names or ())
    found: list[int] = []
    for item in wanted:
        ends = _RANGE.fullmatch(item) if isinstance(item, str) else None
        if isinstance(item, str) and item in known:
            if known.count(item) > 1:
                raise DatasetFormatError(
                    f"{known.count(item)} dims of {where} are called {item!r}: name them by index"
                )
            found.append(known.index(item))
        elif ends:
            first, stop = int(ends[1] or 0), int(ends[2] or width)
            if not first < stop <= width:
                raise _unknown(item, names, width, where)
            found.extend(range(first, stop))
        else:
            dim = int(item) if isinstance(item, int) or item.isdecimal() else width
            if not 0 <= dim < width:
                raise _unknown(item, names, width, where)
            found.append(dim)
    return tuple(found)


def _unknown(
    item: str | int, names: Sequence[str] | None, width: int, where: str
) -> DatasetFormatError:
    known = f"its dims are {', '.join(names)}, or" if names else "its dims have no names, but are"
    return DatasetFormatError(f"there is no dim {item!r} in {where}: {known} 0 to {width - 1}")


def column_width(dataset: Dataset, column: str) -> int:
    """Count the dims of a column in its rows, which metadata may belie."""
    ids, lengths = dataset.episodes.episode_index, dataset.episodes.length
    some = ids[lengths > 0][:1]
    if not len(some):
        raise DatasetFormatError(f"column {column!r} has no rows, so its dims cannot be told")
    width: int = dataset.read_chunks(some, [0], 1, column).shape[2]
    return width
