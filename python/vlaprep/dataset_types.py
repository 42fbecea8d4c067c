"""What `vlaprep.dataset` hands out: plain values, all of them public there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from vlaprep._native import episode_stream
from vlaprep.errors import EpisodeSelectionError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

LARGEST_ID = np.iinfo(np.int64).max


class Feature(NamedTuple):
    """One column as ``meta/info.json`` describes it.

    Attributes
    ----------
    dtype : str
        As written, such as ``"float32"``; empty where nothing is written.
    shape : tuple of int
        Shape of one frame's value.
    names : list of str or None
        Names of the dims, where they are one flat list.
    """

    dtype: str
    shape: tuple[int, ...]
    names: list[str] | None


@dataclass(frozen=True, eq=False)
class ColumnStats:
    """Statistics of one column over many frames; a column of single numbers has one dim.

    Attributes
    ----------
    count : int
        Frames.
    min, max, mean, std : numpy.ndarray
        float64, shape (D,), in the dataset's own units. `std` is the population's,
        ``sqrt(mean((x - mean)**2))``. A dim that holds NaN has NaN throughout, as in NumPy.
    q : tuple of float
        Which quantiles `quantiles` holds.
    quantiles : numpy.ndarray
        float64, shape (len(q), D): exact, and equal to ``np.quantile(x, q_i, axis=0)`` of NumPy 2.4
        and newer for the column as `Dataset.read` gives it.
    """

    count: int
    min: NDArray[np.float64]
    max: NDArray[np.float64]
    mean: NDArray[np.float64]
    std: NDArray[np.float64]
    q: tuple[float, ...]
    quantiles: NDArray[np.float64]


class DatasetInfo(NamedTuple):
    """What ``meta/info.json`` says; the counters are as written, and rows decide.

    Attributes
    ----------
    codebase_version : str
        Such as ``"v2.1"``.
    fps : float or None
        Frames per second.
    features : dict
        `Feature` by column.
    total_episodes, total_frames : int or None
        Counters as written.
    """

    codebase_version: str
    fps: float | None
    features: dict[str, Feature]
    total_episodes: int | None
    total_frames: int | None


class Finding(NamedTuple):
    """One thing a user should know about a dataset.

    Attributes
    ----------
    kind : str
        A fixed word such as ``"pointer"`` or ``"unresolved-task"``.
    message : str
        The whole sentence.
    """

    kind: str
    message: str


@dataclass(frozen=True, eq=False)
class EpisodeTable:
    """The episodes of a dataset, as its rows tell them. All arrays are int64 and read-only.

    Hand it to anything that speaks the Arrow PyCapsule interface, such as ``pyarrow.table(table)``
    or ``polars.from_arrow(table)``.

    Parameters
    ----------
    episode_index : numpy.ndarray
        Shape (E,): ids, ascending, not necessarily dense.
    length : numpy.ndarray
        Shape (E,), in frames.
    task_index : numpy.ndarray
        Shape (E,): task of the first frame; -1 where it has none, or one that the dataset does not
        define.
    span_offsets : numpy.ndarray
        Shape (E + 1,): the spans of episode ``i`` are ``span_offsets[i] : span_offsets[i + 1]``.
    span_file, span_first_row, span_rows : numpy.ndarray
        Shape (S,): position in `Dataset.files`, first row in that file, number of rows.
    """

    episode_index: NDArray[np.int64]
    length: NDArray[np.int64]
    task_index: NDArray[np.int64]
    span_offsets: NDArray[np.int64]
    span_file: NDArray[np.int64]
    span_first_row: NDArray[np.int64]
    span_rows: NDArray[np.int64]

    def __post_init__(self) -> None:
        for column in vars(self).values():
            column.flags.writeable = False

    def __reduce__(self) -> tuple[type[EpisodeTable], tuple[NDArray[np.int64], ...]]:
        return EpisodeTable, tuple(vars(self).values())

    def __len__(self) -> int:
        return len(self.episode_index)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, EpisodeTable):
            return NotImplemented
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return all(np.array_equal(a, b) for a, b in pairs)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        frames, tasks = int(self.length.sum()), len(np.unique(self.task_index))
        return f"<EpisodeTable: {len(self)} episodes, {frames} frames, {tasks} tasks>"

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Export as an Arrow stream of one batch (PyCapsule interface)."""
        return episode_stream(*vars(self).values())

    def positions(self, episodes: ArrayLike) -> NDArray[np.int64]:
        """Positions of the ids `episodes` in this table.

        Parameters
        ----------
        episodes : array_like of int64, shape (N,)
            Ids.

        Returns
        -------
        numpy.ndarray
            int64, shape (N,).

        Raises
        ------
        EpisodeSelectionError
            If an id is not in the table; the message names it.
        """
        ids = episode_ids(episodes)
        found = np.searchsorted(self.episode_index, ids)
        inside = np.minimum(found, len(self) - 1)
        unknown = ids[self.episode_index[inside] != ids]
        if unknown.size:
            raise EpisodeSelectionError(
                f"no such episode: {', '.join(map(str, unknown[:20]))}; the dataset has "
                f"{len(self)} episodes from {self.episode_index[0]} to {self.episode_index[-1]}"
            )
        return inside


def episode_ids(episodes: Any) -> NDArray[np.int64]:
    """Episode ids of any iterable as an int64 array; what is no integer is refused, not rounded."""
    if isinstance(episodes, str | bytes) or not hasattr(episodes, "__iter__"):
        raise EpisodeSelectionError(f"episode ids must be listed, such as [0, 4], got {episodes!r}")
    ids = np.asarray(episodes if isinstance(episodes, np.ndarray) else list(episodes)).ravel()
    if not ids.size:
        return np.zeros(0, np.int64)
    if ids.dtype.kind not in "iu":
        raise EpisodeSelectionError(f"episode ids must be integers, got {ids.dtype}: {ids[:5]}")
    if ids.max() > LARGEST_ID:
        raise EpisodeSelectionError(f"no such episode: {ids.max()}; ids end at {LARGEST_ID}")
    return ids.astype(np.int64)
