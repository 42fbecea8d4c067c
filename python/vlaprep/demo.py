"""A small realistic dataset, made on the spot, and both jobs run on it.

The arm of the dataset has six joints and a gripper. An episode is a chain of point-to-point moves
of least jerk with pauses between them, at an operator's own pace, with jitter in every target, now
and then a second try at a grasp, a little tremor, and the steps of a 12-bit encoder. So lengths
spread within a task, and action chunks look like teleoperation: smooth, with holds and a gripper
that snaps.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from vlaprep.persist import publish_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from os import PathLike

    from numpy.typing import NDArray

__all__ = ["run_demo", "write_demo_dataset"]

FPS = 30
ROBOT_TYPE = "vlaprep_demo"
"""What ``meta/info.json`` calls the robot; the mark of a folder that may be made anew."""
DIM_NAMES = [*(f"joint_{i}.pos" for i in range(1, 7)), "gripper.pos"]
CHUNK_SIZE = 50

_ENCODER_STEP = 360 / 4096
_FILES_PER_CHUNK = 1000
_DATA_PATH = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
_OPEN, _SHUT = 90.0, 12.0
_HOME = (0.0, -95.0, 88.0, 65.0, 0.0, 0.0)
_VECTORS = ("action", "observation.state")
_SCHEMA = pa.schema(
    [
        *((name, pa.list_(pa.float32(), len(DIM_NAMES))) for name in _VECTORS),
        ("timestamp", pa.float32()),
        *((name, pa.int64()) for name in ("frame_index", "episode_index", "index", "task_index")),
    ]
)
_QUANTILES = {"q01": 0.01, "q10": 0.1, "q50": 0.5, "q90": 0.9, "q99": 0.99}


class _Move(NamedTuple):
    """One move of an episode: joints in degrees, gripper in percent, time in seconds."""

    joints: tuple[float, ...]
    gripper: float
    seconds: float


@dataclass(frozen=True)
class _Task:
    text: str
    share: float
    """Of all episodes."""
    moves: tuple[_Move, ...]


def _pick_and_place(
    pick: tuple[float, ...], place: tuple[float, ...], seconds: float
) -> tuple[_Move, ...]:
    """Reach above, down, grasp, lift, carry, down, let go, retreat; ``seconds`` for the carry."""

    def above(pose: tuple[float, ...]) -> tuple[float, ...]:
        return (pose[0], pose[1] - 25, pose[2] + 8, *pose[3:])

    return (
        _Move(above(pick), _OPEN, 1.1),
        _Move(pick, _OPEN, 0.6),
        _Move(pick, _SHUT, 0.35),
        _Move(above(pick), _SHUT, 0.7),
        _Move(above(place), _SHUT, seconds),
        _Move(place, _SHUT, 0.6),
        _Move(place, _OPEN, 0.3),
        _Move(_HOME, _OPEN, 1.0),
    )


_LEFT, _RIGHT = (38.0, 12.0, -20.0, 62.0, 15.0, 5.0), (-41.0, 20.0, -32.0, 70.0, -30.0, -8.0)
_MIDDLE, _SHELF = (4.0, 31.0, -44.0, 58.0, 0.0, 2.0), (70.0, -30.0, 15.0, 20.0, 60.0, 25.0)
_TASKS = (
    _Task("put the cup on the plate", 0.42, _pick_and_place(_LEFT, _MIDDLE, 1.2)),
    _Task("pick up the red block and hand it over", 0.32, _pick_and_place(_RIGHT, _LEFT, 1.6)),
    _Task("stack both boxes on the shelf", 0.20, 2 * _pick_and_place(_MIDDLE, _SHELF, 1.9)),
    _Task("wipe the table", 0.06, tuple(_Move(p, _SHUT, 0.9) for p in (_LEFT, _RIGHT) * 3)),
)


def write_demo_dataset(
    root: str | PathLike[str],
    *,
    episodes: int = 96,
    seed: int = 0,
    episodes_per_file: int = 1000,
) -> Path:
    """Write a LeRobot v3.0 dataset of made-up teleoperation, whole or not at all.

    Laid out as LeRobot's own writer does: a row group per episode, fixed-size lists, snappy. The
    same arguments give the same rows.

    Parameters
    ----------
    root : path-like
        Folder to make. A demo dataset that stands there is replaced.
    episodes : int
        How many; about 260 frames each, at 30 frames a second, in four tasks, the last of them
        rare.
    seed : int
        Seed of everything random.
    episodes_per_file : int
        How many episodes share a data file.

    Returns
    -------
    pathlib.Path
        ``root``.

    Raises
    ------
    FileExistsError
        Something else stands at ``root``.
    ValueError
        A count below 1.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import vlaprep
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     dataset = vlaprep.open_dataset(write_demo_dataset(Path(folder) / "data", episodes=5))
    ...     chunks = dataset.read_chunks([0, 3], [0, 20], chunk_size=50)
    >>> len(dataset.episodes), chunks.shape
    (5, (2, 50, 7))
    """
    for name, value in (("episodes", episodes), ("episodes_per_file", episodes_per_file)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    root = Path(root)
    if root.exists() and not _is_demo(root):
        raise FileExistsError(
            f"{root} exists and is no demo dataset, so it is left as it is; choose another folder"
        )
    publish_folder(root, lambda folder: _build(folder, episodes, seed, episodes_per_file))
    return root


def run_demo(
    out: str | PathLike[str],
    *,
    episodes: int = 96,
    stage: Callable[[str], object] = lambda _: None,
) -> dict[str, Any]:
    """Make a dataset, label its speed, fit a tokenizer, and put unseen chunks through that.

    Parameters
    ----------
    out : path-like
        Folder for all that is written: ``dataset`` and ``tokenizers``.
    episodes : int
        Size of the dataset.
    stage : callable, optional
        Told what begins, for progress.

    Returns
    -------
    dict
        JSON values: ``dataset``, what `vlaprep.jobs.run_speed` and `vlaprep.jobs.run_fit` return
        as ``speed`` and ``fit``, ``round_trip``, and the ``seconds`` of each.
    """
    from vlaprep.dataset import open_dataset
    from vlaprep.jobs import run_fit, run_speed

    seconds: dict[str, float] = {}

    def timed(name: str, what: str, job: Callable[[], Any]) -> Any:
        stage(what)
        begin = time.perf_counter()
        result = job()
        seconds[name] = time.perf_counter() - begin
        return result

    out = Path(out).absolute()  # what is told of is found from any folder
    root = timed(
        "dataset",
        "making a dataset",
        lambda: write_demo_dataset(out / "dataset", episodes=episodes),
    )
    speed = timed("speed", "labelling speed", lambda: run_speed(open_dataset(root)))
    fit = timed(
        "fit",
        "fitting a tokenizer",
        lambda: run_fit(dataset_root=root, cache_dir=out / "tokenizers", chunk_size=CHUNK_SIZE),
    )
    stage("encoding and decoding")
    round_trip = _round_trip(root, Path(fit["folder"]), seconds)
    return {
        "dataset": str(root),
        "speed": speed,
        "fit": fit,
        "round_trip": round_trip,
        "seconds": seconds,
    }


def _round_trip(root: Path, folder: Path, seconds: dict[str, float]) -> dict[str, Any]:
    """Encode and decode chunks that the fit did not draw; errors in the dataset's own units."""
    from vlaprep.dataset import open_dataset
    from vlaprep.fit_report import read_report
    from vlaprep.normalization import Normalization
    from vlaprep.processing_action_tokenizer import FastActionProcessor
    from vlaprep.sampling import sample_chunks

    dataset = open_dataset(root)
    processor = FastActionProcessor.from_pretrained(folder)
    norm = Normalization.from_dict(read_report(folder)["normalization"])
    table = dataset.episodes
    drawn = sample_chunks(
        table.episode_index, table.length, chunk_size=CHUNK_SIZE, n_samples=512, seed=1
    )
    actions = dataset.read_chunks(*drawn, CHUNK_SIZE)
    normalized = norm.normalize(actions)
    begin = time.perf_counter()
    ids = processor(normalized)
    between = time.perf_counter()
    decoded = np.asarray(processor.decode(ids))
    seconds["encode"], seconds["decode"] = between - begin, time.perf_counter() - between
    error = np.abs(norm.unnormalize(decoded) - actions)
    return {
        "chunks": len(ids),
        "values": actions.size,
        "tokens": sum(map(len, ids)),
        "dims": dataset.feature_names("action"),
        "rms_error": np.sqrt((error**2).mean(axis=(0, 1))).tolist(),
        "p99_error": np.quantile(error, 0.99, axis=(0, 1)).tolist(),
        "range": (norm.hi - norm.lo).tolist(),
    }


