"""From arrays to arrays, as a careful engineer would go with NumPy, SciPy or polars."""

from __future__ import annotations

import importlib.util
import itertools
import os
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.fft

from baseline import PERCENTS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    Array = NDArray[Any]

HAS_GIGABPE = importlib.util.find_spec("gigabpe") is not None
HAS_FASTOKENS = importlib.util.find_spec("fastokens") is not None
"""Both are only for benches: where they are not installed these run without them."""


def rank_sorted(lengths: Array, tasks: Array) -> tuple[Array, Array, Array]:
    """Tasks, boundaries and labels out of one sort; all tasks at once where NumPy can."""
    order = np.lexsort((lengths, tasks))
    known, first, count = np.unique(tasks[order], return_index=True, return_counts=True)
    ranked = lengths[order].astype(np.float64)
    index = (count - 1)[:, None] * (np.array(PERCENTS) / 100)
    low = index.astype(np.int64)
    part = index - low
    a = ranked[first[:, None] + low]
    step = ranked[first[:, None] + np.minimum(low + 1, count[:, None] - 1)] - a
    boundaries = np.where(part >= 0.5, a + step - step * (1 - part), a + step * part)
    labels = np.empty(len(lengths), np.int64)
    for row, begin, rows in zip(boundaries, first, count, strict=True):
        here = ranked[begin : begin + rows]
        if np.count_nonzero(np.diff(here)) + 1 < len(PERCENTS):
            row[:] = np.nan
            labels[order[begin : begin + rows]] = 50
        else:
            labels[order[begin : begin + rows]] = 10 * np.searchsorted(row, here, side="right")
    return known, boundaries, labels


def rank_polars(lengths: Array, tasks: Array) -> tuple[Array, None, Array]:
    """Tasks and labels by a group-by, a join, and a count of boundaries.

    The boundaries are not given out: at whole ranks they miss those of NumPy by an ulp.
    """
    import polars as pl

    names = [f"p{percent}" for percent in PERCENTS]
    frame = pl.DataFrame({"length": lengths, "task": tasks})
    ranked = frame.group_by("task").agg(
        pl.when(pl.col("length").n_unique() >= len(PERCENTS))
        .then(pl.col("length").quantile(percent / 100, "linear"))
        .alias(name)
        for name, percent in zip(names, PERCENTS, strict=True)
    )
    above = pl.sum_horizontal(pl.col("length") >= pl.col(name) for name in names)
    labels = frame.join(ranked, on="task", maintain_order="left").select(
        pl.when(pl.col(names[0]).is_null()).then(5).otherwise(above).cast(pl.Int64) * 10
    )
    return ranked["task"].sort().to_numpy(), None, labels.to_series().to_numpy()


def quantiles_by_partition(x: Array) -> tuple[Array, Array]:
    """1 % and 99 % quantiles of float32 rows: each column laid out alone, partitioned once."""
    index = (len(x) - 1) * np.array([0.01, 0.99])
    low = index.astype(np.int64)
    columns = np.partition(np.ascontiguousarray(x.T), [*low, *(low + 1)], axis=1)
    part = index - low
    a, b = columns[:, low], columns[:, low + 1]
    step = b - a
    out = np.where(
        part >= 0.5, b - step * (1 - part).astype(x.dtype), a + step * part.astype(x.dtype)
    )
    return out[:, 0], out[:, 1]


def dct_symbols_batched(chunks: Array, workers: int | None, scale: float = 10.0) -> Array:
    """All chunks in one SciPy call."""
    coefficients = scipy.fft.dct(chunks.astype(np.float64), axis=1, norm="ortho", workers=workers)
    return np.asarray(np.around(coefficients * scale), dtype=np.int32)


def encode_texts(
    encode: Callable[[list[str]], list[list[int]]], chunks: Array, min_token: int
) -> list[list[int]]:
    """SciPy on all CPUs, texts made by NumPy, one call of a BPE that has threads of its own."""
    symbols = dct_symbols_batched(chunks, os.cpu_count()) - min_token
    codes = symbols.astype("<u4").reshape(len(chunks), -1)
    return encode([row.tobytes().decode("utf-32-le") for row in codes])


def decode_texts(
    decode: Callable[[list[list[int]]], list[str]],
    ids: Array,
    offsets: Array,
    min_token: int,
    shape: tuple[int, int],
    scale: float = 10.0,
) -> Array:
    """One call of the BPE, texts read by NumPy, one inverse transform."""
    texts = decode([ids[a:b].tolist() for a, b in itertools.pairwise(offsets.tolist())])
    codes = np.frombuffer("".join(texts).encode("utf-32-le"), "<u4").astype(np.float64)
    coefficients = (codes + min_token).reshape(-1, *shape) / scale
    return np.asarray(scipy.fft.idct(coefficients, axis=1, norm="ortho"))


def write_symbols(path: Path, chunks: Array) -> None:
    """Write the text of each chunk on a line of its own."""
    symbols = dct_symbols_batched(chunks, os.cpu_count())
    codes = (symbols - symbols.min()).astype("<u4").reshape(len(chunks), -1)
    with path.open("w", encoding="utf-8", newline="") as file:
        file.writelines(row.tobytes().decode("utf-32-le") + "\n" for row in codes)


def train_gigabpe(path: Path, vocab_size: int = 1024) -> None:
    """Train on lines; its merges differ where a text holds line breaks, so none are given."""
    import gigabpe

    gigabpe.train_bpe([str(path)], vocab_size=vocab_size, pretokenizer="bytelevel", min_frequency=2)


def gather_windows(rows: Array, first: Array, chunk_size: int) -> Array:
    """Windows of a view, picked by one index array."""
    windows = np.lib.stride_tricks.sliding_window_view(rows, chunk_size, axis=0)
    return np.ascontiguousarray(windows[first].transpose(0, 2, 1))
