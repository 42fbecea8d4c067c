"""Inputs of the benches: LeRobot data sets on disk, made once, and arrays.

The robot has two arms of six joints and a gripper each. Joints move between points on paths of
least jerk and rest there, grippers snap, and sensor noise lies over all, so that few values repeat
and files compress as those of real robots do.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from vlaprep.persist import publish_folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

DIMS = 14
CHUNK_SIZE = 50
SEED = 42
SHORTEST = 60
GENERATION = 1
"""Part of the folders' names: raise it whenever what is written changes."""

EPISODES = {"S": 512, "M": 5_000, "L": 32_000}
"""About 150 thousand, 1.5 million and 10 million frames."""

_EPISODES_PER_FILE = 2_000  # files of about 100 MB
_V2_PATH = "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet"
_V3_PATH = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
_VECTORS = ("observation.state", "action")


@dataclass(frozen=True)
class Variant:
    """Who wrote a data set, and so how its files are laid out."""

    words: str
    fixed_size: bool = False
    group_per_episode: bool = False
    file_per_episode: bool = False
    compression: str = "snappy"
    dictionary: bool = True
    group_rows: int = 1 << 20
    most_episodes: int | None = None
    """However large the other data sets are."""


VARIANTS = {
    "rec": Variant("recorded (v3.0)", fixed_size=True, group_per_episode=True),
    "conv": Variant("converted (v3.0)"),
    "zstd": Variant("zstd (v3.0)", compression="zstd", dictionary=False, group_rows=1 << 16),
    "v21": Variant("a file per episode (v2.1)", file_per_episode=True, most_episodes=5_000),
}


