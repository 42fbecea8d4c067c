"""Cases of the sweep over every window: from arrays, and from a data set on disk."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.fft

import vlaprep
from data import CHUNK_SIZE, DIMS, Config, dataset
from paired import NUMPY, OURS, Case
from vlaprep.action_space import ActionSpace
from vlaprep.fit_chunks import ChunkReader
from vlaprep.kernels import sweep_windows
from vlaprep.sweep import Symbols, Windows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

SCALE = 10.0
KNOWN = 40
"""Symbols up to this one are known: a few windows in a hundred hold another."""
BLOCK = 4096
"""Windows that SciPy transforms at a time: what is quickest."""
MOST_EPISODES = 2000
"""SciPy takes a minute for more."""


def sweep_rows(config: Config) -> Case:
    count = min(200, config.episodes * 2)
    rows = _motion(500 * count)
    lengths = np.full(count, 500)
    known = np.ones(2 * KNOWN + 1, dtype=np.bool_)

    def ours(_: int) -> Array:
        found = sweep_windows(rows, lengths, CHUNK_SIZE, SCALE, -KNOWN, known)
        return _marks(found[2], lengths)

    windows = count * (501 - CHUNK_SIZE)
    return Case(
        f"windows with a rare coefficient, of {windows:,} of {CHUNK_SIZE} x {DIMS}, arrays",
        {NUMPY: lambda _: _by_scipy(rows, lengths), OURS: ours},
    )


def sweep_dataset(variant: str, config: Config) -> Case:
    root = dataset(config, variant)
    table = vlaprep.open_dataset(root).episodes
    ids, lengths = table.episode_index[:MOST_EPISODES], table.length[:MOST_EPISODES]
    known = Symbols(-KNOWN, np.ones(2 * KNOWN + 1, dtype=np.bool_))

    def theirs(_: int) -> Array:
        rows = vlaprep.open_dataset(root).read("action", ids)["action"]
        return _by_scipy(rows, lengths)

    def ours(_: int) -> Array:
        reader = ChunkReader(vlaprep.open_dataset(root), ActionSpace("action"), CHUNK_SIZE)
        runs = Windows(reader, ids, lengths).sweep(scale=SCALE, known=known).outside
        return _marks(np.column_stack([np.searchsorted(ids, runs[:, 0]), runs[:, 1:]]), lengths)

    count = int(np.maximum(lengths - CHUNK_SIZE + 1, 0).sum())
    return Case(
        f"the same of {count:,} windows on disk, {variant}",
        {NUMPY: theirs, OURS: ours},
        memory=True,
    )


@cache
def _motion(rows: int) -> Array:
    """Slow waves with a little noise, and a jump now and then."""
    rng = np.random.default_rng(0)
    wave = np.sin(np.arange(rows)[:, None] * 0.02 * np.arange(1, DIMS + 1))
    jumps = rng.random((rows, DIMS)) < 1e-4
    return np.where(jumps, 6.0, 0.9 * wave + 0.02 * rng.random((rows, DIMS))).astype(np.float32)


def _by_scipy(rows: Array, lengths: Array) -> Array:
    """Per window of all episodes, one after the other, whether it holds a rare coefficient."""
    found = []
    for end, length in zip(np.cumsum(lengths), lengths, strict=True):
        if length < CHUNK_SIZE:
            continue
        view = np.lib.stride_tricks.sliding_window_view(
            rows[end - length : end].astype(np.float64), CHUNK_SIZE, axis=0
        )
        for first in range(0, len(view), BLOCK):
            coefficients = scipy.fft.dct(view[first : first + BLOCK], axis=2, norm="ortho")
            symbols = np.around(coefficients * SCALE)
            found.append((np.abs(symbols) > KNOWN).any(axis=(1, 2)))
    return np.concatenate(found)


def _marks(runs: Array, lengths: Array) -> Array:
    """Mark each window that lies in a run."""
    counts = np.maximum(lengths - CHUNK_SIZE + 1, 0)
    first = np.cumsum(counts) - counts
    marks = np.zeros(int(counts.sum()), dtype=np.bool_)
    for episode, start, end in runs.tolist():
        marks[first[episode] + start : first[episode] + end] = True
    return marks
