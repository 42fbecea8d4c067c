"""Statistics that are given to a fit, brought to the dims that it encodes."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from vlaprep.errors import VlaprepError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vlaprep.action_space import ActionSpace
    from vlaprep.normalization import Normalization

__all__ = ["check_labels", "of_dims", "statistics_of"]

_OTHERWISE = {
    "dataset": "exclude_episodes= leaves episodes out",
    "meta": "statistics='dataset' takes those of all frames",
}


@contextmanager
def statistics_of(source: str, label: str) -> Iterator[None]:
    """Say of statistics that cannot be used whose they are, and what to do."""
    try:
        yield
    except (VlaprepError, ValueError) as error:
        kind = type(error) if isinstance(error, VlaprepError) else ValueError
        raise kind(
            f"statistics={source!r} of dataset {label}: {error}. In a fit, {_OTHERWISE[source]}, "
            "and statistics='sample' takes those of the chunks drawn"
        ) from error


def of_dims(norm: Normalization, space: ActionSpace, dim: int, width: int) -> Normalization:
    """Pick the statistics of the dims that are encoded, where they are of all of a column.

    Parameters
    ----------
    norm : Normalization
        As many statistics as the column has dims are those of the column, in its order; save that
        names which are those of the encoded dims say that they are picked already.
    space : ActionSpace
        Its dims are those that are encoded.
    dim, width : int
        How many are encoded, and how many the column has.

    Raises
    ------
    ValueError
        There are neither as many statistics as the column has dims, nor as are encoded.
    """
    count = norm.action_dim
    if count is None or space.dims is None or count != width:
        if count not in (None, dim):
            of_column = f" or the {width} of the column" if space.dims is not None else ""
            raise ValueError(
                f"statistics of {count} dims do not fit the {dim} dims that are encoded of column "
                f"{space.action_key!r}{of_column}"
            )
        return norm
    if norm.dim_names is not None and norm.dim_names == space.names:
        return norm
    dims, given = list(space.dims), norm
    if norm.mode != "IDENTITY":
        norm = replace(norm, lo=norm.lo[dims], hi=norm.hi[dims], dim_names=None, relative=None)
    names, relative = given.dim_names, given.relative
    return replace(
        norm,
        dim_names=None if names is None else tuple(names[place] for place in dims),
        relative=None if relative is None else tuple(relative[place] for place in dims),
    )


def check_labels(norm: Normalization, space: ActionSpace, dim: int) -> None:
    """Refuse a normalisation of other dims, or of dims that are relative where these are not.

    Raises
    ------
    ValueError
        It is one.
    """
    names = space.names if space.names is not None and len(space.names) == dim else None
    if None not in (names, norm.dim_names) and names != norm.dim_names:
        raise ValueError(
            f"the given statistics are of the dims {_listed(norm.dim_names)}, and those encoded of "
            f"column {space.action_key!r} are {_listed(names)}: choose dims= in that order, or, "
            "where only the names differ, pass dataclasses.replace(statistics, dim_names=None)"
        )
    here = space.relative_mask(dim) or (False,) * dim
    there = norm.relative or (False,) * dim
    if here != there:
        raise ValueError(
            f"the given statistics have {_marked(there, names)} relative to the state, and the "
            f"fit has {_marked(here, names)}: choose relative= alike, or pass statistics of such "
            "actions, which say so by Normalization(..., relative=mask)"
        )


def _listed(names: tuple[str, ...] | None) -> str:
    return ", ".join(names or ())


def _marked(mask: tuple[bool, ...], names: tuple[str, ...] | None) -> str:
    marked = [str(names[dim] if names else dim) for dim, is_one in enumerate(mask) if is_one]
    return f"dims {', '.join(marked)}" if marked else "no dim"
