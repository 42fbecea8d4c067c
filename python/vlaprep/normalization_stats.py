"""Where the two statistics of a mode come from: rows, a dataset, LeRobot's stats.json."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from vlaprep.conventions import STATISTICS
from vlaprep.errors import DatasetFormatError, DatasetNotFoundError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from vlaprep.conventions import Convention
    from vlaprep.dataset import Dataset

    Floats: TypeAlias = NDArray[np.floating[Any]]

__all__ = [
    "check_dim_labels",
    "check_statistics",
    "dataset_statistics",
    "given_statistics",
    "read_statistics",
    "sample_statistics",
]

_QUANTILES = {"QUANTILES": (0.01, 0.99), "QUANTILE10": (0.1, 0.9)}
_NONE = np.zeros(0)


def sample_statistics(blocks: Iterable[Floats], mode: str) -> tuple[Floats, Floats]:
    """``(lo, hi)`` of a mode, each (D,), of rows in blocks (n, D); empty for IDENTITY.

    Quantiles have the dtype of the rows, all else is float64. How rows are cut into blocks changes
    no bit. Blocks pass by several times.
    """
    from vlaprep.kernels import block_moments, block_quantiles

    if mode == "IDENTITY":
        return _NONE, _NONE
    if mode in _QUANTILES:
        lo, hi = block_quantiles(blocks, _QUANTILES[mode])
        return lo, hi
    low, high, mean, std = block_moments(blocks)
    return (mean, std) if mode == "MEAN_STD" else (low, high)


def dataset_statistics(
    dataset: Dataset, column: str, mode: str, episodes: ArrayLike | None
) -> tuple[Floats, Floats]:
    """``(lo, hi)`` of a mode, exact, of all rows of a column."""
    if mode == "IDENTITY":
        return _NONE, _NONE
    taken = dataset.stats(column, q=_QUANTILES.get(mode, ()), episodes=episodes)[column]
    if mode in _QUANTILES:
        return taken.quantiles[0], taken.quantiles[1]
    low, high = (getattr(taken, name) for name in STATISTICS[mode])
    return low, high


def read_statistics(stats: Any, column: str) -> tuple[Mapping[str, Any], str]:
    """Find the statistics of one column by name in what `Normalization.from_stats` takes.

    Returns
    -------
    statistics : mapping
        Such as ``{"mean": ..., "std": ...}``.
    place : str
        How a message names where they were found.
    """
    place = "the statistics"
    if isinstance(stats, str | PathLike):
        path = Path(stats).expanduser()
        path = path / "meta" / "stats.json" if path.is_dir() else path
        stats, place = _read(path), str(path)
    if not isinstance(stats, Mapping):
        raise TypeError(f"{place} must be a mapping or a path, not {type(stats).__name__}")
    if isinstance(stats.get(column), Mapping):
        return stats[column], f"{column!r} in {place}"
    columns = [name for name, value in stats.items() if isinstance(value, Mapping)]
    if columns or not stats:
        raise DatasetFormatError(
            f"{place}: there is no column {column!r}; columns are: {', '.join(map(str, columns))}"
        )
    return stats, place


def given_statistics(stats: Mapping[str, Any], mode: str, place: str) -> tuple[Floats, Floats]:
    """``(lo, hi)`` of a mode out of statistics by name."""
    if mode == "IDENTITY":
        return _NONE, _NONE
    low, high = (_values(stats, name, mode, place) for name in STATISTICS[mode])
    return low, high


def check_statistics(rule: Convention, mode: str, lo: Floats, hi: Floats) -> None:
    """Refuse statistics that are not those of any actions."""
    low, high = STATISTICS[mode]
    if lo.ndim != 1 or lo.shape != hi.shape or not lo.size:
        raise ValueError(
            f"lo and hi must be flat and equally long, got shapes {lo.shape} and {hi.shape}"
        )
    broken = np.flatnonzero(~(np.isfinite(lo) & np.isfinite(hi)))
    if len(broken):
        raise ValueError(
            f"the {mode} statistics of action dim {broken[0]} are not finite; leave out "
            "chunks with NaN or infinity before taking statistics"
        )
    with np.errstate(over="ignore"):
        spread = rule.spread(lo, hi, mode)
    for dim in np.flatnonzero(~(spread >= 0)):
        raise ValueError(
            f"{low} {lo[dim]:g} and {high} {hi[dim]:g} of action dim {dim} are in "
            "the wrong order, or below 0; look for statistics that were swapped"
        )
    for dim in np.flatnonzero(np.isinf(spread)):
        raise DatasetFormatError(
            f"dim {dim} of the actions ranges from {lo[dim]:g} to {hi[dim]:g}, more "
            f"than {lo.dtype} can subtract; look for broken values in that dim"
        )


def check_dim_labels(name: str, given: Any, kind: type, dims: int | None) -> tuple[Any, ...]:
    """Check names or a mask of dims."""
    labels = tuple(getattr(given, "tolist", lambda: given)())
    if not labels or not all(isinstance(label, kind) for label in labels):
        raise ValueError(f"{name} must be {kind.__name__} values, one a dim, got {given!r}")
    if dims not in (None, len(labels)):
        raise ValueError(f"{name} has {len(labels)} entries, but there are {dims} dims")
    return labels


def _values(stats: Mapping[str, Any], name: str, mode: str, place: str) -> Floats:
    if name not in stats:
        raise DatasetFormatError(
            f"{place}: there is no {name!r}, which {mode} needs; there are: "
            f"{', '.join(map(str, stats)) or 'none'}"
        )
    try:
        return np.atleast_1d(np.asarray(stats[name], dtype=np.float64))
    except (TypeError, ValueError) as error:
        raise DatasetFormatError(f"{place}: {name!r} holds no numbers: {error}") from error


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DatasetNotFoundError(
            f"cannot read {path}: {error.strerror or error}; Normalization.from_dataset takes "
            "statistics of the rows"
        ) from error
    except (ValueError, RecursionError) as error:  # neither UTF-8 nor JSON
        raise DatasetFormatError(f"{path} is no JSON: {error}") from error
