"""Every window of a dataset, one frame apart: the range of its coefficients, and rare symbols.

A sample of chunks shows most of what a dataset holds, never all of it. A sweep reads the actions
once, block by block, and looks at every window that a training step may draw.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from vlaprep.kernels import sweep_windows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from vlaprep.fit_chunks import ChunkReader
    from vlaprep.normalization import Normalization

    _Ids = NDArray[np.int64]

__all__ = ["MAX_RANGE", "Swept", "Symbols", "Windows"]

MAX_RANGE = 0xD7FF
"""Largest range of coefficients that can be characters; behind it lie the surrogates."""

BLOCK_VALUES = 1 << 22
"""Values that are in memory at a time, but for copies of them: 16 MiB."""


@dataclass(frozen=True, eq=False)
class Symbols:
    """A set of quantised coefficients.

    Parameters
    ----------
    first : int
        The lowest that may be one of them.
    known : bool array, shape (S,)
        Whether ``first + i`` is one of them.
    """

    first: int
    known: NDArray[np.bool_]

    @classmethod
    def of(cls, values: NDArray[Any]) -> Symbols:
        """Make the set of some integers."""
        if not len(values):
            return cls(0, np.zeros(0, dtype=np.bool_))
        first = int(values.min())
        known = np.zeros(int(values.max()) - first + 1, dtype=np.bool_)
        known[np.asarray(values) - first] = True
        return cls(first, known)


@dataclass(frozen=True, eq=False)
class Swept:
    """What a sweep has seen.

    Parameters
    ----------
    windows, skipped : int
        Windows of finite values, and those left out for NaN, infinity or null.
    outside : int64 array, shape (N, 3)
        Windows that hold an unknown symbol: id of the episode, first start, start behind the last.
    symbols : int64 array, shape (S, 3)
        Unknown symbols, ascending, each with episode and start of the first window that holds it.
        Of those outside -65,536 to 65,535 only the lowest and the highest are listed.
    low, high : float64 array, shape (time_horizon, action_dim), optional
        Least and greatest coefficient of each frequency and dim, where they were asked for: those
        of the windows below, which no other window exceeds by more than `bound`.
    low_at, high_at : int64 array, shape (time_horizon, action_dim, 2), optional
        Episode and start of the windows that hold them; -1 where there is no window at all.
    bound : float
        See above; below 2e-9 for actions in [-1, 1] and up to 500 steps.
    """

    windows: int
    skipped: int
    outside: _Ids
    symbols: _Ids
    low: NDArray[np.float64] | None
    high: NDArray[np.float64] | None
    low_at: _Ids | None
    high_at: _Ids | None
    bound: float

    @property
    def windows_outside(self) -> int:
        """Number of windows that hold an unknown symbol."""
        return int((self.outside[:, 2] - self.outside[:, 1]).sum())


@dataclass(frozen=True, eq=False)
class Windows:
    """All windows of so many frames of some episodes.

    Parameters
    ----------
    reader : ChunkReader
        Where they lie, and what a window is.
    episode_index, length : int64 array, shape (E,)
        Episodes to look at, in the order of the dataset.
    num_threads : int, optional
        Bound on threads; by default VLAPREP_NUM_THREADS, else what the machine or container allows.
        It does not change the answer.

    Examples
    --------
    >>> from vlaprep import open_dataset
    >>> from vlaprep.action_space import ActionSpace
    >>> from vlaprep.fit_chunks import ChunkReader
    >>> from vlaprep.sweep import Windows
    >>> dataset = open_dataset("tests/golden/lerobot_v30")
    >>> table = dataset.episodes
    >>> reader = ChunkReader(dataset, ActionSpace("action"), 50)
    >>> windows = Windows(reader, table.episode_index, table.length)
    >>> swept = windows.sweep(scale=10.0, ranges=True)
    >>> swept.windows, swept.low.shape, bool((swept.low <= swept.high).all())
    (1394, (50, 6), True)
    """

    reader: ChunkReader
    episode_index: _Ids
    length: _Ids
    num_threads: int | None = None

    def sweep(
        self,
        *,
        scale: float,
        known: Symbols | None = None,
        normalization: Normalization | None = None,
        ranges: bool = False,
    ) -> Swept:
        """Look at every window.

        Parameters
        ----------
        scale : float
            Quantisation steps per unit of a coefficient.
        known : Symbols, optional
            Symbols that need not be told. By default symbols do not matter.
        normalization : Normalization, optional
            How to normalise actions first.
        ranges : bool
            Whether to look for the least and greatest coefficients.

        Returns
        -------
        Swept

        Raises
        ------
        DatasetFormatError
            If a file lacks the column, cannot be read, or has rows that are no vectors of one
            width.
        ValueError
            If the actions have another width than `normalization`, or `scale` is not positive.
        """
        horizon = self.reader.chunk_size
        tally: _Tally | None = None
        asked: dict[str, Any] = {
            "chunk_size": horizon,
            "scale": scale,
            "num_threads": self.num_threads,
        }
        if known is not None:
            asked |= {"first_symbol": known.first, "known": known.known}
        for rows, ids, starts, lengths in self._blocks():
            normal = _normalized(rows, normalization)
            tally = tally or _Tally((horizon, normal.shape[1]), ranges=ranges)
            asked |= tally.seen
            tally.add(sweep_windows(normal, lengths, **asked), ids, starts)
        return (tally or _Tally((horizon, 0), ranges=ranges)).result()

    def _blocks(self) -> Iterator[tuple[NDArray[Any], _Ids, _Ids, _Ids]]:
        """Read rows, with id, first frame and length of each episode or piece of one."""
        if not self.reader.space.by_row:
            yield from self._alone()
            return
        long_enough = self.length >= self.reader.chunk_size
        ids, lengths = self.episode_index[long_enough], self.length[long_enough]
        most = max(BLOCK_VALUES // self._width(ids), 1)
        ends = np.cumsum(lengths)
        first = 0
        while first < len(ids):
            if lengths[first] > most:
                yield from self._pieces(int(ids[first]), int(lengths[first]), most)
                first += 1
                continue
            begin = int(ends[first] - lengths[first])
            stop = int(np.searchsorted(ends, begin + most, side="right"))
            some = slice(first, stop)
            rows = self.reader.rows(ids[some])
            yield rows, ids[some], np.zeros(stop - first, np.int64), lengths[some]
            first = stop

    def _pieces(
        self, episode: int, length: int, most: int
    ) -> Iterator[tuple[NDArray[Any], _Ids, _Ids, _Ids]]:
        """Read a long episode in pieces that overlap, so that each window lies in one of them."""
        overlap = self.reader.chunk_size - 1
        most = max(most, 2 * overlap)  # so that little is read twice
        for start in range(0, length - overlap, most - overlap):
            count = min(most, length - start)
            one = [np.array([value]) for value in (episode, start, count)]
            yield replace(self.reader, chunk_size=count).read(one[0], one[1])[0], *one

    def _alone(self) -> Iterator[tuple[NDArray[Any], _Ids, _Ids, _Ids]]:
        """Read each window on its own, where windows do not share what their rows are."""
        horizon = self.reader.chunk_size
        beyond = 0 if self.reader.space.tail == "clamp" else horizon - 1
        counts = np.maximum(self.length - beyond, 0)
        ends = np.cumsum(counts)
        most = max(BLOCK_VALUES // (horizon * self._width(self.episode_index[counts > 0])), 1)
        for first in range(0, int(ends[-1]) if len(ends) else 0, most):
            numbers = np.arange(first, min(first + most, int(ends[-1])))
            episode = np.searchsorted(ends, numbers, side="right")
            ids, starts = self.episode_index[episode], numbers - (ends - counts)[episode]
            chunks = self.reader.read(ids, starts)
            rows = chunks.reshape(-1, chunks.shape[2])
            yield rows, ids, starts, np.full(len(ids), horizon, dtype=np.int64)

    def _width(self, ids: _Ids) -> int:
        if not len(ids):
            return 1
        one = replace(self.reader, chunk_size=1).read(ids[:1], np.zeros(1, dtype=np.int64))
        return max(int(one.shape[2]), 1)


def _normalized(rows: NDArray[Any], normalization: Normalization | None) -> NDArray[Any]:
    if normalization is None:
        return rows
    with np.errstate(all="ignore"):
        normal = normalization.normalize(rows)
    # A clip makes a number of infinity, but the window is none that is trained on.
    finite = np.isfinite(rows)
    if not finite.all():
        normal[~finite.all(axis=1)] = np.nan
    return normal


class _Tally:
    """What the blocks so far have shown."""

    def __init__(self, shape: tuple[int, int], *, ranges: bool) -> None:
        self.windows = self.skipped = 0
        self.bound = 0.0
        self.outside: list[_Ids] = []
        self.symbols: dict[int, list[int]] = {}
        self.ranges = ranges
        self.extremes = np.stack([np.full(shape, np.inf), np.full(shape, -np.inf)])
        self.places = np.full((2, *shape, 2), -1, dtype=np.int64)

    @property
    def seen(self) -> dict[str, NDArray[np.float64]]:
        """The range of the coefficients, where it is asked for."""
        return {"low": self.extremes[0], "high": self.extremes[1]} if self.ranges else {}

    def add(self, found: tuple[Any, ...], ids: _Ids, starts: _Ids) -> None:
        """Add what a block has shown, of pieces of episodes that begin at some frames."""
        windows, skipped, outside, symbols, extremes, places, bound = found
        self.windows += windows
        self.skipped += skipped
        self.bound = max(self.bound, bound)
        at = outside[:, 0]
        shift = starts[at]
        self.outside.append(
            np.stack([ids[at], outside[:, 1] + shift, outside[:, 2] + shift], axis=1)
        )
        for symbol, piece, start in symbols.tolist():
            self.symbols.setdefault(symbol, [int(ids[piece]), start + int(starts[piece])])
        new = ~np.isnan(extremes)
        self.extremes[new] = extremes[new]
        pieces = places[new][:, 0]
        self.places[new] = np.stack([ids[pieces], places[new][:, 1] + starts[pieces]], axis=1)

    def result(self) -> Swept:
        """Give all of it."""
        symbols = [[symbol, *at] for symbol, at in sorted(self.symbols.items())]
        low, high = self.extremes if self.ranges else (None, None)
        low_at, high_at = self.places if self.ranges else (None, None)
        return Swept(
            windows=self.windows,
            skipped=self.skipped,
            outside=_joined(np.concatenate([np.zeros((0, 3), np.int64), *self.outside])),
            symbols=np.array(symbols, dtype=np.int64).reshape(-1, 3),
            low=low,
            high=high,
            low_at=low_at,
            high_at=high_at,
            bound=self.bound,
        )


def _joined(runs: _Ids) -> _Ids:
    """Join runs that follow each other where a long episode was cut."""
    follows = (runs[1:, 0] == runs[:-1, 0]) & (runs[1:, 1] == runs[:-1, 2])
    first = np.flatnonzero(np.r_[True, ~follows][: len(runs)])
    last = np.r_[first[1:] - 1, len(runs) - 1][: len(first)]
    return np.column_stack([runs[first, :2], runs[last, 2]])