# ------------------------------------------------------------------------------------ motion


def _actions(rng: np.random.Generator, task: _Task) -> NDArray[np.float32]:
    """Leader positions of one episode, shape (T, 7)."""
    pace = rng.lognormal(0, 0.22)
    now = np.array([*_HOME, _OPEN]) + rng.normal(0, 1.5, 7)
    parts = []
    for move in _with_second_tries(rng, task.moves):
        goal = np.array([*move.joints, move.gripper]) + rng.normal(0, [4] * 6 + [3])
        frames = max(3, round(FPS * move.seconds * pace * rng.lognormal(0, 0.12)))
        pause = int(rng.integers(0, 10)) if rng.random() < 0.6 else 0
        tau = np.minimum(np.arange(1, frames + pause + 1) / frames, 1)[:, None]
        # The path of least jerk between two points at rest (Flash and Hogan 1985).
        parts.append(now + (goal - now) * tau**3 * (10 - 15 * tau + 6 * tau**2))
        now = goal
    path = np.concatenate(parts)
    tremor = np.convolve(rng.normal(0, 1, path.size + 6), np.full(7, 1 / 7), "valid")
    path += 0.12 * tremor.reshape(path.shape)
    path[:, -1] = np.clip(path[:, -1], 0, 100)
    return (np.round(path / _ENCODER_STEP) * _ENCODER_STEP).astype(np.float32)


