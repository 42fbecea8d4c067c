"""What a dataset holds, in plain JSON values: the work behind ``vlaprep inspect``.

`describe` needs metadata and footers, which are read already once a dataset is open; `statistics`
reads the pages of its column.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from vlaprep.jobs import by_task

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from vlaprep.dataset import Dataset

__all__ = ["DEFAULT_COLUMNS", "QUANTILES", "default_columns", "describe", "statistics"]

DEFAULT_COLUMNS = ("action", "observation.state")
"""Columns whose statistics are given unasked."""
QUANTILES = {"q01": 0.01, "q10": 0.1, "q50": 0.5, "q90": 0.9, "q99": 0.99}
"""Quantiles of each dim, by the name they go under."""
_LENGTHS = {"min": 0, "p5": 5, "median": 50, "p95": 95, "max": 100}
_MOST_BINS = 15


def describe(dataset: Dataset) -> dict[str, Any]:
    """Tell what metadata and footers say, without reading a data page.

    Parameters
    ----------
    dataset : vlaprep.dataset.Dataset
        What to look at; of a selection of episodes, only these are counted.

    Returns
    -------
    dict
        - ``dataset`` (id or path), ``revision``, ``root``;
        - ``codebase_version`` ("" where it is not written) and ``layout``: ``"v2"``, a file an
          episode, or ``"v3"``;
        - ``fps``, ``files`` (``count`` and ``bytes`` of all data files, whatever is selected),
          ``episodes``, ``frames``, ``duration_s``, and ``counters``: what ``meta/info.json`` says;
        - ``columns``: per column its ``name``, ``dtype``, ``shape``, ``names`` of the dims, and
          ``in_files``: whether the data files hold it;
        - ``tasks``: per task, ascending, its ``task_index``, ``task``, ``episodes``, ``frames``,
          ``shortest``, ``median``, ``longest``, ``distinct_lengths``; tasks without an episode too;
        - ``unresolved_episodes``: those of no task;
        - ``lengths``: ``min``, ``p5``, ``median``, ``p95``, ``max``, ``mean``, in frames, and
          ``histogram``: ``edges`` (the upper one is not included) and ``counts``;
        - ``findings``: ``kind``, ``message``, and whether it is a ``warning``.

    Examples
    --------
    >>> from vlaprep import open_dataset
    >>> about = describe(open_dataset("tests/golden/lerobot_v30"))
    >>> about["episodes"], about["frames"], about["lengths"]["median"]
    (48, 3638, 66.5)
    """
    info, table = dataset.info, dataset.episodes
    frames = int(table.length.sum())
    timed = info.fps is not None and math.isfinite(info.fps) and info.fps > 0
    return {
        "dataset": dataset.repo_id or str(dataset.root),
        "revision": dataset.revision,
        "root": str(dataset.root),
        "codebase_version": info.codebase_version,
        "layout": _layout(dataset),
        "fps": _finite(info.fps),
        "files": {
            "count": len(dataset.files),
            "bytes": sum((dataset.root / name).stat().st_size for name in dataset.files),
        },
        "episodes": len(table),
        "frames": frames,
        "duration_s": frames / info.fps if timed and info.fps else None,
        "counters": {"total_episodes": info.total_episodes, "total_frames": info.total_frames},
        "columns": list(_columns(dataset)),
        "tasks": list(_tasks(dataset)),
        "unresolved_episodes": int((table.task_index < 0).sum()),
        "lengths": _lengths(table.length),
        "findings": [
            {"kind": kind, "message": message, "warning": warning}
            for kind, message, warning in dataset._reader.findings
        ],
    }


def default_columns(dataset: Dataset) -> list[str]:
    """Name the columns whose statistics are given unasked: those of `DEFAULT_COLUMNS` it has."""
    return [name for name in DEFAULT_COLUMNS if name in dataset.columns]


def statistics(dataset: Dataset, column: str) -> dict[str, Any]:
    """Read one numeric column whole, and tell how its values are spread.

    Parameters
    ----------
    dataset : vlaprep.dataset.Dataset
        Where it lies; of a selection of episodes, only these are read.
    column : str
        A numeric column.

    Returns
    -------
    dict
        ``column``, ``rows`` and ``dims``: per dim its ``dim``, ``name`` (None where it has none),
        ``min``, the quantiles of `QUANTILES`, ``max``, ``mean``, ``std``, and ``marks``, a list
        of ``"constant"``, ``"nan"``, ``"infinite"``. JSON has neither NaN nor infinity: these
        are None, and the mark says which.

    Raises
    ------
    DatasetFormatError
        If a file lacks the column, cannot be read, or has rows that are no vectors of one width.
    """
    stats = dataset.stats(column, q=tuple(QUANTILES.values()))[column]
    written, dims = dataset.feature_names(column), len(stats.min)
    names = written if written and len(written) == dims else [None] * dims
    numbers = {
        "min": stats.min,
        **dict(zip(QUANTILES, stats.quantiles, strict=True)),
        "max": stats.max,
        "mean": stats.mean,
        "std": stats.std,
    }
    rows = zip(*(values.tolist() for values in numbers.values()), strict=True)
    return {
        "column": column,
        "rows": stats.count,
        "dims": [
            {
                "dim": dim,
                "name": name,
                **{key: _finite(value) for key, value in zip(numbers, row, strict=True)},
                "marks": list(_marks(float(stats.min[dim]), float(stats.max[dim]))),
            }
            for dim, (name, row) in enumerate(zip(names, rows, strict=True))
        ],
    }


def _marks(low: float, high: float) -> Iterator[str]:
    """Say what is odd about a dim. One NaN among its values makes both of these NaN."""
    if math.isnan(low) or math.isnan(high):
        yield "nan"
        return
    if low == high:
        yield "constant"
    if math.isinf(low) or math.isinf(high):
        yield "infinite"


def _layout(dataset: Dataset) -> str:
    version = dataset.info.codebase_version
    if not version:  # no meta/info.json: the reader told the layout from the names, too
        return "v2" if dataset.files[0].rpartition("/")[2].startswith("episode_") else "v3"
    return version.partition(".")[0]


def _columns(dataset: Dataset) -> Iterator[dict[str, Any]]:
    """Name the columns in the order of the files, then those that lie elsewhere, as videos do."""
    features, stored = dataset.info.features, dataset.columns
    for name in dict.fromkeys([*stored, *features]):
        feature = features.get(name)
        yield {
            "name": name,
            "dtype": feature.dtype if feature else "",
            "shape": list(feature.shape) if feature else None,
            "names": feature.names if feature else None,
            "in_files": name in stored,
        }


def _tasks(dataset: Dataset) -> Iterator[dict[str, Any]]:
    table, texts = dataset.episodes, dataset.tasks
    known = table.task_index >= 0
    summaries = {
        task: summary for task, summary, _ in by_task(table.task_index[known], table.length[known])
    }
    nothing = {"episodes": 0, "frames": 0, "shortest": None, "median": None, "longest": None}
    for task in sorted(summaries.keys() | texts.keys()):
        summary = summaries.get(task, nothing | {"distinct_lengths": 0})
        yield {"task_index": task, "task": texts.get(task, ""), **summary}


def _lengths(length: NDArray[np.int64]) -> dict[str, Any]:
    ranks = np.percentile(length, list(_LENGTHS.values())).tolist()
    low, high = int(length.min()), int(length.max())
    width = _round_width(high - low + 1)
    first = low // width * width
    counts = np.bincount((length - first) // width).tolist()
    return {
        **dict(zip(_LENGTHS, ranks, strict=True)),
        "min": low,
        "max": high,
        "mean": float(length.mean()),
        "histogram": {
            "edges": [first + width * i for i in range(len(counts) + 1)],
            "counts": counts,
        },
    }


def _round_width(span: int) -> int:
    """Give the smallest of 1, 2, 5, 10, 20, … of which few cover a span."""
    scale = 1
    while True:
        for digit in (1, 2, 5):
            if digit * scale * _MOST_BINS >= span:
                return digit * scale
        scale *= 10


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
