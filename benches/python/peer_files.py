"""From files to arrays as a careful engineer would do it with pyarrow or polars.

Each way is the fastest of several that were tried on the layouts of `data.py`: with and without
memory maps, by whole files, by some row groups, by batches.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import pyarrow.parquet as pq

from data import DIMS
from peers import gather_windows, quantiles_by_partition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    import pyarrow as pa
    from numpy.typing import NDArray

    Array = NDArray[Any]

HAS_POLARS = importlib.util.find_spec("polars") is not None
"""Polars is only for benches: where it is not installed they run without it."""

T = TypeVar("T")

_COLUMNS = ["episode_index", "action"]
_BATCH_ROWS = 1 << 16

# ------------------------------------------------------------------------------------- rows


def read_pyarrow(root: Path, threads: int | None = None) -> tuple[Array, Array]:
    """Ids and actions: footers say where each file's rows go, then threads fill in batches.

    `threads` is the number of CPUs where it is not given.
    """
    files = _files(root)
    footers = _footers(files)
    ends = np.cumsum([footer.num_rows for footer in footers]).tolist()
    ids, actions = _empty(ends[-1])

    def fill(path: Path, footer: pq.FileMetaData, end: int) -> None:
        row = end - footer.num_rows
        # pre_buffer costs twice the time where every episode has a row group of its own; a memory
        # map spares a copy, as long as the file is in the page cache.
        with pq.ParquetFile(path, metadata=footer, pre_buffer=False, memory_map=True) as file:
            for batch in file.iter_batches(_BATCH_ROWS, columns=_COLUMNS, use_threads=False):
                rows = slice(row, row + len(batch))
                ids[rows] = batch["episode_index"]
                actions[rows] = _vectors(batch["action"])
                row = rows.stop

    _map(fill, zip(files, footers, ends, strict=True), threads)
    return ids, actions


def read_pyarrow_small(root: Path, threads: int | None = None) -> tuple[Array, Array]:
    """Ids and actions of many small files: each opened only once, their tables then copied."""

    def read(path: Path) -> pa.Table:
        with pq.ParquetFile(path, pre_buffer=False, memory_map=True) as file:
            return file.read(columns=_COLUMNS, use_threads=False)

    tables = _map(read, zip(_files(root)), threads)
    ids, actions = _empty(sum(table.num_rows for table in tables))
    row = 0
    for table in tables:
        rows = slice(row, row + table.num_rows)
        ids[rows] = table["episode_index"]
        actions[rows] = _vectors(table["action"].combine_chunks())
        row = rows.stop
    return ids, actions


def read_polars(root: Path) -> tuple[Array, Array]:
    """Ids and actions by a lazy scan of all files, streamed; vectors become one array."""
    import polars as pl

    frame = pl.scan_parquet(_files(root)).select(_COLUMNS).collect(engine="streaming")
    actions = frame["action"]
    if actions.dtype == pl.List:
        actions = actions.list.to_array(DIMS)
    return frame["episode_index"].to_numpy(), actions.to_numpy()


# --------------------------------------------------------------------------------- episodes


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
    rows: list[tuple[int, int, int]] = []
    for footer in _footers(_files(root)):
        id_leaf, task_leaf = _leaves(footer, "episode_index", "task_index")
        for index in range(footer.num_row_groups):
            group = footer.row_group(index)
            episode, task = group.column(id_leaf).statistics, group.column(task_leaf).statistics
            rows.append((episode.min, group.num_rows, task.min))
    ids, length, task = np.array(sorted(rows)).T
    return ids, length, task


# ------------------------------------------------------------------------ normalised chunks


class Draws(NamedTuple):
    """What to draw, as the fit has it."""

    chunk_size: int
    n_samples: int
    seed: int


def fit_input_by_scan(
    read: Callable[[Path], tuple[Array, Array]], root: Path, draws: Draws
) -> Array:
    """All rows, which must be sorted by episode; then the drawn windows, normalised."""
    ids, actions = read(root)
    steps = np.diff(ids)
    if steps.min(initial=0) < 0:
        raise ValueError("rows are not sorted by episode")
    first = np.append(0, np.flatnonzero(steps) + 1)
    episode, start = _draw(np.diff(first, append=len(ids)), draws)
    return _normalize(gather_windows(actions, first[episode] + start, draws.chunk_size))


def fit_input_by_row_groups(root: Path, draws: Draws) -> Array:
    """Only the row groups that draws fall into, where each episode has a row group."""
    files = _files(root)
    footers = _footers(files)
    groups: list[tuple[int, int, int, int]] = []
    for number, footer in enumerate(footers):
        (id_leaf,) = _leaves(footer, "episode_index")
        for index in range(footer.num_row_groups):
            group = footer.row_group(index)
            groups.append((group.column(id_leaf).statistics.min, group.num_rows, number, index))
    _, length, number_of, index_of = np.array(sorted(groups)).T
    episode, start = _draw(length, draws)
    chunks = np.empty((len(start), draws.chunk_size, DIMS), np.float32)

    def fill(number: int) -> None:
        here = np.flatnonzero(number_of[episode] == number)
        wanted = np.unique(episode[here])  # ascending in id, and so in row group
        with pq.ParquetFile(files[number], metadata=footers[number], pre_buffer=False) as file:
            table = file.read_row_groups(
                index_of[wanted].tolist(), columns=["action"], use_threads=False
            )
        rows = _vectors(table["action"].combine_chunks())
        begin = np.cumsum(length[wanted]) - length[wanted]
        for chunk in here.tolist():
            row = begin[np.searchsorted(wanted, episode[chunk])] + start[chunk]
            chunks[chunk] = rows[row : row + draws.chunk_size]

    _map(fill, zip(np.unique(number_of[episode]).tolist()))
    return _normalize(chunks)


def _draw(length: Array, draws: Draws) -> tuple[Array, Array]:
    """Positions of episodes and starts in them: the stream of the reference, by one call."""
    rng = np.random.default_rng(draws.seed)
    each = max(1, draws.n_samples // len(length))
    order = rng.permutation(len(length))
    order = order[length[order] >= draws.chunk_size][: -(-draws.n_samples // each)]
    starts = rng.integers(0, (length[order] - draws.chunk_size + 1)[:, None], (len(order), each))
    return np.repeat(order, each)[: draws.n_samples], starts.ravel()[: draws.n_samples]


def _normalize(chunks: Array) -> Array:
    """Quantiles by one partition, then the reference's steps in place."""
    low, high = quantiles_by_partition(chunks.reshape(-1, chunks.shape[-1]))
    span = np.where(high - low > 1e-6, high - low, np.ones_like(low))
    chunks -= low
    chunks /= span
    chunks *= 2
    chunks -= 1
    return np.clip(chunks, -1, 1, out=chunks)