def _with_second_tries(rng: np.random.Generator, moves: tuple[_Move, ...]) -> Iterator[_Move]:
    """All moves; some grasps are missed, opened again and repeated."""
    for before, move in zip((None, *moves), moves, strict=False):
        yield move
        if before and before.gripper == _OPEN and move.gripper == _SHUT and rng.random() < 0.15:
            yield before
            yield move


def _states(rng: np.random.Generator, actions: NDArray[np.float32]) -> NDArray[np.float32]:
    """Follower positions: two frames behind the leader, with sensor noise."""
    behind = np.concatenate([actions[:1].repeat(2, axis=0), actions])[: len(actions)]
    return (behind + rng.normal(0, 0.05, actions.shape)).astype(np.float32)


# ------------------------------------------------------------------------------------- files


def _build(root: Path, episodes: int, seed: int, episodes_per_file: int) -> None:
    rng = np.random.default_rng(seed)
    task_of = rng.choice(len(_TASKS), size=episodes, p=[task.share for task in _TASKS]).tolist()
    records: list[dict[str, Any]] = []
    first_row = 0
    for begin in range(0, episodes, episodes_per_file):
        chunk, file = divmod(begin // episodes_per_file, _FILES_PER_CHUNK)
        path = root / _DATA_PATH.format(chunk_index=chunk, file_index=file)
        path.parent.mkdir(parents=True, exist_ok=True)
        batch = range(begin, min(begin + episodes_per_file, episodes))
        with pq.ParquetWriter(path, _SCHEMA, compression="snappy") as writer:
            for episode in batch:
                columns = _columns(rng, episode, task_of[episode], first_row)
                writer.write_table(_table(columns))  # each call makes a row group
                length = len(columns["index"])
                records.append(
                    {
                        "episode_index": episode,
                        "tasks": [_TASKS[task_of[episode]].text],
                        "length": length,
                        "data/chunk_index": chunk,
                        "data/file_index": file,
                        "dataset_from_index": first_row,
                        "dataset_to_index": first_row + length,
                        **_flat_stats(columns),
                        "meta/episodes/chunk_index": 0,
                        "meta/episodes/file_index": 0,
                    }
                )
                first_row += length
    _write_meta(root / "meta", records, first_row)


def _columns(
    rng: np.random.Generator, episode: int, task: int, first_row: int
) -> dict[str, NDArray[Any]]:
    """All columns of one episode."""
    actions = _actions(rng, _TASKS[task])
    frame = np.arange(len(actions))
    return {
        "action": actions,
        "observation.state": _states(rng, actions),
        "timestamp": (frame / FPS).astype(np.float32),
        "frame_index": frame,
        "episode_index": np.full(len(frame), episode),
        "index": first_row + frame,
        "task_index": np.full(len(frame), task),
    }


def _table(columns: Mapping[str, NDArray[Any]]) -> pa.Table:
    arrays = [
        pa.FixedSizeListArray.from_arrays(pa.array(column.ravel()), column.shape[1])
        if column.ndim == 2
        else pa.array(column)
        for column in columns.values()
    ]
    return pa.Table.from_arrays(arrays, schema=_SCHEMA)


def _write_meta(meta: Path, records: list[dict[str, Any]], frames: int) -> None:
    path = meta / "episodes/chunk-000/file-000.parquet"
    path.parent.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(records), path, compression="snappy")
    texts = [task.text for task in _TASKS]
    pq.write_table(
        pa.table({"task_index": range(len(texts)), "task": texts}), meta / "tasks.parquet"
    )
    info = {
        "codebase_version": "v3.0",
        "robot_type": ROBOT_TYPE,
        "total_episodes": len(records),
        "total_frames": frames,
        "total_tasks": len(texts),
        "chunks_size": _FILES_PER_CHUNK,
        "data_files_size_in_mb": 100,
        "fps": FPS,
        "splits": {"train": f"0:{len(records)}"},
        "data_path": _DATA_PATH,
        "video_path": None,
        "features": {name: _feature(name) for name in _SCHEMA.names},
    }
    _write_json(meta / "info.json", info)
    _write_json(meta / "stats.json", {name: _merged_stats(records, name) for name in _SCHEMA.names})