@dataclass(frozen=True)
class Config:
    """How large the inputs are, and where the folders lie."""

    folder: Path
    episodes: int

    @property
    def tasks(self) -> int:
        """Tasks of a data set: at most 200, of at least 25 episodes."""
        return min(200, max(1, self.episodes // 25))

    @property
    def n_samples(self) -> int:
        """Chunks of a fit: as many up to 1,024 as the reference draws without a shortfall."""
        most = min(1024, 32 * self.episodes)
        return most - most % self.episodes if self.episodes <= most else most

    @property
    def ranked_episodes(self) -> int:
        """Episodes of the benches that rank lengths without a data set."""
        return min(self.episodes * 64, 1_000_000)

    @property
    def quantile_rows(self) -> int:
        """Rows of the large quantile bench, which needs no data set: 4.8 million from S on."""
        return min(self.episodes * 10_000, 4_800_000)

    def of(self, name: str) -> Config:
        """With no more episodes than a data set of that variant has."""
        most = VARIANTS[name].most_episodes
        return self if most is None else replace(self, episodes=min(self.episodes, most))

    def tiny(self) -> Config:
        """Shrink the inputs as far as they go, to warm up on."""
        return replace(self, episodes=8)


def dataset(config: Config, name: str) -> Path:
    """Root of the data set of a variant; made if it is not there yet."""
    config = config.of(name)
    root = config.folder / f"{name}-{config.episodes}-g{GENERATION}"
    if not root.exists():
        publish_folder(root, lambda folder: _build(folder, VARIANTS[name], config))
    return root


def lengths_and_tasks(episodes: int, tasks: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Frames and task of each episode: log-normal, about 10 s at 30 frames a second."""
    rng = np.random.default_rng(SEED)
    length = np.maximum(SHORTEST, rng.lognormal(5.6, 0.4, episodes)).astype(np.int64)
    return length, rng.integers(0, tasks, episodes)


def motion(rng: np.random.Generator, frames: int, dims: int = DIMS) -> NDArray[np.float32]:
    """Positions of both arms in [-1, 1], shape (frames, dims); the last of each is its gripper."""
    stretches = frames // 20 + 2
    frames_of = rng.integers(20, 70, stretches)
    stretch = np.repeat(np.arange(stretches), frames_of)[:frames]
    frame = np.arange(frames) - (np.cumsum(frames_of) - frames_of)[stretch]
    # The path of least jerk between two points at rest (Flash and Hogan 1985), then a pause.
    tau = np.minimum(frame / (0.7 * frames_of[stretch]), 1)[:, None]
    points = rng.uniform(-0.98, 0.98, (stretches + 1, dims))
    path = points[stretch] + (points[stretch + 1] - points[stretch]) * (
        tau**3 * (10 - 15 * tau + 6 * tau**2)
    )
    grippers = slice(max(dims // 2 - 1, 1), None, max(dims // 2, 2))
    path[:, grippers] = np.sign(points[stretch + 1, grippers])
    path += rng.normal(0, 0.002, path.shape)
    return np.asarray(path, dtype=np.float32)


def rows(count: int) -> NDArray[np.float32]:
    """Positions without a data set, shape (count, DIMS)."""
    rng, block = np.random.default_rng(SEED), 100_000
    blocks = [motion(rng, min(block, count - start)) for start in range(0, count, block)]
    return np.concatenate(blocks)


def chunks(
    count: int, seed: int = SEED, *, horizon: int = CHUNK_SIZE, dims: int = DIMS
) -> NDArray[np.float32]:
    """Normalised action chunks, shape (count, horizon, dims)."""
    rows = motion(np.random.default_rng(seed), count * horizon, dims)
    return np.clip(rows, -1, 1).reshape(count, horizon, dims)


# ------------------------------------------------------------------------------------ files


def _build(root: Path, variant: Variant, config: Config) -> None:
    length, task = lengths_and_tasks(config.episodes, config.tasks)
    per_file = 1 if variant.file_per_episode else _EPISODES_PER_FILE
    for file, begin in enumerate(range(0, config.episodes, per_file)):
        batch = slice(begin, begin + per_file)
        numbers = divmod(file, 1000)
        path = root / _path(variant).format(
            chunk_index=numbers[0],
            file_index=numbers[1],
            episode_chunk=numbers[0],
            episode_index=file,
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        ids = np.arange(config.episodes)[batch]
        _write_file(path, variant, ids, length[batch], task[batch], int(length[:begin].sum()))
    (root / "meta").mkdir()
    _write_info(root / "meta", variant, config, int(length.sum()))
    if variant.file_per_episode:
        _write_meta_v2(root / "meta", length, task, config.tasks)
    else:
        _write_meta_v3(root / "meta", length, task, config.tasks)


def _path(variant: Variant) -> str:
    return _V2_PATH if variant.file_per_episode else _V3_PATH


def _write_file(
    path: Path,
    variant: Variant,
    ids: NDArray[np.int64],
    length: NDArray[np.int64],
    task: NDArray[np.int64],
    first_row: int,
) -> None:
    frames = int(length.sum())
    rng = np.random.default_rng([SEED, int(ids[0])])
    starts = np.cumsum(length) - length
    action = motion(rng, frames)
    frame = np.arange(frames) - np.repeat(starts, length)
    table = pa.table(
        {
            "observation.state": _vectors(action + rng.normal(0, 0.003, action.shape), variant),
            "action": _vectors(action, variant),
            "timestamp": pa.array(frame / 30, pa.float32()),
            "frame_index": frame,
            "episode_index": np.repeat(ids, length),
            "index": first_row + np.arange(frames),
            "task_index": np.repeat(task, length),
        }
    )
    options = {"compression": variant.compression, "use_dictionary": variant.dictionary}
    with pq.ParquetWriter(path, table.schema, **options) as writer:
        if variant.group_per_episode:
            for start, rows in zip(starts.tolist(), length.tolist(), strict=True):
                writer.write_table(table.slice(start, rows))
        else:
            writer.write_table(table, row_group_size=variant.group_rows)


def _vectors(rows: NDArray[Any], variant: Variant) -> pa.Array:
    values = pa.array(rows.astype(np.float32).ravel())
    if variant.fixed_size:
        return pa.FixedSizeListArray.from_arrays(values, DIMS)
    return pa.ListArray.from_arrays(pa.array(np.arange(len(rows) + 1) * DIMS, pa.int32()), values)


def _write_info(meta: Path, variant: Variant, config: Config, frames: int) -> None:
    info = {
        "codebase_version": "v2.1" if variant.file_per_episode else "v3.0",
        "fps": 30,
        "chunks_size": 1000,
        "total_episodes": config.episodes,
        "total_frames": frames,
        "total_tasks": config.tasks,
        "data_path": _path(variant),
        "features": {
            name: {"dtype": "float32", "shape": [DIMS], "names": None} for name in _VECTORS
        },
    }
    (meta / "info.json").write_text(json.dumps(info), encoding="utf-8")


def _write_meta_v2(
    meta: Path, length: NDArray[np.int64], task: NDArray[np.int64], tasks: int
) -> None:
    _write_lines(meta / "tasks.jsonl", ({"task_index": i, "task": _text(i)} for i in range(tasks)))
    _write_lines(
        meta / "episodes.jsonl",
        (
            {"episode_index": i, "tasks": [_text(t)], "length": n}
            for i, (n, t) in enumerate(zip(length.tolist(), task.tolist(), strict=True))
        ),
    )


def _write_meta_v3(
    meta: Path, length: NDArray[np.int64], task: NDArray[np.int64], tasks: int
) -> None:
    ids, ends = np.arange(len(length)), np.cumsum(length)
    path = meta / "episodes/chunk-000/file-000.parquet"
    path.parent.mkdir(parents=True)
    pq.write_table(
        pa.table(
            {
                "episode_index": ids,
                "tasks": [[_text(i)] for i in task.tolist()],
                "length": length,
                "data/chunk_index": np.zeros_like(ids),
                "data/file_index": ids // _EPISODES_PER_FILE,
                "dataset_from_index": ends - length,
                "dataset_to_index": ends,
            }
        ),
        path,
    )
    pq.write_table(
        pa.table({"task_index": range(tasks), "task": list(map(_text, range(tasks)))}),
        meta / "tasks.parquet",
    )


def _write_lines(path: Path, rows: Iterator[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def _text(task: int) -> str:
    return f"task number {task}"
