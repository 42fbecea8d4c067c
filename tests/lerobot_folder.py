"""LeRobot folders to order, for tests: any split into files, any order of rows, any column type."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import vlaprep

if TYPE_CHECKING:
    from pathlib import Path

TASKS = {0: "stack the cups", 1: "open the drawer", 5: "wipe the table"}
V2_PATH = "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet"
V3_PATH = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"

Rows = dict[str, np.ndarray]


def make_rows(episodes: dict[int, tuple[int, int]], *, dim: int = 2, seed: int = 0) -> Rows:
    """Frames of ``{episode: (task, length)}``, episode after episode, as NumPy columns."""
    ids = np.array(list(episodes), np.int64)
    tasks = np.array([task for task, _ in episodes.values()], np.int64)
    lengths = np.array([length for _, length in episodes.values()], np.int64)
    n = int(lengths.sum())
    rng = np.random.default_rng(seed)
    return {
        "action": rng.normal(size=(n, dim)).astype(np.float32),
        "frame_index": np.concatenate([np.arange(k) for k in lengths] or [[]]).astype(np.int64),
        "episode_index": np.repeat(ids, lengths),
        "index": np.arange(n, dtype=np.int64),
        "task_index": np.repeat(tasks, lengths),
    }


def take(rows: Rows, at: Any) -> Rows:
    """Some of the rows, in the order given."""
    return {name: column[at] for name, column in rows.items()}


def list_array(values: np.ndarray, kind: str = "fixed", dtype: pa.DataType | None = None) -> Any:
    """An (N, D) array as an Arrow column: fixed, list or large lists, or a scalar where D is 1."""
    n, dim = values.shape
    flat = pa.array(values.ravel())
    flat = flat if dtype is None else flat.cast(dtype, safe=False)
    if kind == "scalar":
        return flat
    if kind == "fixed":
        return pa.FixedSizeListArray.from_arrays(flat, dim)
    offsets = np.arange(n + 1) * dim
    if kind == "list":
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), flat)
    return pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), flat)


def to_table(rows: Rows, **columns: Any) -> pa.Table:
    """Rows as a table; `columns` replace or, where they are None, remove columns."""
    made = {
        name: list_array(column) if column.ndim == 2 else pa.array(column)
        for name, column in rows.items()
    }
    made |= columns
    return pa.table({name: column for name, column in made.items() if column is not None})


def write_table(table: pa.Table, path: Path, *, groups: Any = None, **options: Any) -> None:
    """Write one file, its row groups ending at the row numbers `groups` (default: one group)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    ends = [*(groups or []), table.num_rows]
    begin = 0
    with pq.ParquetWriter(path, table.schema, **options) as writer:
        for end in ends:
            if end > begin:
                writer.write_table(table.slice(begin, end - begin))
                begin = end


def group_ends(rows: Rows) -> list[int]:
    """Row numbers where an episode ends: one row group an episode, as LeRobot writes them."""
    return (np.flatnonzero(np.diff(rows["episode_index"])) + 1).tolist()


def write_meta(root: Path, version: str = "v3.0", tasks: Any = None, **info: Any) -> Path:
    """``meta/info.json`` and the task file of the version; returns `root`."""
    tasks = TASKS if tasks is None else tasks
    meta = root / "meta"
    meta.mkdir(parents=True, exist_ok=True)
    entries = {"codebase_version": version, "fps": 30, "chunks_size": 1000, "features": {}}
    entries["data_path"] = V3_PATH if version == "v3.0" else V2_PATH
    (meta / "info.json").write_text(json.dumps(entries | info), encoding="utf-8")
    if version == "v3.0":
        table = pa.table({"task_index": list(tasks), "task": list(tasks.values())})
        pq.write_table(table, meta / "tasks.parquet")
    else:
        lines = (json.dumps({"task_index": k, "task": v}) + "\n" for k, v in tasks.items())
        (meta / "tasks.jsonl").write_text("".join(lines), encoding="utf-8")
    return root


def write_v2(root: Path, rows: Rows, *, version: str = "v2.1", **options: Any) -> Path:
    """One file an episode."""
    for episode in np.unique(rows["episode_index"]).tolist():
        table = to_table(take(rows, rows["episode_index"] == episode))
        write_table(table, root / V2_PATH.format(episode_chunk=0, episode_index=episode), **options)
    return write_meta(root, version)


def write_v3(root: Path, *files: Rows | pa.Table, **options: Any) -> Path:
    """One file after another, each of rows or a ready table."""
    for index, part in enumerate(files):
        table = part if isinstance(part, pa.Table) else to_table(part)
        write_table(table, root / V3_PATH.format(chunk_index=0, file_index=index), **options)
    return write_meta(root)


def file_name(index: int) -> str:
    """Relative path of the n-th file that `write_v3` writes."""
    return V3_PATH.format(chunk_index=0, file_index=index)


def read_in_child(root: str, episodes: list[int], start: list[int], queue: Any) -> None:
    """Body of a child process: opens, reads, and hands back what it saw."""
    dataset = vlaprep.open_dataset(root)
    chunks = dataset.read_chunks(np.array(episodes), np.array(start), 3)
    queue.put((dataset.episodes.length.tolist(), chunks.tolist()))