def _feature(name: str) -> dict[str, Any]:
    if name in _VECTORS:
        return {"dtype": "float32", "shape": [len(DIM_NAMES)], "names": DIM_NAMES}
    dtype = "float32" if name == "timestamp" else "int64"
    return {"dtype": dtype, "shape": [1], "names": None}


def _flat_stats(columns: Mapping[str, NDArray[Any]]) -> dict[str, list[float]]:
    """Statistics of one episode, under the names of the columns of ``meta/episodes``."""
    stats: dict[str, list[float]] = {}
    for name, column in columns.items():
        rows = column.reshape(len(column), -1).astype(np.float64)
        quantiles = np.quantile(rows, list(_QUANTILES.values()), axis=0)
        values = {
            "min": rows.min(axis=0),
            "max": rows.max(axis=0),
            "mean": rows.mean(axis=0),
            "std": rows.std(axis=0),
            "count": np.array([len(rows)]),
            **dict(zip(_QUANTILES, quantiles, strict=True)),
        }
        stats |= {f"stats/{name}/{key}": value.tolist() for key, value in values.items()}
    return stats


def _merged_stats(records: list[dict[str, Any]], name: str) -> dict[str, list[float]]:
    """Statistics of one column over all episodes, merged from theirs as LeRobot merges them.

    So the quantiles are averages of quantiles, which is what stands in published datasets.
    """

    def of(key: str) -> NDArray[Any]:
        return np.array([record[f"stats/{name}/{key}"] for record in records])

    weight = of("count") / of("count").sum()
    mean = (weight * of("mean")).sum(axis=0)
    variance = (weight * (of("std") ** 2 + (of("mean") - mean) ** 2)).sum(axis=0)
    merged = {
        "min": of("min").min(axis=0),
        "max": of("max").max(axis=0),
        "mean": mean,
        "std": np.sqrt(variance),
        "count": of("count").sum(axis=0),
        **{key: (weight * of(key)).sum(axis=0) for key in _QUANTILES},
    }
    return {key: value.tolist() for key, value in merged.items()}


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=4, ensure_ascii=False), encoding="utf-8")


def _is_demo(root: Path) -> bool:
    try:
        info = json.loads((root / "meta/info.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(info, dict) and info.get("robot_type") == ROBOT_TYPE
