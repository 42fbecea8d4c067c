"""Boundaries and labels of episode lengths: the arithmetic of speed labels, no files.

The public names are offered by `vlaprep.speed`.
"""

from __future__ import annotations

import math
import operator
import sys
from bisect import bisect_left, bisect_right
from itertools import pairwise
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from vlaprep._native import bucketize, integers_of_lists, percentiles_by_task

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

SPEED_PERCENTILES: tuple[int, ...] = (5, 15, 25, 35, 45, 55, 65, 75, 85, 95)
"""Which percentiles of a task's episode lengths are its boundaries."""

SPEED_BUCKET_LABELS: tuple[int, ...] = (0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100)
"""Label ``i`` is for lengths from boundary ``i - 1`` up to below boundary ``i``."""

MIN_EPISODES_FOR_PERCENTILES = 10
"""How many *distinct* lengths a task needs to be ranked."""

SPARSE_TASK_BUCKET = 50
"""The label of every episode whose task is not ranked."""

Ties = Literal["right", "mid"]

_FLOAT_MAX = sys.float_info.max


def compute_task_percentiles(
    episode_lengths_per_task: Mapping[int, Sequence[int]],
) -> dict[int, list[float] | None]:
    """Compute the ten boundaries of each task.

    Parameters
    ----------
    episode_lengths_per_task : mapping of int to sequence of int
        ``{task_index: [length in frames, …]}``.

    Returns
    -------
    dict
        ``{task_index: [p5, p15, …, p95]}`` in the order given; None for a task with fewer than
        `MIN_EPISODES_FOR_PERCENTILES` distinct lengths.

    Raises
    ------
    TypeError
        A length is not an integer.
    ValueError
        A length is negative.

    Notes
    -----
    NumPy's linear percentiles, to the last bit: with sorted lengths s, ``v = (n - 1) * q / 100``,
    ``j = floor(v)``, ``t = v - j`` and ``d = s[j + 1] - s[j]``, the boundary is ``s[j] + d * t``,
    or ``s[j + 1] - d * (1 - t)`` for t ≥ 0.5. Even at whole ranks this can miss s[j] by a rounding
    error: copying the order of the operations is what makes labels equal.

    Examples
    --------
    >>> compute_task_percentiles({0: range(100, 201), 1: [7, 8]})[0][:3]
    [105.0, 115.0, 125.0]
    >>> compute_task_percentiles({0: range(100, 201), 1: [7, 8]})[1] is None
    True
    """
    out: dict[int, list[float] | None] = dict.fromkeys(episode_lengths_per_task)
    lengths, counts = _end_to_end(episode_lengths_per_task)
    keys = list(out)
    group = np.repeat(np.arange(len(keys), dtype=np.int64), counts)
    positions, boundaries = percentiles_by_task(lengths, group)
    for position, row in zip(positions.tolist(), as_lists(boundaries), strict=True):
        out[keys[position]] = row
    return out


