"""Speed labels: rank each episode's length within its task.

An episode gets one of the labels 0, 10, …, 100 by where its length falls among the boundaries p5,
p15, …, p95 of its task; 0 is fastest. The boundaries live in ``meta/speed_percentiles.jsonl`` under
the dataset root. Constants, functions, file and rules are those of OpenTau's ``speed_percentiles``
module, so that a user of it swaps one import.

What differs heals its faults: appending takes a lock and merges, so no process loses another's
rows; existing rows are kept byte for byte; a torn or malformed file is an error that names file and
line, and is never overwritten; an unknown task is warned of once per dataset, by the main process.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vlaprep._native import percentiles_by_task
from vlaprep.coordinate import file_lock
from vlaprep.errors import EpisodeSelectionError
from vlaprep.persist import remove_leftovers, write_atomic
from vlaprep.ranks import Ranks, barrier_after
from vlaprep.speed_buckets import (
    MIN_EPISODES_FOR_PERCENTILES,
    SPARSE_TASK_BUCKET,
    SPEED_BUCKET_LABELS,
    SPEED_PERCENTILES,
    Ties,
    as_int64,
    as_lengths,
    as_lists,
    bucket_episode_length,
    bucket_episode_lengths,
    compute_task_percentiles,
    labels_of,
)
from vlaprep.speed_file import SPEED_PERCENTILES_PATH, Row, encode_row, read_rows

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from vlaprep.dataset import Dataset

__all__ = [
    "MIN_EPISODES_FOR_PERCENTILES",
    "SPARSE_TASK_BUCKET",
    "SPEED_BUCKET_LABELS",
    "SPEED_PERCENTILES",
    "SPEED_PERCENTILES_PATH",
    "SpeedLabels",
    "bucket_episode_length",
    "bucket_episode_lengths",
    "compute_task_percentiles",
    "episode_to_task_index_from_hf_dataset",
    "load_or_compute_speed_percentiles",
    "speed_labels",
]

logger = logging.getLogger(__name__)

_LOCK_TIMEOUT_S = 60.0
_UNKNOWN_TASK_INDEX_WARNED: set[tuple[int | None, str | None]] = set()
_READONLY_WARNED: set[str] = set()


@dataclass(frozen=True, eq=False)
class SpeedLabels:
    """The speed label of every episode, computed afresh. The arrays run by ascending episode.

    Parameters
    ----------
    episode_index : numpy.ndarray
        int64, shape (E,).
    task_index : numpy.ndarray
        int64, shape (E,): the task of the episode's first row, -1 where the dataset does not
        define it.
    length : numpy.ndarray
        int64, shape (E,), in frames.
    label : numpy.ndarray
        int64, shape (E,), each one of `SPEED_BUCKET_LABELS`.
    percentiles_by_task : dict
        ``{task_index: 10 boundaries in frames, or None for a sparse task}``, ascending.
    """

    episode_index: NDArray[np.int64]
    task_index: NDArray[np.int64]
    length: NDArray[np.int64]
    label: NDArray[np.int64]
    percentiles_by_task: dict[int, list[float] | None]

    def __post_init__(self) -> None:
        for column in (self.episode_index, self.task_index, self.length, self.label):
            column.flags.writeable = False

    def __reduce__(self) -> tuple[type[SpeedLabels], tuple[Any, ...]]:
        return SpeedLabels, tuple(vars(self).values())

    def __len__(self) -> int:
        return len(self.episode_index)


def speed_labels(dataset: Dataset, *, ties: Ties = "right") -> SpeedLabels:
    """Label every episode of an open dataset by its own lengths; read no file, write none.

    Percentiles are always those of the episodes at hand, so none of the ways in which a kept file
    can be stale applies.

    Parameters
    ----------
    dataset : vlaprep.dataset.Dataset
        What `vlaprep.open_dataset` returns. With a selection of episodes, only these are ranked.
    ties : {"right", "mid"}
        See `bucket_episode_length`.

    Returns
    -------
    SpeedLabels
        Arrays of shape (E,) and the boundaries of each task that has episodes.
    """
    episodes = dataset.episodes
    resolved = episodes.task_index >= 0
    tasks, boundaries = percentiles_by_task(
        episodes.length[resolved], episodes.task_index[resolved]
    )
    return SpeedLabels(
        episode_index=episodes.episode_index,
        task_index=episodes.task_index,
        length=episodes.length,
        label=labels_of(episodes.length, episodes.task_index, tasks, boundaries, ties),
        percentiles_by_task=dict(zip(tasks.tolist(), as_lists(boundaries), strict=True)),
    )


def episode_to_task_index_from_hf_dataset(
    hf_dataset: Any,
    episodes: Sequence[int],
    episode_data_index: Mapping[str, Any],
    epi2idx: Mapping[int, int],
    valid_task_indices: Collection[int],
    *,
    accelerator: Any = None,
) -> dict[int, int]:
    """Read the task of each episode off its first row.

    The integer ``task_index`` of the row decides; task texts are never compared. An index that the
    dataset does not define leaves the episode out, with one warning per index, dataset and process
    (main process only): such an episode falls back to the sparse label.

    Parameters
    ----------
    hf_dataset : datasets.Dataset
        One row per frame, with a column ``task_index``. Only first rows are read.
    episodes : sequence of int
        The selected episodes. None selected: the dataset is not touched.
    episode_data_index : mapping
        ``"from"``: the first row of each episode, as a list, array or tensor.
    epi2idx : mapping of int to int
        Where an episode stands in ``episode_data_index["from"]``.
    valid_task_indices : collection of int
        The tasks the dataset defines.
    accelerator : optional
        See `load_or_compute_speed_percentiles`.

    Returns
    -------
    dict
        ``{episode_index: task_index}`` without the episodes that were left out.

    Raises
    ------
    EpisodeSelectionError
        A selected episode is not in ``epi2idx``.
    """
    if len(episodes) == 0:
        return {}
    absent = [episode for episode in episodes if episode not in epi2idx]
    if absent:
        raise EpisodeSelectionError(
            f"{len(absent)} of the selected episodes are not in the dataset, first {absent[0]}; "
            "select episodes that epi2idx lists"
        )
    starts = episode_data_index["from"]
    first_rows = [int(starts[epi2idx[episode]]) for episode in episodes]
    column = hf_dataset.with_format("arrow").select(first_rows)["task_index"]
    if not hasattr(column, "to_pylist"):
        column = column[:]  # datasets ≥ 4 hands out a lazy column, whose slice is Arrow again
    values = column.to_pylist() if hasattr(column, "to_pylist") else list(column)
    tasks = [None if value is None else int(value) for value in values]
    _warn_unknown_tasks(tasks, valid_task_indices, hf_dataset, accelerator)
    return {
        episode: task
        for episode, task in zip(episodes, tasks, strict=True)
        if task is not None and task in valid_task_indices
    }


def load_or_compute_speed_percentiles(
    root: Path | str,
    episode_lengths: Mapping[int, int],
    episode_to_task_index: Mapping[int, int],
    task_to_task_index: Mapping[str, int],
    *,
    accelerator: Any = None,
    recompute: bool = False,
    task_texts: Mapping[int, str] | None = None,
) -> dict[int, list[float] | None]:
    """Return the boundaries of each task, from ``meta/speed_percentiles.jsonl`` where it has them.

    - The file has a row for every task of this load: its rows are returned as they are, those of
      other tasks too. If it was made from fewer episodes than this load resolves, a warning says so
      ("Stale …"); the file is trusted all the same. Delete it to have it made again.
    - The file lacks tasks: these are computed from this load and appended, with a warning.
    - No file: the tasks of this load are computed and written; without any task, nothing is.

    Where the file cannot be written (read-only or full disk, its lock held by another process for a
    minute) the answer is computed in memory, with one warning per root and process.

    Parameters
    ----------
    root : path
        The dataset root, parent of ``meta/``.
    episode_lengths : mapping of int to int
        ``{episode_index: length in frames}``.
    episode_to_task_index : mapping of int to int
        ``{episode_index: task_index}`` of the episodes whose task is known; a negative task counts
        as unknown.
    task_to_task_index : mapping of str to int
        ``{text: task_index}``, for the text in each row; "" where it is unknown.
    accelerator : optional
        An ``accelerate.Accelerator`` or a `vlaprep.ranks.Ranks`. Default: what
        `vlaprep.ranks.Ranks.detect` finds. Every process computes; only the main one writes
        and warns; with more than one, all meet at a barrier exactly once per call, also when the
        call raises.
    recompute : bool
        Pass over the file, whatever it holds, and replace it by one of the tasks of this load.
    task_texts : mapping of int to str, optional
        ``{task_index: text}``, in place of `task_to_task_index`, which cannot hold two tasks of
        one text.

    Returns
    -------
    dict
        ``{task_index: ten boundaries in frames, or None for a sparse task}``.

    Raises
    ------
    PercentileFileError
        The file cannot be read, is torn or malformed, or was written by a newer vlaprep. It is left
        as it is.
    EpisodeSelectionError
        An episode with a task has no length.
    TypeError, ValueError
        A length is not an integer, or is negative.

    Examples
    --------
    >>> import tempfile
    >>> lengths = {episode: 100 + episode for episode in range(101)}
    >>> with tempfile.TemporaryDirectory() as root:
    ...     out = load_or_compute_speed_percentiles(
    ...         root, lengths, dict.fromkeys(lengths, 0), {"fold the towel": 0}
    ...     )
    >>> out[0][:3]
    [105.0, 115.0, 125.0]
    """
    ranks = Ranks.detect(accelerator)
    with barrier_after(ranks):
        return _load_or_compute(
            Path(root),
            episode_lengths,
            episode_to_task_index,
            task_texts or {task: text for text, task in task_to_task_index.items()},
            ranks,
            recompute=recompute,
        )


def _load_or_compute(
    root: Path,
    episode_lengths: Mapping[int, int],
    episode_to_task_index: Mapping[int, int],
    texts: Mapping[int, str],
    ranks: Ranks,
    *,
    recompute: bool,
) -> dict[int, list[float] | None]:
    path = root / SPEED_PERCENTILES_PATH
    task_index = as_int64(list(episode_to_task_index.values()), "the task_index of episodes")
    rows = None if recompute else read_rows(path)
    resolved = task_index[task_index >= 0]
    missing = set(np.unique(resolved).tolist()) - {row.task_index for row in rows or ()}
    if not missing:
        if ranks.is_main and rows is not None:
            _warn_if_stale(path, rows, len(resolved))
        return {row.task_index: row.percentiles for row in rows or ()}
    chosen = np.isin(task_index, sorted(missing))
    lengths = _lengths_of(compress(episode_to_task_index, chosen.tolist()), episode_lengths)
    new_rows = _new_rows(lengths, task_index[chosen], texts)
    if ranks.is_main:
        try:
            rows = _append(path, new_rows, recompute=recompute)
        except OSError as error:
            _warn_unwritable(root, path, error)
    # What is on disk comes last and wins: another job may have been first with one of our tasks.
    computed = {row["task_index"]: row["percentiles"] for row in new_rows}
    kept = {row.task_index: row.percentiles for row in rows or ()}
    return {**kept, **computed, **kept}


def _new_rows(
    lengths: NDArray[np.int64],
    task_index: NDArray[np.int64],
    texts: Mapping[int, str],
) -> list[dict[str, Any]]:
    """Return the rows of all tasks in ``task_index``, ascending."""
    tasks, boundaries = percentiles_by_task(lengths, task_index)
    counts = Counter(task_index.tolist())
    return [
        {
            "task_index": task,
            "task": texts.get(task, ""),
            "n_episodes": counts[task],
            "percentiles": percentiles,
        }
        for task, percentiles in zip(tasks.tolist(), as_lists(boundaries), strict=True)
    ]


def _append(path: Path, new_rows: list[dict[str, Any]], *, recompute: bool) -> list[Row]:
    """Add to the file those rows whose tasks it still lacks, or replace it; return all its rows.

    Every writer holds the lock while it reads, merges and replaces, so none loses a row.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with file_lock(path, _LOCK_TIMEOUT_S) as locked:
        rows = None if recompute else read_rows(path)
        have = {row.task_index for row in rows or ()}
        added = [row for row in new_rows if row["task_index"] not in have]
        if not added:
            return rows or []
        if locked:
            remove_leftovers(path)
        _atomic_write_jsonlines([*(row.raw for row in rows or ()), *added], path)
        if rows is not None:
            logger.warning(
                "Adding %d missing task(s) %s to %s; its rows stay as they are. "
                "Delete the file to have all tasks computed again",
                len(added),
                [row["task_index"] for row in added],
                path,
            )
    return [*(rows or ()), *(Row.of(row) for row in added)]


