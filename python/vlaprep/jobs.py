"""Both jobs as the command line runs them: do the work, then tell of it in plain JSON values."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vlaprep.errors import PercentileFileError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from os import PathLike

    from numpy.typing import NDArray

    from vlaprep.dataset import Dataset, EpisodeTable
    from vlaprep.speed_buckets import Ties

__all__ = ["by_task", "run_fit", "run_speed"]


def run_speed(
    dataset: Dataset, *, ties: Ties = "right", dry_run: bool = False, recompute: bool = False
) -> dict[str, Any]:
    """Label the speed of all episodes and keep the boundaries in the dataset's own file.

    Parameters
    ----------
    dataset : vlaprep.dataset.Dataset
        What to label.
    ties : {"right", "mid"}
        See `vlaprep.speed.bucket_episode_length`.
    dry_run : bool
        Write nothing; ``file["state"]`` then says what would have happened.
    recompute : bool
        Replace the file instead of trusting it.

    Returns
    -------
    dict
        - ``episodes``, ``frames``, ``fps``: totals;
        - ``tasks``: per task, ascending, its ``task_index``, ``task``, ``episodes``, ``frames``,
          ``shortest``, ``median``, ``longest``, ``distinct_lengths``, ``labels`` (episodes by
          label) and ``percentiles`` (None: sparse);
        - ``labels``: the same over all episodes, and ``unresolved_episodes``: those of no task;
        - ``file``: ``path``, ``state`` (``"written"``, ``"extended"``, ``"kept"``, ``"replaced"``,
          ``"unwritable"``, or ``"absent"`` where there is no task), ``dry_run``,
          ``episodes_before``: from how many the file was made that stood there (None: there was
          none, or it is unreadable), and ``stale``: whether it is kept though these are too few.

    Raises
    ------
    PercentileFileError
        The file is torn or malformed, and `recompute` is not set.
    """
    from vlaprep.ranks import Ranks
    from vlaprep.speed import (
        SPEED_PERCENTILES_PATH,
        bucket_episode_lengths,
        load_or_compute_speed_percentiles,
    )

    table = dataset.episodes
    path = dataset.root / SPEED_PERCENTILES_PATH
    outlook = _outlook(path, table, recompute)
    stamp = _stamp(path)
    ids, tasks = table.episode_index.tolist(), table.task_index.tolist()
    percentiles = load_or_compute_speed_percentiles(
        dataset.root,
        dict(zip(ids, table.length.tolist(), strict=True)),
        {episode: task for episode, task in zip(ids, tasks, strict=True) if task >= 0},
        {},
        # One command is one process, also where srun started it with a rank other than 0.
        accelerator=Ranks(is_main=not dry_run),
        recompute=recompute,
        task_texts=dataset.tasks,
    )
    changes = outlook["state"] in ("written", "extended", "replaced")
    if changes and not dry_run and _stamp(path) == stamp:
        outlook["state"] = "unwritable"
    labels = bucket_episode_lengths(table.length, table.task_index, percentiles, ties=ties)
    known = table.task_index >= 0
    known_labels = labels[known]
    return {
        "episodes": len(table),
        "frames": int(table.length.sum()),
        "fps": dataset.info.fps,
        "ties": ties,
        "tasks": [
            {
                "task_index": task,
                "task": dataset.tasks.get(task, ""),
                **summary,
                "labels": _histogram(known_labels[at]),
                "percentiles": percentiles[task],
            }
            for task, summary, at in by_task(table.task_index[known], table.length[known])
        ],
        "labels": _histogram(labels),
        "unresolved_episodes": int((~known).sum()),
        "file": {"path": str(path), "dry_run": dry_run, **outlook},
    }


def run_fit(*, cache_dir: str | PathLike[str], **options: Any) -> dict[str, Any]:
    """Fit a tokenizer, or find it fitted already.

    Parameters
    ----------
    cache_dir : path-like
        Where fitted tokenizers live.
    **options
        All other arguments of `vlaprep.fit_fast_tokenizer`.

    Returns
    -------
    dict
        ``folder``, ``cached`` (whether it was there before this call), ``over_budget`` (share of
        the chunks of the trial that take more than `max_tokens`; None without either), and what
        ``fit_report.json`` in that folder says.
    """
    from vlaprep.fit import fit_fast_tokenizer
    from vlaprep.fit_report import REPORT_NAME, read_report

    there = {_stamp(path) for path in Path(cache_dir).expanduser().glob(f"*/{REPORT_NAME}")}
    folder = Path(fit_fast_tokenizer(cache_dir=cache_dir, **options))
    cached = _stamp(folder / REPORT_NAME) in there
    report = read_report(folder)
    over_budget = _over(options.get("max_tokens"), report["validation"])
    return {"folder": str(folder), "cached": cached, "over_budget": over_budget, **report}


def _over(budget: int | None, trial: Mapping[str, Any] | None) -> float | None:
    """Share of chunks that take more tokens than a budget."""
    if budget is None or trial is None:
        return None
    lengths = trial["tokens"]["chunks_by_length"].items()
    over: int = sum(count for length, count in lengths if int(length) > budget)
    return over / int(trial["chunks"])


def _outlook(path: Path, table: EpisodeTable, recompute: bool) -> dict[str, Any]:
    """Foresee what a load does to the percentile file, and compare that file with this dataset."""
    from vlaprep.speed_file import read_rows

    resolved = table.task_index[table.task_index >= 0]
    tasks = set(resolved.tolist())
    try:
        rows = read_rows(path)
    except PercentileFileError:
        if not recompute:
            raise
        return {"state": "replaced" if tasks else "kept", "episodes_before": None, "stale": False}
    if rows is None:
        return {"state": "written" if tasks else "absent", "episodes_before": None, "stale": False}
    episodes = sum(row.n_episodes for row in rows)
    missing = tasks - {row.task_index for row in rows}
    state = "replaced" if recompute and tasks else "extended" if missing else "kept"
    stale = state == "kept" and episodes < len(resolved)
    return {"state": state, "episodes_before": episodes, "stale": stale}


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """Tell a file from the one that replaces it: ours are never written in place."""
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns


def by_task(
    task_index: NDArray[np.int64], length: NDArray[np.int64]
) -> Iterator[tuple[int, dict[str, Any], NDArray[np.int64]]]:
    """Sum up the episodes of each task; no pass over all episodes for each task.

    Parameters
    ----------
    task_index, length : numpy.ndarray
        int64, shape (E,): task and frames of each episode.

    Yields
    ------
    int, dict, numpy.ndarray
        Per task, ascending: its index; ``episodes``, ``frames``, ``shortest``, ``median``,
        ``longest`` and ``distinct_lengths``; the positions of its episodes, shortest first.
    """
    order = np.lexsort((length, task_index))
    task, frames = task_index[order], length[order]
    tasks, first, count = np.unique(task, return_index=True, return_counts=True)
    if not len(tasks):
        return
    longer = np.ones(len(task), dtype=np.int64)
    longer[1:] = (np.diff(task) != 0) | (np.diff(frames) != 0)
    columns = {
        "episodes": count,
        "frames": np.add.reduceat(frames, first),
        "shortest": frames[first],
        "median": (frames[first + (count - 1) // 2] + frames[first + count // 2]) / 2,
        "longest": frames[first + count - 1],
        "distinct_lengths": np.add.reduceat(longer, first),
    }
    rows = zip(*(column.tolist() for column in columns.values()), strict=True)
    for index, row, at in zip(tasks.tolist(), rows, np.split(order, first[1:]), strict=True):
        yield index, dict(zip(columns, row, strict=True)), at


def _histogram(labels: NDArray[np.int64]) -> dict[str, int]:
    """Count episodes by label; every label is there."""
    from vlaprep.speed_buckets import SPEED_BUCKET_LABELS

    counts = Counter(labels.tolist())
    return {str(label): counts[label] for label in SPEED_BUCKET_LABELS}