def _end_to_end(
    lengths_of: Mapping[int, Sequence[int]],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the lengths of all tasks, task after task, and how many each task has."""
    found = integers_of_lists(list(lengths_of.values()))
    if found is not None and found[0].min(initial=0) >= 0:
        return found
    # Other sequences than lists, or something that is wrong with one.
    arrays = [as_lengths(x, f"episode lengths of task {task}") for task, x in lengths_of.items()]
    counts = np.array([len(array) for array in arrays], dtype=np.int64)
    return np.concatenate(arrays), counts


def bucket_episode_length(
    length: int, percentiles: Sequence[float] | None, *, ties: Ties = "right"
) -> int:
    """Label one episode by its length.

    Parameters
    ----------
    length : int
        In frames.
    percentiles : sequence of float, or None
        The ten boundaries of the episode's task; None gives `SPARSE_TASK_BUCKET`.
    ties : {"right", "mid"}
        What a length equal to boundaries gets. ``"right"``, as OpenTau: the label above the highest
        of them. Then most of a task can share an extreme label: of 1,000 episodes 910 as long as
        the shortest all get 90. ``"mid"``: the middle one of its possible labels, the upper of
        two (here 50). Where boundaries differ from each other, both say the same.

    Returns
    -------
    int
        One of `SPEED_BUCKET_LABELS`.

    Raises
    ------
    ValueError
        ``percentiles`` is not a list of 10 non-decreasing finite numbers.

    Examples
    --------
    >>> boundaries = [50.0, 100.0, 150.0, 200.0, 250.0, 300.0, 350.0, 400.0, 450.0, 500.0]
    >>> bucket_episode_length(49, boundaries), bucket_episode_length(150, boundaries)
    (0, 30)
    >>> bucket_episode_length(7, [7.0] * 10), bucket_episode_length(7, [7.0] * 10, ties="mid")
    (100, 50)
    """
    _check_ties(ties)
    if percentiles is None:
        return SPARSE_TASK_BUCKET
    boundaries = list(percentiles)
    if fault := boundaries_fault(boundaries):
        raise ValueError(f"percentiles {fault}; pass 10 non-decreasing finite numbers, or None")
    right = bisect_right(boundaries, length)
    if ties == "right":
        return SPEED_BUCKET_LABELS[right]
    return SPEED_BUCKET_LABELS[(bisect_left(boundaries, length) + right + 1) // 2]


def bucket_episode_lengths(
    lengths: ArrayLike,
    task_index: ArrayLike,
    percentiles_by_task: Mapping[int, Sequence[float] | None],
    *,
    ties: Ties = "right",
) -> NDArray[np.int64]:
    """Label many episodes at once: `bucket_episode_length` for arrays.

    Parameters
    ----------
    lengths : array_like of int, shape (E,)
        In frames.
    task_index : array_like of int, shape (E,)
        The task of each episode. One that ``percentiles_by_task`` lacks gives `SPARSE_TASK_BUCKET`.
    percentiles_by_task : mapping
        ``{task_index: ten boundaries or None}``, as `compute_task_percentiles` and
        `load_or_compute_speed_percentiles` return it.
    ties : {"right", "mid"}
        See `bucket_episode_length`.

    Returns
    -------
    numpy.ndarray
        int64, shape (E,), each one of `SPEED_BUCKET_LABELS`.

    Raises
    ------
    TypeError
        Lengths or tasks are not integers.
    ValueError
        A length is negative, the shapes differ, or a task's boundaries are not 10 non-decreasing
        finite numbers.

    Examples
    --------
    >>> bucket_episode_lengths([5, 7, 7], [0, 0, 1], {0: [6.0] * 10})
    array([  0, 100,  50])
    """
    frames = as_lengths(lengths, "lengths")
    tasks = as_int64(task_index, "task_index")
    if frames.shape != tasks.shape:
        raise ValueError(
            f"lengths and task_index differ in shape, {frames.shape} and {tasks.shape}; "
            "pass one of each per episode"
        )
    known = sorted(percentiles_by_task)
    rows = np.full((len(known), len(SPEED_PERCENTILES)), np.nan)
    for row, task in zip(rows, known, strict=True):
        boundaries = percentiles_by_task[task]
        if boundaries is None:
            continue
        if fault := boundaries_fault(list(boundaries)):
            raise ValueError(
                f"percentiles of task {task} {fault}; "
                "pass 10 non-decreasing finite numbers, or None"
            )
        row[:] = boundaries
    return labels_of(frames, tasks, np.array(known, dtype=np.int64), rows, ties)


def boundaries_fault(boundaries: Sequence[Any]) -> str:
    """Say what is wrong with a task's boundaries, as a predicate; "" when nothing is."""
    if _are_fine(boundaries):
        return ""
    if len(boundaries) != len(SPEED_PERCENTILES):
        return f"have {len(boundaries)} values instead of {len(SPEED_PERCENTILES)}"
    for value in boundaries:
        if not _is_finite_number(value):
            return f"hold {value!r}, which is no finite number"
    for low, high in pairwise(boundaries):
        if low > high:
            return f"decrease from {low!r} to {high!r}"
    return ""


def _are_fine(boundaries: Sequence[Any]) -> bool:
    """Whether these are 10 non-decreasing finite plain numbers; quick, as it runs per episode."""
    return (
        len(boundaries) == len(SPEED_PERCENTILES)
        and {float, int}.issuperset(map(type, boundaries))
        and boundaries[0] >= -_FLOAT_MAX
        and boundaries[-1] <= _FLOAT_MAX
        and all(map(operator.le, boundaries, boundaries[1:]))  # False at any NaN
    )


def _is_finite_number(value: object) -> bool:
    try:
        return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # an integer too long for a float
        return False


def labels_of(
    lengths: NDArray[np.int64],
    task_index: NDArray[np.int64],
    tasks: NDArray[np.int64],
    boundaries: NDArray[np.float64],
    ties: Ties,
) -> NDArray[np.int64]:
    """Label lengths (E,) by the boundaries (T, 10) of their tasks, NaN rows being sparse tasks."""
    _check_ties(ties)
    right = bucketize(lengths, task_index, tasks, boundaries)
    if ties == "right":
        return right
    # A length lies at or above the next float after a boundary exactly when it lies above the
    # boundary, so this is the same search from the left side. Labels are ten times positions.
    left = bucketize(lengths, task_index, tasks, np.nextafter(boundaries, np.inf))
    return (left + right + 10) // 20 * 10


def _check_ties(ties: str) -> None:
    if ties not in ("right", "mid"):
        raise ValueError(f"ties is {ties!r}; it can be 'right' or 'mid'")


def as_lists(boundaries: NDArray[np.float64]) -> list[list[float] | None]:
    """Return boundaries (T, 10) as lists of Python floats; the NaN row of a sparse task is None."""
    return [None if math.isnan(row[0]) else row for row in boundaries.tolist()]


def as_lengths(values: ArrayLike, what: str) -> NDArray[np.int64]:
    """Return lengths as int64 (E,), or say what is wrong with them; ``what`` begins the message."""
    lengths = as_int64(values, what)
    if lengths.size and lengths.min() < 0:
        raise ValueError(f"{what} hold {lengths.min()}; a length is a count of frames, 0 or more")
    return lengths


def as_int64(values: ArrayLike, what: str) -> NDArray[np.int64]:
    """Return integers as int64 (E,); nothing that is no integer is rounded or cut."""
    if isinstance(values, list) and (found := integers_of_lists([values])) is not None:
        return found[0]
    array = np.asarray(values)
    if array.ndim != 1:
        raise ValueError(f"{what} must be one-dimensional, not of shape {array.shape}")
    if array.size == 0:
        return np.empty(0, dtype=np.int64)
    if array.dtype.kind not in "iu" or array.max() > np.iinfo(np.int64).max:
        raise TypeError(f"{what} must be integers of at most 64 bits, not {array.dtype}")
    return np.ascontiguousarray(array, dtype=np.int64)
