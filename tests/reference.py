"""The oracle: what the references compute, in plain NumPy and SciPy, one row at a time.

Pure functions, written from the description of the references and not from vlaprep. Slow and
obvious on purpose: when a test disagrees, this page is what one reads to find out who is right.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import scipy.fft

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

PERCENTS = (5, 15, 25, 35, 45, 55, 65, 75, 85, 95)
LABELS = (0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100)
SPARSE = 50
"""Label of an episode whose task has no ranking."""

Array = npt.NDArray[Any]


def percentiles(lengths: Sequence[int]) -> list[float] | None:
    """Ten boundaries of one task, or None with fewer than ten distinct lengths."""
    if len(set(lengths)) < len(PERCENTS):
        return None
    return [float(value) for value in np.percentile(list(lengths), PERCENTS)]


def percentiles_of_tasks(lengths: Iterable[int], tasks: Iterable[int]) -> dict[int, Any]:
    """`percentiles` of every task that occurs."""
    groups: dict[int, list[int]] = {}
    for length, task in zip(lengths, tasks, strict=True):
        groups.setdefault(int(task), []).append(int(length))
    return {task: percentiles(groups[task]) for task in sorted(groups)}


def bucket(length: int, boundaries: Sequence[float] | None) -> int:
    """Label of one length; on a tie with a boundary it goes up."""
    if boundaries is None:
        return SPARSE
    return LABELS[int(np.searchsorted(boundaries, length, side="right"))]


def quantile24(x: Array, q: float) -> Array:
    """``np.quantile(x, q, axis=0)`` by the rule of NumPy 2.4, in the dtype of `x`.

    Index and fraction are float64, the lerp between neighbours runs in the dtype of `x`, from the
    right-hand neighbour where the fraction is at least a half.
    """
    n, kind = len(x), x.dtype.type
    ordered = np.sort(x, axis=0)  # NaN sorts last
    at = q * (n - 1)
    if at >= n - 1:  # NumPy counts both neighbours from the end here
        low = high = -1
    else:
        low, high = int(np.floor(at)), int(np.floor(at)) + 1
    fraction = at - low
    with np.errstate(invalid="ignore", over="ignore"):
        a, b = ordered[low], ordered[high]
        step = b - a
        out = b - step * kind(1 - fraction) if fraction >= 0.5 else a + step * kind(fraction)
    return np.where(np.isnan(ordered[-1]), ordered[-1], out).astype(x.dtype)


def draws(
    episode_index: Sequence[int],
    length: Sequence[int],
    *,
    chunk_size: int,
    n_samples: int,
    seed: int,
) -> list[tuple[int, int]]:
    """(episode, start) in the order of the reference's sequential calls; may fall short."""
    rng = np.random.default_rng(seed)
    by_id = dict(zip(map(int, episode_index), map(int, length), strict=True))
    per_episode = max(1, n_samples // len(by_id))
    picks: list[tuple[int, int]] = []
    for episode in rng.permutation(sorted(by_id)):
        room = by_id[int(episode)] - chunk_size + 1
        if room < 1:
            continue
        starts = rng.integers(0, room, size=per_episode)
        picks += [(int(episode), int(start)) for start in starts]
        if len(picks) >= n_samples:
            break
    return picks[:n_samples]


def draws_by_turns(
    episodes: Iterable[tuple[int, int, int]],
    *,
    chunk_size: int,
    n_draws: int,
    seed: int,
    per: str,
    replace: bool,
    tail: str,
    per_visit: int = 1,
) -> list[tuple[int, int]]:
    """(episode, start) of draws from groups that take turns, by lists of windows and plain loops.

    `episodes` are (id, length, task). Where a window is not drawn twice, the first of those left in
    its group takes its place.
    """
    rng = np.random.default_rng(seed)
    groups: dict[int, list[tuple[int, int]]] = {}
    for episode, length, task in sorted(episodes):
        key = {"episode": episode, "frame": 0, "task": task}[per]
        end = length if tail == "clamp" else length - chunk_size + 1
        groups.setdefault(key, []).extend((episode, start) for start in range(end))
    ascending = [groups[key] for key in sorted(groups)]
    order = [ascending[i] for i in rng.permutation(len(ascending))]
    dealt = [0] * len(order)
    picks: list[tuple[int, int]] = []
    while len(picks) < n_draws and any(k < len(g) for k, g in zip(dealt, order, strict=True)):
        for i, windows in enumerate(order):
            times = per_visit if replace and windows else 0
            picks += [windows[rng.integers(0, len(windows))] for _ in range(times)]
            if not replace and dealt[i] < len(windows):
                k = dealt[i]
                j = rng.integers(k, len(windows))
                picks.append(windows[j])
                windows[j] = windows[k]
                dealt[i] += 1
    return picks[:n_draws]


def dct(chunks: Array) -> Array:
    """Orthonormal DCT-II over time of ``(N, H, D)`` chunks, in float64."""
    return np.asarray(scipy.fft.dct(np.asarray(chunks, np.float64), axis=1, norm="ortho"))


def dct_quantize(chunks: Array, scale: float) -> tuple[Array, Array]:
    """Symbols ``(N, H, D)``, and where the exact value is too near a half to be told."""
    scaled = dct(chunks) * scale
    near_half = np.abs(scaled - np.floor(scaled) - 0.5) < 1e-9
    return np.around(scaled).astype(np.int64), near_half


def windows(rows: Array, horizon: int) -> Array:
    """Every window of one episode (R, D), one row apart: (R - H + 1, H, D)."""
    if len(rows) < horizon:
        return np.zeros((0, horizon, rows.shape[1]), rows.dtype)
    return np.lib.stride_tricks.sliding_window_view(rows, horizon, axis=0).transpose(0, 2, 1)


def pi052_normalize(chunks: Array) -> tuple[Array, Array, Array]:
    """``(normalised, q01, q99)`` of float32 ``(N, H, D)`` chunks by their own quantiles."""
    flat = chunks.reshape(-1, chunks.shape[-1])
    q01, q99 = quantile24(flat, 0.01), quantile24(flat, 0.99)
    span = np.where((q99 - q01) > 1e-6, q99 - q01, np.ones_like(q01))
    scaled = np.clip((chunks - q01) / span * 2.0 - 1.0, -1.0, 1.0)
    return scaled.astype(np.float32), q01, q99


def normalize(convention: str, mode: str, x: Array, lo: Array, hi: Array) -> Array:
    """What a trainer's own lines give for float32 actions (..., D), statistics (D,) as it has them.

    ``pi052`` and ``lerobot`` hold statistics in float32, the others in float64.
    """
    if mode == "IDENTITY":
        return x
    if convention == "pi052":
        span = np.where((hi - lo) > np.float32(1e-6), hi - lo, np.ones_like(lo))
        return np.clip((x - lo) / span * 2.0 - 1.0, -1.0, 1.0).astype(np.float32)
    if convention == "lerobot":
        eps = np.float32(1e-8)
        if mode == "MEAN_STD":
            return (x - lo) / (hi + eps)
        denom = hi - lo
        denom = np.where(denom == 0, eps, denom)
        return 2.0 * (x - lo) / denom - 1.0
    if convention == "lerobot-train-tokenizer":
        if mode == "MEAN_STD":
            return (x - lo) / np.maximum(hi, 1e-8)
        if mode == "MIN_MAX":
            return 2.0 * (x - lo) / np.maximum(hi - lo, 1e-8) - 1.0
        return 2.0 * (np.clip(x, lo, hi) - lo) / np.maximum(hi - lo, 1e-8) - 1.0
    if convention == "openpi":
        if mode == "MEAN_STD":
            return (x - lo) / (hi + 1e-6)
        return (x - lo) / (hi - lo + 1e-6) * 2.0 - 1.0
    if convention == "opentau":
        wide = x.astype(np.float64)
        d = np.where(np.abs(hi - lo) < 1e-6, 1.0, hi - lo)
        y = ((wide - lo) + 0.5 * (d - (hi - lo))) / (d + 1e-6) * 2.0 - 1.0
        return np.nan_to_num(y, nan=0.0, posinf=0.0, neginf=0.0).astype(np.float32)
    raise AssertionError(convention)


def episodes_of_rows(
    episode_index: Array, frame_index: Array, task_index: Array
) -> dict[int, dict[str, Any]]:
    """Rows of each episode in frame order, its length, and the task of its first row."""
    found: dict[int, dict[str, Any]] = {}
    for episode in np.unique(episode_index):
        rows = np.flatnonzero(episode_index == episode)
        rows = rows[np.argsort(frame_index[rows], kind="stable")]
        task = int(task_index[rows[0]])
        found[int(episode)] = {"rows": rows, "length": len(rows), "task_index": task}
    return found