def _atomic_write_jsonlines(rows: Iterable[Mapping[str, Any] | bytes], path: Path) -> None:
    """Write a line per row in one step; bytes are an existing line, which is kept as it is."""
    lines = (row if isinstance(row, bytes) else encode_row(row) for row in rows)
    write_atomic(path, b"".join(line + b"\n" for line in lines))


def _lengths_of(episodes: Iterable[int], episode_lengths: Mapping[int, int]) -> NDArray[np.int64]:
    try:
        lengths = [episode_lengths[episode] for episode in episodes]
    except KeyError as error:
        raise EpisodeSelectionError(
            f"episode {error.args[0]} has a task but no length; give episode_lengths an entry for "
            "every episode of episode_to_task_index"
        ) from error
    return as_lengths(lengths, "episode lengths")


def _warn_if_stale(path: Path, rows: Sequence[Row], n_resolved: int) -> None:
    on_disk = sum(row.n_episodes for row in rows)
    if on_disk < n_resolved:
        logger.warning(
            "Stale %s: it was computed from %d episodes, and this load has %d. "
            "It is used as it is; delete it to have it computed again",
            path,
            on_disk,
            n_resolved,
        )


def _warn_unwritable(root: Path, path: Path, error: OSError) -> None:
    if str(root) not in _READONLY_WARNED:
        _READONLY_WARNED.add(str(root))
        logger.warning(
            "Cannot write speed percentiles to %s (%s); they are computed in memory, now and at "
            "every load until the file can be written",
            path,
            error,
        )


def _warn_unknown_tasks(
    tasks: Sequence[int | None], valid: Collection[int], hf_dataset: Any, accelerator: Any
) -> None:
    counts = Counter(task for task in tasks if task is None or task not in valid)
    if not counts or not Ranks.detect(accelerator).is_main:
        return
    fingerprint = getattr(hf_dataset, "_fingerprint", None)
    for task, count in counts.items():
        if (task, fingerprint) not in _UNKNOWN_TASK_INDEX_WARNED:
            _UNKNOWN_TASK_INDEX_WARNED.add((task, fingerprint))
            logger.warning(
                "The rows of %d episode(s) say task_index=%s, which the dataset's task file does "
                "not define; these episodes fall back to the sparse speed label %d. "
                "Mend the task file or the rows",
                count,
                task,
                SPARSE_TASK_BUCKET,
            )
