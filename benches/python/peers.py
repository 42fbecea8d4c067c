"""How a careful engineer would do the same with well-known packages, beside the references' way."""

from __future__ import annotations

import importlib.util
import itertools
import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq
import scipy.fft

from baseline import PERCENTS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    Array = NDArray[Any]

HAS_POLARS = importlib.util.find_spec("polars") is not None
HAS_FASTOKENS = importlib.util.find_spec("fastokens") is not None
"""These are only for benches: where one is not installed they run without it."""


def read_pyarrow(root: Path) -> tuple[Array, Array]:
    """Ids and actions: a thread a CPU over the files, and no Python object for a row."""

    def read(path: Path) -> tuple[Array, Array]:
        # pre_buffer costs twice the time where every episode has a row group of its own
        with pq.ParquetFile(path, pre_buffer=False) as file:
            table = file.read(columns=["episode_index", "action"], use_threads=False)
        values = table["action"].combine_chunks().flatten().to_numpy()
        return table["episode_index"].to_numpy(), values.reshape(table.num_rows, -1)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        ids, actions = zip(*pool.map(read, _files(root)), strict=True)
    return np.concatenate(ids), np.concatenate(actions)


def read_polars(root: Path) -> tuple[Array, Array]:
    """Ids and actions by a lazy scan of all files."""
    import polars as pl

    frame = pl.scan_parquet(_files(root)).select("episode_index", "action").collect()
    values = frame["action"].explode().to_numpy()
    return frame["episode_index"].to_numpy(), values.reshape(len(frame), -1)


def episodes_polars(root: Path) -> tuple[Array, Array, Array]:
    """Ids, lengths and first tasks by a lazy scan and a group-by."""
    import polars as pl

    table = (
        pl.scan_parquet(_files(root))
        .group_by("episode_index")
        .agg(pl.len().cast(pl.Int64), pl.first("task_index"))
        .sort("episode_index")
        .collect()
    )
    ids, length, task = (column.to_numpy() for column in table.get_columns())
    return ids, length, task


def episodes_pyarrow(root: Path) -> tuple[Array, Array, Array]:
    """Ids, lengths and first tasks by row-group statistics, where each episode has a row group."""
    rows = []
    for path in _files(root):
        footer = pq.read_metadata(path)
        names = footer.schema.to_arrow_schema().names
        # Vectors have one leaf each, so leaves count as columns do.
        id_leaf, task_leaf = names.index("episode_index"), names.index("task_index")
        for index in range(footer.num_row_groups):
            group = footer.row_group(index)
            episode, task = group.column(id_leaf).statistics, group.column(task_leaf).statistics
            rows.append((episode.min, group.num_rows, task.min))
    ids, length, task = np.array(sorted(rows)).T
    return ids, length, task


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


def gather_windows(rows: Array, first: Array, chunk_size: int) -> Array:
    """Windows of a view, picked by one index array."""
    windows = np.lib.stride_tricks.sliding_window_view(rows, chunk_size, axis=0)
    return np.ascontiguousarray(windows[first].transpose(0, 2, 1))


def _files(root: Path) -> list[Path]:
    return sorted(root.glob("data/chunk-*/*.parquet"))