# ------------------------------------------------------------------------------------ steps


def _files(root: Path) -> list[Path]:
    return sorted(root.glob("data/chunk-*/*.parquet"))


def _map(call: Callable[..., T], arguments: Iterable[Any], threads: int | None = None) -> list[T]:
    """Call in threads; one is the caller's own, for a new one would come with new memory."""
    threads = threads or os.cpu_count() or 1
    if threads == 1:
        return list(itertools.starmap(call, arguments))
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(lambda each: call(*each), arguments))


def _footers(files: list[Path]) -> list[pq.FileMetaData]:
    """One by one: threads, each with memory of its own, take twice the time on the CPU."""
    return [pq.read_metadata(path) for path in files]


def _leaves(footer: pq.FileMetaData, *names: str) -> list[int]:
    """Where columns stand in a row group: vectors have one leaf each, so leaves are columns."""
    known = footer.schema.to_arrow_schema().names
    return [known.index(name) for name in names]


def _empty(rows: int) -> tuple[Array, Array]:
    return np.empty(rows, np.int64), np.empty((rows, DIMS), np.float32)


def _vectors(column: pa.Array) -> Array:
    """View of lists that all have `DIMS` values."""
    values: Array = column.flatten().to_numpy()
    return values.reshape(len(column), DIMS)
